"""A variable of a build, with the origin of its value and the reason for it."""

from enum import StrEnum

from stoker.model.value import Value


class OriginKind(StrEnum):
    """Where a value came from, weakest first: a later one overrides an earlier one."""

    DEFAULT = "default"
    RECIPE = "recipe"
    TREE = "read at"
    MACHINE = "this machine"
    FILE = "file"
    ENVIRONMENT = "environment"
    VARIANT = "variant"
    COMMAND_LINE = "command line"

    @property
    def rank(self) -> int:
        return list(OriginKind).index(self)


class Origin(Value, frozen=True, kw_only=True):
    """``where`` is the exact place: ``stoker.toml:12``, or the name of a variable or variant."""

    kind: OriginKind
    where: str = ""

    def __str__(self) -> str:
        if self.kind is OriginKind.FILE:
            return self.where
        return f"{self.kind} {self.where}".strip()


class SettingPlace(StrEnum):
    ENVIRONMENT = "environment"
    CMAKE = "cmake"


class Setting(Value, frozen=True, kw_only=True):
    """A variable of the build, its origin and the reason for its value."""

    place: SettingPlace
    name: str
    value: str
    origin: Origin
    why: str = ""
    reader: str = ""  # what reads it: "setup.py:74"; empty: nothing is known to


def is_on(value: str) -> bool:
    """Tell whether CMake's if() takes a value for true."""
    false = ("", "0", "OFF", "FALSE", "NO", "N", "IGNORE", "NOTFOUND")
    return value.upper() not in false and not value.upper().endswith("-NOTFOUND")

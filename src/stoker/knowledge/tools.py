"""The programs that a build may use, by role, which ``stoker.machine`` finds; and the names by
which a command of a build is recognised as a compiler, a linker or a wrapper of one.
"""

import re
from functools import cache

from stoker.knowledge import Row, load

DOTTED_NUMBER = r"(\d+(?:\.\d+)+)"


class Program(Row, frozen=True, kw_only=True):
    name: str
    commands: tuple[str, ...] = ()
    variable: str | None = None
    folders: tuple[str, ...] = ()
    version: str = DOTTED_NUMBER
    launcher: bool = False

    @property
    def names(self) -> tuple[str, ...]:
        return self.commands or (self.name,)


class _Table(Row, frozen=True, kw_only=True):
    program: tuple[Program, ...]


@cache
def programs() -> tuple[Program, ...]:
    return load("tools", _Table).program


@cache
def launchers() -> frozenset[str]:
    return frozenset(name for program in programs() if program.launcher for name in program.names)


@cache
def _names() -> dict[str, tuple[str, ...]]:
    return load("compiler_names", dict[str, tuple[str, ...]])


def names(group: str) -> tuple[str, ...]:
    """Return the names of a group of programs, such as ``compilers`` or ``wrappers``."""
    return _names()[group]


@cache
def named(group: str) -> re.Pattern[str]:
    """Match a name of the group with a target's prefix and a version: aarch64-linux-gnu-gcc-13."""
    return re.compile(rf"(?:.*-)?(?:{'|'.join(map(re.escape, names(group)))})(?:-[\d.]+)?")

"""Where temporary files go."""

from enum import StrEnum

from stoker.model.value import Value


class Tmp(StrEnum):
    """What the user wants; the words of ``--tmp``."""

    AUTO = "auto"
    RAM = "ram"
    DISK = "disk"


class Scratch(Value, frozen=True, kw_only=True):
    """``most`` bytes may lie in ``ram``; beyond that, and where there is none, it is ``disk``.

    ``places`` are all that any run may have chosen: what a killed one left there is removed.
    """

    disk: str
    ram: str | None = None
    most: int = 0
    places: tuple[str, ...] = ()

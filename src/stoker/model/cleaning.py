"""What stoker keeps on disk, and what of it can be removed."""

from enum import StrEnum

from stoker.model.value import Value


class Kind(StrEnum):
    BUILDS = "builds"
    RUNS = "runs"
    SOURCES = "sources"
    TOOLCHAINS = "toolchains"
    CONTAINERS = "containers"
    HISTORY = "history"


class CleanupItem(Value, frozen=True, kw_only=True):
    """A folder, or a run in the history. ``busy``: a process uses it now."""

    kind: Kind
    name: str
    path: str
    bytes: int  # on disk
    used: float  # when it last was, in seconds since 1970
    busy: bool = False
    link: str = ""  # where a link of the user leads; it is never followed, nor removed
    lock: str = ""  # the lock file that its users hold


class Cleaning(Value, frozen=True, kw_only=True):
    """What is removed and what is kept."""

    chosen: tuple[CleanupItem, ...]
    spared: tuple[CleanupItem, ...]

    @property
    def bytes(self) -> int:
        return sum(kept.bytes for kept in self.chosen)

"""What slimming does to each library: the values of `stoker slim`."""

from enum import StrEnum
from typing import Annotated

from msgspec import Meta

from stoker.model.value import Value
from stoker.model.variant import GpuTarget

SLIM_MEMBER = "stoker-slim.json"  # in dist-info: a SlimRecord


class SlimLayout(StrEnum):
    """Where kept code goes. The rest of a library keeps its addresses either way."""

    MOVE = "move"  # packed together; what points to it is set anew
    PIN = "pin"  # it stays, and only whole pages between are given up


class ArchSlim(Value, frozen=True, kw_only=True):
    """Entries of one kind and architecture in a library, and their bytes."""

    arch: str  # "sm_90a", "compute_90", "lto_90"
    kept: int = 0
    dropped: int = 0
    kept_bytes: int = 0
    dropped_bytes: int = 0


class LibrarySlim(Value, frozen=True, kw_only=True):
    """One library: sizes in bytes, ``kept``, ``dropped`` and ``stubs`` in entries.

    A stub is among those kept: it runs on none of the targets, but a region may not be empty.
    ``layout`` is None where nothing changes. ``skipped_because``: it could not be slimmed.
    """

    path: str
    before: int
    after: int
    kept: int = 0
    dropped: int = 0
    stubs: int = 0
    layout: SlimLayout | None = None
    skipped_because: str | None = None
    archs: tuple[ArchSlim, ...] = ()


class SlimRecord(Value, frozen=True, kw_only=True):
    """What a slimmed distribution says of it, in a file of its dist-info folder.

    ``private``: it holds changed libraries that their licence does not let anyone pass on.
    """

    targets: tuple[Annotated[str, Meta(pattern=r"^\d{1,3}\.\d[af]?(\+ptx)?$")], ...]
    label: str
    private: bool = False

    @property
    def gpus(self) -> tuple[GpuTarget, ...]:
        words = (target.partition("+") for target in self.targets)
        return tuple(GpuTarget(arch=arch, ptx=bool(ptx)) for arch, _, ptx in words)


class SlimReport(Value, frozen=True, kw_only=True):
    """``before`` and ``after`` in bytes: of a wheel that was written its file, else all libraries.

    ``output`` None: nothing was written.
    """

    before: int
    after: int
    output: str | None = None
    libraries: tuple[LibrarySlim, ...] = ()
    notes: tuple[str, ...] = ()

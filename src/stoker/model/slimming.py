"""The values of `stoker slim` and `stoker package`: what happens to each library, and the records
in a wheel.
"""

from enum import StrEnum
from typing import Annotated

from msgspec import Meta

from stoker.model.value import Value
from stoker.model.variant import GpuTarget

PACKAGE_MEMBER = "stoker-package.json"  # in dist-info: a PackageRecord


class PackageRecord(Value, frozen=True, kw_only=True):
    """``excluded`` are the patterns of --exclude: libraries that the target machine provides."""

    excluded: tuple[str, ...] = ()


SLIM_MEMBER = "stoker-slim.json"  # in dist-info: a SlimRecord


class SlimLayout(StrEnum):
    """Where kept code goes. The rest of a library keeps its addresses in both cases."""

    MOVE = "move"  # regions are packed together, and pointers to them are updated
    PIN = "pin"  # regions stay in place, and only whole pages between them are removed


class ArchSlim(Value, frozen=True, kw_only=True):
    """Entries of one kind and architecture in a library, and their bytes."""

    arch: str  # "sm_90a", "compute_90", "lto_90"
    kept: int = 0
    dropped: int = 0
    kept_bytes: int = 0
    dropped_bytes: int = 0


class LibrarySlim(Value, frozen=True, kw_only=True):
    """One library: sizes in bytes; ``kept``, ``dropped`` and ``stubs`` count entries.

    A stub is a kept entry that runs on none of the targets, because a region may not be empty.
    ``serves`` is False if all that is linked and kept are stubs.
    ``layout`` is None if nothing changes. ``skipped_because`` says why it could not be slimmed.
    """

    path: str
    before_bytes: int
    after_bytes: int
    kept: int = 0
    dropped: int = 0
    stubs: int = 0
    serves: bool = True
    layout: SlimLayout | None = None
    skipped_because: str | None = None
    archs: tuple[ArchSlim, ...] = ()


class SlimRecord(Value, frozen=True, kw_only=True):
    """The record that a slimmed distribution carries in its dist-info folder.

    ``private``: it holds modified libraries whose licence forbids redistributing them.
    ``inherited``: what `stoker verify` finds wrong in the original, as lines by the finding's name.
    """

    targets: tuple[Annotated[str, Meta(pattern=r"^\d{1,3}\.\d[af]?(\+ptx)?$")], ...]
    label: str
    private: bool = False
    inherited: dict[str, tuple[str, ...]] = {}

    @property
    def gpus(self) -> tuple[GpuTarget, ...]:
        words = (target.partition("+") for target in self.targets)
        return tuple(GpuTarget(arch=arch, ptx=bool(ptx)) for arch, _, ptx in words)


class SlimReport(Value, frozen=True, kw_only=True):
    """``before_bytes`` and ``after_bytes`` are of the files of a written wheel, else of all
    libraries.

    ``output`` is None if nothing was written.
    """

    before_bytes: int
    after_bytes: int
    output: str | None = None
    libraries: tuple[LibrarySlim, ...] = ()
    notes: tuple[str, ...] = ()

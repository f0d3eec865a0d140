"""One library: which of its device code is kept, and the bytes that the slimmed file will have."""

from collections.abc import Callable, Iterable, Sequence

from stoker.artifact.fatbin import Entry
from stoker.artifact.reader import Reader
from stoker.model.slim import LibrarySlim, SlimLayout
from stoker.model.value import Value

# Of the entries of one region, the indexes of those that are kept. None: a stub is kept for them.
Choose = Callable[[Sequence[Entry]], Iterable[int]]


class SlimOptions(Value, frozen=True, kw_only=True):
    """``layout`` None: moved where every pointer is understood, else pinned."""

    strip: bool = False
    layout: SlimLayout | None = None


class LibraryPlan(Value, frozen=True, kw_only=True):
    """``changes`` False: the library stays as it is, and ``summary`` says why if it should not."""

    summary: LibrarySlim

    @property
    def changes(self) -> bool:
        return self.summary.layout is not None


def plan_library(reader: Reader, choose: Choose, options: SlimOptions | None = None) -> LibraryPlan:
    """Never raises for what is in the file: what is not understood is left as it is, and said.

    Reads headers at many places, so ``reader`` had better be a file.
    """
    raise NotImplementedError

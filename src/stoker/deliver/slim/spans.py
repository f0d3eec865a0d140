"""Stretches of a file, and how offsets change when some are cut out. Pure."""

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate
from typing import NamedTuple


class Span(NamedTuple):
    start: int
    end: int

    @property
    def size(self) -> int:
        return self.end - self.start

    def overlaps(self, other: "Span") -> bool:
        return self.start < other.end and other.start < self.end

    def covers(self, other: "Span") -> bool:
        return self.start <= other.start and other.end <= self.end


def merged(spans: Iterable[Span]) -> Iterator[Span]:
    """In order, those that touch or overlap as one, empty ones left out."""
    current: Span | None = None
    for span in sorted(span for span in spans if span.size > 0):
        if current and span.start <= current.end:
            current = Span(current.start, max(current.end, span.end))
            continue
        if current:
            yield current
        current = span
    if current:
        yield current


def without(whole: Span, holes: Iterable[Span]) -> Iterator[Span]:
    """What is left of a span, in order."""
    start = whole.start
    for hole in merged(holes):
        if hole.end > start and hole.start < whole.end:
            if hole.start > start:
                yield Span(start, hole.start)
            start = hole.end
    if start < whole.end:
        yield Span(start, whole.end)


class Shift:
    """Where an offset comes to lie when spans, in order and apart, are cut out of a file."""

    def __init__(self, cuts: Sequence[Span]):
        self.cuts = tuple(cuts)
        self._starts = [cut.start for cut in cuts]
        self._removed = [0, *accumulate(cut.size for cut in cuts)]

    def __call__(self, offset: int) -> int:
        """An offset within a cut becomes where the cut was."""
        count = bisect_right(self._starts, offset)
        if count and offset < self.cuts[count - 1].end:
            return self._starts[count - 1] - self._removed[count - 1]
        return offset - self._removed[count]


def up(position: int, step: int) -> int:
    return -(-position // step) * step

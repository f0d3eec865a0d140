"""Ranges of a file, and how offsets change when some are cut out. Pure."""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate
from typing import NamedTuple


class ByteSpan(NamedTuple):
    start: int
    end: int

    @property
    def size(self) -> int:
        return self.end - self.start

    def overlaps(self, other: "ByteSpan") -> bool:
        return self.start < other.end and other.start < self.end

    def covers(self, other: "ByteSpan") -> bool:
        return self.start <= other.start and other.end <= self.end


def merged_spans(spans: Iterable[ByteSpan]) -> Iterator[ByteSpan]:
    """Yield the spans in order, with touching and overlapping ones merged, without empty ones."""
    current: ByteSpan | None = None
    for span in sorted(span for span in spans if span.size > 0):
        if current and span.start <= current.end:
            current = ByteSpan(current.start, max(current.end, span.end))
            continue
        if current:
            yield current
        current = span
    if current:
        yield current


class Spans:
    """Merged spans that are created once and queried often."""

    def __init__(self, spans: Iterable[ByteSpan]):
        self._spans = tuple(merged_spans(spans))
        self._starts = [span.start for span in self._spans]

    def overlap(self, span: ByteSpan) -> bool:
        index = bisect_left(self._starts, span.end) - 1
        return index >= 0 and self._spans[index].overlaps(span)

    def left_of(self, whole: ByteSpan) -> Iterator[ByteSpan]:
        """Yield the parts of a span that are outside of these spans, in order."""
        start = whole.start
        for index in range(max(0, bisect_right(self._starts, start) - 1), len(self._spans)):
            hole = self._spans[index]
            if hole.start >= whole.end:
                break
            if hole.start > start:
                yield ByteSpan(start, hole.start)
            start = max(start, hole.end)
        if start < whole.end:
            yield ByteSpan(start, whole.end)


def spans_without(whole: ByteSpan, holes: Iterable[ByteSpan]) -> Iterator[ByteSpan]:
    """Yield the parts of a span that are outside of the holes, in order."""
    return Spans(holes).left_of(whole)


class Shift:
    """Maps offsets of a file to offsets after ordered, disjoint spans are cut out of it."""

    def __init__(self, cuts: Sequence[ByteSpan]):
        self.cuts = tuple(cuts)
        self._starts = [cut.start for cut in cuts]
        self._removed = [0, *accumulate(cut.size for cut in cuts)]

    def __call__(self, offset: int) -> int:
        """Return the new offset; an offset inside a cut becomes the place of the cut."""
        count = bisect_right(self._starts, offset)
        if count and offset < self.cuts[count - 1].end:
            return self._starts[count - 1] - self._removed[count - 1]
        return offset - self._removed[count]

"""Ranges of a file: merged, searched, subtracted from each other."""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from stoker.wheel.elf.elf import Section, Segment


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


def span_of(part: Section | Segment) -> ByteSpan:
    """Return the bytes of a section or segment in the file."""
    return ByteSpan(part.offset, part.offset + part.file_size)

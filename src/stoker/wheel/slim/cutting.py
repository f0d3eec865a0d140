"""Cuts unused ranges out of an ELF file: new offsets, program headers and section headers.

Cuts are whole pages, so that everything else keeps its address and can be mapped as before. A
segment is split at a cut; the piece before the cut fills it with zeros in memory, so that a read
there finds no code instead of crashing. More program headers are needed then: they stay in place if
there is space, else they move to the end, into a segment of their own.

Stripping finds ranges that nothing uses: symbol tables for debuggers, and space left by editors.
patchelf moves growing tables to the end of a file; the old ones stay in it, loaded and unused.
"""

from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import accumulate, pairwise
from typing import NamedTuple

from stoker.wheel.elf import elf
from stoker.wheel.elf.edit import (
    FILE_HEADER_SIZE,
    SECTION_SIZE,
    SEGMENT_SIZE,
    Overwritten,
    loaded_end,
    program_headers,
    section_headers,
    with_tail,
)
from stoker.wheel.elf.elf import Elf, Section, Segment, up
from stoker.wheel.slim.spans import ByteSpan, Spans, merged_spans, span_of

_MOST_CUTS = 512  # each is one more mapping; the largest come first


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


class CutFile(NamedTuple):
    """What is left of a file. ``shift`` maps old offsets to new ones; ``overwritten`` replaces
    copied bytes there.
    """

    shift: Shift
    size: int
    overwritten: tuple[Overwritten, ...]


def cut_out(
    file: Elf, freed: Iterable[ByteSpan], *, ends: Mapping[int, int], dropped: Collection[int]
) -> CutFile:
    """Cut the whole pages of the freed spans out of a file.

    ``ends`` are new ends of sections by index, ``dropped`` the indexes of sections.
    """
    freed = list(_apart(file, freed))
    check_unused(file, freed, {*ends, *dropped})
    shift = Shift(_whole_pages(file, freed))
    segments: list[Segment] = []
    for segment in file.segments:
        if segment.type == elf.LOAD:
            segments += _pieces(segment, shift)
        else:
            segments.append(segment._replace(offset=shift(segment.offset)))
    segments, place = _with_headers(file, segments, shift)
    sections: list[Section | None] = []
    for index, section in enumerate(file.sections):
        offset = shift(section.offset)
        size = shift(ends[index]) - offset if index in ends else section.size
        sections.append(None if index in dropped else section._replace(offset=offset, size=size))
    return CutFile(
        shift=shift,
        size=max(shift(file.reader.size), place + len(segments) * SEGMENT_SIZE),
        overwritten=(
            *program_headers(segments, place),
            *section_headers(sections, shift(file.header.sections_offset)),
        ),
    )


def _apart(file: Elf, freed: Iterable[ByteSpan]) -> Iterator[ByteSpan]:
    """Merge the spans, but split them where a loaded segment starts or ends."""
    loads = [span_of(segment) for segment in file.segments_of(elf.LOAD)]
    borders = sorted({border for load in loads for border in load})
    for span in merged_spans(freed):
        inner = borders[bisect_right(borders, span.start) : bisect_left(borders, span.end)]
        for start, end in pairwise([span.start, *inner, span.end]):
            yield ByteSpan(start, end)


def _whole_pages(file: Elf, freed: Iterable[ByteSpan]) -> list[ByteSpan]:
    """Return the whole pages inside the freed spans, by address where they are loaded."""
    found = []
    for span in freed:
        load = file.load_at(span.start)
        distance = load.address - load.offset if load else -span.start
        start = up(span.start + distance, file.page)
        end = (span.end + distance) // file.page * file.page
        if start < end:
            found.append(ByteSpan(start - distance, end - distance))
    return sorted(sorted(found, key=lambda span: -span.size)[:_MOST_CUTS])


def _with_headers(file: Elf, segments: list[Segment], shift: Shift) -> tuple[list[Segment], int]:
    """Return the segments, adapted to the place of the program headers, and that place."""
    size = len(segments) * SEGMENT_SIZE
    if size <= _room(file):
        sized = [
            segment._replace(file_size=size, memory_size=size)
            if segment.type == elf.PROGRAM_HEADERS
            else segment
            for segment in segments
        ]
        return sized, shift(file.header.segments_offset)
    if file.segments_of(elf.INTERPRETER):
        # Linux before 5.18 assumes that the headers of a program are as far from its first segment
        # in memory as in the file.
        raise file.reader.error("a program without space for more program headers")
    offset, size = up(shift(file.reader.size), 8), size + SEGMENT_SIZE
    address = up(loaded_end(file), file.page) + offset % file.page
    tail = Segment(elf.LOAD, elf.READABLE, offset, address, address, size, size, file.page)
    moved = [
        tail._replace(type=elf.PROGRAM_HEADERS, alignment=segment.alignment)
        if segment.type == elf.PROGRAM_HEADERS
        else segment
        for segment in segments
    ]
    return with_tail(moved, tail), tail.offset


def _room(file: Elf) -> int:
    """Return how many bytes program headers can take at their present place."""
    start = file.header.segments_offset
    load = file.load_at(start)
    places = [load.offset + load.file_size if load else file.reader.size]
    places += [section.offset for section in file.sections if section.file_size]
    places += [segment.offset for segment in file.segments if segment.file_size]
    places.append(file.header.sections_offset)
    distance = load.address - load.offset if load else 0
    places += [value - distance for tag, value in file.dynamic if tag in elf.TABLES]
    return min(place for place in places if place > start) - start


def check_unused(file: Elf, spans: Iterable[ByteSpan], changed: Collection[int]) -> None:
    """Raise an error if headers, or sections other than ``changed``, need one of the spans."""
    needed = Spans(in_use(file, but=changed))
    loads = [span_of(segment) for segment in file.segments_of(elf.LOAD)]
    borders = Spans(ByteSpan(border, border + 1) for load in loads for border in load)
    twice, end = [], 0
    for load in sorted(loads):
        twice.append(ByteSpan(load.start, min(load.end, end)))  # empty if no other overlaps it
        end = max(end, load.end)
    shared = Spans(twice)
    for span in spans:
        if needed.overlap(span) or shared.overlap(span):
            raise file.reader.error("the device code overlaps other content", span.start)
        if borders.overlap(ByteSpan(span.start + 1, span.end)):
            raise file.reader.error("the device code is only partly loaded", span.start)


def in_use(file: Elf, *, but: Collection[int] = ()) -> list[ByteSpan]:
    """Return the spans of headers and sections, without the sections with the given indexes."""
    header = file.header
    spans = [
        ByteSpan(0, FILE_HEADER_SIZE),
        ByteSpan(
            header.segments_offset, header.segments_offset + len(file.segments) * SEGMENT_SIZE
        ),
        ByteSpan(
            header.sections_offset, header.sections_offset + len(file.sections) * SECTION_SIZE
        ),
    ]
    spans += [span_of(part) for index, part in enumerate(file.sections) if index not in but]
    spans += [span_of(part) for part in file.segments if part.type != elf.LOAD]
    return spans


def _pieces(segment: Segment, shift: Shift) -> Iterator[Segment]:
    """Split a loaded segment at the cuts in it."""
    whole = span_of(segment)
    memory_end = segment.offset + segment.memory_size
    start = segment.offset
    for span in shift.cuts:
        if whole.overlaps(span):
            yield _piece(segment, ByteSpan(start, span.start), span.end, shift)
            start = span.end
    if start < memory_end or start == segment.offset:
        yield _piece(segment, ByteSpan(start, whole.end), memory_end, shift)


def _piece(segment: Segment, span: ByteSpan, memory_end: int, shift: Shift) -> Segment:
    address = segment.address + span.start - segment.offset
    offset = shift(span.start)
    distance = address - offset
    # Offset and address have to agree modulo the alignment, and a cut is a multiple of pages only.
    alignment = min(segment.alignment, distance & -distance) if distance else segment.alignment
    return segment._replace(
        offset=offset,
        address=address,
        physical_address=segment.physical_address + span.start - segment.offset,
        file_size=span.size,
        memory_size=memory_end - span.start,
        alignment=alignment,
    )


class Stripping(NamedTuple):
    """``dropped`` are the indexes of sections, ``freed`` their bytes and unused pages."""

    dropped: frozenset[int] = frozenset()
    freed: tuple[ByteSpan, ...] = ()


def find_unused(file: Elf) -> Stripping:
    dropped = frozenset(_symbol_sections(file))
    spans = [span_of(file.sections[index]) for index in dropped]
    return Stripping(dropped, (*spans, *_dead_space(file)))


def _symbol_sections(file: Elf) -> Iterator[int]:
    """Yield symbol tables and their strings if no other section refers to them."""
    users = Counter(section.link for section in file.sections)
    for index, section in enumerate(file.sections):
        if section.type != elf.SYMBOL_TABLE or section.flags & elf.ALLOCATED or users[index]:
            continue
        yield index
        strings = section.link
        own = users[strings] == 1 and strings not in (0, file.header.names_index)
        if own and strings < len(file.sections):
            yield strings


def _dead_space(file: Elf) -> Iterator[ByteSpan]:
    """Yield loaded pages that belong to no section, if sections cover all tables of the loader:
    section headers may be missing.
    """
    loaded = Spans(
        ByteSpan(section.address, section.address + section.size)
        for section in file.sections
        if section.flags & elf.ALLOCATED
    )
    read = [value for tag, value in file.dynamic if tag in elf.TABLES]
    if not read or not all(loaded.overlap(ByteSpan(place, place + 1)) for place in read):
        return
    used = Spans(in_use(file))
    for load in file.segments_of(elf.LOAD):
        for gap in used.left_of(span_of(load)):
            if gap.size >= 2 * file.page:  # so that it contains at least one whole page
                yield gap

"""Freed stretches cut out of an ELF file: new offsets, program headers and section headers.

Cuts are whole pages, so that everything else keeps its address and may be mapped as before. A
segment is split round a cut; the piece before it covers it with zeros in memory, so that whoever
reads there finds no code instead of crashing. The program headers become more: they grow where
they are if nothing is in the way, else they move to the end, into a segment of their own. Pure.
"""

import struct
from bisect import bisect_left, bisect_right
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple

from stoker.artifact import elf
from stoker.artifact.elf import Elf, Section, Segment
from stoker.deliver.slim.spans import Shift, Span, Spans, merged, up

Overwritten = tuple[int, bytes]

_SEGMENT = struct.Struct("<IIQQQQQQ")
_SECTION = struct.Struct("<IIQQQQIIQQ")
_FILE_HEADER = 64
_SEGMENTS_OFFSET, _SECTIONS_OFFSET, _SEGMENT_COUNT = 32, 40, 56  # in the file header
_HIGHEST_ADDRESS = 1 << 47  # of a process, on every system
_MOST_CUTS = 512  # each is one more mapping; the largest come first


class Cutting(NamedTuple):
    """``shift`` gives the new offsets, at which ``overwritten`` bytes go over those copied."""

    shift: Shift
    size: int
    overwritten: tuple[Overwritten, ...]


def cut(
    file: Elf, freed: Iterable[Span], *, ends: Mapping[int, int], dropped: Collection[int]
) -> Cutting:
    """``ends`` of sections that end earlier now, and the sections ``dropped``, are by index."""
    freed = list(_apart(file, freed))
    check_unused(file, freed, {*ends, *dropped})
    shift = Shift(_cuts(file, freed))
    segments, place = _with_headers(file, list(_segments(file, shift)), shift)
    headers = b"".join(_SEGMENT.pack(*segment) for segment in segments)
    sections = shift(file.header.sections_offset)
    return Cutting(
        shift=shift,
        size=max(shift(file.reader.size), place + len(headers)),
        overwritten=(
            (_SEGMENTS_OFFSET, struct.pack("<Q", place)),
            (_SECTIONS_OFFSET, struct.pack("<Q", sections)),
            (_SEGMENT_COUNT, struct.pack("<H", len(segments))),
            (place, headers),
            (sections, b"".join(_sections(file, shift, ends, dropped))),
        ),
    )


def _apart(file: Elf, freed: Iterable[Span]) -> Iterator[Span]:
    """Merged, but not across the border of what is loaded."""
    loads = [span_of(segment) for segment in file.segments_of(elf.LOAD)]
    borders = sorted({border for load in loads for border in load})
    for span in merged(freed):
        inner = borders[bisect_right(borders, span.start) : bisect_left(borders, span.end)]
        for start, end in pairwise([span.start, *inner, span.end]):
            yield Span(start, end)


def _cuts(file: Elf, freed: Iterable[Span]) -> list[Span]:
    """Whole pages of what is freed; by address where it is loaded."""
    found = []
    for span in freed:
        load = file.load_at(span.start)
        distance = load.address - load.offset if load else -span.start
        start = up(span.start + distance, file.page)
        end = (span.end + distance) // file.page * file.page
        if start < end:
            found.append(Span(start - distance, end - distance))
    return sorted(sorted(found, key=lambda span: -span.size)[:_MOST_CUTS])


def _with_headers(file: Elf, segments: list[Segment], shift: Shift) -> tuple[list[Segment], int]:
    """The segments with those that tell where program headers are, and where they are."""
    size = len(segments) * _SEGMENT.size
    if size <= _room(file):
        place = shift(file.header.segments_offset)
        return [_sized(segment, size) for segment in segments], place
    if file.segments_of(elf.INTERPRETER):
        # Linux before 5.18 takes the headers of a program to be as far from its first segment in
        # memory as they are in the file.
        raise file.reader.error("a program whose headers have no room to grow")
    tail = _tail(file, segments, shift(file.reader.size))
    last = max(index for index, segment in enumerate(segments) if segment.type == elf.LOAD)
    moved = [
        tail._replace(type=elf.PROGRAM_HEADERS, alignment=segment.alignment)
        if segment.type == elf.PROGRAM_HEADERS
        else segment
        for segment in segments
    ]
    return [*moved[: last + 1], tail, *moved[last + 1 :]], tail.offset


def _sized(segment: Segment, size: int) -> Segment:
    if segment.type != elf.PROGRAM_HEADERS:
        return segment
    return segment._replace(file_size=size, memory_size=size)


def _tail(file: Elf, segments: Sequence[Segment], end: int) -> Segment:
    """Behind all that is there, in the file and in memory, one more segment that holds them."""
    loads = file.segments_of(elf.LOAD)
    loaded = max(segment.address + segment.memory_size for segment in loads)
    offset = up(end, 8)
    address = up(loaded, file.page) + offset % file.page
    if address > _HIGHEST_ADDRESS:
        raise file.reader.error(f"a segment reaches to address {loaded:#x}")
    size = (len(segments) + 1) * _SEGMENT.size
    return Segment(elf.LOAD, elf.READABLE, offset, address, address, size, size, file.page)


def _room(file: Elf) -> int:
    """Bytes that program headers may take where they are."""
    start = file.header.segments_offset
    load = file.load_at(start)
    places = [load.offset + load.file_size if load else file.reader.size]
    places += [section.offset for section in file.sections if section.file_size]
    places += [segment.offset for segment in file.segments if segment.file_size]
    places.append(file.header.sections_offset)
    distance = load.address - load.offset if load else 0
    places += [value - distance for tag, value in file.dynamic if tag in elf.TABLES]
    return min(place for place in places if place > start) - start


def check_unused(file: Elf, spans: Iterable[Span], changed: Collection[int]) -> None:
    """Nothing may be rewritten or cut that sections other than ``changed`` or headers need."""
    needed = Spans(in_use(file, but=changed))
    loads = [span_of(segment) for segment in file.segments_of(elf.LOAD)]
    borders = Spans(Span(border, border + 1) for load in loads for border in load)
    twice = Spans(_loaded_twice(loads))
    for span in spans:
        if needed.overlap(span) or twice.overlap(span):
            raise file.reader.error("what was to be cut is also something else", span.start)
        if borders.overlap(Span(span.start + 1, span.end)):
            raise file.reader.error("what was to be cut is only partly loaded", span.start)


def _loaded_twice(loads: Iterable[Span]) -> Iterator[Span]:
    end = 0
    for load in sorted(loads):
        yield Span(load.start, min(load.end, end))  # empty where nothing before it reaches so far
        end = max(end, load.end)


def in_use(file: Elf, *, but: Collection[int] = ()) -> list[Span]:
    """What headers and sections take; not those sections whose indexes are given."""
    header = file.header
    spans = [
        Span(0, _FILE_HEADER),
        Span(header.segments_offset, header.segments_offset + len(file.segments) * _SEGMENT.size),
        Span(header.sections_offset, header.sections_offset + len(file.sections) * _SECTION.size),
    ]
    spans += [span_of(part) for index, part in enumerate(file.sections) if index not in but]
    spans += [span_of(part) for part in file.segments if part.type != elf.LOAD]
    return spans


def span_of(part: Section | Segment) -> Span:
    """In the file."""
    return Span(part.offset, part.offset + part.file_size)


def _segments(file: Elf, shift: Shift) -> Iterator[Segment]:
    for segment in file.segments:
        if segment.type == elf.LOAD:
            yield from _pieces(segment, shift)
        else:
            yield segment._replace(offset=shift(segment.offset))


def _pieces(segment: Segment, shift: Shift) -> Iterator[Segment]:
    """A segment that is loaded, split round the cuts in it."""
    whole = span_of(segment)
    memory_end = segment.offset + segment.memory_size
    start = segment.offset
    for span in shift.cuts:
        if whole.overlaps(span):
            yield _piece(segment, Span(start, span.start), span.end, shift)
            start = span.end
    if start < memory_end or start == segment.offset:
        yield _piece(segment, Span(start, whole.end), memory_end, shift)


def _piece(segment: Segment, span: Span, memory_end: int, shift: Shift) -> Segment:
    address = segment.address + span.start - segment.offset
    offset = shift(span.start)
    distance = address - offset
    # The loader wants both to be alike up to the alignment, and a cut is of pages only.
    alignment = min(segment.alignment, distance & -distance) if distance else segment.alignment
    return segment._replace(
        offset=offset,
        address=address,
        physical_address=segment.physical_address + span.start - segment.offset,
        file_size=span.size,
        memory_size=memory_end - span.start,
        alignment=alignment,
    )


def _sections(
    file: Elf, shift: Shift, ends: Mapping[int, int], dropped: Collection[int]
) -> Iterator[bytes]:
    """Dropped ones become empty ones, since others are known by their number."""
    for index, section in enumerate(file.sections):
        yield (
            bytes(_SECTION.size)
            if index in dropped
            else _SECTION.pack(*_shifted(section, shift, ends.get(index)))
        )


def _shifted(section: Section, shift: Shift, end: int | None) -> Section:
    offset = shift(section.offset)
    size = section.size if end is None else shift(end) - offset
    return section._replace(offset=offset, size=size)

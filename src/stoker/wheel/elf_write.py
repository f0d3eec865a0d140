"""Writes the headers of 64-bit little-endian ELF files, for everything that edits such files.

An editor describes its result as bytes to put at offsets of the new file. Program headers that
outgrow their place move, with whatever else needs a new place, into one more segment at the end.
"""

import struct
from collections.abc import Iterable, Sequence

from stoker.wheel import elf
from stoker.wheel.elf import Elf, Section, Segment, up

Overwritten = tuple[int, bytes]  # an offset and the bytes to put there

FILE_HEADER_SIZE = 64
_SEGMENT = struct.Struct("<IIQQQQQQ")
_SECTION = struct.Struct("<IIQQQQIIQQ")
SEGMENT_SIZE, SECTION_SIZE = _SEGMENT.size, _SECTION.size
_SEGMENTS_OFFSET, _SECTIONS_OFFSET, _SEGMENT_COUNT = 32, 40, 56  # fields of the file header
_HIGHEST_ADDRESS = 1 << 47  # of a process, on every system


def overwrite(chunk: bytes, start: int, pieces: Iterable[Overwritten]) -> bytes:
    """Return a chunk that lies at the offset ``start`` with the pieces that fall into it."""
    end = start + len(chunk)
    touching = [piece for piece in pieces if piece[0] < end and piece[0] + len(piece[1]) > start]
    if not touching:
        return chunk
    changed = bytearray(chunk)
    for offset, data in touching:
        first, last = max(offset, start), min(offset + len(data), end)
        changed[first - start : last - start] = data[first - offset : last - offset]
    return bytes(changed)


def program_headers(segments: Sequence[Segment], place: int) -> list[Overwritten]:
    """Return the program headers at an offset, and the fields of the file header about them."""
    return [
        (_SEGMENTS_OFFSET, struct.pack("<Q", place)),
        (_SEGMENT_COUNT, struct.pack("<H", len(segments))),
        (place, b"".join(_SEGMENT.pack(*segment) for segment in segments)),
    ]


def section_headers(sections: Iterable[Section | None], place: int) -> list[Overwritten]:
    """Return the section headers at an offset, and the field of the file header about them.

    None stands for a dropped section: its header is zeroed, because others refer to sections by
    number.
    """
    packed = (_SECTION.pack(*one) if one else bytes(_SECTION.size) for one in sections)
    return [(_SECTIONS_OFFSET, struct.pack("<Q", place)), (place, b"".join(packed))]


def loaded_end(file: Elf) -> int:
    """Return the first address after all segments, if a process can have memory there."""
    end = max(load.address + load.memory_size for load in file.segments_of(elf.LOAD))
    if up(end, file.page) + file.page > _HIGHEST_ADDRESS:
        raise file.reader.error(f"a segment reaches to address {end:#x}")
    return end


def with_tail(segments: Sequence[Segment], tail: Segment) -> list[Segment]:
    """Insert one more loaded segment after the others: the loader wants them by address."""
    last = max(index for index, segment in enumerate(segments) if segment.type == elf.LOAD)
    return [*segments[: last + 1], tail, *segments[last + 1 :]]

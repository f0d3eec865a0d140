"""Edits 64-bit little-endian ELF files: search path, needed names and own name, all at once.

An editor describes its result as bytes to put at offsets of the new file: a few overwritten ones
and a tail. It is applied to a library of any size while it is streamed, without a copy on disk or
in memory. New strings make the string table longer, so it moves into the tail, which is loaded as
one more segment. The program headers move there too, because they have no space for one more. Code
and data keep their addresses. `stoker slim` writes its headers by the same functions.
"""

import struct
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from stoker.model.value import Value
from stoker.wheel.elf import elf
from stoker.wheel.elf.elf import Elf, Section, Segment, up

Overwritten = tuple[int, bytes]  # an offset and the bytes to put there

FILE_HEADER_SIZE = 64
_SEGMENT = struct.Struct("<IIQQQQQQ")
_SECTION = struct.Struct("<IIQQQQIIQQ")
SEGMENT_SIZE, SECTION_SIZE = _SEGMENT.size, _SECTION.size
_SEGMENTS_OFFSET, _SECTIONS_OFFSET, _SEGMENT_COUNT = 32, 40, 56  # fields of the file header
_HIGHEST_ADDRESS = 1 << 47  # of a process, on every system

_ENTRY = struct.Struct("<qQ")  # of the dynamic section
_VERSION_FILE = struct.Struct("<HHIII")  # a library and the versions needed from it
_SECTION_PLACE = 16  # offset of address, offset and size in a section header
_WRITABLE = 2  # a flag of segments
_VERSIONS_NEEDED_COUNT = 0x6FFFFFFF
_MOST_VERSION_FILES = 4096
_LARGEST_GAP = 1 << 30  # zeros that the file may hold so that an address fits

Entries = list[tuple[int, int]]  # tags and values


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


class ElfEdit(Value, frozen=True, kw_only=True):
    """``rpath`` is the new search path, as DT_RPATH or, with ``as_runpath``, as DT_RUNPATH. None
    leaves the search path as it is, empty removes it.
    """

    rpath: str | None = None
    as_runpath: bool = False
    needed: dict[str, str] = {}
    soname: str | None = None


class Patch(Value, frozen=True, kw_only=True):
    """Bytes to overwrite, and bytes to append."""

    size: int  # of the edited file
    overwritten: tuple[Overwritten, ...]
    tail: bytes = b""

    def applied(self, chunks: Iterable[bytes]) -> Iterator[bytes]:
        """Yield the edited file from the content of the file that the patch was made for."""
        start = 0
        for chunk in chunks:
            yield overwrite(chunk, start, self.overwritten)
            start += len(chunk)
        if self.tail:
            yield self.tail


def make_patch(file: Elf, edit: ElfEdit) -> Patch:
    """Return the patch that makes an edit. An ArtifactError says what is not supported."""
    if not file.is_wide_and_little:
        raise file.reader.error("only 64-bit little-endian ELF files can be edited", 4)
    if not file.dynamic or file.value(elf.STRING_TABLE) is None:
        raise file.reader.error("it has no dynamic section, so there is nothing to edit")
    strings = _Strings(file.dynamic_strings.content)
    entries = _entries(file, edit, strings)
    versions = list(_versions(file, edit, strings))
    if strings.added or len(entries) >= _room(_old_place(file)):
        return _with_tail(file, entries, strings.content, versions)
    dynamic = _old_place(file)
    overwritten = (*versions, (dynamic.offset, _packed(entries, dynamic)))
    return Patch(size=file.reader.size, overwritten=overwritten)


class _Strings:
    """A string table to which strings are appended."""

    def __init__(self, content: bytes):
        self._old = content if content.endswith(b"\0") else content + b"\0"
        self.added = b""

    @property
    def content(self) -> bytes:
        return self._old + self.added

    def place(self, text: str) -> int:
        """Return the position of a string in the table, and append it if it is not there."""
        wanted = text.encode() + b"\0"
        if (found := self._old.find(wanted)) >= 0:  # it may be the end of a longer string
            return found
        if (found := self.added.find(wanted)) < 0:
            found = len(self.added)
            self.added += wanted
        return len(self._old) + found


def _entries(file: Elf, edit: ElfEdit, strings: _Strings) -> Entries:
    """Return the new dynamic section, except for the address of the string table."""
    entries = []
    for tag, value in file.dynamic:
        if tag in (elf.RPATH, elf.RUNPATH) and edit.rpath is not None:
            continue
        if tag == elf.NEEDED and (new := edit.needed.get(file.dynamic_strings.string(value))):
            value = strings.place(new)
        elif tag == elf.SONAME and edit.soname is not None:
            value = strings.place(edit.soname)
        entries.append((tag, value))
    if edit.rpath:
        kind = elf.RUNPATH if edit.as_runpath else elf.RPATH
        entries.append((kind, strings.place(edit.rpath)))
    return entries


def _versions(file: Elf, edit: ElfEdit, strings: _Strings) -> Iterator[Overwritten]:
    """Yield new library names in the needed versions, which have to match the needed names."""
    address = file.value(elf.VERSIONS_NEEDED)
    if not edit.needed or address is None:
        return
    position = file.offset_of(address)
    for _ in range(min(file.value(_VERSIONS_NEEDED_COUNT) or 0, _MOST_VERSION_FILES)):
        record = file.reader.read(position, _VERSION_FILE.size)
        _, _, name, _, following = _VERSION_FILE.unpack(record)
        if new := edit.needed.get(file.dynamic_strings.string(name)):
            yield position + 4, struct.pack("<I", strings.place(new))
        if not following:
            return
        position += following


class _Place(NamedTuple):
    offset: int
    address: int
    size: int


class _Layout(NamedTuple):
    """The places of the parts that are rewritten, in the order of the file."""

    headers: _Place
    dynamic: _Place  # its old place if it fits there
    strings: _Place


def _with_tail(
    file: Elf, entries: Entries, strings: bytes, versions: Sequence[Overwritten]
) -> Patch:
    offset, address = _free_place(file)

    def take(size: int) -> _Place:
        nonlocal offset, address
        place = _Place(offset, address, size)
        offset, address = offset + size, address + size
        return place

    headers = take((len(file.segments) + 1) * SEGMENT_SIZE)
    dynamic = _old_place(file)
    if len(entries) >= _room(dynamic):
        dynamic = take((len(entries) + 1) * _ENTRY.size)
    layout = _Layout(headers, dynamic, take(len(strings)))
    moved = {elf.STRING_TABLE: layout.strings.address, elf.STRING_TABLE_SIZE: len(strings)}
    entries = [(tag, moved.get(tag, value)) for tag, value in entries]
    parts = [
        *_emptied(file),
        *versions,
        *_sections(file, layout),
        *program_headers(_segments(file, layout), layout.headers.offset),
        (layout.dynamic.offset, _packed(entries, layout.dynamic)),
        (layout.strings.offset, strings),
    ]
    size = layout.strings.offset + layout.strings.size
    old = file.reader.size
    return Patch(
        size=size,
        overwritten=tuple(part for part in parts if part[0] < old),
        tail=overwrite(bytes(size - old), old, [part for part in parts if part[0] >= old]),
    )


def _free_place(file: Elf) -> tuple[int, int]:
    """Return an offset and an address after everything in the file and in memory."""
    page, size, loaded = file.page, file.reader.size, loaded_end(file)
    offset, address = up(size, page), up(loaded, page)
    if file.segments_of(elf.INTERPRETER):
        # Linux before 5.18 assumes that the headers of a program are as far from its first segment
        # in memory as in the file.
        first = file.segments_of(elf.LOAD)[0]
        base = first.address - first.offset
        address = up(max(loaded, base + size), page)
        offset = address - base
    if not size <= offset <= size + _LARGEST_GAP:
        raise file.reader.error(f"a segment reaches to address {loaded:#x}")
    return offset, address


def _old_place(file: Elf) -> _Place:
    segment = file.segments_of(elf.DYNAMIC)[0]
    return _Place(segment.offset, segment.address, segment.file_size)


def _room(dynamic: _Place) -> int:
    return dynamic.size // _ENTRY.size


def _packed(entries: Entries, place: _Place) -> bytes:
    """Return the dynamic section, filled up with empty entries, which end it."""
    return b"".join(_ENTRY.pack(*entry) for entry in entries).ljust(place.size, b"\0")


def _segments(file: Elf, layout: _Layout) -> list[Segment]:
    """Return all segments with the tail, and with the new places of the parts that move."""
    moved = {elf.PROGRAM_HEADERS: layout.headers, elf.DYNAMIC: layout.dynamic}
    segments = [
        segment._replace(
            offset=place.offset,
            address=place.address,
            physical_address=place.address,
            file_size=place.size,
            memory_size=place.size,
        )
        if (place := moved.get(segment.type))
        else segment
        for segment in file.segments
    ]
    start, end = layout.headers, layout.strings.offset + layout.strings.size
    # The loader writes into the dynamic section.
    flags = elf.READABLE | (_WRITABLE if layout.dynamic.offset > start.offset else 0)
    size = end - start.offset
    tail = Segment(
        elf.LOAD, flags, start.offset, start.address, start.address, size, size, file.page
    )
    return with_tail(segments, tail)


def _sections(file: Elf, layout: _Layout) -> Iterator[Overwritten]:
    """Yield the new places in section headers, which other tools read but the loader does not."""
    moved = {file.value(elf.STRING_TABLE): layout.strings, _old_place(file).address: layout.dynamic}
    for index, section in enumerate(file.sections):
        if section.file_size and (place := moved.get(section.address)):
            header = file.header.sections_offset + index * SECTION_SIZE
            numbers = struct.pack("<QQQ", place.address, place.offset, place.size)
            yield header + _SECTION_PLACE, numbers


def _emptied(file: Elf) -> Iterator[Overwritten]:
    """Yield zeros for the old string table, which then compress well, unless it is shared."""
    start = file.offset_of(file.value(elf.STRING_TABLE) or 0)
    size = len(file.dynamic_strings.content)
    sharing = [
        section
        for section in file.sections
        if section.file_size and section.offset < start + size
        if start < section.offset + section.file_size
    ]
    if len(sharing) == 1:
        yield start, bytes(size)

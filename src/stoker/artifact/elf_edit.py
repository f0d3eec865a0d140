"""All edits of the dynamic section of an ELF file at once: search path, needed names, own name.

An edit becomes a few overwritten bytes and a tail, so that a library of any size is changed while
it streams past, without a copy on disk or in memory. New strings make the string table longer, so
it moves into the tail, which is loaded as one more segment; so do the program headers, which have
no room for one more where they are. Code and data keep their addresses.

Knows nothing of wheels, nor of what a search path ought to be.
"""

import struct
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from stoker.artifact import elf
from stoker.artifact.elf import Elf, Segment
from stoker.model.value import Value

_SEGMENT = struct.Struct("<IIQQQQQQ")
_ENTRY = struct.Struct("<qQ")  # of the dynamic section
_VERSION_FILE = struct.Struct("<HHIII")  # a library and the versions needed of it
_SECTION_SIZE, _SECTION_PLACE = 64, 16  # of a section header, and where its address stands in it
_HEADERS_OFFSET, _HEADERS_COUNT = 32, 56  # where the file header says it of program headers
_READ, _WRITE = 4, 2
_VERSIONS_NEEDED_COUNT = 0x6FFFFFFF
_MOST_VERSION_FILES = 4096
_HIGHEST_ADDRESS = 1 << 47  # of a process, on every system
_LARGEST_GAP = 1 << 30  # zeros in the file for the sake of an address

Entries = list[tuple[int, int]]  # tags and values
Overwritten = tuple[int, bytes]


class ElfEdit(Value, frozen=True, kw_only=True):
    """``rpath`` None: as it is; empty: none. It becomes DT_RPATH, whatever it was before."""

    rpath: str | None = None
    needed: dict[str, str] = {}
    soname: str | None = None


class Patch(Value, frozen=True, kw_only=True):
    """Bytes to put over those at an offset, in order, and bytes to add at the end."""

    size: int  # of the edited file
    overwritten: tuple[Overwritten, ...]
    tail: bytes = b""

    def applied(self, chunks: Iterable[bytes]) -> Iterator[bytes]:
        """The edited file, from the content of the one that the patch was made for."""
        start = 0
        for chunk in chunks:
            yield _overwrite(chunk, start, self.overwritten)
            start += len(chunk)
        if self.tail:
            yield self.tail


def _overwrite(chunk: bytes, start: int, pieces: Iterable[Overwritten]) -> bytes:
    end = start + len(chunk)
    touching = [piece for piece in pieces if piece[0] < end and piece[0] + len(piece[1]) > start]
    if not touching:
        return chunk
    changed = bytearray(chunk)
    for offset, data in touching:
        first, last = max(offset, start), min(offset + len(data), end)
        changed[first - start : last - start] = data[first - offset : last - offset]
    return bytes(changed)


def make_patch(file: Elf, edit: ElfEdit) -> Patch:
    _check(file)
    strings = _Strings(file.dynamic_strings.content)
    entries = _entries(file, edit, strings)
    versions = list(_versions(file, edit, strings))
    if strings.added or len(entries) >= _room(_old_place(file)):
        return _with_tail(file, entries, strings.content, versions)
    dynamic = _old_place(file)
    overwritten = (*versions, (dynamic.offset, _packed(entries, dynamic)))
    return Patch(size=file.reader.size, overwritten=overwritten)


def _check(file: Elf) -> None:
    if not file.is_wide_and_little:
        raise file.reader.error("only 64-bit little-endian ELF files can be edited", 4)
    if not file.dynamic or file.value(elf.STRING_TABLE) is None:
        raise file.reader.error("it is not linked dynamically: there is nothing to edit")


class _Strings:
    """A string table that grows at its end."""

    def __init__(self, content: bytes):
        self._old = content if content.endswith(b"\0") else content + b"\0"
        self.added = b""

    @property
    def content(self) -> bytes:
        return self._old + self.added

    def place(self, text: str) -> int:
        """Where a string stands in the table, at its end if nowhere else."""
        wanted = text.encode() + b"\0"
        if (found := self._old.find(wanted)) >= 0:  # the end of a longer string does as well
            return found
        if (found := self.added.find(wanted)) < 0:
            found = len(self.added)
            self.added += wanted
        return len(self._old) + found


def _entries(file: Elf, edit: ElfEdit, strings: _Strings) -> Entries:
    """The dynamic section as it will be, but for the place of the string table."""
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
        entries.append((elf.RPATH, strings.place(edit.rpath)))
    return entries


def _versions(file: Elf, edit: ElfEdit, strings: _Strings) -> Iterator[Overwritten]:
    """Needed versions go by the name of the library too: the loader wants both names alike."""
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
    """Where the parts will be that are written anew, in the order of the file."""

    headers: _Place
    dynamic: _Place  # where it was, if it has room there
    strings: _Place


def _with_tail(
    file: Elf, entries: Entries, strings: bytes, versions: Sequence[Overwritten]
) -> Patch:
    layout = _layout(file, len(entries), len(strings))
    moved = {elf.STRING_TABLE: layout.strings.address, elf.STRING_TABLE_SIZE: len(strings)}
    entries = [(tag, moved.get(tag, value)) for tag, value in entries]
    segments = _segments(file, layout)
    headers = b"".join(_SEGMENT.pack(*segment) for segment in segments)
    dynamic = _packed(entries, layout.dynamic)
    parts = [*_emptied(file), *versions, *_sections(file, layout)]
    parts += [
        (_HEADERS_OFFSET, struct.pack("<Q", layout.headers.offset)),
        (_HEADERS_COUNT, struct.pack("<H", len(segments))),
        (layout.headers.offset, headers),
        (layout.dynamic.offset, dynamic),
        (layout.strings.offset, strings),
    ]
    size = layout.strings.offset + layout.strings.size
    old = file.reader.size
    return Patch(
        size=size,
        overwritten=tuple(part for part in parts if part[0] < old),
        tail=_overwrite(bytes(size - old), old, [part for part in parts if part[0] >= old]),
    )


def _layout(file: Elf, entries: int, strings: int) -> _Layout:
    offset, address = _free_place(file)

    def take(size: int) -> _Place:
        nonlocal offset, address
        place = _Place(offset, address, size)
        offset, address = offset + size, address + size
        return place

    headers = take((len(file.segments) + 1) * _SEGMENT.size)
    dynamic = _old_place(file)
    if entries >= _room(dynamic):
        dynamic = take((entries + 1) * _ENTRY.size)
    return _Layout(headers, dynamic, take(strings))


def _free_place(file: Elf) -> tuple[int, int]:
    """An offset and an address behind all that is there."""
    page, size = file.page, file.reader.size
    loads = file.segments_of(elf.LOAD)
    loaded = max(segment.address + segment.memory_size for segment in loads)
    offset, address = _up(size, page), _up(loaded, page)
    if file.segments_of(elf.INTERPRETER):
        # Linux before 5.18 takes the headers of a program to be as far from its first segment in
        # memory as they are in the file.
        base = loads[0].address - loads[0].offset
        address = _up(max(loaded, base + size), page)
        offset = address - base
    if not size <= offset <= size + _LARGEST_GAP or loaded > _HIGHEST_ADDRESS:
        raise file.reader.error(f"a segment reaches to address {loaded:#x}")
    return offset, address


def _up(position: int, page: int) -> int:
    return -(-position // page) * page


def _old_place(file: Elf) -> _Place:
    segment = file.segments_of(elf.DYNAMIC)[0]
    return _Place(segment.offset, segment.address, segment.file_size)


def _room(dynamic: _Place) -> int:
    return dynamic.size // _ENTRY.size


def _packed(entries: Entries, place: _Place) -> bytes:
    """A dynamic section, with the empty entries that end it."""
    return b"".join(_ENTRY.pack(*entry) for entry in entries).ljust(place.size, b"\0")


def _segments(file: Elf, layout: _Layout) -> list[Segment]:
    """With the tail after all that are loaded, since the loader wants them by address."""
    moved = {elf.PROGRAM_HEADERS: layout.headers, elf.DYNAMIC: layout.dynamic}
    segments = [
        _at(moved[segment.type], segment) if segment.type in moved else segment
        for segment in file.segments
    ]
    start, end = layout.headers, layout.strings.offset + layout.strings.size
    # The loader writes into the dynamic section.
    flags = _READ | (_WRITE if layout.dynamic.offset > start.offset else 0)
    size = end - start.offset
    tail = Segment(
        elf.LOAD, flags, start.offset, start.address, start.address, size, size, file.page
    )
    last = max(index for index, segment in enumerate(segments) if segment.type == elf.LOAD)
    return [*segments[: last + 1], tail, *segments[last + 1 :]]


def _at(place: _Place, segment: Segment) -> Segment:
    return segment._replace(
        offset=place.offset,
        address=place.address,
        physical_address=place.address,
        file_size=place.size,
        memory_size=place.size,
    )


def _sections(file: Elf, layout: _Layout) -> Iterator[Overwritten]:
    """Section headers are of no use to the loader, but other tools go by them."""
    moved = {file.value(elf.STRING_TABLE): layout.strings, _old_place(file).address: layout.dynamic}
    for index, section in enumerate(file.sections):
        if section.file_size and (place := moved.get(section.address)):
            header = file.header.sections_offset + index * _SECTION_SIZE
            numbers = struct.pack("<QQQ", place.address, place.offset, place.size)
            yield header + _SECTION_PLACE, numbers


def _emptied(file: Elf) -> Iterator[Overwritten]:
    """Zeros over the old string table, so that it packs to nothing; not if it is shared."""
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

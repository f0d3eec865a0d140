"""Reads ELF files: headers, sections, segments, the dynamic section, needed versions and notes.

Headers are read at once, everything else on request. No value in the file is trusted: the reader
checks every offset, oversized tables are refused, and the number of linked records is bounded.
"""

import struct
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from itertools import takewhile
from operator import itemgetter, le
from typing import NamedTuple

from stoker.model.errors import ArtifactError
from stoker.wheel.reader import Reader, printable

_LONGEST_STRING = 16 << 10
# A bound on the bytes of all strings that are returned: strings may share their ends.
_SHARED, _SHARED_PER_BYTE = 1 << 20, 16

MAGIC = b"\x7fELF"
RELOCATABLE, EXECUTABLE, SHARED = 1, 2, 3  # types of file
SYMBOL_TABLE, NO_BITS, DYNAMIC_SYMBOLS = 2, 8, 11  # types of section
ALLOCATED = 2  # a flag of sections: they are loaded
LOAD, DYNAMIC, INTERPRETER, NOTE, PROGRAM_HEADERS = 1, 2, 3, 4, 6  # types of segment
READABLE = 4  # a flag of segments
SECTION_NOTE = 7
NEEDED, STRING_TABLE, STRING_TABLE_SIZE, SONAME, RPATH, RUNPATH = 1, 5, 10, 14, 15, 29  # tags
VERSIONS_NEEDED = 0x6FFFFFFE
# Tags whose values are addresses of tables that the loader reads.
_GNU_HASH, _VERSIONS, _VERSIONS_DEFINED = 0x6FFFFEF5, 0x6FFFFFF0, 0x6FFFFFFC
TABLES = {3, 4, STRING_TABLE, 6, 7, 12, 13, 17, 23, 25, 26, 32, 36} | {
    *(_GNU_HASH, _VERSIONS, _VERSIONS_DEFINED, VERSIONS_NEEDED)
}

MACHINES = {
    3: "i686",
    21: "ppc64",
    22: "s390x",
    40: "armv7l",
    62: "x86_64",
    183: "aarch64",
    190: "cuda",
    243: "riscv64",
    258: "loongarch64",
}
_PPC64 = 21
_NOTE_HEADER = 12

# The largest page size of the machine: segments have to start at a multiple of it.
_PAGES = {"x86_64": 0x1000}
_LARGEST_PAGE = 0x10000

_MOST_SECTIONS = 1 << 16
_MOST_SEGMENTS = 1 << 10
_MOST_NOTES = 64  # note segments or sections
_MOST_OVERLAP = 2  # the total size of all sections, as a multiple of the file size
_LARGEST_TABLE = 64 << 10  # bytes of a dynamic section, of version records, of notes
_LARGEST_STRINGS = 64 << 20  # bytes of a string table; libtorch_cuda.so has 7 MB


class Table:
    """Positions are relative to its start; errors name the file offset."""

    def __init__(self, reader: Reader, order: str, offset: int, content: bytes):
        self._reader = reader
        self._order = order
        self._offset = offset
        self.content = content
        self._room = _SHARED + _SHARED_PER_BYTE * len(content)

    def record(self, layout: str, position: int) -> tuple[int, ...]:
        try:
            return struct.unpack_from(self._order + layout, self.content, position)
        except struct.error:
            raise self.error("a record is truncated", position) from None

    def string(self, position: int) -> str:
        end = self.content.find(b"\0", position, position + _LONGEST_STRING)
        if end < 0:
            raise self.error("a string without end", position)
        self._room -= end - position
        if self._room < 0:
            raise self.error("too many overlapping strings", position)
        return printable(self.content[position:end].decode(errors="surrogateescape"))

    def slice(self, position: int, length: int) -> bytes:
        if position + length > len(self.content):
            raise self.error("a record is truncated", position)
        return self.content[position : position + length]

    def error(self, message: str, position: int) -> ArtifactError:
        return self._reader.error(message, self._offset + position)


class Header(NamedTuple):
    type: int
    machine: int
    version: int
    entry: int
    segments_offset: int
    sections_offset: int
    flags: int
    header_size: int
    segment_size: int
    segment_count: int
    section_size: int
    section_count: int
    names_index: int


class Section(NamedTuple):
    name_offset: int
    type: int
    flags: int
    address: int
    offset: int
    size: int
    link: int
    info: int
    alignment: int
    entry_size: int

    @property
    def file_size(self) -> int:
        return 0 if self.type in (0, NO_BITS) else self.size


class Segment(NamedTuple):
    type: int
    flags: int
    offset: int
    address: int
    physical_address: int
    file_size: int
    memory_size: int
    alignment: int


class Note(NamedTuple):
    owner: bytes
    type: int
    content: bytes


class Elf:
    """An ELF file of either word size and byte order."""

    def __init__(self, reader: Reader):
        self.reader = reader
        identity = reader.read(0, 16)
        if not identity.startswith(MAGIC):
            raise reader.error("not an ELF file", 0)
        word, order = identity[4], identity[5]
        if word not in (1, 2) or order not in (1, 2):
            raise reader.error(f"an ELF file of unknown class {word} or byte order {order}", 4)
        self.is_64_bit = word == 2
        self._order = "<" if order == 1 else ">"
        layout = self._struct("HHIIIIIHHHHHH", "HHIQQQIHHHHHH")
        self.header = Header(*layout.unpack(self.reader.read(16, layout.size)))
        self.sections = self._sections()
        self.segments = self._segments()
        loads = self.segments_of(LOAD)
        self._by_address = _Loads((segment.address, segment) for segment in loads)
        self._by_offset = _Loads((segment.offset, segment) for segment in loads)

    @property
    def machine(self) -> str:
        number = self.header.machine
        name = MACHINES.get(number, f"machine {number}")
        return f"{name}le" if number == _PPC64 and self._order == "<" else name

    @property
    def page(self) -> int:
        """Return the largest page size of its machine."""
        return _PAGES.get(self.machine, _LARGEST_PAGE)

    @property
    def is_little(self) -> bool:
        return self._order == "<"

    @property
    def is_wide_and_little(self) -> bool:
        """Return whether it is 64-bit and little-endian; other files can only be read."""
        return self.is_64_bit and self.is_little

    def _struct(self, narrow: str, wide: str) -> struct.Struct:
        return struct.Struct(self._order + (wide if self.is_64_bit else narrow))

    def _sections(self) -> tuple[Section, ...]:
        offset, size = self.header.sections_offset, self.header.section_size
        if not offset:
            return ()
        layout = self._struct("10I", "IIQQQQIIQQ")
        if size != layout.size:
            raise self.reader.error(f"section headers of {size} bytes", offset)
        # A count that does not fit into the header is in the first section.
        first = Section(*layout.unpack(self.reader.read(offset, layout.size)))
        count = self.header.section_count or first.size
        sections = tuple(Section(*row) for row in self._rows(layout, offset, count, _MOST_SECTIONS))
        for index, section in enumerate(sections):
            if section.offset + section.file_size > self.reader.size and section.file_size:
                raise self.reader.error(
                    f"section {index} extends beyond the end of the file", section.offset
                )
        # This bounds the work of reading all sections by the size of the file.
        if sum(section.file_size for section in sections) > _MOST_OVERLAP * self.reader.size:
            raise self.reader.error("too many overlapping sections", offset)
        return sections

    def _segments(self) -> tuple[Segment, ...]:
        offset, count = self.header.segments_offset, self.header.segment_count
        if not count:
            return ()
        layout = self._struct("8I", "IIQQQQQQ")
        if self.header.segment_size != layout.size:
            raise self.reader.error(f"program headers of {self.header.segment_size} bytes", offset)
        rows = self._rows(layout, offset, count, _MOST_SEGMENTS)
        if not self.is_64_bit:  # the flags are in another place
            rows = ((row[0], row[6], *row[1:6], row[7]) for row in rows)
        segments = tuple(Segment(*row) for row in rows)
        for segment in segments:
            if segment.offset + segment.file_size > self.reader.size and segment.file_size:
                raise self.reader.error("a segment extends beyond the end of the file", offset)
        return segments

    def _rows(
        self, layout: struct.Struct, offset: int, count: int, most: int
    ) -> Iterator[tuple[int, ...]]:
        if count > most:
            raise self.reader.error(f"a table of {count} headers", offset)
        return layout.iter_unpack(self.reader.read(offset, count * layout.size))

    @cached_property
    def section_names(self) -> tuple[str, ...]:
        """Return the names of all sections, in order."""
        if not self.sections:
            return ()
        index = self.header.names_index
        if index == 0xFFFF:  # it does not fit into the header, as with the count
            index = self.sections[0].link
        if index >= len(self.sections):
            raise self.reader.error(f"section names in section {index} of {len(self.sections)}")
        table = self._table(self.sections[index].offset, self.sections[index].file_size)
        return tuple(table.string(section.name_offset) for section in self.sections)

    def named(self, *names: str) -> list[tuple[str, Section]]:
        """Return the sections with these names that have bytes in the file."""
        both = zip(self.section_names, self.sections, strict=True)
        return [(name, section) for name, section in both if name in names and section.file_size]

    def segments_of(self, kind: int) -> list[Segment]:
        return [segment for segment in self.segments if segment.type == kind]

    def offset_of(self, address: int) -> int:
        """Return the file offset of the byte that is loaded at an address."""
        segment = self._by_address.find(address)
        if segment is None:
            raise self.reader.error(f"address {address:#x} is not loaded from the file")
        return segment.offset + address - segment.address

    def load_at(self, offset: int) -> Segment | None:
        """Return the segment that loads the byte at a file offset."""
        return self._by_offset.find(offset)

    @cached_property
    def dynamic(self) -> tuple[tuple[int, int], ...]:
        """Return the dynamic tags and values in order; empty for objects and static programs."""
        found = self.segments_of(DYNAMIC)
        if not found or not found[0].file_size:
            return ()
        layout = self._struct("iI", "qQ")
        offset, size = found[0].offset, found[0].file_size
        if size > _LARGEST_TABLE or size % layout.size:
            raise self.reader.error(f"a dynamic section of {size} bytes", offset)
        entries = layout.iter_unpack(self.reader.read(offset, size))
        return tuple(takewhile(itemgetter(0), entries))

    def value(self, tag: int) -> int | None:
        return next((value for found, value in self.dynamic if found == tag), None)

    def strings(self, tag: int) -> tuple[str, ...]:
        """Return the dynamic strings with a tag."""
        return tuple(
            self.dynamic_strings.string(value) for found, value in self.dynamic if found == tag
        )

    @cached_property
    def dynamic_strings(self) -> Table:
        address, size = self.value(STRING_TABLE), self.value(STRING_TABLE_SIZE)
        if address is None or size is None:
            return self._table(0, 0)
        return self._table(self.offset_of(address), size)

    @cached_property
    def needed_versions(self) -> tuple[str, ...]:
        """Return the symbol versions needed from other libraries, such as ``GLIBC_2.28``."""
        address = self.value(VERSIONS_NEEDED)
        if address is None:
            return ()
        offset = self.offset_of(address)
        length = min(_LARGEST_TABLE, self.reader.size - offset)
        return tuple(dict.fromkeys(self._version_names(self._table(offset, length))))

    def _version_names(self, table: Table) -> Iterator[str]:
        """Yield the versions of all libraries; both are lists linked by relative offsets."""
        position = steps = 0
        while True:
            _, count, _, versions, following = table.record("HHIII", position)
            version = position + versions
            steps += 1 + count
            if steps > _LARGEST_TABLE // 16:
                raise table.error("too many version records", position)
            for _ in range(count):
                _, _, _, name, step = table.record("IHHII", version)
                yield self.dynamic_strings.string(name)
                version += step
            if not following:
                return
            position += following

    def notes(self) -> Iterator[Note]:
        """Yield the notes of the note segments, or of the note sections if those have none:
        patchelf overwrites notes that it moves, and leaves their segment where it was.
        """
        sections = [part for part in self.sections if part.type == SECTION_NOTE]
        found = list(self._notes_in(self.segments_of(NOTE)))
        yield from found or self._notes_in(sections)

    def _notes_in(self, parts: Sequence[Segment] | Sequence[Section]) -> Iterator[Note]:
        if len(parts) > _MOST_NOTES:
            raise self.reader.error(f"{len(parts)} tables of notes")
        room = _LARGEST_TABLE
        for part in parts:
            if part.file_size > room:  # larger notes are annotations that the loader ignores
                continue
            room -= part.file_size
            table = self._table(part.offset, part.file_size)
            alignment = 8 if part.alignment == 8 else 4
            position = 0
            while len(table.content) - position >= _NOTE_HEADER:
                owner_size, size, kind = table.record("III", position)
                content = position + up(_NOTE_HEADER + owner_size, alignment)
                if content + size > len(table.content):
                    break  # overwritten; such libraries load nevertheless
                owner = table.slice(position + _NOTE_HEADER, owner_size).rstrip(b"\0")
                yield Note(owner, kind, table.slice(content, size))
                position = content + up(size, alignment)

    def _table(self, offset: int, size: int) -> Table:
        if size > _LARGEST_STRINGS:
            raise self.reader.error(f"a table of {size} bytes", offset)
        return Table(self.reader, self._order, offset, self.reader.read(offset, size))


class _Loads:
    """Segments by start; a bisection finds them if they are ordered and do not overlap."""

    def __init__(self, segments: Iterable[tuple[int, Segment]]):
        self._segments = [(start, segment) for start, segment in segments if segment.file_size]
        self._starts = [start for start, _ in self._segments]
        ends = [start + segment.file_size for start, segment in self._segments]
        self._are_apart = all(map(le, ends, self._starts[1:]))

    def find(self, place: int) -> Segment | None:
        """Return the first segment that contains a place."""
        near = self._segments
        if self._are_apart:
            index = bisect_right(self._starts, place) - 1
            near = near[index : index + 1] if index >= 0 else []
        for start, segment in near:
            if start <= place < start + segment.file_size:
                return segment
        return None


def up(position: int, step: int) -> int:
    """Round up to a multiple of ``step``."""
    return -(-position // step) * step

"""Reads the dynamic symbols of an ELF file, and the pointers that the loader sets in it.

A symbol with a version, such as ``GLIBC_2.17``, can only come from a library that defines that
version, and PyTorch's libraries define none. So only names without a version are undefined here.
Pointers are in RELA and RELR tables of x86-64 and aarch64; those that code computes are not there.
"""

import struct
from collections.abc import Iterator
from typing import NamedTuple

from stoker.model.artifact import Symbols
from stoker.wheel.elf import elf
from stoker.wheel.elf.elf import Elf, Section

_LOCAL, _WEAK = 0, 2  # bindings
_INTERNAL, _HIDDEN = 1, 2  # visibilities
_VERSION_INDEXES = 0x6FFFFFFF  # the type of the section with a version for each dynamic symbol
_LAST_UNVERSIONED = 1
_LARGEST_SYMBOLS = 512 << 20  # bytes of a symbol table; debuggers' tables are the largest

RELATIVE = {"x86_64": 8, "aarch64": 1027}  # type of relocation: load address plus a number

_RELA, _RELA_SIZE, _RELA_ENTRY = 7, 8, 9
_REL_SIZE = 18
_PLT, _PLT_SIZE, _PLT_KIND = 23, 2, 20
_RELR, _RELR_SIZE = 36, 35
_RELOCATION = struct.Struct("<QIIq")  # place, type, symbol, number to add
_ADDEND = 16  # offset of the number in an entry
_SYMBOL, _SYMBOL_VALUE = 24, 8  # bytes of a 64-bit symbol, and the offset of its address
_WORD = 8
_LARGEST_TABLE = 64 << 20
_MOST_POINTERS = 1 << 22  # a bitmap of eight bytes makes 63


class SymbolRow(NamedTuple):
    """A row of a symbol table, in the order of 64-bit files."""

    name: int
    info: int
    other: int
    section: int
    address: int
    size: int

    @property
    def binding(self) -> int:
        return self.info >> 4

    @property
    def type(self) -> int:
        return self.info & 15

    @property
    def visibility(self) -> int:
        return self.other & 3


def symbol_tables(file: Elf, kind: int) -> Iterator[tuple[Section, Iterator[SymbolRow]]]:
    """Yield each ``SYMBOL_TABLE`` or ``DYNAMIC_SYMBOLS`` section with its rows."""
    order = "<" if file.is_little else ">"
    layout = struct.Struct(order + ("IBBHQQ" if file.is_64_bit else "IIIBBH"))
    for section in file.sections:
        if section.type != kind or not section.file_size:
            continue
        if section.file_size > _LARGEST_SYMBOLS or section.file_size % layout.size:
            raise file.reader.error(f"{section.file_size} bytes of symbols", section.offset)
        rows = layout.iter_unpack(file.reader.read(section.offset, section.file_size))
        if file.is_64_bit:
            yield section, map(SymbolRow._make, rows)
        else:
            yield section, (SymbolRow(row[0], *row[3:], *row[1:3]) for row in rows)


def version_indexes(file: Elf) -> tuple[int, ...]:
    """Return the version of each dynamic symbol; empty if no symbol has one."""
    found = next((part for part in file.sections if part.type == _VERSION_INDEXES), None)
    content = file.reader.read(found.offset, found.file_size // 2 * 2) if found else b""
    return struct.unpack(f"{'<' if file.is_little else '>'}{len(content) // 2}H", content)


def dynamic_symbols(file: Elf) -> Symbols:
    """Return the names that a library exports and those that it needs from others."""
    exported: set[str] = set()
    undefined: set[str] = set()
    versions = version_indexes(file)
    for _, rows in symbol_tables(file, elf.DYNAMIC_SYMBOLS):
        for index, row in enumerate(rows):
            if not row.name or row.binding == _LOCAL:
                continue
            if row.section:
                if row.visibility not in (_INTERNAL, _HIDDEN):
                    exported.add(file.dynamic_strings.string(row.name))
            elif row.binding != _WEAK and (
                index >= len(versions) or versions[index] & 0x7FFF <= _LAST_UNVERSIONED
            ):
                undefined.add(file.dynamic_strings.string(row.name))
    return Symbols(
        file=file.reader.name.rpartition("/")[2],
        machine=file.machine,
        needed=file.strings(elf.NEEDED),
        exported=frozenset(exported),
        undefined=frozenset(undefined - exported),
    )


class Pointer(NamedTuple):
    """Eight bytes that will contain an address. ``addend`` is the file offset of the number."""

    place: int
    target: int
    addend: int
    is_relative: bool  # set to load address plus number, and nothing else


class Symbol(NamedTuple):
    """A symbol that the file defines. ``slot`` is the file offset of its address."""

    address: int
    slot: int


def read_pointers(file: Elf, within: range) -> Iterator[Pointer]:
    """Yield the pointers into ``within`` that are relative to the load address, not a symbol."""
    if file.value(_REL_SIZE) or (file.value(_PLT_KIND) or _RELA) != _RELA:
        raise file.reader.error("relocations of a kind that its machine does not use")
    if file.value(_RELA_ENTRY) not in (None, _RELOCATION.size):
        raise file.reader.error(f"relocations of {file.value(_RELA_ENTRY)} bytes")
    for address, size in ((_RELA, _RELA_SIZE), (_PLT, _PLT_SIZE)):
        offset, content = _table(file, address, size, _RELOCATION.size)
        relative = RELATIVE.get(file.machine)
        for index, (place, kind, symbol, number) in enumerate(_RELOCATION.iter_unpack(content)):
            if number in within and not symbol:
                addend = offset + index * _RELOCATION.size + _ADDEND
                yield Pointer(place, number, addend, kind == relative)
    # A RELR table has addresses, and bitmaps of the 63 words after them.
    _, content = _table(file, _RELR, _RELR_SIZE, _WORD)
    for place, bits in _bitmaps(file, content):
        yield from _marked(file, place, bits, within)


def _marked(file: Elf, place: int, bits: int, within: range) -> Iterator[Pointer]:
    """Yield the pointers among the words that start at ``place``; the lowest bit is the first."""
    last = bits.bit_length() - 1
    offset = file.offset_of(place)
    if file.offset_of(place + _WORD * last) != offset + _WORD * last:  # of two segments
        for bit in range(last + 1):
            if bits >> bit & 1:
                yield from _marked(file, place + _WORD * bit, 1, within)
        return
    numbers = struct.unpack(f"<{last + 1}Q", file.reader.read(offset, _WORD * (last + 1)))
    for bit, number in enumerate(numbers):
        if number in within and bits >> bit & 1:
            yield Pointer(place + _WORD * bit, number, offset + _WORD * bit, True)


def _bitmaps(file: Elf, content: bytes) -> Iterator[tuple[int, int]]:
    """Yield the first marked place, and the bits for it and the words after it."""
    following, count = 0, 0
    for (word,) in struct.iter_unpack("<Q", content):
        start, bits = (following, word >> 1) if word & 1 else (word, 1)
        following = start + (63 if word & 1 else 1) * _WORD
        count += bits.bit_count()
        if count > _MOST_POINTERS:
            raise file.reader.error(f"more than {_MOST_POINTERS} packed relocations")
        if bits:
            skipped = (bits & -bits).bit_length() - 1
            yield start + _WORD * skipped, bits >> skipped


def _table(file: Elf, address: int, size: int, entry: int) -> tuple[int, bytes]:
    start, length = file.value(address), file.value(size)
    if not start or not length:
        return 0, b""
    offset = file.offset_of(start)
    if length > _LARGEST_TABLE or length % entry:
        raise file.reader.error(f"a table of relocations of {length} bytes", offset)
    return offset, file.reader.read(offset, length)


def read_symbols(file: Elf, kind: int, within: range) -> Iterator[Symbol]:
    """Yield the symbols of a 64-bit file with addresses in ``within``."""
    for section, rows in symbol_tables(file, kind):
        for index, row in enumerate(rows):
            if row.address in within and row.section:
                slot = section.offset + index * _SYMBOL + _SYMBOL_VALUE
                yield Symbol(row.address, slot)

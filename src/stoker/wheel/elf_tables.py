"""Reads the dynamic symbols of an ELF file, and the pointers that the loader sets in it.

A symbol with a version, such as ``GLIBC_2.17``, can only come from a library that defines that
version, and PyTorch's libraries define none. So only names without a version are undefined here.
Pointers are in RELA and RELR tables of x86-64 and aarch64; those that code computes are not there.
"""

import struct
from collections.abc import Iterator
from typing import NamedTuple

from stoker.model.artifact import Symbols
from stoker.wheel import elf
from stoker.wheel.elf import Elf

_LOCAL, _WEAK = 0, 2  # bindings
_INTERNAL, _HIDDEN = 1, 2  # visibilities
_VERSIONS = 0x6FFFFFFF  # the type of the section with a version for each symbol
_LAST_UNVERSIONED = 1
_MOST_SYMBOLS = 2 << 20  # libtorch_cpu.so has seventy thousand

RELATIVE = {"x86_64": 8, "aarch64": 1027}  # type of relocation: load address plus a number

_RELA, _RELA_SIZE, _RELA_ENTRY = 7, 8, 9
_REL_SIZE = 18
_PLT, _PLT_SIZE, _PLT_KIND = 23, 2, 20
_RELR, _RELR_SIZE = 36, 35
_RELOCATION = struct.Struct("<QIIq")  # place, type, symbol, number to add
_ADDEND = 16  # offset of the number in an entry
_SYMBOL = struct.Struct("<IBBHQQ")
_SYMBOL_VALUE = 8
_WORD = 8
_LARGEST_TABLE = 64 << 20
_MOST_POINTERS = 1 << 22  # a bitmap of eight bytes makes 63


class _Row(NamedTuple):
    name: int
    binding: int
    visibility: int
    section: int


def dynamic_symbols(file: Elf) -> Symbols:
    """Return the names that a library exports and those that it needs from others."""
    exported: set[str] = set()
    undefined: set[str] = set()
    content = _section(file, _VERSIONS)
    order = "<" if file.is_little else ">"
    versions = struct.unpack(f"{order}{len(content) // 2}H", content[: len(content) // 2 * 2])
    for index, row in enumerate(_rows(file)):
        if not row.name or row.binding == _LOCAL:
            continue
        if row.section:
            if row.visibility not in (_INTERNAL, _HIDDEN):
                exported.add(file.dynamic_strings.string(row.name))
        elif row.binding != _WEAK and _is_unversioned(versions, index):
            undefined.add(file.dynamic_strings.string(row.name))
    return Symbols(
        file=file.reader.name.rpartition("/")[2],
        machine=file.machine,
        needed=file.strings(elf.NEEDED),
        exported=frozenset(exported),
        undefined=frozenset(undefined - exported),
    )


def _rows(file: Elf) -> Iterator[_Row]:
    content = _section(file, elf.DYNAMIC_SYMBOLS)
    order = "<" if file.is_little else ">"
    layout = struct.Struct(order + ("IBBHQQ" if file.is_64_bit else "IIIBBH"))
    if len(content) // layout.size > _MOST_SYMBOLS:
        raise file.reader.error(f"{len(content) // layout.size} dynamic symbols")
    for row in layout.iter_unpack(content[: len(content) // layout.size * layout.size]):
        name, info, other, section = row[:4] if file.is_64_bit else (row[0], *row[3:])
        yield _Row(name, info >> 4, other & 3, section)


def _is_unversioned(versions: tuple[int, ...], index: int) -> bool:
    return index >= len(versions) or versions[index] & 0x7FFF <= _LAST_UNVERSIONED


def _section(file: Elf, kind: int) -> bytes:
    found = next((part for part in file.sections if part.type == kind), None)
    return file.reader.read(found.offset, found.file_size) if found else b""


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
    yield from _packed_offsets(file, within)


def _packed_offsets(file: Elf, within: range) -> Iterator[Pointer]:
    """Yield the pointers of a RELR table: addresses, and bitmaps of the 63 words after them."""
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
    """Yield the symbols of all ``SYMBOL_TABLE`` or ``DYNAMIC_SYMBOLS`` sections in ``within``."""
    for section in file.sections:
        if section.type != kind or not section.file_size:
            continue
        if section.file_size > _LARGEST_TABLE or section.file_size % _SYMBOL.size:
            raise file.reader.error(f"{section.file_size} bytes of symbols", section.offset)
        content = file.reader.read(section.offset, section.file_size)
        for index, (_, _, _, home, address, _) in enumerate(_SYMBOL.iter_unpack(content)):
            if address in within and home:
                slot = section.offset + index * _SYMBOL.size + _SYMBOL_VALUE
                yield Symbol(address, slot)

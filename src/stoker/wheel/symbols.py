"""Reads the dynamic symbols of an ELF file: what it exports, and what others have to export.

A symbol with a version, such as ``GLIBC_2.17``, can only come from a library that defines that
version, and PyTorch's libraries define none. So only names without a version are undefined here.
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

"""Reads the records by which a library passes its device code to the CUDA runtime.

wrapper   u32 mark, u32 version (1; 2 after linking device code), u64 address of a region,
          u64 address of a list that is filled when the library is loaded, or 0
"""

import struct
from typing import NamedTuple

from stoker.artifact.elf import Elf

SECTION = ".nvFatBinSegment"
REGION_FIELD = 8  # offset of the region's address

_WRAPPER = struct.Struct("<IIQQ")
_MARK, _VERSIONS = 0x466243B1, (1, 2)
_MOST_BYTES = _WRAPPER.size << 17  # the largest libraries have about ten thousand wrappers


class Wrapper(NamedTuple):
    """``offset`` is the file offset; ``region`` is the value in the file, before relocation."""

    address: int
    offset: int
    region: int


def read_wrappers(file: Elf) -> tuple[Wrapper, ...]:
    return tuple(
        Wrapper(section.address + at, section.offset + at, region)
        for _, section in file.named(SECTION)
        for at, region in _fields(file, section.offset, section.size)
    )


def _fields(file: Elf, offset: int, size: int) -> list[tuple[int, int]]:
    """Return the offset of each wrapper in the section, and its region."""
    if size % _WRAPPER.size or size > _MOST_BYTES:
        raise file.reader.error(f"{size} bytes of device code wrappers", offset)
    found = []
    for index, fields in enumerate(_WRAPPER.iter_unpack(file.reader.read(offset, size))):
        mark, version, region, _ = fields
        if mark != _MARK or version not in _VERSIONS:
            raise file.reader.error("this is not a device code wrapper", offset + index * 24)
        found.append((index * _WRAPPER.size, region))
    return found

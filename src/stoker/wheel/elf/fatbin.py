"""Reads device code inside a library: regions of entries, and the wrappers that point to regions.

Only headers are read. Anything unknown is an error with its offset, because `stoker slim` must not
guess. All numbers are little-endian:

    region    u32 mark, u16 version, u16 header size, u64 bytes that follow; then entries
    entry     64 bytes or more of header, then its payload, padded to 8 bytes
    wrapper   u32 mark, u32 version, u64 address of a region, u64 address of a list or 0

A region holds one entry for each architecture and kind of code. A library passes its regions to the
CUDA runtime by wrappers; their version is 1, or 2 after linking device code, and the list is filled
when the library is loaded.
"""

import struct
from bisect import bisect_right
from collections.abc import Iterator
from typing import NamedTuple

from stoker.model.artifact import Compression, DeviceKind
from stoker.wheel.elf.elf import Elf
from stoker.wheel.reader import Reader

# The sections that contain regions. Code in LINKED runs; code in RELOCATABLE is left over from
# linking device code; SCATTERED contains regions between other data.
LINKED, RELOCATABLE, SCATTERED = ".nv_fatbin", "__nv_relfatbin", ".cask_resource"
SECTIONS = (LINKED, RELOCATABLE, SCATTERED)

_REGION = struct.Struct("<IHHQ")
HEADER_SIZE = _REGION.size
_REGION_START = struct.pack("<IHH", 0xBA55ED50, 1, _REGION.size)
_ENTRY = struct.Struct("<HHIQIIHHIIIQQQ")
_ENTRY_VERSION = 0x0101
_MOST_SECTIONS = 4  # real libraries have at most one of each name
_LARGEST_HEADER = 4096  # real ones have 64 to 120 bytes
_WINDOW = 512  # more than a region's header, an entry's header and the padding between regions
_BLOCK = 1 << 20
MOST_ENTRIES = 1 << 17  # of one file; the largest libraries have some ten thousand
_MOST_KEPT = 1 << 15  # headers kept in memory while a library is streamed, half a kilobyte each

_LARGEST_NUMBER = 999  # of an architecture

_KINDS = {1: DeviceKind.PTX, 2: DeviceKind.CUBIN, 8: DeviceKind.LTOIR}
_PREFIXES = {DeviceKind.PTX: "compute", DeviceKind.CUBIN: "sm", DeviceKind.LTOIR: "lto"}
_LZ4, _ZSTD = 0x2000, 0x8000
_ARCHITECTURE_SPECIFIC, _FAMILY_SPECIFIC = 0x100000, 0x200000

SECTION = ".nvFatBinSegment"
REGION_FIELD = 8  # offset of the region's address
_WRAPPER = struct.Struct("<IIQQ")
_MARK, _VERSIONS = 0x466243B1, (1, 2)
_MOST_BYTES = _WRAPPER.size << 17  # the largest libraries have about ten thousand wrappers


class FatbinEntry(NamedTuple):
    """``offset`` is the file offset of the header; sizes are bytes, the payload padded."""

    offset: int
    kind: DeviceKind
    number: int  # 90
    flags: int
    header_size: int
    payload_size: int
    compressed_size: int  # without padding; 0: not compressed
    unpacked_size: int

    @property
    def suffix(self) -> str:
        if self.flags & _ARCHITECTURE_SPECIFIC:
            return "a"
        return "f" if self.flags & _FAMILY_SPECIFIC else ""

    @property
    def arch(self) -> str:
        """Return the name as nvcc writes it: ``sm_90a``, ``compute_90``, ``lto_90``."""
        return f"{_PREFIXES[self.kind]}_{self.number}{self.suffix}"

    @property
    def compression(self) -> Compression:
        if not self.compressed_size:
            return Compression.NONE
        if self.flags & _LZ4:
            return Compression.LZ4
        return Compression.ZSTD if self.flags & _ZSTD else Compression.OTHER

    @property
    def end(self) -> int:
        return self.offset + self.header_size + self.payload_size


class Region(NamedTuple):
    offset: int
    end: int
    entries: tuple[FatbinEntry, ...]


def region_header(size: int) -> bytes:
    """Return the header of a region with ``size`` bytes of entries."""
    return _REGION_START + struct.pack("<Q", size)


def zstd_entry(header: bytes, payload: bytes) -> bytes:
    """Return an entry with the given header and a payload that is compressed with zstd."""
    fields = list(_ENTRY.unpack_from(header))
    fields[3] = -(-len(payload) // 8) * 8
    fields[4] = len(payload)
    fields[11] = fields[11] & ~_LZ4 | _ZSTD
    whole = _ENTRY.pack(*fields) + header[_ENTRY.size :] + payload
    return whole.ljust(len(header) + fields[3], b"\0")


def device_regions(file: Elf) -> Iterator[tuple[str, Region]]:
    """Yield all regions of device code with their sections, in file order."""
    sections = file.named(*SECTIONS)
    if len(sections) > _MOST_SECTIONS:
        raise file.reader.error(f"{len(sections)} sections of device code")
    left = MOST_ENTRIES
    for name, section in sections:
        for region in read_regions(file.reader, name, section.offset, section.size):
            left -= 1 + len(region.entries)
            if left < 0:
                raise file.reader.error(f"more than {MOST_ENTRIES} entries of device code")
            yield name, region


def read_regions(reader: Reader, section: str, start: int, size: int) -> Iterator[Region]:
    """Yield the regions of a section that starts at ``start``."""
    position, end, left = start, start + size, MOST_ENTRIES
    while (found := _next_region(reader, section, position, end)) is not None:
        region = _read_region(reader, found, end, left)
        yield region
        position = region.end
        left -= 1 + len(region.entries)
        if left < 0:
            raise reader.error(f"more than {MOST_ENTRIES} regions of device code", position)


def _next_region(reader: Reader, section: str, position: int, end: int) -> int | None:
    """Return the start of the next region; only zeros may precede it, unless scattered."""
    length = _WINDOW
    while position < end:
        data = reader.read(position, min(length, end - position))
        if section != SCATTERED:
            stray = len(data) - len(data.lstrip(b"\0"))
            if stray < len(data):
                return position + stray
            position += len(data)
        elif (at := data.find(_REGION_START)) >= 0:
            return position + at
        else:
            # A mark may continue after the bytes that were read.
            position += len(data) if position + len(data) == end else len(data) - 7
        length = _BLOCK
    return None


def _read_region(reader: Reader, offset: int, limit: int, most: int) -> Region:
    header = reader.read(offset, _REGION.size)
    if not header.startswith(_REGION_START):
        raise reader.error("this is not a region of device code", offset)
    end = offset + _REGION.size + _REGION.unpack(header)[3]
    if end > limit:
        raise reader.error(f"device code extends {end - limit} bytes beyond its section", offset)
    entries: list[FatbinEntry] = []
    position = offset + _REGION.size
    while position < end:
        if len(entries) >= most:
            raise reader.error(f"more than {MOST_ENTRIES} entries of device code", position)
        entry = _read_entry(reader, position, end)
        entries.append(entry)
        position = entry.end
    return Region(offset, end, tuple(entries))


def _read_entry(reader: Reader, offset: int, limit: int) -> FatbinEntry:
    if limit - offset < _ENTRY.size:
        raise reader.error("an entry of device code is truncated", offset)
    # fmt: off
    (kind, version, header_size, payload_size, compressed_size, _, _, _, number, _, _, flags, _,
     unpacked_size) = _ENTRY.unpack(reader.read(offset, _ENTRY.size))
    # fmt: on
    if number > _LARGEST_NUMBER:
        raise reader.error(f"device code for an unknown architecture {number}", offset)
    if kind not in _KINDS or version != _ENTRY_VERSION:
        raise reader.error(f"device code of unknown kind {kind}, version {version:#x}", offset)
    if not _ENTRY.size <= header_size <= _LARGEST_HEADER:
        raise reader.error(f"an entry of device code with {header_size} bytes of header", offset)
    if header_size + payload_size > limit - offset or compressed_size > payload_size:
        raise reader.error("an entry of device code is larger than its region", offset)
    return FatbinEntry(
        offset=offset,
        kind=_KINDS[kind],
        number=number,
        flags=flags,
        header_size=header_size,
        payload_size=payload_size,
        compressed_size=compressed_size,
        unpacked_size=unpacked_size if compressed_size else payload_size,
    )


class FatbinLookout:
    """Keeps the headers of device code while a library is streamed, and skips the code itself.

    The section table is at the end of the file, so a region is recognised by its first eight
    bytes. ``read_regions`` checks everything afterwards.
    """

    def __init__(self) -> None:
        self._offsets: list[int] = []
        self._pieces: list[bytes] = []
        self._data = b""  # received, but not processed
        self._start = 0  # offset of its first byte
        self._next = 0  # offset of the next header, or where the search continues
        self._region_end: int | None = None  # None: between regions

    def see(self, data: bytes) -> None:
        payload = self._next >= self._start + len(self._data) + len(data)
        if payload or len(self._offsets) >= _MOST_KEPT:
            self._start += len(self._data) + len(data)
            self._data = b""
            return
        self._data += data
        while len(self._offsets) < _MOST_KEPT and self._advance():
            pass
        done = min(self._next - self._start, len(self._data))
        self._data = self._data[done:]
        self._start += done

    def kept(self, offset: int, length: int) -> bytes | None:
        index = bisect_right(self._offsets, offset) - 1
        if index < 0:
            return None
        within = offset - self._offsets[index]
        piece = self._pieces[index][within : within + length]
        return piece if len(piece) == length else None

    def _advance(self) -> bool:
        """Process one header; return False if more bytes are needed."""
        at = self._next - self._start
        if self._region_end is None:
            at = self._data.find(_REGION_START, at)
            if at < 0:
                self._next = max(self._next, self._start + len(self._data) - 7)
                return False
            self._next = self._start + at
        window = self._data[at : at + _WINDOW]
        if len(window) < _WINDOW:
            return False
        if not self._offsets or self._offsets[-1] < self._next:
            self._offsets.append(self._next)
            self._pieces.append(window)
        if self._region_end is None:
            self._region_end = self._next + _REGION.size + _REGION.unpack_from(window)[3]
            self._next += _REGION.size
        elif self._next >= self._region_end:
            self._region_end = None
        else:
            _, _, header_size, payload_size, *_ = _ENTRY.unpack_from(window)
            following = self._next + header_size + payload_size
            if header_size < _ENTRY.size or following > (self._region_end or 0):
                self._region_end = None  # it was not a region
            else:
                self._next = following
        return True


class Wrapper(NamedTuple):
    """``offset`` is the file offset; ``region`` is the value in the file, before relocation."""

    address: int
    offset: int
    region: int


def read_wrappers(file: Elf) -> tuple[Wrapper, ...]:
    found = []
    for _, section in file.named(SECTION):
        if section.size % _WRAPPER.size or section.size > _MOST_BYTES:
            raise file.reader.error(f"{section.size} bytes of device code wrappers", section.offset)
        rows = _WRAPPER.iter_unpack(file.reader.read(section.offset, section.size))
        for index, (mark, version, region, _) in enumerate(rows):
            at = index * _WRAPPER.size
            if mark != _MARK or version not in _VERSIONS:
                raise file.reader.error("this is not a device code wrapper", section.offset + at)
            found.append(Wrapper(section.address + at, section.offset + at, region))
    return tuple(found)

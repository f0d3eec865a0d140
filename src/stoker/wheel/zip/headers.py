"""Packs and unpacks the records of a zip file, with zip64 for large numbers.

``directory`` decides which names, sizes and flags are allowed.
"""

import struct
from collections.abc import Iterator
from typing import NamedTuple

STORED, DEFLATED = 0, 8
ENCRYPTED, DESCRIPTOR, UTF8 = 1 << 0, 1 << 3, 1 << 11  # flags
DEFLATE_HINTS = 0b110  # flags with the compression level
UNIX = 3
ZIP64, SECOND_NAME = 0x0001, 0x7075  # extra fields

_MANY, _LARGE = 0xFFFF, 0xFFFFFFFF  # mean "see the zip64 record"
_LOCAL = struct.Struct("<4s5H3L2H")
_ENTRY = struct.Struct("<4s2B5H3L5H2L")
_END = struct.Struct("<4s4H2LH")
_END64 = struct.Struct("<4sQ2H2L4Q")
_LOCATOR64 = struct.Struct("<4sLQL")
_LOCAL_MARK, _ENTRY_MARK = b"PK\x03\x04", b"PK\x01\x02"
_END_MARK, _END64_MARK, _LOCATOR64_MARK = b"PK\x05\x06", b"PK\x06\x06", b"PK\x06\x07"
_DESCRIPTOR_MARK = b"PK\x07\x08"

LOCAL_SIZE, END_SIZE, END64_SIZE = _LOCAL.size, _END.size, _END64.size + _LOCATOR64.size


class MalformedError(Exception):
    """A record violates the format. The reader adds its place."""


class Sizes(NamedTuple):
    crc: int
    compressed: int
    unpacked: int


class DirectoryEntry(NamedTuple):
    """One entry of the central directory."""

    system: int
    version: int  # of the format, that a reader must support
    flags: int
    method: int
    sizes: Sizes
    attributes: int
    offset: int
    name: bytes
    extra: dict[int, bytes]


class Local(NamedTuple):
    """The header before a member's data, without its name and extra fields."""

    flags: int
    method: int
    sizes: Sizes
    name_length: int
    extra_length: int


class MemberHeader(NamedTuple):
    """A member to write. ``moment`` is date and time in DOS format; ``wide`` means zip64."""

    name: bytes
    method: int
    moment: int
    sizes: Sizes
    wide: bool

    @property
    def common(self) -> tuple[int, ...]:
        flags = 0 if self.name.isascii() else UTF8
        return flags, self.method, self.moment & 0xFFFF, self.moment >> 16


class End(NamedTuple):
    """The place of the central directory, and the number of its ``entries``."""

    entries: int
    size: int
    offset: int

    def agrees(self, wide: "End") -> bool:
        """Return whether a zip64 record has the same values, or values too large for this one."""
        return self == (min(wide.entries, _MANY), min(wide.size, _LARGE), min(wide.offset, _LARGE))


def unpack_entries(directory: bytes, count: int) -> Iterator[tuple[int, DirectoryEntry]]:
    """Yield every entry with its position; surplus or missing bytes are an error."""
    position = 0
    for _ in range(count):
        entry, length = _unpack_entry(directory, position)
        yield position, entry
        position += length
    if position != len(directory):
        raise MalformedError(f"the central directory holds more than its {count} entries")


def _unpack_entry(directory: bytes, position: int) -> tuple[DirectoryEntry, int]:
    if len(directory) - position < _ENTRY.size:
        raise MalformedError("the central directory is truncated")
    fields = _ENTRY.unpack_from(directory, position)
    mark, _, system, version, flags, method, _, _, crc, compressed, unpacked = fields[:11]
    name_length, extra_length, comment_length, disk, _, attributes, offset = fields[11:]
    if mark != _ENTRY_MARK:
        raise MalformedError("this is not an entry of the central directory")
    names = position + _ENTRY.size
    extras = names + name_length
    end = extras + extra_length + comment_length
    if end > len(directory):
        raise MalformedError("an entry of the central directory is truncated")
    extra = unpack_extra(directory[extras : extras + extra_length])
    unpacked, compressed, offset = _widened(extra, unpacked, compressed, offset)
    if disk != 0:
        raise MalformedError("the archive is split over several files")
    entry = DirectoryEntry(
        system=system,
        version=version,
        flags=flags,
        method=method,
        sizes=Sizes(crc, compressed, unpacked),
        attributes=attributes,
        offset=offset,
        name=directory[names:extras],
        extra=extra,
    )
    return entry, end - position


def unpack_extra(extra: bytes) -> dict[int, bytes]:
    fields: dict[int, bytes] = {}
    position = 0
    while position < len(extra):
        if len(extra) - position < 4:
            raise MalformedError("an extra field is truncated")
        kind, length = struct.unpack_from("<2H", extra, position)
        position += 4 + length
        if position > len(extra) or kind in fields:
            raise MalformedError("an extra field is truncated or duplicated")
        fields[kind] = extra[position - length : position]
    return fields


def _widened(extra: dict[int, bytes], *numbers: int) -> list[int]:
    """Return the numbers; those too large for their field come from the zip64 field."""
    if _LARGE not in numbers:
        return list(numbers)
    field = extra.get(ZIP64, b"")
    wanted = numbers.count(_LARGE)
    if len(field) < 8 * wanted:
        raise MalformedError("the zip64 field is missing or truncated")
    wide = iter(struct.unpack_from(f"<{wanted}Q", field))
    return [next(wide) if number == _LARGE else number for number in numbers]


def unpack_local(header: bytes) -> Local:
    """Unpack the first ``LOCAL_SIZE`` bytes; sizes may still mean "see the zip64 field"."""
    if len(header) < _LOCAL.size:
        raise MalformedError("the local header is truncated")
    mark, _, flags, method, _, _, crc, compressed, unpacked, name_length, extra_length = (
        _LOCAL.unpack_from(header)
    )
    if mark != _LOCAL_MARK:
        raise MalformedError("this is not a local header")
    return Local(flags, method, Sizes(crc, compressed, unpacked), name_length, extra_length)


def local_sizes(local: Local, extra: bytes) -> Sizes:
    """Return the sizes of a local header, from the zip64 field if needed."""
    _, compressed, unpacked = local.sizes
    if _LARGE in (compressed, unpacked):
        unpacked, compressed = _widened(unpack_extra(extra), unpacked, compressed)
    return Sizes(local.sizes.crc, compressed, unpacked)


def descriptors(sizes: Sizes) -> list[bytes]:
    """Return all valid descriptors after a member: narrow or wide, with or without a mark."""
    wide = struct.pack("<L2Q", *sizes)
    if max(sizes) > _LARGE:
        return [wide, _DESCRIPTOR_MARK + wide]
    narrow = struct.pack("<3L", *sizes)
    return [narrow, _DESCRIPTOR_MARK + narrow, wide, _DESCRIPTOR_MARK + wide]


def unpack_end(record: bytes) -> End:
    """Unpack the last ``END_SIZE`` bytes of the file."""
    if len(record) < _END.size or record[:4] != _END_MARK:
        raise MalformedError("no end of the central directory: truncated, or not a zip file")
    _, disk, start, here, count, size, offset, comment = _END.unpack(record)
    if disk or start or here != count or comment:
        raise MalformedError("the archive is split over several files or has a comment")
    return End(count, size, offset)


def unpack_end64(record: bytes, position: int) -> End | None:
    """Unpack the ``END64_SIZE`` bytes at ``position``; return None if it is not zip64."""
    if len(record) < END64_SIZE or not record.startswith(_LOCATOR64_MARK, _END64.size):
        return None
    mark, length, _, _, disk, start, here, count, size, offset = _END64.unpack_from(record)
    _, located_disk, located, disks = _LOCATOR64.unpack_from(record, _END64.size)
    if mark != _END64_MARK or length != _END64.size - 12:
        raise MalformedError("this is not a zip64 end record")
    if located != position or disk or start or located_disk or disks != 1 or here != count:
        raise MalformedError("the zip64 end record has a wrong position")
    return End(count, size, offset)


def pack_local(header: MemberHeader) -> bytes:
    """Pack the header before a member's data."""
    sizes = header.sizes
    extra = b""
    if header.wide:
        extra = struct.pack("<2H2Q", ZIP64, 16, sizes.unpacked, sizes.compressed)
        sizes = Sizes(sizes.crc, _LARGE, _LARGE)
    fields = (_version(header.wide), *header.common, *sizes, len(header.name), len(extra))
    return _LOCAL.pack(_LOCAL_MARK, *fields) + header.name + extra


def pack_entry(header: MemberHeader, *, mode: int, offset: int) -> bytes:
    """Pack one entry of the central directory."""
    numbers = (header.sizes.unpacked, header.sizes.compressed, offset)
    large = [number for number in numbers if number >= _LARGE]
    extra = struct.pack(f"<2H{len(large)}Q", ZIP64, 8 * len(large), *large) if large else b""
    version = _version(header.wide or bool(large))
    unpacked, compressed, shown = (min(number, _LARGE) for number in numbers)
    fields = (version, UNIX, version, *header.common, header.sizes.crc, compressed, unpacked)
    lengths = (len(header.name), len(extra), 0, 0, 0)
    return _ENTRY.pack(_ENTRY_MARK, *fields, *lengths, mode << 16, shown) + header.name + extra


def _version(wide: bool) -> int:
    """Return the version of the format that a reader must support."""
    return 45 if wide else 20


def pack_end(end: End) -> bytes:
    """Pack all records after the central directory."""
    narrow = (min(end.entries, _MANY),) * 2 + (min(end.size, _LARGE), min(end.offset, _LARGE))
    records = _END.pack(_END_MARK, 0, 0, *narrow, 0)
    if end.entries < _MANY and max(end.size, end.offset) < _LARGE:
        return records
    numbers = (end.entries, end.entries, end.size, end.offset)
    versions = (_version(True), _version(True))
    wide = _END64.pack(_END64_MARK, _END64.size - 12, *versions, 0, 0, *numbers)
    locator = _LOCATOR64.pack(_LOCATOR64_MARK, 0, end.offset + end.size, 1)
    return wide + locator + records


def is_large(size: int) -> bool:
    return size >= _LARGE

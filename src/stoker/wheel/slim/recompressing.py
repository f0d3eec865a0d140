"""Compresses kept device code with zstd instead of LZ4, and decompresses it to compare it.

zstd needs less than half the space, and a driver of 550.54.14 or newer. Very large entries stay
unchanged. The packages lz4 and zstandard are optional.
"""

import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

from stoker.model.artifact import Compression
from stoker.model.errors import MissingError
from stoker.wheel.elf.fatbin import FatbinEntry, zstd_entry
from stoker.wheel.reader import Reader
from stoker.wheel.slim.regions import DeviceRegion
from stoker.wheel.zip.threads import threads

_LARGEST = 128 << 20  # bytes that one entry may unpack to
_LEVEL = 6  # of 22; higher ones take twice the time for a few per cent
_MOST_MEMORY = 256 << 20  # bytes
_COPIES = 2  # of a decompressed entry: the decoder makes one of its own
_ONE_LIBRARY = threading.Lock()  # each uses all cores, and memory is bounded for one


def recompress(reader: Reader, regions: Sequence[DeviceRegion]) -> list[DeviceRegion]:
    """Return the same regions with recompressed entries, where these are smaller."""
    check_codecs()
    entries = [
        entry
        for region in regions
        if not region.is_fixed
        for entry in region.kept
        if entry.compression is Compression.LZ4 and entry.unpacked_size <= _LARGEST
    ]

    def repacked(entry: FatbinEntry) -> bytes:
        header = reader.read(entry.offset, entry.header_size)
        return zstd_entry(header, packed_by_zstd(unpacked(reader, entry)))

    largest = max((entry.unpacked_size for entry in entries), default=1)
    workers = max(1, min(threads(), _MOST_MEMORY // (_COPIES * largest or 1)))
    with _ONE_LIBRARY, ThreadPoolExecutor(workers) as pool:
        made = list(pool.map(repacked, entries))
    smaller = {
        entry.offset: content
        for entry, content in zip(entries, made, strict=True)
        if len(content) < entry.end - entry.offset
    }
    become = []
    for region in regions:
        offsets = [entry.offset for entry in region.kept if entry.offset in smaller]
        become.append(region._replace(repacked={offset: smaller[offset] for offset in offsets}))
    return become


def check_codecs() -> None:
    """Raise a MissingError if a package is not installed."""
    from stoker.machine.installers import own_install

    try:
        import lz4.block  # noqa: F401
        import zstandard  # noqa: F401
    except ImportError as error:
        raise MissingError(
            f"recompression needs the package {error.name}, which is not installed",
            hints=[own_install("lz4", "zstandard")],
        ) from None


def unpacked(reader: Reader, entry: FatbinEntry) -> bytes:
    if entry.unpacked_size > _LARGEST:
        raise reader.error(f"device code of {entry.unpacked_size} bytes", entry.offset)
    start = entry.offset + entry.header_size
    if entry.compression is Compression.NONE:
        return reader.read(start, entry.payload_size)
    check_codecs()
    import lz4.block
    import zstandard

    packed, size = reader.read(start, entry.compressed_size), entry.unpacked_size
    try:
        if entry.compression is Compression.LZ4:
            content = bytes(lz4.block.decompress(packed, uncompressed_size=size))
        elif entry.compression is Compression.ZSTD:
            # The decompressor allocates the declared size, whatever max_output_size is.
            declared = zstandard.frame_content_size(packed)
            if declared not in (size, -1):  # -1: the frame does not say
                raise ValueError(f"its frame declares {declared} bytes, not {size}")
            content = zstandard.ZstdDecompressor().decompress(packed, max_output_size=size)
        else:
            raise ValueError("its compression is unknown")
    except (lz4.block.LZ4BlockError, zstandard.ZstdError, ValueError) as error:
        raise reader.error(f"device code cannot be unpacked: {error}", entry.offset) from None
    if len(content) != size:
        raise reader.error(f"device code unpacks to {len(content)} bytes", entry.offset)
    return content


def packed_by_zstd(content: bytes) -> bytes:
    check_codecs()
    import zstandard

    return zstandard.ZstdCompressor(level=_LEVEL).compress(content)

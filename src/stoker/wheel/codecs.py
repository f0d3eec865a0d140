"""Decompresses and compresses entries of device code, with the packages lz4 and zstandard."""

from stoker.model.artifact import Compression
from stoker.model.errors import ArtifactError, MissingError
from stoker.wheel.fatbin import FatbinEntry
from stoker.wheel.reader import Reader

LARGEST = 128 << 20  # bytes that one entry may unpack to
_LEVEL = 6  # of 22; higher ones take twice the time for a few per cent


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
    if entry.unpacked_size > LARGEST:
        raise reader.error(f"device code of {entry.unpacked_size} bytes", entry.offset)
    start = entry.offset + entry.header_size
    if entry.compression is Compression.NONE:
        return reader.read(start, entry.payload_size)
    packed = reader.read(start, entry.compressed_size)
    content = _decoded(packed, entry, reader)
    if len(content) != entry.unpacked_size:
        raise reader.error(f"device code unpacks to {len(content)} bytes", entry.offset)
    return content


def _decoded(packed: bytes, entry: FatbinEntry, reader: Reader) -> bytes:
    check_codecs()
    import lz4.block
    import zstandard

    size = entry.unpacked_size
    try:
        if entry.compression is Compression.LZ4:
            return bytes(lz4.block.decompress(packed, uncompressed_size=size))
        if entry.compression is Compression.ZSTD:
            # The decompressor allocates the declared size, whatever max_output_size is.
            declared = zstandard.frame_content_size(packed)
            if declared not in (size, -1):  # -1: the frame does not say
                raise _broken(reader, entry, f"its frame declares {declared} bytes, not {size}")
            return zstandard.ZstdDecompressor().decompress(packed, max_output_size=size)
    except (lz4.block.LZ4BlockError, zstandard.ZstdError) as error:
        raise _broken(reader, entry, str(error)) from None
    raise _broken(reader, entry, "its compression is unknown")


def _broken(reader: Reader, entry: FatbinEntry, why: str) -> ArtifactError:
    return reader.error(f"device code cannot be unpacked: {why}", entry.offset)


def packed_by_zstd(content: bytes) -> bytes:
    check_codecs()
    import zstandard

    return zstandard.ZstdCompressor(level=_LEVEL).compress(content)

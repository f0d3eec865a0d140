"""Compresses kept LZ4 entries with zstd instead, which needs less than half the space.

Drivers support it since 550.54.14. Very large entries stay unchanged.
"""

import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

from stoker.model.artifact import Compression
from stoker.outside.process import threads
from stoker.wheel import fatbin
from stoker.wheel.codecs import LARGEST, check_codecs, packed_by_zstd, unpacked
from stoker.wheel.fatbin import FatbinEntry
from stoker.wheel.reader import Reader
from stoker.wheel.slim.regions import DeviceRegion

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
        if entry.compression is Compression.LZ4 and entry.unpacked_size <= LARGEST
    ]
    with _ONE_LIBRARY, ThreadPoolExecutor(_workers(entries)) as pool:
        made = list(pool.map(lambda entry: _packed(reader, entry), entries))
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


def _workers(entries: Sequence[FatbinEntry]) -> int:
    """Return the number of threads whose decompressed entries fit into the memory limit."""
    largest = max((entry.unpacked_size for entry in entries), default=1)
    return max(1, min(threads(), _MOST_MEMORY // (_COPIES * largest or 1)))


def _packed(reader: Reader, entry: FatbinEntry) -> bytes:
    header = reader.read(entry.offset, entry.header_size)
    return fatbin.zstd_entry(header, packed_by_zstd(unpacked(reader, entry)))

"""Kept entries that are packed by LZ4, packed anew by zstd, which takes less than half the room.

Drivers unpack it since 550.54.14. Entries of an extraordinary size stay as they are.
"""

import threading
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor

from stoker.artifact import fatbin
from stoker.artifact.engine.parallel import threads
from stoker.artifact.fatbin import Entry
from stoker.artifact.reader import Reader
from stoker.artifact.unpacked import LARGEST, check_codecs, packed_by_zstd, unpacked
from stoker.deliver.slim.regions import DeviceRegion
from stoker.model.artifact import Compression

_MOST_MEMORY = 256 << 20  # bytes
_COPIES = 2  # of what an entry unpacks to: the decoder makes one of its own
_ONE_LIBRARY = threading.Lock()  # each uses all cores, and memory is bounded for one


def recompress(reader: Reader, regions: Sequence[DeviceRegion]) -> list[DeviceRegion]:
    """The same regions, with the entries that became smaller."""
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
    return [region._replace(repacked=_of(region, smaller)) for region in regions]


def _workers(entries: Sequence[Entry]) -> int:
    """As many as keep what is unpacked at the same time within a fixed memory."""
    largest = max((entry.unpacked_size for entry in entries), default=1)
    return max(1, min(threads(), _MOST_MEMORY // (_COPIES * largest or 1)))


def _of(region: DeviceRegion, contents: Mapping[int, bytes]) -> dict[int, bytes]:
    offsets = [entry.offset for entry in region.kept]
    return {offset: contents[offset] for offset in offsets if offset in contents}


def _packed(reader: Reader, entry: Entry) -> bytes:
    header = reader.read(entry.offset, entry.header_size)
    return fatbin.zstd_entry(header, packed_by_zstd(unpacked(reader, entry)))

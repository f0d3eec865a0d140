"""Places kept regions towards the start of their section, except those that may not move.

Offsets are those of the original file; ``cutting`` removes the freed ranges afterwards. On request,
LZ4 entries are compressed with zstd instead, which needs less than half the space and a driver of
550.54.14 or newer. Very large entries stay unchanged.
"""

import threading
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import reduce
from operator import or_
from typing import NamedTuple

from stoker.model.artifact import Compression
from stoker.wheel import elf, fatbin
from stoker.wheel.elf import Elf, up
from stoker.wheel.engine.threads import threads
from stoker.wheel.fatbin import LARGEST, FatbinEntry, check_codecs, packed_by_zstd, unpacked
from stoker.wheel.reader import Reader
from stoker.wheel.slim.regions import DeviceRegion
from stoker.wheel.slim.spans import ByteSpan, spans_without

_LARGEST_ALIGNMENT = 256

_MOST_MEMORY = 256 << 20  # bytes
_COPIES = 2  # of a decompressed entry: the decoder makes one of its own
_ONE_LIBRARY = threading.Lock()  # each uses all cores, and memory is bounded for one


class Placed(NamedTuple):
    """A region and its new offset."""

    region: DeviceRegion
    offset: int

    @property
    def span(self) -> ByteSpan:
        return ByteSpan(self.offset, self.offset + self.region.kept_size)

    @property
    def address(self) -> int:
        return self.region.address + self.offset - self.region.region.offset

    @property
    def has_moved(self) -> bool:
        return self.offset != self.region.region.offset

    def entries(self) -> Iterator[tuple[FatbinEntry, int]]:
        """Yield the kept entries with their new offsets."""
        offset = self.offset + fatbin.HEADER_SIZE
        for entry in self.region.kept:
            yield entry, offset
            offset += self.region.size_of(entry)


class Packing(NamedTuple):
    """``rewritten`` covers every region, and the gaps between regions if they hold nothing."""

    placed: tuple[Placed, ...]
    rewritten: tuple[ByteSpan, ...]
    freed: tuple[ByteSpan, ...]


def pack_regions(file: Elf, regions: Sequence[DeviceRegion]) -> Packing:
    placed: list[Placed] = []
    rewritten: list[ByteSpan] = []
    freed: list[ByteSpan] = []
    ordered = sorted(regions, key=lambda region: region.region.offset)
    starts = [region.region.offset for region in ordered]
    for name, stretch in _stretches(file):
        inside = ordered[bisect_left(starts, stretch.start) : bisect_left(starts, stretch.end)]
        if not inside:
            continue
        here = list(_place(inside, stretch.start))
        placed += here
        if name == fatbin.SCATTERED:  # none of them moves
            rewritten += [ByteSpan(region.region.offset, region.region.end) for region in inside]
            freed += [ByteSpan(one.span.end, one.region.region.end) for one in here]
        else:
            rewritten.append(stretch)
            freed += spans_without(stretch, (one.span for one in here))
    return Packing(tuple(placed), tuple(rewritten), tuple(freed))


def _stretches(file: Elf) -> Iterator[tuple[str, ByteSpan]]:
    """Yield the loaded ranges of device code; a section slimmed before may have several."""
    for name, section in file.named(*fatbin.SECTIONS):
        for load in file.segments_of(elf.LOAD):
            start = max(section.offset, load.offset)
            end = min(section.offset + section.size, load.offset + load.file_size)
            if start < end:
                yield name, ByteSpan(start, end)


def _place(regions: Sequence[DeviceRegion], start: int) -> Iterator[Placed]:
    """Place the regions in order. None reaches the next one, because no region grows."""
    bits = reduce(or_, (region.address for region in regions), _LARGEST_ALIGNMENT)
    alignment = bits & -bits  # which all regions have now
    following = start
    for region in regions:
        offset = region.region.offset
        if region.is_movable:
            distance = region.address - offset
            offset = up(following + distance, alignment) - distance
        placed = Placed(region, offset)
        yield placed
        following = placed.span.end


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
    largest = max((entry.unpacked_size for entry in entries), default=1)
    workers = max(1, min(threads(), _MOST_MEMORY // (_COPIES * largest or 1)))
    with _ONE_LIBRARY, ThreadPoolExecutor(workers) as pool:
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


def _packed(reader: Reader, entry: FatbinEntry) -> bytes:
    header = reader.read(entry.offset, entry.header_size)
    return fatbin.zstd_entry(header, packed_by_zstd(unpacked(reader, entry)))

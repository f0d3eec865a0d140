"""Places kept regions towards the start of their section, except those that may not move.

Offsets are those of the original file; ``cutting`` removes the freed ranges afterwards.
"""

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from functools import reduce
from operator import or_
from typing import NamedTuple

from stoker.wheel.elf import elf, fatbin
from stoker.wheel.elf.elf import Elf, up
from stoker.wheel.elf.fatbin import FatbinEntry
from stoker.wheel.slim.regions import DeviceRegion
from stoker.wheel.slim.spans import ByteSpan, spans_without

_LARGEST_ALIGNMENT = 256


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

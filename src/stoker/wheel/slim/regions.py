"""Finds the regions of device code in a library, what is kept of each, and where it is placed.

A region may move if a wrapper points to it, every pointer to it is known, and its section holds
nothing else. A region with a pointer into its middle stays whole, because its target is unknown.
Those that may move are packed towards the start of their section, at offsets of the original file;
``cutting`` removes the freed ranges afterwards.
"""

import struct
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from functools import reduce
from operator import or_
from types import MappingProxyType
from typing import NamedTuple

from stoker.model.artifact import DeviceKind
from stoker.wheel.elf import elf, fatbin
from stoker.wheel.elf.elf import Elf, up
from stoker.wheel.elf.fatbin import (
    REGION_FIELD,
    FatbinEntry,
    Region,
    Wrapper,
    device_regions,
    read_wrappers,
)
from stoker.wheel.elf.tables import read_pointers, read_symbols
from stoker.wheel.slim.spans import ByteSpan, spans_without

# Maps the entries of a region to the indexes of those to keep. If there are none, a stub is kept.
Choose = Callable[[Sequence[FatbinEntry]], Iterable[int]]

_ALIGNMENT = 8  # of regions and entries
_MOST_SLOTS = 1 << 18  # a region has one to three
_LARGEST_ALIGNMENT = 256  # of regions that move together


class DeviceRegion(NamedTuple):
    """``slots`` are the file offsets that hold its address, as eight bytes.

    If ``is_fixed``, no byte may change. ``repacked`` are recompressed entries by offset.
    """

    section: str
    region: Region
    address: int
    kept: tuple[FatbinEntry, ...]
    has_stub: bool
    is_movable: bool
    is_fixed: bool
    slots: tuple[int, ...]
    repacked: Mapping[int, bytes] = MappingProxyType({})

    @property
    def kept_size(self) -> int:
        """Return the size in bytes, with the header."""
        return fatbin.HEADER_SIZE + sum(map(self.size_of, self.kept))

    def size_of(self, entry: FatbinEntry) -> int:
        repacked = self.repacked.get(entry.offset)
        return entry.end - entry.offset if repacked is None else len(repacked)

    @property
    def is_as_it_was(self) -> bool:
        return len(self.kept) == len(self.region.entries) and not self.repacked


def find_regions(file: Elf, choose: Choose, *, pin: bool) -> list[DeviceRegion]:
    """Return all regions in file order; with ``pin``, none may move."""
    found = [
        (section, region, address_of(file, region)) for section, region in device_regions(file)
    ]
    if not found:
        return []
    references = _References(file, [(address, region) for _, region, address in found])
    may_move = references.are_understood and not pin
    regions = []
    for index, (section, region, address) in enumerate(found):
        kept, has_stub = _kept(region, choose)
        # The next entry is aligned if this one is.
        is_padded = all((entry.end - entry.offset) % _ALIGNMENT == 0 for entry in kept)
        is_fixed = index in references.opened or not is_padded
        if is_fixed:
            kept, has_stub = region.entries, False
        regions.append(
            DeviceRegion(
                section=section,
                region=region,
                address=address,
                kept=kept,
                has_stub=has_stub,
                is_movable=may_move and section != fatbin.SCATTERED and references.may_move(index),
                is_fixed=is_fixed,
                slots=tuple(references.slots[index]),
            )
        )
    return regions


def address_of(file: Elf, region: Region) -> int:
    """Return the address at which a region is loaded."""
    load = file.load_at(region.offset)
    if load is None or region.end > load.offset + load.file_size:
        raise file.reader.error("the device code is not loaded", region.offset)
    address = load.address + region.offset - load.offset
    if address % _ALIGNMENT or region.offset % _ALIGNMENT:
        raise file.reader.error("the device code is not aligned", region.offset)
    return address


def _kept(region: Region, choose: Choose) -> tuple[tuple[FatbinEntry, ...], bool]:
    """Return the entries to keep, and whether they are a stub.

    An empty region would change how the driver reports missing code, so one entry stays.
    """
    indexes = sorted(set(choose(region.entries))) if region.entries else []
    if indexes or not region.entries:
        return tuple(region.entries[index] for index in indexes), False
    cubins = [entry for entry in region.entries if entry.kind is DeviceKind.CUBIN]
    smallest = min(cubins or region.entries, key=lambda entry: entry.end - entry.offset)
    return (smallest,), True


class _References:
    """The pointers to each region by index: their offsets, and the regions that must not change."""

    def __init__(self, file: Elf, regions: Sequence[tuple[int, Region]]):
        self._file = file
        self._starts = [address for address, _ in regions]
        self._ends = [address + region.end - region.offset for address, region in regions]
        self._numbers = {address: index for index, address in enumerate(self._starts)}
        self._sorted = sorted(self._starts)
        self._everywhere = range(self._sorted[0], max(self._ends))
        self.slots: list[list[int]] = [[] for _ in regions]
        self.opened: set[int] = set()  # regions with a pointer into their middle
        self._named: set[int] = set()  # regions with an exported symbol at their start
        self._wrapped: set[int] = set()
        self._all_slots: set[int] = set()
        wrappers = read_wrappers(file)
        pointed = self._read_pointers({wrapper.address + REGION_FIELD for wrapper in wrappers})
        self._read_symbols()
        self.are_understood = self._read_wrappers(wrappers, pointed)

    def may_move(self, index: int) -> bool:
        return index in self._wrapped and index not in self.opened and index not in self._named

    def _at(self, address: int) -> int | None:
        """Return the region that contains an address."""
        position = bisect_right(self._sorted, address) - 1
        if position < 0:
            return None
        index = self._numbers[self._sorted[position]]
        return index if address < self._ends[index] else None

    def _read_pointers(self, wanted: Container[int]) -> dict[int, int]:
        """Return the regions that the pointers at the wanted places point to."""
        found: dict[int, int] = {}
        for pointer in read_pointers(self._file, self._everywhere):
            index = self._at(pointer.target)
            if index is None:
                continue
            if pointer.target != self._starts[index] or not pointer.is_relative:
                self.opened.add(index)
                continue
            if pointer.place in wanted:
                found[pointer.place] = index
            self._add_slot(index, pointer.addend)
            self._add_slot(index, self._file.offset_of(pointer.place))
        return found

    def _add_slot(self, index: int, offset: int) -> None:
        """Add an offset if it holds the address: some linkers store it only in the table."""
        (number,) = struct.unpack("<Q", self._file.reader.read(offset, 8))
        if number == self._starts[index]:
            self._keep_slot(index, offset)

    def _keep_slot(self, index: int, offset: int) -> None:
        if offset in self._all_slots:
            return
        if len(self._all_slots) == _MOST_SLOTS:
            raise self._file.reader.error(f"more than {_MOST_SLOTS} pointers to device code")
        self._all_slots.add(offset)
        self.slots[index].append(offset)

    def _read_symbols(self) -> None:
        for symbol in read_symbols(self._file, elf.DYNAMIC_SYMBOLS, self._everywhere):
            index = self._at(symbol.address)
            if index is not None:
                at_start = symbol.address == self._starts[index]
                (self._named if at_start else self.opened).add(index)
        for symbol in read_symbols(self._file, elf.SYMBOL_TABLE, self._everywhere):
            if symbol.address in self._numbers:
                self._keep_slot(self._numbers[symbol.address], symbol.slot)

    def _read_wrappers(self, wrappers: Iterable[Wrapper], pointed: Mapping[int, int]) -> bool:
        """Return whether every wrapper points to a region in a way that can be updated."""
        fixed = self._file.header.type == elf.EXECUTABLE  # loaded without relocations
        for wrapper in wrappers:
            index = pointed.get(wrapper.address + REGION_FIELD)
            if index is None and fixed and wrapper.region in self._numbers:
                index = self._numbers[wrapper.region]
                self._add_slot(index, wrapper.offset + REGION_FIELD)
            if index is None:
                return False
            self._wrapped.add(index)
        return True


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

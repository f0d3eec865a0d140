"""Compares a slimmed file with its original, independently of the code that made it.

Every loaded byte must be the same at its address, except device code and pointers to it. Every
region must hold the kept entries, byte by byte, and everything that pointed to it still must.
"""

import hashlib
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from itertools import pairwise

from stoker.model.errors import ArtifactError
from stoker.wheel.elf import elf, fatbin
from stoker.wheel.elf.elf import Elf, Section, Segment
from stoker.wheel.elf.fatbin import REGION_FIELD, FatbinEntry, device_regions, read_wrappers
from stoker.wheel.elf.tables import read_pointers, read_symbols
from stoker.wheel.reader import Reader
from stoker.wheel.slim.regions import address_of
from stoker.wheel.slim.spans import ByteSpan, Spans, span_of, spans_without


def check_slimmed(before: Reader, after: Reader, kept: Sequence[Sequence[FatbinEntry]]) -> None:
    """Raise an ArtifactError if something is wrong. ``kept`` are the entries of each region."""
    _Comparison(Elf(before), Elf(after)).check(kept)


class _Comparison:
    def __init__(self, before: Elf, after: Elf):
        self._before, self._after = before, after
        self._old, self._new = _Code(before), _Code(after)
        # The sections with bytes in the file, before and after, in file order.
        both = zip(before.sections, after.sections, strict=True)
        there = (pair for pair in both if pair[0].file_size)
        self._sections = sorted(there, key=lambda pair: pair[0].offset)

    def check(self, kept: Sequence[Sequence[FatbinEntry]]) -> None:
        self._check_headers()
        self._check_memory()
        self._check_regions(kept)
        self._check_surroundings()
        if self._old.wrapped() != self._new.wrapped():
            raise self._wrong("a wrapper does not lead to its region")
        self._check_sections(Spans(ByteSpan(slot, slot + 8) for slot in set(self._changed_slots())))

    def _wrong(self, what: str, offset: int | None = None) -> ArtifactError:
        return self._after.reader.error(
            f"the slimmed library would be wrong, so it is not written: {what}", offset
        )

    def _check_headers(self) -> None:
        """Check that headers differ only in their number, their place and in file offsets."""
        before, after = self._before, self._after
        if before.reader.read(0, 16) != after.reader.read(0, 16) or before.header != (
            after.header._replace(
                segments_offset=before.header.segments_offset,
                sections_offset=before.header.sections_offset,
                segment_count=before.header.segment_count,
            )
        ):
            raise self._wrong("the file header differs")
        if before.dynamic != after.dynamic:
            raise self._wrong("the dynamic section differs")
        if list(_not_loaded(before)) != list(_not_loaded(after)):
            raise self._wrong("a segment differs")

    def _check_memory(self) -> None:
        """Check that the same memory is loaded, with the same permissions, in valid segments."""
        old, new = self._before.segments_of(elf.LOAD), self._after.segments_of(elf.LOAD)
        known = {load.address for load in old}
        shared = [load for load in new if load.address in known or not self._holds_headers(load)]
        if _memory(old) != _memory(shared):
            raise self._wrong("the loaded memory differs")
        for load in new:
            if load.alignment > 1 and (load.address - load.offset) % load.alignment:
                raise self._wrong(f"a segment at {load.address:#x} cannot be mapped")
            if load.file_size > load.memory_size:
                raise self._wrong(f"a segment at {load.address:#x} is larger than its memory")
        if any(one.address + one.memory_size > two.address for one, two in pairwise(new)):
            raise self._wrong("segments overlap")
        if _share_bytes(new) and not _share_bytes(old):
            raise self._wrong("segments share bytes of the file")

    def _holds_headers(self, load: Segment) -> bool:
        """Return whether a segment holds only the program headers, which may have moved."""
        header = self._after.header
        size = header.segment_count * header.segment_size
        place = load.offset, load.file_size, load.memory_size, load.flags
        return place == (header.segments_offset, size, size, elf.READABLE)

    def _check_regions(self, kept: Sequence[Sequence[FatbinEntry]]) -> None:
        old, new = self._old.regions, self._new.regions
        if not len(old) == len(new) == len(kept):
            raise self._wrong(f"{len(new)} regions of device code, not {len(old)}")
        for region, entries in zip(new, kept, strict=True):
            if len(region.entries) != len(entries):
                raise self._wrong("the entries of a region differ", region.offset)
            for made, entry in zip(region.entries, entries, strict=True):
                if not self._same_code(entry, made):
                    raise self._wrong("an entry of device code differs", made.offset)

    def _same_code(self, old: FatbinEntry, new: FatbinEntry) -> bool:
        """Return whether two entries are equal, as they are or after decompression."""
        before, after = self._before.reader, self._after.reader
        if new.compression is old.compression:
            size = old.end - old.offset
            return new.end - new.offset == size and self._same(old.offset, new.offset, size)
        wanted = fatbin.zstd_entry(before.read(old.offset, old.header_size), b"")
        header = fatbin.zstd_entry(after.read(new.offset, new.header_size), b"")
        return header == wanted and _digest(after, new) == _digest(before, old)

    def _check_surroundings(self) -> None:
        """Check that the data between scattered regions keeps its address."""
        regions = [ByteSpan(region.offset, region.end) for region in self._old.regions]
        for name, section in self._before.named(fatbin.SCATTERED):
            for span in spans_without(span_of(section), regions):
                load = self._before.load_at(span.start)
                address = load.address + span.start - load.offset if load else 0
                if not self._same(span.start, self._after.offset_of(address), span.size):
                    raise self._wrong(f"the bytes of section {name} differ", span.start)

    def _changed_slots(self) -> Iterator[int]:
        """Yield the offsets in the original that held the address of a region, now its new one."""
        for offset, number in self._old.slots():
            index = bisect_right(self._sections, offset, key=lambda both: both[0].offset) - 1
            if index < 0:
                continue
            old, new = self._sections[index]
            if offset >= old.offset + old.file_size or not any(new):  # it was stripped
                continue
            moved = offset - old.offset + new.offset
            # A linker may store another value at the place of a pointer.
            if _number(self._before, offset) == self._old.addresses[number]:
                if _number(self._after, moved) != self._new.addresses[number]:
                    raise self._wrong("a pointer does not lead to its region", moved)
                yield offset

    def _check_sections(self, slots: Spans) -> None:
        """Compare all bytes except device code, addresses of regions and stripped sections."""
        numbered = zip(
            self._before.section_names, self._before.sections, self._after.sections, strict=True
        )
        for name, old, new in numbered:
            if not any(new):  # it was stripped
                continue
            is_code = name in fatbin.SECTIONS
            if old != new._replace(offset=old.offset, size=old.size if is_code else new.size):
                raise self._wrong(f"the header of section {name} differs")
            self._check_loaded(name, new)
            for span in slots.left_of(span_of(old)) if not is_code else ():
                if not self._same(span.start, span.start - old.offset + new.offset, span.size):
                    raise self._wrong(f"the bytes of section {name} differ", span.start)

    def _check_loaded(self, name: str, section: Section) -> None:
        """Check that a section is loaded from its offset. Device code may be loaded in pieces."""
        if not section.flags & elf.ALLOCATED or not section.file_size:
            return
        load = self._after.load_at(section.offset)
        if load is None or section.address - load.address != section.offset - load.offset:
            raise self._wrong(f"section {name} is loaded from another place")
        if name not in fatbin.SECTIONS and not span_of(load).covers(span_of(section)):
            raise self._wrong(f"section {name} is not loaded completely")

    def _same(self, old: int, new: int, size: int) -> bool:
        both = zip(
            self._before.reader.chunks(old, size), self._after.reader.chunks(new, size), strict=True
        )
        return all(one == other for one, other in both)


class _Code:
    """The regions of a file, their addresses, and the pointers to them."""

    def __init__(self, file: Elf):
        self._file = file
        self.regions = [region for _, region in device_regions(file)]
        self.addresses = [address_of(file, region) for region in self.regions]
        self._numbers = {address: number for number, address in enumerate(self.addresses)}
        starts = self.addresses or [0]
        self._extent = range(min(starts), max(starts) + 1)

    def wrapped(self) -> list[int | None]:
        """Return the number of the region that each wrapper points to."""
        wrappers = read_wrappers(self._file)
        places = {wrapper.address + REGION_FIELD for wrapper in wrappers}
        set_by_loader = {
            pointer.place: self._numbers.get(pointer.target)
            for pointer in read_pointers(self._file, self._extent)
            if pointer.place in places
        }
        return [
            set_by_loader.get(wrapper.address + REGION_FIELD, self._numbers.get(wrapper.region))
            for wrapper in wrappers
        ]

    def slots(self) -> Iterator[tuple[int, int]]:
        """Yield the offsets that may hold the address of a region, and the region's number."""
        for pointer in read_pointers(self._file, self._extent):
            if pointer.target in self._numbers:
                yield pointer.addend, self._numbers[pointer.target]
                yield self._file.offset_of(pointer.place), self._numbers[pointer.target]
        for symbol in read_symbols(self._file, elf.SYMBOL_TABLE, self._extent):
            if symbol.address in self._numbers:
                yield symbol.slot, self._numbers[symbol.address]
        for wrapper in read_wrappers(self._file):
            if wrapper.region in self._numbers:
                yield wrapper.offset + REGION_FIELD, self._numbers[wrapper.region]


def _digest(reader: Reader, entry: FatbinEntry) -> bytes:
    """Return a digest, so that no two decompressed entries are in memory at once."""
    from stoker.wheel.slim.recompressing import unpacked

    return hashlib.sha256(unpacked(reader, entry)).digest()


def _number(file: Elf, offset: int) -> int:
    return int.from_bytes(file.reader.read(offset, 8), "little")


def _share_bytes(loads: Sequence[Segment]) -> bool:
    spans = sorted(span_of(load) for load in loads if load.file_size)
    return any(one.overlaps(two) for one, two in pairwise(spans))


def _not_loaded(file: Elf) -> Iterator[Segment]:
    """Yield the segments that only describe others; the offset must follow from the address."""
    for segment in file.segments:
        if segment.type not in (elf.LOAD, elf.PROGRAM_HEADERS):
            follows = not segment.file_size or file.offset_of(segment.address) == segment.offset
            yield segment._replace(offset=0) if follows else segment


def _memory(loads: Sequence[Segment]) -> list[tuple[int, ByteSpan]]:
    """Return ranges of memory with their permissions; adjacent equal ones are merged."""
    found: list[tuple[int, ByteSpan]] = []
    for load in loads:
        span = ByteSpan(load.address, load.address + load.memory_size)
        if found and found[-1] == (load.flags, ByteSpan(found[-1][1].start, span.start)):
            found[-1] = (load.flags, ByteSpan(found[-1][1].start, span.end))
        else:
            found.append((load.flags, span))
    return found

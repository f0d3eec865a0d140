"""The slimmed file read anew and held against the original. Knows nothing of how it was made.

Every byte that is loaded has to be what it was at its address, device code and pointers to it
excepted; every region has to hold the kept entries, byte by byte, and be found by whatever found
it before.
"""

from collections.abc import Iterator, Sequence
from itertools import pairwise

from stoker.artifact import elf, fatbin
from stoker.artifact.elf import Elf, Section
from stoker.artifact.fatbin import Entry, Region
from stoker.artifact.library import device_regions
from stoker.artifact.reader import Reader
from stoker.artifact.relocations import read_pointers, read_symbols
from stoker.artifact.wrappers import REGION_FIELD, read_wrappers
from stoker.deliver.slim.spans import Span, merged, without
from stoker.model.errors import ArtifactError


def check_slimmed(before: Reader, after: Reader, kept: Sequence[Sequence[Entry]]) -> None:
    """An ArtifactError says what is wrong; ``kept`` is by region, of the original."""
    _Comparison(Elf(before), Elf(after)).check(kept)


class _Comparison:
    def __init__(self, before: Elf, after: Elf):
        self._before = before
        self._after = after
        self._old = [region for _, region in device_regions(before)]
        self._new = [region for _, region in device_regions(after)]
        self._old_places = _by_address(before, self._old)
        self._new_places = _by_address(after, self._new)
        self._slots: list[Span] = []  # offsets in the original where addresses of regions stand

    def check(self, kept: Sequence[Sequence[Entry]]) -> None:
        self._check_segments()
        self._check_regions(kept)
        self._check_pointers()
        self._check_symbols()
        self._check_wrappers()
        self._check_sections()

    def _wrong(self, what: str, offset: int | None = None) -> ArtifactError:
        return self._after.reader.error(
            f"the slimmed library would be wrong, so it is not written: {what}", offset
        )

    def _check_segments(self) -> None:
        """The same memory is loaded, with the same rights, in order, as the loader wants it."""
        before, after = self._before, self._after
        if before.dynamic != after.dynamic:
            raise self._wrong("the dynamic section is another")
        if _memory(before) != _memory(after):
            raise self._wrong("other memory is loaded")
        loads = after.segments_of(elf.LOAD)
        for load in loads:
            if load.alignment > 1 and (load.address - load.offset) % load.alignment:
                raise self._wrong(f"a segment at {load.address:#x} cannot be mapped")
            if load.file_size > load.memory_size:
                raise self._wrong(f"a segment at {load.address:#x} is larger than its memory")
        if any(one.address + one.memory_size > two.address for one, two in pairwise(loads)):
            raise self._wrong("segments overlap")

    def _check_regions(self, kept: Sequence[Sequence[Entry]]) -> None:
        if not len(self._old) == len(self._new) == len(kept):
            raise self._wrong(f"{len(self._new)} regions of device code, not {len(self._old)}")
        for region, entries in zip(self._new, kept, strict=True):
            if len(region.entries) != len(entries):
                raise self._wrong("a region has other entries", region.offset)
            for new, old in zip(region.entries, entries, strict=True):
                if not self._same(old.offset, new.offset, old.end - old.offset):
                    raise self._wrong("an entry of device code is another", new.offset)

    def _check_pointers(self) -> None:
        """Whatever pointed to a region still does, and everything else to what it did."""
        both = zip(read_pointers(self._before), read_pointers(self._after), strict=True)
        for old, new in both:
            if not self._leads_alike(old.target, new.target) or old.place != new.place:
                raise self._wrong(f"a pointer at {old.place:#x} leads elsewhere")
            if old.target != new.target:
                self._add_slots(old.addend, self._before.offset_of(old.place))

    def _check_symbols(self) -> None:
        if not any(section.type == elf.SYMBOL_TABLE for section in self._after.sections):
            return
        both = zip(
            read_symbols(self._before, elf.SYMBOL_TABLE),
            read_symbols(self._after, elf.SYMBOL_TABLE),
            strict=True,
        )
        for old, new in both:
            if not self._leads_alike(old.address, new.address):
                raise self._wrong(f"the symbol of {old.address:#x} is elsewhere")
            if old.address != new.address:
                self._add_slots(old.slot)

    def _leads_alike(self, old: int, new: int) -> bool:
        region = self._old_places.get(old)
        return region == self._new_places.get(new) and (old == new or region is not None)

    def _add_slots(self, *offsets: int) -> None:
        self._slots += [Span(offset, offset + 8) for offset in offsets]

    def _check_wrappers(self) -> None:
        """Those without relocations, of a program at fixed addresses, are looked at here only."""
        both = zip(read_wrappers(self._before), read_wrappers(self._after), strict=True)
        for old, new in both:
            if old.address != new.address or not self._leads_alike(old.region, new.region):
                raise self._wrong(f"the wrapper at {old.address:#x} leads elsewhere")
            if old.region != new.region:
                self._add_slots(old.offset + REGION_FIELD)

    def _check_sections(self) -> None:
        """Byte by byte, all but device code, slots and what was stripped."""
        before, after = self._before, self._after
        slots = list(merged(self._slots))
        numbered = zip(before.section_names, before.sections, after.sections, strict=True)
        for name, old, new in numbered:
            if name in fatbin.SECTIONS or not any(new):
                continue
            if old._replace(offset=0) != new._replace(offset=0):
                raise self._wrong(f"the section {name} is another")
            if old.flags & elf.ALLOCATED and old.file_size:
                self._check_place(name, new)
            for span in _without_slots(old, slots):
                if not self._same(span.start, span.start - old.offset + new.offset, span.size):
                    raise self._wrong(f"the section {name} has other bytes", span.start)

    def _check_place(self, name: str, new: Section) -> None:
        if self._after.offset_of(new.address) != new.offset:
            raise self._wrong(f"the section {name} is loaded from elsewhere")

    def _same(self, old: int, new: int, size: int) -> bool:
        both = zip(
            self._before.reader.chunks(old, size), self._after.reader.chunks(new, size), strict=True
        )
        return all(one == other for one, other in both)


def _without_slots(section: Section, slots: Sequence[Span]) -> Iterator[Span]:
    return without(Span(section.offset, section.offset + section.file_size), slots)


def _by_address(file: Elf, regions: Sequence[Region]) -> dict[int, int]:
    """The number of each region by its address."""
    found = {}
    for number, region in enumerate(regions):
        load = file.load_at(region.offset)
        if load is None or region.end > load.offset + load.file_size:
            raise file.reader.error("device code that is not loaded", region.offset)
        found[load.address + region.offset - load.offset] = number
    return found


def _memory(file: Elf) -> list[tuple[int, Span]]:
    """Stretches of memory with their rights; neighbours with the same ones are one."""
    found: list[tuple[int, Span]] = []
    for load in file.segments_of(elf.LOAD):
        span = Span(load.address, load.address + load.memory_size)
        if found and found[-1] == (load.flags, Span(found[-1][1].start, span.start)):
            found[-1] = (load.flags, Span(found[-1][1].start, span.end))
        else:
            found.append((load.flags, span))
    return found

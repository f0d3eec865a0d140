"""Plans and writes one slimmed library.

A plan says which ranges of the original are copied to which offsets and which bytes replace them;
everything else is zero. A library with something unknown stays unchanged, and the plan says why.
"""

import struct
from collections.abc import Iterator, Sequence
from itertools import pairwise
from operator import itemgetter
from pathlib import Path
from typing import NamedTuple

from msgspec.structs import replace

from stoker.model.artifact import DeviceKind
from stoker.model.errors import ArtifactError
from stoker.model.slimming import ArchSlim, LibrarySlim, SlimLayout
from stoker.model.value import Value
from stoker.outside.files import file_made_whole
from stoker.wheel.elf import elf, fatbin
from stoker.wheel.elf.edit import Overwritten
from stoker.wheel.elf.elf import Elf
from stoker.wheel.elf.fatbin import FatbinEntry
from stoker.wheel.elf.tables import RELATIVE
from stoker.wheel.reader import Reader, open_file
from stoker.wheel.slim.check import check_slimmed
from stoker.wheel.slim.cutting import Shift, Stripping, check_unused, cut_out, find_unused
from stoker.wheel.slim.regions import Choose, DeviceRegion, Packing, find_regions, pack_regions
from stoker.wheel.slim.spans import ByteSpan, Spans, span_of, spans_without


class SlimOptions(Value, frozen=True, kw_only=True):
    """``pin`` keeps every region in place. ``recompress`` changes LZ4 to zstd."""

    strip: bool = False
    recompress: bool = False
    pin: bool = False


class Copy(NamedTuple):
    """A range of the original and its offset in the new file."""

    source: int
    target: int
    size: int


class Rewrite(Value, frozen=True, kw_only=True):
    size: int
    copies: tuple[Copy, ...]
    overwritten: tuple[Overwritten, ...]


class LibraryPlan(Value, frozen=True, kw_only=True):
    """``rewrite`` is None if the library stays unchanged; ``summary`` says if that is a failure.

    ``kept`` are the kept entries of each region, in the order of the original.
    """

    summary: LibrarySlim
    kept: tuple[tuple[FatbinEntry, ...], ...] = ()
    rewrite: Rewrite | None = None

    @property
    def changes(self) -> bool:
        return self.rewrite is not None


def plan_library(reader: Reader, choose: Choose, options: SlimOptions | None = None) -> LibraryPlan:
    """Return the plan for a library; a malformed or unknown file gives a plan without changes.

    It reads headers at many offsets, so ``reader`` should be a file on disk.
    """
    unchanged = LibrarySlim(path=reader.name, before_bytes=reader.size, after_bytes=reader.size)
    try:
        return _plan(Elf(reader), choose, options or SlimOptions(), unchanged)
    except ArtifactError as error:
        return LibraryPlan(summary=replace(unchanged, skipped_because=str(error)))


def _plan(file: Elf, choose: Choose, options: SlimOptions, unchanged: LibrarySlim) -> LibraryPlan:
    if not options.strip and not file.named(*fatbin.SECTIONS):
        return LibraryPlan(summary=unchanged)
    _check(file)
    regions = find_regions(file, choose, pin=options.pin)
    if options.recompress:
        from stoker.wheel.slim.recompressing import recompress

        regions = recompress(file.reader, regions)
    stripping = find_unused(file) if options.strip else Stripping()
    is_smaller = not all(region.is_as_it_was for region in regions)
    kept = sum(len(region.kept) for region in regions)
    # What is not linked never runs.
    linked = [one for one in regions if one.kept and one.section != fatbin.RELOCATABLE]
    summary = replace(
        unchanged,
        archs=_archs(regions),
        kept=kept,
        dropped=sum(len(region.region.entries) for region in regions) - kept,
        stubs=sum(region.has_stub for region in regions),
        serves=not linked or not all(region.has_stub for region in linked),
    )
    if not is_smaller and not stripping.freed:
        return LibraryPlan(summary=summary)
    rewrite = _make_rewrite(file, regions if is_smaller else [], stripping)
    may_move = any(region.is_movable for region in regions)
    layout = SlimLayout.MOVE if may_move else SlimLayout.PIN
    return LibraryPlan(
        summary=replace(summary, after_bytes=rewrite.size, layout=layout if is_smaller else None),
        kept=tuple(region.kept for region in regions),
        rewrite=rewrite,
    )


def _check(file: Elf) -> None:
    if not file.is_wide_and_little or file.machine not in RELATIVE:
        raise file.reader.error(f"libraries for {file.machine} cannot be slimmed")
    if file.header.type not in (elf.SHARED, elf.EXECUTABLE) or not file.segments_of(elf.LOAD):
        raise file.reader.error("it is not a linked library or program")
    # This bounds the bytes that are read and compared by the size of the file.
    if sum(section.file_size for section in file.sections) > file.reader.size:
        raise file.reader.error("sections overlap")
    loads = file.segments_of(elf.LOAD)
    if any(one.address + one.memory_size > two.address for one, two in pairwise(loads)):
        raise file.reader.error("segments overlap")


def _archs(regions: Sequence[DeviceRegion]) -> tuple[ArchSlim, ...]:
    """Return the totals by kind, then by architecture."""
    kept = {entry.offset for region in regions for entry in region.kept}
    groups: dict[tuple[DeviceKind, int, str], list[FatbinEntry]] = {}
    for region in regions:
        for entry in region.region.entries:
            groups.setdefault((entry.kind, entry.number, entry.suffix), []).append(entry)
    rows = []
    for _, entries in sorted(groups.items(), key=itemgetter(0)):
        staying = [entry.payload_size for entry in entries if entry.offset in kept]
        going = [entry.payload_size for entry in entries if entry.offset not in kept]
        rows.append(
            ArchSlim(
                arch=entries[0].arch,
                kept=len(staying),
                dropped=len(going),
                kept_bytes=sum(staying),
                dropped_bytes=sum(going),
            )
        )
    return tuple(rows)


def _make_rewrite(file: Elf, regions: Sequence[DeviceRegion], stripping: Stripping) -> Rewrite:
    packing = pack_regions(file, regions)
    ends: dict[int, int] = {}  # of sections of device code, by index
    for index, (name, section) in enumerate(zip(file.section_names, file.sections, strict=True)):
        if name not in fatbin.SECTIONS:
            continue
        whole = span_of(section)
        if inside := [one.span.end for one in packing.placed if whole.covers(one.span)]:
            ends[index] = whole.end if name == fatbin.SCATTERED else max(inside)
    check_unused(file, packing.rewritten, ends)
    freed = (*packing.freed, *stripping.freed)
    cut = cut_out(file, freed, ends=ends, dropped=stripping.dropped)
    shift = cut.shift
    untouched = spans_without(ByteSpan(0, file.reader.size), (*packing.rewritten, *stripping.freed))
    copies = [Copy(span.start, shift(span.start), span.size) for span in untouched]
    overwritten = [*cut.overwritten]
    for placed in packing.placed:
        header = fatbin.region_header(placed.region.kept_size - fatbin.HEADER_SIZE)
        overwritten.append((shift(placed.offset), header))
        for entry, offset in placed.entries():
            if (repacked := placed.region.repacked.get(entry.offset)) is not None:
                overwritten.append((shift(offset), repacked))
            else:
                copies.append(Copy(entry.offset, shift(offset), entry.end - entry.offset))
    overwritten += _addresses(file, packing, stripping, shift)
    return Rewrite(size=cut.size, copies=tuple(copies), overwritten=tuple(overwritten))


def _addresses(
    file: Elf, packing: Packing, stripping: Stripping, shift: Shift
) -> Iterator[Overwritten]:
    """Yield the new addresses of moved regions, at every offset that holds an old one."""
    rewritten, stripped = Spans(packing.rewritten), Spans(stripping.freed)
    for placed in packing.placed:
        if not placed.has_moved:
            continue
        for slot in placed.region.slots:
            span = ByteSpan(slot, slot + 8)
            if rewritten.overlap(span):
                raise file.reader.error("a pointer inside device code", slot)
            if not stripped.overlap(span):
                yield shift(slot), struct.pack("<Q", placed.address)


def write_library(plan: LibraryPlan, reader: Reader, path: Path) -> None:
    """Write the slimmed library; it appears at ``path``, even the original's, after the check.

    The plan must change something and come from ``reader``. The new file has default permissions.
    A failed check raises an ArtifactError.
    """
    assert plan.rewrite is not None
    with file_made_whole(path) as stream:
        stream.truncate(plan.rewrite.size)
        for source, target, size in plan.rewrite.copies:
            stream.seek(target)
            stream.writelines(reader.chunks(source, size))
        for target, content in plan.rewrite.overwritten:
            stream.seek(target)
            stream.write(content)
        stream.flush()
        with open_file(Path(stream.name), reader.name) as written:
            check_slimmed(reader, written, plan.kept)

"""The report of `stoker slim` as a terminal page: libraries, then architectures."""

from collections.abc import Iterable, Sequence

from rich.console import Group, RenderableType
from rich.text import Text

from stoker.deliver.slim.selection import arch_order
from stoker.model.slim import ArchSlim, LibrarySlim, SlimReport
from stoker.model.value import size
from stoker.outside.terminal import Listing


def slim_page(report: SlimReport) -> RenderableType:
    """Return the page of a dry run: what would be kept and removed."""
    parts: list[RenderableType] = []
    if report.libraries:
        parts += [_libraries(report.libraries), Text(), _architectures(report.libraries), Text()]
    parts += [
        Text.assemble(("unchanged", "yellow"), f"  {library.path}: {library.skipped_because}")
        for library in report.libraries
        if library.skipped_because
    ]
    parts += [Text.assemble(("note ", "cyan"), " ", note) for note in report.notes]
    return Group(*parts, *(Text(line, style="bold") for line in _total(report)))


def slim_lines(report: SlimReport) -> str:
    """Return a summary of what was done."""
    lines = [
        f"note: {library.path} was not changed: {library.skipped_because}"
        for library in report.libraries
        if library.skipped_because
    ]
    lines += [f"note: {note}" for note in report.notes]
    return "\n".join([*lines, *_total(report)])


def _total(report: SlimReport) -> list[str]:
    """Return the line with both sizes; none if there is no library to slim."""
    if not report.before:
        return []
    share = f"{100 * report.after / report.before:.0f} %"
    return [f"{size(report.before)} -> {size(report.after)} ({share})"]


def _libraries(libraries: Sequence[LibrarySlim]) -> Listing:
    table = Listing("library", ">before", ">after", ">", ">kept", ">dropped", ">stubs", "layout")
    for row in sorted(libraries, key=lambda library: -library.before):
        table.add(
            row.path,
            size(row.before),
            size(row.after),
            f"{100 * row.after / row.before:.0f} %" if row.before else "",
            str(row.kept),
            str(row.dropped),
            str(row.stubs) if row.stubs else "",
            "unchanged" if row.skipped_because else row.layout or "",
        )
    return table


def _architectures(libraries: Iterable[LibrarySlim]) -> Listing:
    """Return the totals of all libraries."""
    table = Listing("architecture", ">kept", ">", ">dropped", ">")
    for row in _summed(libraries):
        table.add(
            Text(row.arch, style="green" if row.kept_bytes else "dim"),
            str(row.kept) if row.kept else "",
            size(row.kept_bytes) if row.kept else "",
            str(row.dropped) if row.dropped else "",
            size(row.dropped_bytes) if row.dropped else "",
        )
    return table


def _summed(libraries: Iterable[LibrarySlim]) -> list[ArchSlim]:
    by_arch: dict[str, list[ArchSlim]] = {}
    for library in libraries:
        for row in library.archs:
            by_arch.setdefault(row.arch, []).append(row)
    return [
        ArchSlim(
            arch=arch,
            kept=sum(row.kept for row in rows),
            dropped=sum(row.dropped for row in rows),
            kept_bytes=sum(row.kept_bytes for row in rows),
            dropped_bytes=sum(row.dropped_bytes for row in rows),
        )
        for arch, rows in sorted(by_arch.items(), key=lambda item: arch_order(item[0]))
    ]

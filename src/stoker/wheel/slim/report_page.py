"""The report of `stoker slim`: as a terminal page with libraries and architectures, or as lines."""

from collections.abc import Iterable, Sequence

from stoker.model.slimming import ArchSlim, LibrarySlim, SlimReport
from stoker.model.value import size
from stoker.outside.terminal import Group, Listing, Page, Text
from stoker.wheel.inspect.runs_on import arch_order


def slim_page(report: SlimReport) -> Page:
    """Return the page of a dry run: what would be kept and removed."""
    parts: list[Page] = [Text(line, style="bold") for line in _total(report)]
    if report.libraries:
        parts += [Text(), _libraries(report.libraries), Text(), _architectures(report.libraries)]
        parts.append(Text())
    parts += [
        Text.assemble(("unchanged", "warning"), f"  {library.path}: {library.skipped_because}")
        for library in report.libraries
        if library.skipped_because
    ]
    parts += [Text.assemble(("note ", "note"), " ", note) for note in report.notes]
    return Group(*parts)


def slim_lines(report: SlimReport) -> str:
    """Return a summary of what was done."""
    lines = [
        f"note: {library.path} was not changed: {library.skipped_because}"
        for library in report.libraries
        if library.skipped_because
    ]
    lines += [f"note: {note}" for note in report.notes]
    return "\n".join([*_total(report), *lines])


def _total(report: SlimReport) -> list[str]:
    """Return the line with both sizes; none if there is no library to slim."""
    if not report.before_bytes:
        return []
    share = f"{100 * report.after_bytes / report.before_bytes:.0f} %"
    return [f"{size(report.before_bytes)} -> {size(report.after_bytes)} ({share})"]


def _libraries(libraries: Sequence[LibrarySlim]) -> Listing:
    table = Listing("library", ">before", ">after", ">", ">kept", ">dropped", "")
    for row in sorted(libraries, key=lambda library: -library.before_bytes):
        table.add(
            row.path,
            size(row.before_bytes),
            size(row.after_bytes),
            f"{100 * row.after_bytes / row.before_bytes:.0f} %" if row.before_bytes else "",
            str(row.kept),
            str(row.dropped),
            "unchanged" if row.skipped_because else "",
        )
    return table


def _architectures(libraries: Iterable[LibrarySlim]) -> Listing:
    """Return the totals of all libraries."""
    by_arch: dict[str, list[ArchSlim]] = {}
    for library in libraries:
        for row in library.archs:
            by_arch.setdefault(row.arch, []).append(row)
    table = Listing("architecture", ">kept", ">", ">dropped", ">")
    for arch, rows in sorted(by_arch.items(), key=lambda item: arch_order(item[0])):
        kept, dropped = sum(row.kept for row in rows), sum(row.dropped for row in rows)
        kept_bytes = sum(row.kept_bytes for row in rows)
        table.add(
            Text(arch, style="ok" if kept_bytes else "dim"),
            str(kept or ""),
            size(kept_bytes) if kept else "",
            str(dropped or ""),
            size(sum(row.dropped_bytes for row in rows)) if dropped else "",
        )
    return table

"""The plan of `stoker package` as a terminal page: search paths, libraries, requirements."""

from collections.abc import Iterable

from stoker.model.value import first_of, size
from stoker.outside.terminal import Group, Indented, Listing, Page, Text
from stoker.wheel.package.packaging import Packaged
from stoker.wheel.package.plan import LibraryChange, PackagePlan

_MOST_NAMES = 4


def package_page(plan: PackagePlan) -> Page:
    stripped = [change.path for change in plan.changed if change.strip]
    requires = [Text(f"- {line}", style="removed") for line in plan.requires_dropped]
    requires += [Text(f"+ {line}", style="added") for line in plan.requires_added]
    licences = [Text.assemble(text.path, (f"  {text.source}", "dim")) for text in plan.licences]
    total = size(sum(change.size_bytes for change in plan.added))
    title = f"Bundled libraries: {len(plan.added)}, {total}"
    table = Listing("", ">", "", title=title, indent=2)
    for change in plan.added:
        table.add(change.path, size(change.size_bytes), Text(f"{change.source}", style="dim"))
    parts: list[list[Page]] = [
        [
            Text.assemble((plan.file_name, "bold"), f"  {plan.mode}"),
            Text(f"from {plan.wheel}", style="dim"),
        ],
        [table] if plan.added else [],
        _search_paths((*plan.changed, *plan.added)),
        _names(plan.changed),
        _section("Stripped", [Text(first_of(stripped, _MOST_NAMES))] if stripped else []),
        _section("Requires-Dist", requires),
        _section("Licences", licences),
        [Text.assemble(("note ", "note"), " ", note) for note in plan.notes],
    ]
    return Group(*(line for part in parts if part for line in (*part, Text())))


def packaged_lines(packaged: Packaged) -> str:
    """Return a summary of what was written."""
    debug = packaged.debug_files
    beside = f", {len(debug)} debug files next to it" if debug else ""
    return f"{packaged.path}, {size(packaged.size_bytes)}{beside}"


def _section(title: str, lines: Iterable[Text]) -> list[Page]:
    indented = [Indented(line, 2) for line in lines]
    return [Text(title, style="bold"), *indented] if indented else []


def _search_paths(changes: Iterable[LibraryChange]) -> list[Page]:
    by_path: dict[str, list[str]] = {}
    for change in changes:
        if change.rpath is not None:
            by_path.setdefault(change.rpath, []).append(change.path)
    lines: list[Text] = []
    for path, libraries in by_path.items():
        lines.append(Text(first_of(libraries, _MOST_NAMES), style="dim"))
        folders = path.split(":") if path else ["none"]
        lines += [Text(f"  {folder}") for folder in folders]
    return _section("Search path (DT_RPATH)", lines)


def _names(changes: Iterable[LibraryChange]) -> list[Page]:
    by_name: dict[tuple[str, str], list[str]] = {}
    for change in changes:
        for names in change.needed.items():
            by_name.setdefault(names, []).append(change.path)
    lines = [
        Text.assemble(f"{old} -> {new}  ", (first_of(libraries, _MOST_NAMES), "dim"))
        for (old, new), libraries in by_name.items()
    ]
    return _section("Renamed dependencies", lines)

"""Makes a wheel portable, so that it works on other machines."""

import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from stoker.model.value import size
from stoker.outside.terminal import Group, Indented, Listing, Page, Text
from stoker.wheel.engine import Wheel, open_wheel
from stoker.wheel.package.applying import apply, find_licences, open_sources
from stoker.wheel.package.built_wheel import (
    BuiltWheel,
    LibraryChange,
    Packaged,
    PackageMode,
    PackagePlan,
    PackageRequest,
    read_built_wheel,
)
from stoker.wheel.package.planning import make_plan
from stoker.wheel.package.requirements import Providers, wheel_cuda
from stoker.wheel.package.search import Closure, find_search_places, gather, to_be_hashed


def plan_package(wheel: Path, request: PackageRequest) -> PackagePlan:
    """Return what ``package`` would do; nothing is written."""
    with open_wheel(wheel) as opened:
        return _plan(opened, request, os.environ)


def package(
    wheel: Path,
    request: PackageRequest,
    into: Path,
    *,
    force: bool = False,
    notes: Mapping[str, bytes] = {},
) -> tuple[PackagePlan, Packaged]:
    """Write a portable copy of a wheel to the folder ``into``; the original stays unchanged.

    The new wheel appears when it is complete. ``force`` replaces an existing one. ``notes`` are
    files that are added to its dist-info.
    """
    with open_wheel(wheel) as opened:
        plan = _plan(opened, request, os.environ)
        return plan, apply(plan, opened, into, force=force, notes=notes)


def _plan(wheel: Wheel, request: PackageRequest, environment: Mapping[str, str]) -> PackagePlan:
    built = read_built_wheel(wheel)
    closure = _closure(built, request, environment)
    with open_sources() as sources:
        digests = {found.name: sources.digest(found.source) for found in to_be_hashed(closure)}
    licences, notes = find_licences(closure.found.values())
    return make_plan(
        built, request, closure=closure, digests=digests, licences=licences, notes=notes
    )


def _closure(built: BuiltWheel, request: PackageRequest, environment: Mapping[str, str]) -> Closure:
    if request.mode is PackageMode.PLAIN:
        return Closure()
    places = find_search_places(request.libraries, built.libraries, built.machine, environment)
    cuda = wheel_cuda(built, request)
    providers = Providers(built, request)
    return gather(built, providers, places, cuda=cuda.major if cuda else None)


# -- packaging -------------------------------------------------------------------------------------
# The plan of `stoker package` as a terminal page: search paths, libraries, requirements.


_MOST_NAMES = 4


def package_page(plan: PackagePlan) -> Page:
    parts = [
        _head(plan),
        _added(plan.added),
        _search_paths((*plan.changed, *plan.added)),
        _names(plan.changed),
        _stripped(plan.changed),
        _requirements(plan),
        _licences(plan),
        _notes(plan.notes),
    ]
    return Group(*(line for part in parts if part for line in (*part, Text())))


def packaged_lines(packaged: Packaged) -> str:
    """Return a summary of what was written."""
    debug = packaged.debug_files
    beside = f", {len(debug)} debug files next to it" if debug else ""
    return f"{packaged.path}, {size(packaged.size_bytes)}{beside}"


def _head(plan: PackagePlan) -> list[Page]:
    head = Text.assemble((plan.file_name, "bold"), f"  {plan.mode}")
    return [head, Text(f"from {plan.wheel}", style="dim")]


def _section(title: str, lines: Iterable[Text]) -> list[Page]:
    indented = [Indented(line, 2) for line in lines]
    return [Text(title, style="bold"), *indented] if indented else []


def _added(added: Sequence[LibraryChange]) -> list[Page]:
    if not added:
        return []
    total = size(sum(change.size_bytes for change in added))
    table = Listing("", ">", "", title=f"Bundled libraries: {len(added)}, {total}", indent=2)
    for change in added:
        table.add(change.path, size(change.size_bytes), Text(f"{change.source}", style="dim"))
    return [table]


def _search_paths(changes: Iterable[LibraryChange]) -> list[Page]:
    by_path: dict[str, list[str]] = {}
    for change in changes:
        if change.rpath is not None:
            by_path.setdefault(change.rpath, []).append(change.path)
    lines: list[Text] = []
    for path, libraries in by_path.items():
        lines.append(Text(_some(libraries), style="dim"))
        folders = path.split(":") if path else ["none"]
        lines += [Text(f"  {folder}") for folder in folders]
    return _section("Search path (DT_RPATH)", lines)


def _names(changes: Iterable[LibraryChange]) -> list[Page]:
    by_name: dict[tuple[str, str], list[str]] = {}
    for change in changes:
        for names in change.needed.items():
            by_name.setdefault(names, []).append(change.path)
    lines = [
        Text.assemble(f"{old} -> {new}  ", (_some(libraries), "dim"))
        for (old, new), libraries in by_name.items()
    ]
    return _section("Renamed dependencies", lines)


def _stripped(changes: Iterable[LibraryChange]) -> list[Page]:
    stripped = [change.path for change in changes if change.strip]
    return _section("Stripped", [Text(_some(stripped))] if stripped else [])


def _some(names: Sequence[str]) -> str:
    more = f" and {len(names) - _MOST_NAMES} more" if len(names) > _MOST_NAMES else ""
    return ", ".join(names[:_MOST_NAMES]) + more


def _requirements(plan: PackagePlan) -> list[Page]:
    lines = [Text(f"- {line}", style="removed") for line in plan.requires_dropped]
    lines += [Text(f"+ {line}", style="added") for line in plan.requires_added]
    return _section("Requires-Dist", lines)


def _licences(plan: PackagePlan) -> list[Page]:
    return _section(
        "Licences",
        [Text.assemble(text.path, (f"  {text.source}", "dim")) for text in plan.licences],
    )


def _notes(notes: Sequence[str]) -> list[Page]:
    return [Text.assemble(("note ", "note"), " ", note) for note in notes]

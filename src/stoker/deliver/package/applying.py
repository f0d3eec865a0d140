"""Applies a plan in one pass: libraries are edited while they are streamed into the new wheel."""

import shutil
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import msgspec

from stoker.artifact.elf_edit import ElfEdit
from stoker.artifact.engine import Content, Edit, Wheel, rewrite
from stoker.deliver.package.metadata import edited_metadata, edited_wheel
from stoker.deliver.package.sources import OpenSources, open_sources
from stoker.deliver.package.stripping import DEBUG_SUFFIX, find_tool, split
from stoker.deliver.package.values import LibraryChange, Packaged, PackagePlan, Source
from stoker.model.errors import UsageError
from stoker.outside import files
from stoker.outside.process import threads

_MODE = 0o755
_WORK = ".work"


def apply(plan: PackagePlan, wheel: Wheel, into: Path, *, force: bool = False) -> Packaged:
    """Write the packaged wheel to the folder ``into``, where it appears when it is complete."""
    debug = into / f"{plan.file_name.removesuffix('.whl')}{DEBUG_SUFFIX}"
    stripped = [change.path for change in plan.changed if change.strip]
    _check_free(wheel.path, into / plan.file_name, debug if stripped else None, force=force)
    with open_sources() as sources:
        if not stripped:
            return _packaged(_write(plan, wheel, sources, {}, into))
        if debug.exists():
            files.remove_whole(debug)
        with files.folder_made_whole(debug) as aside:
            copies = _strip(stripped, wheel, sources, aside)
            path = _write(plan, wheel, sources, copies, into)
            shutil.rmtree(aside / _WORK)
        return _packaged(path, debug)


def _check_free(wheel: Path, target: Path, debug: Path | None, *, force: bool) -> None:
    if target.exists() and target.samefile(wheel):
        raise UsageError(
            f"{target} is the wheel to package, and it would be overwritten",
            hints=["choose another folder with --out, or another version with --label"],
        )
    there = [path for path in (target, debug) if path is not None and path.exists()]
    if there and not force:
        raise UsageError(f"{there[0]} already exists", hints=["replace it with --force"])


def _packaged(path: Path, debug: Path | None = None) -> Packaged:
    taken_out = sorted(debug.rglob(f"*{DEBUG_SUFFIX}")) if debug else []
    return Packaged(
        path=str(path),
        size=path.stat().st_size,
        debug_files=tuple(str(file) for file in taken_out if file.is_file()),
    )


def _strip(
    members: Sequence[str], wheel: Wheel, sources: OpenSources, aside: Path
) -> dict[str, Source]:
    """Return stripped copies of members by name; the debug information stays in ``aside``."""
    tool = find_tool()

    def strip(member: str) -> Source:
        library = aside / _WORK / member
        sources.unpack(Source(file=str(wheel.path), member=member), library)
        debug = aside / f"{member}{DEBUG_SUFFIX}"
        debug.parent.mkdir(parents=True, exist_ok=True)
        split(library, debug, tool=tool)
        return Source(file=str(library))

    with ThreadPoolExecutor(threads()) as pool:
        return dict(zip(members, pool.map(strip, members), strict=True))


def _write(
    plan: PackagePlan,
    wheel: Wheel,
    sources: OpenSources,
    stripped: Mapping[str, Source],
    into: Path,
) -> Path:
    licences = f"{wheel.dist_info}/licenses"
    contents = _libraries(plan, wheel, sources, stripped)
    contents |= {f"{licences}/{text.path}": sources.content(text.source) for text in plan.licences}
    contents |= _metadata(plan, wheel)
    return rewrite(wheel, Edit(contents=contents), into)


def _libraries(
    plan: PackagePlan, wheel: Wheel, sources: OpenSources, stripped: Mapping[str, Source]
) -> dict[str, Content]:
    def content(change: LibraryChange) -> Content:
        own = Source(file=str(wheel.path), member=change.path)
        source = change.source or stripped.get(change.path, own)
        edit = ElfEdit(rpath=change.rpath, needed=change.needed, soname=change.soname)
        edited = sources.edited(source, edit)
        return msgspec.structs.replace(edited, mode=_MODE if change.source else None)

    changes = (*plan.changed, *plan.added)
    with ThreadPoolExecutor(threads()) as pool:
        made = pool.map(content, changes)
        return {change.path: each for change, each in zip(changes, made, strict=True)}


def _metadata(plan: PackagePlan, wheel: Wheel) -> dict[str, Content]:
    metadata, kind = f"{wheel.dist_info}/METADATA", f"{wheel.dist_info}/WHEEL"
    edited = edited_metadata(
        wheel.read(metadata),
        version=plan.version,
        drop=plan.requires_dropped,
        requires=plan.requires_added,
        licences=[text.path for text in plan.licences],
    )
    return {
        metadata: Content.of_bytes(edited),
        kind: Content.of_bytes(edited_wheel(wheel.read(kind), plan.tags)),
    }

"""Packages a wheel, so that it works on other machines: reads it, plans and applies."""

import os
import shutil
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import msgspec

from stoker.model.errors import CommandError, MissingError, UsageError
from stoker.model.slimming import PACKAGE_MEMBER, PackageRecord
from stoker.model.value import Value
from stoker.outside import files, process
from stoker.outside.deleting import remove_tree, remove_whole
from stoker.wheel.elf.edit import ElfEdit
from stoker.wheel.package.built_wheel import read_built_wheel
from stoker.wheel.package.closure import Closure, find_closure, to_be_hashed
from stoker.wheel.package.licences import find_licences
from stoker.wheel.package.places import find_search_places
from stoker.wheel.package.plan import LibraryChange, PackagePlan, make_package_plan
from stoker.wheel.package.request import PackageMode, PackageRequest
from stoker.wheel.package.sources import LibrarySource, OpenSources, open_sources
from stoker.wheel.zip import Content, Wheel, open_wheel
from stoker.wheel.zip.metadata import edited_metadata, edited_wheel
from stoker.wheel.zip.revision import Revision, check_new
from stoker.wheel.zip.threads import threads

_MODE = 0o755
_WORK = ".work"
_TOOLS = ("objcopy", "llvm-objcopy")
_STRIP_TIMEOUT_S = 600.0
DEBUG_SUFFIX = ".debug"


class Packaged(Value, frozen=True, kw_only=True):
    """The written wheel. ``debug_files`` are in a folder next to it."""

    path: str
    size_bytes: int
    debug_files: tuple[str, ...] = ()


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
        return plan, apply_plan(plan, opened, into, force=force, notes=notes)


def _plan(wheel: Wheel, request: PackageRequest, environment: Mapping[str, str]) -> PackagePlan:
    built, closure = read_built_wheel(wheel), Closure()
    if request.mode is not PackageMode.PLAIN:
        places = find_search_places(request.libraries, built.libraries, built.machine, environment)
        closure = find_closure(built, request, places)
    with open_sources() as sources:
        digests = {found.name: sources.digest(found.source) for found in to_be_hashed(closure)}
    licences, notes = find_licences(closure.found.values())
    return make_package_plan(
        built, request, closure=closure, digests=digests, licences=licences, notes=notes
    )


def find_tool() -> str:
    for name in _TOOLS:
        if tool := shutil.which(name):
            return tool
    raise MissingError(
        f"--strip needs {' or '.join(_TOOLS)}, and neither was found",
        hints=["run apt-get install binutils, or leave out --strip"],
    )


def split_debug(library: Path, debug: Path, *, tool: str) -> None:
    """Strip a library in place; write the debug information to ``debug``."""
    stripped = library.with_name(f"{library.name}.stripped")
    try:
        process.check([tool, "--only-keep-debug", library, debug], timeout=_STRIP_TIMEOUT_S)
        process.check(
            [tool, "--strip-unneeded", f"--add-gnu-debuglink={debug}", library, stripped],
            timeout=_STRIP_TIMEOUT_S,
        )
    except CommandError as error:
        raise CommandError(
            f"{library.name} cannot be stripped: {error.message}",
            output=error.output,
            hints=["install llvm-objcopy: objcopy of binutils handles one architecture only"],
        ) from None
    stripped.replace(library)


def apply_plan(
    plan: PackagePlan,
    wheel: Wheel,
    into: Path,
    *,
    force: bool = False,
    notes: Mapping[str, bytes] = {},
) -> Packaged:
    """Write the packaged wheel to the folder ``into``, where it appears when it is complete.
    ``notes`` are files that are added to its dist-info.
    """
    target = into / plan.file_name
    debug = into / f"{plan.file_name.removesuffix('.whl')}{DEBUG_SUFFIX}"
    stripped = [change.path for change in plan.changed if change.strip]
    refusal = UsageError(
        f"{target} is the wheel to package, and it would be overwritten",
        hints=["choose another folder with --out, or another version with --label"],
    )
    check_new(target, wheel.path, refusal=refusal, force=force)
    if stripped and debug.exists():
        if not force:
            raise UsageError(f"{debug} already exists", hints=["replace it with --force"])
        remove_whole(debug)
    with open_sources() as sources:
        if not stripped:
            path = _revision(plan, wheel, sources, {}, notes).write(wheel, into, compress=True)
            return Packaged(path=str(path), size_bytes=path.stat().st_size)
        tool = find_tool()
        with files.folder_made_whole(debug) as aside:

            def strip(member: str) -> LibrarySource:
                """Return a stripped copy; the debug information stays in ``aside``."""
                library = aside / _WORK / member
                sources.unpack(LibrarySource(file=str(wheel.path), member=member), library)
                taken_out = aside / f"{member}{DEBUG_SUFFIX}"
                taken_out.parent.mkdir(parents=True, exist_ok=True)
                split_debug(library, taken_out, tool=tool)
                return LibrarySource(file=str(library))

            with ThreadPoolExecutor(threads()) as pool:
                copies = dict(zip(stripped, pool.map(strip, stripped), strict=True))
            path = _revision(plan, wheel, sources, copies, notes).write(wheel, into, compress=True)
            remove_tree(aside / _WORK, strict=True)
    found = sorted(debug.rglob(f"*{DEBUG_SUFFIX}"))
    return Packaged(
        path=str(path),
        size_bytes=path.stat().st_size,
        debug_files=tuple(str(file) for file in found if file.is_file()),
    )


def _revision(
    plan: PackagePlan,
    wheel: Wheel,
    sources: OpenSources,
    stripped: Mapping[str, LibrarySource],
    notes: Mapping[str, bytes],
) -> Revision:
    """Return the new wheel: its libraries, licence texts, metadata and record."""

    def content(change: LibraryChange) -> Content:
        own = LibrarySource(file=str(wheel.path), member=change.path)
        edit = ElfEdit(
            rpath=change.rpath,
            as_runpath=change.as_runpath,
            needed=change.needed,
            soname=change.soname,
        )
        edited = sources.edited(change.source or stripped.get(change.path, own), edit)
        return msgspec.structs.replace(edited, mode=_MODE if change.source else None)

    changes = (*plan.changed, *plan.added)
    with ThreadPoolExecutor(threads()) as pool:
        made = pool.map(content, changes)
        contents = {change.path: each for change, each in zip(changes, made, strict=True)}
    for text in plan.licences:
        contents[f"{wheel.dist_info}/licenses/{text.path}"] = sources.content(text.source)
    records = dict(notes)
    if plan.excluded:
        record = PackageRecord(excluded=plan.excluded)
        records[PACKAGE_MEMBER] = msgspec.json.encode(record) + b"\n"
    return Revision(
        metadata=edited_metadata(
            wheel.read(f"{wheel.dist_info}/METADATA"),
            version=plan.version,
            drop=plan.requires_dropped,
            requires=plan.requires_added,
            licences=[text.path for text in plan.licences],
        ),
        kind=edited_wheel(wheel.read(f"{wheel.dist_info}/WHEEL"), plan.tags),
        contents=contents,
        records=records,
    )

"""Makes the plan of a package: the changes to every library and to the metadata."""

from collections.abc import Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from pathlib import Path, PurePosixPath

import msgspec

from stoker.knowledge.manylinux import policies
from stoker.knowledge.nvidia_packages import folders, known_cuda
from stoker.model.artifact import Dependency, LibraryFacts, LibraryOrigin
from stoker.model.errors import UsageError
from stoker.model.value import Value
from stoker.wheel.inspect.origins import by_folder, installed_path, portable_paths, resolve_needed
from stoker.wheel.inspect.runs_on import oldest_manylinux
from stoker.wheel.package.built_wheel import BuiltWheel
from stoker.wheel.package.closure import (
    BundledLibraries,
    Closure,
    LibraryProvider,
    known_cuda_of,
    providers,
)
from stoker.wheel.package.licences import Licence
from stoker.wheel.package.request import PackageMode, PackageRequest
from stoker.wheel.package.requirements import added_requirements, dropped_requirements
from stoker.wheel.package.search_paths import SearchPaths, home
from stoker.wheel.package.sources import LibrarySource
from stoker.wheel.zip.metadata import edited_metadata, edited_wheel
from stoker.wheel.zip.revision import new_file_name, new_version


class LibraryChange(Value, frozen=True, kw_only=True):
    """The changes to an ELF file of the new wheel.

    ``rpath`` None keeps the search path, empty removes it; ``as_runpath`` writes it as DT_RUNPATH.
    ``source`` is set for bundled files.
    """

    path: str
    rpath: str | None = None
    as_runpath: bool = False
    needed: dict[str, str] = {}
    soname: str | None = None
    strip: bool = False
    source: LibrarySource | None = None
    size_bytes: int = 0
    wanted_by: tuple[str, ...] = ()  # the libraries that need a bundled one


class PackagePlan(Value, frozen=True, kw_only=True):
    mode: PackageMode
    wheel: str
    file_name: str
    version: str
    tags: tuple[str, ...]
    changed: tuple[LibraryChange, ...] = ()
    added: tuple[LibraryChange, ...] = ()
    requires_added: tuple[str, ...] = ()
    requires_dropped: tuple[str, ...] = ()
    excluded: tuple[str, ...] = ()  # patterns of libraries that the target machine provides
    licences: tuple[Licence, ...] = ()
    notes: tuple[str, ...] = ()


def make_package_plan(
    built: BuiltWheel,
    request: PackageRequest,
    *,
    closure: Closure,
    digests: Mapping[str, str],
    licences: Sequence[Licence] = (),
    notes: Sequence[str] = (),
) -> PackagePlan:
    """Return the plan. ``digests`` are SHA-256 of the libraries bundled under another name."""
    bundled = BundledLibraries(built, closure, digests)
    paths = None if request.mode is PackageMode.PLAIN else _search_paths(built, request, bundled)
    added = added_requirements(built, request)
    gone = dropped_requirements(built, added, closure.found)
    rows = resolve_needed(
        built.libraries,
        names_in=by_folder(map(installed_path, built.members)),
        files={PurePosixPath(member).name for member in built.members},
        # What an added requirement provides is not missing.
        requires=[*(line for line in built.facts.requires if line not in gone), *added],
    )
    version = new_version(built.facts.version, request.label)
    everything = (*built.libraries, *(found.facts for found in closure.found.values()))
    tags, tag_notes = new_tags(built.facts.tags, everything, built.machine)
    missing = [row.name for row in rows if row.origin is LibraryOrigin.MISSING]
    lacking = [one for one in missing if not any(fnmatchcase(one, p) for p in request.exclude)]
    if lacking and request.mode is PackageMode.PLAIN:  # `stoker verify` rejects it
        remark = (
            f"nothing in the wheel or its requirements provides {', '.join(lacking)}: use --mode "
            "pypi or bundle, or --exclude what the target machine provides"
        )
        tag_notes = (*tag_notes, remark)
    return PackagePlan(
        mode=request.mode,
        wheel=built.path,
        file_name=new_file_name(
            edited_metadata(built.metadata, version=version),
            edited_wheel(built.wheel, tags),
            dist_info=built.dist_info,
            path=Path(built.path),
        ),
        version=version,
        tags=tags,
        changed=tuple(_changed(built, request, paths, bundled, rows)),
        added=tuple(_added(paths, bundled)) if paths else (),
        requires_added=tuple(line for line in added if line not in gone),
        requires_dropped=tuple(line for line in gone if line not in added),
        excluded=request.exclude,
        licences=tuple(licences),
        notes=(*closure.notes, *notes, *tag_notes),
    )


def new_tags(
    tags: Sequence[str], libraries: Sequence[LibraryFacts], machine: str
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return tags that match the symbols, and notes. Tags that match already are kept."""
    needed = oldest_manylinux(libraries)
    names = [policy.name for policy in policies()]
    if needed is None:
        plain = dict.fromkeys(f"{tag.rpartition('-')[0]}-linux_{machine}" for tag in tags)
        return tuple(plain), (
            f"no manylinux tag fits: it needs newer symbols than {names[-1]} has",
        )
    fitting = policies()[names.index(needed) :]
    enough = {name for policy in fitting for name in (policy.name, *policy.aliases)}
    made: dict[str, None] = {}
    for tag in tags:
        rest, _, platform = tag.rpartition("-")
        if not platform.startswith(("linux_", "manylinux")) and platform != "any":
            raise UsageError(f"the wheel is for {platform}: only Linux with glibc is supported")
        kept = [part for part in platform.split(".") if part.removesuffix(f"_{machine}") in enough]
        made[f"{rest}-{'.'.join(kept) or f'{needed}_{machine}'}"] = None
    return tuple(made), ()


def _search_paths(
    built: BuiltWheel, request: PackageRequest, bundled: BundledLibraries
) -> SearchPaths:
    provider = providers(built, request)
    homes: dict[str, list[str]] = {name: [bundled.folder] for name in bundled.names}
    for library in built.libraries:
        name, folder = PurePosixPath(library.path).name, home(library.path)
        if folder not in homes.setdefault(name, []):
            homes[name].append(folder)
    packages: tuple[str, ...] = ()
    if any(provider(name) is LibraryProvider.PACKAGE for name in built.needed):
        cuda = known_cuda_of(built, request)
        packages = folders(cuda.major)
        if not packages:
            known = " and ".join(map(str, known_cuda()))
            raise UsageError(
                f"the folders of NVIDIA's packages for CUDA {cuda.major} are unknown",
                hints=[f"use CUDA {known}, or --mode bundle"],
            )
    return SearchPaths(provider=provider, homes=homes, packages=packages, is_torch=built.is_torch)


def _changed(
    built: BuiltWheel,
    request: PackageRequest,
    paths: SearchPaths | None,
    bundled: BundledLibraries,
    rows: Sequence[Dependency],
) -> Iterator[LibraryChange]:
    repaired = {} if paths else portable_paths(built.libraries, rows)
    for library in built.libraries:
        portable = repaired.get(library.path)
        change = LibraryChange(
            path=library.path,
            rpath=paths.new(library) if paths else None if portable is None else ":".join(portable),
            as_runpath=bool(portable and library.runpath),
            needed=bundled.renamed(library.needed),
            strip=request.strip and not library.stripped,
        )
        if change != LibraryChange(path=library.path):
            yield change


def _added(paths: SearchPaths, bundled: BundledLibraries) -> Iterator[LibraryChange]:
    for name, found in bundled.files.items():
        path = f"{bundled.folder}/{name}"
        facts = msgspec.structs.replace(found.facts, path=path)
        yield LibraryChange(
            path=path,
            rpath=paths.of_bundled(facts),
            needed=bundled.renamed(facts.needed),
            soname=name if facts.soname not in (None, name) else None,
            source=found.source,
            size_bytes=facts.size_bytes,
            wanted_by=bundled.wanted_by(name),
        )

"""Makes the plan of a package: the changes to every library and to the metadata. Pure."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import PurePosixPath

import msgspec

from stoker.artifact.engine.identity import identify
from stoker.deliver.package.built_wheel import BuiltWheel
from stoker.deliver.package.bundled import BundledLibraries
from stoker.deliver.package.closure import Closure
from stoker.deliver.package.cuda import known_cuda_of
from stoker.deliver.package.identity import new_tags, new_version
from stoker.deliver.package.metadata import edited_metadata, edited_wheel
from stoker.deliver.package.providers import Provider, Providers
from stoker.deliver.package.requirements import added_requirements, dropped_requirements
from stoker.deliver.package.search_paths import SearchPaths, home
from stoker.deliver.package.values import (
    LibraryChange,
    Licence,
    Mode,
    PackagePlan,
    PackageRequest,
)
from stoker.knowledge.wheels import folders, known_cuda
from stoker.model.errors import ArtifactError, UsageError


def make_plan(
    built: BuiltWheel,
    request: PackageRequest,
    *,
    closure: Closure,
    digests: Mapping[str, str],
    licences: Sequence[Licence] = (),
    notes: Sequence[str] = (),
) -> PackagePlan:
    """Return the plan. ``digests`` are SHA-256 of the libraries bundled under another name."""
    providers = Providers(built, request)
    bundled = BundledLibraries(built, closure, digests)
    paths = None if request.mode is Mode.PLAIN else _search_paths(built, request, bundled)
    added = added_requirements(built, request, providers)
    gone = dropped_requirements(built, added, closure.found)
    version = new_version(built.facts.version, request.label)
    everything = (*built.libraries, *(found.facts for found in closure.found.values()))
    tags, tag_notes = new_tags(built.facts.tags, everything, built.machine)
    return PackagePlan(
        mode=request.mode,
        wheel=built.path,
        file_name=_file_name(built, version, tags),
        version=version,
        tags=tags,
        changed=tuple(_changed(built, request, paths, bundled)),
        added=tuple(_added(paths, bundled)) if paths else (),
        requires_added=tuple(line for line in added if line not in gone),
        requires_dropped=tuple(line for line in gone if line not in added),
        licences=tuple(licences),
        notes=(*closure.notes, *notes, *tag_notes),
    )


def _search_paths(
    built: BuiltWheel, request: PackageRequest, bundled: BundledLibraries
) -> SearchPaths:
    providers = Providers(built, request)
    homes: dict[str, list[str]] = {name: [bundled.folder] for name in bundled.names}
    for library in built.libraries:
        name, folder = PurePosixPath(library.path).name, home(library.path)
        if folder not in homes.setdefault(name, []):
            homes[name].append(folder)
    return SearchPaths(
        provider=providers.of,
        homes=homes,
        packages=_package_folders(built, request, providers),
        is_torch=built.is_torch,
    )


def _package_folders(
    built: BuiltWheel, request: PackageRequest, providers: Providers
) -> tuple[str, ...]:
    """Return the folders of NVIDIA's packages, if the wheel uses a library from there."""
    if not any(providers.of(name) is Provider.PACKAGE for name in built.needed):
        return ()
    cuda = known_cuda_of(built, request)
    if found := folders(cuda.major):
        return found
    known = " and ".join(map(str, known_cuda()))
    raise UsageError(
        f"the folders of NVIDIA's packages for CUDA {cuda.major} are unknown",
        hints=[f"use CUDA {known}, or --mode bundle"],
    )


def _changed(
    built: BuiltWheel, request: PackageRequest, paths: SearchPaths | None, bundled: BundledLibraries
) -> Iterator[LibraryChange]:
    for library in built.libraries:
        change = LibraryChange(
            path=library.path,
            rpath=paths.new(library) if paths else None,
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
            size=facts.size,
            wanted_by=bundled.wanted_by(name),
        )


def _file_name(built: BuiltWheel, version: str, tags: Sequence[str]) -> str:
    metadata = edited_metadata(built.metadata, version=version)
    wheel = edited_wheel(built.wheel, tags)
    try:
        present = built.dist_info.removesuffix(".dist-info")
        return identify(metadata, wheel, present=present).file_name
    except ValueError as error:
        raise ArtifactError(str(error), file=built.path, member=built.dist_info) from None

"""From facts to the plan of a package: what becomes of every library, and of the metadata. Pure:
what has to be read for it is handed in.
"""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import PurePosixPath

import msgspec

from stoker.artifact.engine.identity import identify
from stoker.deliver.package.closure import Closure
from stoker.deliver.package.cuda import known_cuda_of
from stoker.deliver.package.identity import new_tags, new_version
from stoker.deliver.package.metadata import edited_metadata, edited_wheel
from stoker.deliver.package.providers import Provider, Providers
from stoker.deliver.package.requirements import added_requirements, dropped_requirements
from stoker.deliver.package.search_paths import SearchPaths, home
from stoker.deliver.package.subject import Subject
from stoker.deliver.package.taken import Taken
from stoker.deliver.package.values import (
    LibraryChange,
    Licence,
    Mode,
    PackagePlan,
    PackageRequest,
)
from stoker.knowledge.nvidia_packages import folders, known_cuda
from stoker.model.errors import ArtifactError, UsageError


def make_plan(
    subject: Subject,
    request: PackageRequest,
    *,
    closure: Closure,
    digests: Mapping[str, str],
    licences: Sequence[Licence] = (),
    notes: Sequence[str] = (),
) -> PackagePlan:
    """``digests`` are SHA-256 of the libraries that are taken in under another name."""
    providers = Providers(subject, request)
    taken = Taken(subject, closure, digests)
    paths = None if request.mode is Mode.PLAIN else _search_paths(subject, request, taken)
    added = added_requirements(subject, request, providers)
    gone = dropped_requirements(subject, added, closure.found)
    version = new_version(subject.facts.version, request.label)
    everything = (*subject.libraries, *(found.facts for found in closure.found.values()))
    tags, tag_notes = new_tags(subject.facts.tags, everything, subject.machine)
    return PackagePlan(
        mode=request.mode,
        wheel=subject.path,
        file_name=_file_name(subject, version, tags),
        version=version,
        tags=tags,
        changed=tuple(_changed(subject, request, paths, taken)),
        added=tuple(_added(paths, taken)) if paths else (),
        requires_added=tuple(line for line in added if line not in gone),
        requires_dropped=tuple(line for line in gone if line not in added),
        licences=tuple(licences),
        notes=(*closure.notes, *notes, *tag_notes),
    )


def _search_paths(subject: Subject, request: PackageRequest, taken: Taken) -> SearchPaths:
    providers = Providers(subject, request)
    homes: dict[str, list[str]] = {name: [taken.folder] for name in taken.names}
    for library in subject.libraries:
        name, folder = PurePosixPath(library.path).name, home(library.path)
        if folder not in homes.setdefault(name, []):
            homes[name].append(folder)
    return SearchPaths(
        provider=providers.of,
        homes=homes,
        packages=_package_folders(subject, request, providers),
        is_torch=subject.is_torch,
    )


def _package_folders(
    subject: Subject, request: PackageRequest, providers: Providers
) -> tuple[str, ...]:
    """Where NVIDIA's packages are, if the wheel takes any library from there."""
    if not any(providers.of(name) is Provider.PACKAGE for name in subject.needed):
        return ()
    cuda = known_cuda_of(subject, request)
    if found := folders(cuda.major):
        return found
    known = " and ".join(map(str, known_cuda()))
    raise UsageError(
        f"where the packages of CUDA {cuda.major} put their libraries is not known",
        hints=[f"known are those of CUDA {known}"],
    )


def _changed(
    subject: Subject, request: PackageRequest, paths: SearchPaths | None, taken: Taken
) -> Iterator[LibraryChange]:
    for library in subject.libraries:
        change = LibraryChange(
            path=library.path,
            rpath=paths.new(library) if paths else None,
            needed=taken.renamed(library.needed),
            strip=request.strip and not library.stripped,
        )
        if change != LibraryChange(path=library.path):
            yield change


def _added(paths: SearchPaths, taken: Taken) -> Iterator[LibraryChange]:
    for name, found in taken.files.items():
        path = f"{taken.folder}/{name}"
        facts = msgspec.structs.replace(found.facts, path=path)
        yield LibraryChange(
            path=path,
            rpath=paths.of_bundled(facts),
            needed=taken.renamed(facts.needed),
            soname=name if facts.soname not in (None, name) else None,
            source=found.source,
            size=facts.size,
            wanted_by=taken.wanted_by(name),
        )


def _file_name(subject: Subject, version: str, tags: Sequence[str]) -> str:
    metadata = edited_metadata(subject.metadata, version=version)
    wheel = edited_wheel(subject.wheel, tags)
    try:
        present = subject.dist_info.removesuffix(".dist-info")
        return identify(metadata, wheel, present=present).file_name
    except ValueError as error:
        raise ArtifactError(str(error), file=subject.path, member=subject.dist_info) from None

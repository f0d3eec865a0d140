"""The version and tags of the packaged wheel. Pure."""

import posixpath
from collections.abc import Callable, Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from pathlib import PurePosixPath

import msgspec
from packaging.version import InvalidVersion

from stoker.knowledge.wheels import PlatformPolicy, folders, known_cuda, policies, torch_search_path
from stoker.model.artifact import Dependency, ElfKind, LibraryFacts, LibraryOrigin
from stoker.model.distribution import read_version
from stoker.model.errors import ArtifactError, UsageError
from stoker.wheel.closure import installed_path, portable_paths, resolve, search_folders
from stoker.wheel.engine.edit import identify
from stoker.wheel.metadata import edited_metadata, edited_wheel
from stoker.wheel.package.built_wheel import (
    BuiltWheel,
    LibraryChange,
    Licence,
    PackageMode,
    PackagePlan,
    PackageRequest,
)
from stoker.wheel.package.requirements import (
    LibraryProvider,
    Providers,
    added_requirements,
    dropped_requirements,
    known_cuda_of,
)
from stoker.wheel.package.search import BundledLibraries, Closure
from stoker.wheel.runs_on import oldest_manylinux


def new_version(version: str, label: str | None) -> str:
    """Return the version with the local label; an empty label removes it."""
    if label is None:
        return version
    try:
        public = read_version(version).public
        return str(read_version(f"{public}+{label}")) if label else public
    except InvalidVersion:
        raise UsageError(
            f"'{label}' is not a local version label",
            hints=["use letters, digits and dots, such as cu128.sm90"],
        ) from None


def new_tags(
    tags: Sequence[str], libraries: Sequence[LibraryFacts], machine: str
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return tags that match the symbols, and notes. Tags that match already are kept."""
    needed = oldest_manylinux(libraries)
    if needed is None:
        newest = policies()[-1].name
        plain = tuple(dict.fromkeys(_with_platform(tag, f"linux_{machine}") for tag in tags))
        return plain, (f"no manylinux tag fits: it needs newer symbols than {newest} has",)
    made = [_honest(tag, needed, machine) for tag in tags]
    return tuple(dict.fromkeys(made)), ()


def _honest(tag: str, needed: str, machine: str) -> str:
    platform = tag.rpartition("-")[2]
    if not platform.startswith(("linux_", "manylinux")) and platform != "any":
        raise UsageError(f"the wheel is for {platform}: only Linux with glibc is supported")
    enough = {name for row in _from(needed) for name in (row.name, *row.aliases)}
    kept = [part for part in platform.split(".") if part.removesuffix(f"_{machine}") in enough]
    return _with_platform(tag, ".".join(kept) or f"{needed}_{machine}")


def _from(needed: str) -> Sequence[PlatformPolicy]:
    """Return the policy of a tag and all newer ones."""
    names = [policy.name for policy in policies()]
    return policies()[names.index(needed) :]


def _with_platform(tag: str, platform: str) -> str:
    return f"{tag.rpartition('-')[0]}-{platform}"


# -- search paths ----------------------------------------------------------------------------------
# Computes the DT_RPATH of each library in the wheel. Pure.


_TORCH_FOLDER = "torch/lib"
_ORIGIN = "$ORIGIN"
_ORIGINS = (_ORIGIN, "${ORIGIN}")


def home(path: str) -> str:
    """Return the folder that a member is installed to, relative to site-packages."""
    return posixpath.dirname(installed_path(path)) or "."


class SearchPaths:
    """``homes`` are the folders of the new wheel that contain a library, by its name.

    ``packages`` are the library folders of NVIDIA's packages.
    """

    def __init__(
        self,
        *,
        provider: Callable[[str], LibraryProvider],
        homes: Mapping[str, Sequence[str]],
        packages: Sequence[str],
        is_torch: bool,
    ):
        self._provider = provider
        self._homes = homes
        self._packages = packages
        self._is_torch = is_torch

    def new(self, library: LibraryFacts) -> str | None:
        """Return the new search path of a library in the wheel; None to keep its own."""
        if path := self._torch(library):
            return None if (library.rpath, library.runpath) == (path, ()) else ":".join(path)
        wanted = self._wanted(library)
        if ".data/" in home(library.path) or _will_do(library, wanted):
            return None  # the folder of installed scripts, and so the path from there, varies
        origins = [f for f in (*library.runpath, *library.rpath) if f.startswith(_ORIGINS)]
        return ":".join(dict.fromkeys((*wanted, *origins)))

    def of_bundled(self, library: LibraryFacts) -> str:
        """Return the search path of a bundled library; the others are in the same folder."""
        return ":".join(self._torch(library) or dict.fromkeys((_ORIGIN, *self._wanted(library))))

    def _torch(self, library: LibraryFacts) -> tuple[str, ...] | None:
        """Return the path of official wheels, which start it equally in both folders."""
        end = torch_search_path(posixpath.dirname(library.path)) if self._is_torch else None
        if end is None or library.kind is not ElfKind.LIBRARY:
            return None
        return (*(f"{_ORIGIN}/../../{folder}" for folder in self._packages), *end)

    def _wanted(self, library: LibraryFacts) -> tuple[str, ...]:
        here = home(library.path)
        return tuple(
            _relative_folder(here, folder) for folder in dict.fromkeys(self._folders(library))
        )

    def _folders(self, library: LibraryFacts) -> Iterator[str]:
        """Return the folders of PyTorch, then of NVIDIA's packages, then of the wheel."""
        providers = {self._provider(name) for name in library.needed}
        if LibraryProvider.TORCH in providers:
            yield _TORCH_FOLDER
        if LibraryProvider.PACKAGE in providers:
            yield from self._packages
        for name in library.needed:
            if name in self._homes:
                yield _one_home(name, self._homes[name], library)


def _one_home(name: str, homes: Sequence[str], library: LibraryFacts) -> str:
    """Return the folder of a library: the one on the present path, else the same folder."""
    for folder in (*search_folders(library), home(library.path)):
        if folder in homes:
            return folder
    if len(homes) > 1:
        raise UsageError(
            f"{library.path} needs {name}, which is in {' and in '.join(homes)}",
            hints=["remove one of the two from the wheel"],
        )
    return homes[0]


def _will_do(library: LibraryFacts, wanted: Sequence[str]) -> bool:
    """Return whether the present path stays inside, and is DT_RPATH if a library needs it."""
    present = (*library.rpath, *library.runpath)
    inside = all(folder.startswith(_ORIGINS) for folder in present)
    as_rpath = library.kind is ElfKind.PROGRAM or not library.runpath or not wanted
    leads = {posixpath.normpath(f.replace(_ORIGIN, home(library.path))) for f in wanted}
    return inside and as_rpath and leads.issubset(search_folders(library))


def _relative_folder(here: str, folder: str) -> str:
    relative = posixpath.relpath(f"/{folder}", f"/{here}")
    return _ORIGIN if relative == "." else f"{_ORIGIN}/{relative}"


# -- planning --------------------------------------------------------------------------------------
# Makes the plan of a package: the changes to every library and to the metadata. Pure.


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
    paths = None if request.mode is PackageMode.PLAIN else _search_paths(built, request, bundled)
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
        excluded=request.exclude,
        licences=tuple(licences),
        notes=(*closure.notes, *notes, *tag_notes, *_lacking(built, request)),
    )


def _dependencies(built: BuiltWheel) -> tuple[Dependency, ...]:
    return resolve(
        built.libraries,
        holds={installed_path(member) for member in built.members}.__contains__,
        files={PurePosixPath(member).name for member in built.members},
        requires=built.facts.requires,
    )


def _lacking(built: BuiltWheel, request: PackageRequest) -> Iterator[str]:
    """Yield a note on what a plain wheel needs and nothing provides: `stoker verify` rejects it."""
    if request.mode is not PackageMode.PLAIN:
        return
    names = [row.name for row in _dependencies(built) if row.origin is LibraryOrigin.MISSING]
    names = [name for name in names if not any(fnmatchcase(name, p) for p in request.exclude)]
    if names:
        yield (
            f"nothing in the wheel or its requirements provides {', '.join(names)}: use --mode "
            "pypi or bundle, or --exclude what the target machine provides"
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
    if not any(providers.of(name) is LibraryProvider.PACKAGE for name in built.needed):
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
    repaired = {} if paths else portable_paths(built.libraries, _dependencies(built))
    for library in built.libraries:
        portable = repaired.get(library.path)
        change = LibraryChange(
            path=library.path,
            rpath=paths.new(library) if paths else _joined(portable),
            as_runpath=bool(portable and library.runpath),
            needed=bundled.renamed(library.needed),
            strip=request.strip and not library.stripped,
        )
        if change != LibraryChange(path=library.path):
            yield change


def _joined(folders: tuple[str, ...] | None) -> str | None:
    return None if folders is None else ":".join(folders)


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


def _file_name(built: BuiltWheel, version: str, tags: Sequence[str]) -> str:
    metadata = edited_metadata(built.metadata, version=version)
    wheel = edited_wheel(built.wheel, tags)
    try:
        present = built.dist_info.removesuffix(".dist-info")
        return identify(metadata, wheel, present=present).file_name
    except ValueError as error:
        raise ArtifactError(str(error), file=built.path, member=built.dist_info) from None

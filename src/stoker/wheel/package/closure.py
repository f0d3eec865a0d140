"""Finds the libraries that a wheel has to bundle, and names them.

These are the libraries that it needs and nothing else provides, their own dependencies, and the
libraries that they open by name at run time. What provides a library depends on the CUDA version,
which comes from the user, from PyTorch's version file, or from the libraries.
"""

import re
from collections.abc import Callable, Mapping
from enum import StrEnum
from fnmatch import fnmatchcase
from pathlib import PurePosixPath

from stoker.knowledge.manylinux import is_system_library
from stoker.knowledge.nvidia_packages import keeps_name, never_bundled, opened_by
from stoker.knowledge.sonames import bringer, comes_with_torch, cuda_of, is_of_driver
from stoker.model.errors import MissingError, UsageError
from stoker.model.value import Value, first_of
from stoker.wheel.inspect.origins import BUNDLED_FOLDER
from stoker.wheel.package.built_wheel import BuiltWheel
from stoker.wheel.package.places import FoundLibrary, SearchPlaces
from stoker.wheel.package.request import PackageMode, PackageRequest

_MOST_PLACES = 12
_RELEASE = re.compile(r"([0-9]{2})(\.[0-9]{1,2})?")
TORCH_FOLDER = "torch/lib"


class LibraryProvider(StrEnum):
    WHEEL = "wheel"  # already in it
    SYSTEM = "system"  # the target machine: Linux, driver, Python, or excluded by the user
    TORCH = "torch"
    PACKAGE = "package"  # a package of NVIDIA
    BUNDLE = "bundle"  # it has to be added to the wheel


def providers(built: BuiltWheel, request: PackageRequest) -> Callable[[str], LibraryProvider]:
    """Return the function from the name of a library to what provides it."""
    own, is_torch, is_extension = built.own, built.is_torch, built.is_extension

    def provider(name: str) -> LibraryProvider:
        if name in own:
            return LibraryProvider.WHEEL
        if (
            is_system_library(name)
            or is_of_driver(name)
            or never_bundled(name)
            or any(fnmatchcase(name, pattern) for pattern in request.exclude)
        ):
            return LibraryProvider.SYSTEM
        row = bringer(name)
        if row and row.name == "torch" and not is_torch:
            return LibraryProvider.TORCH
        if is_extension and comes_with_torch(name):
            return LibraryProvider.TORCH
        if row and row.name != "torch" and request.mode is PackageMode.PYPI:
            return LibraryProvider.PACKAGE
        return LibraryProvider.BUNDLE

    return provider


class Cuda(Value, frozen=True, kw_only=True):
    """``release`` is a version such as 13.2, or only 13 if the minor version is unknown."""

    major: int
    release: str

    @property
    def is_exact(self) -> bool:
        return "." in self.release


def wheel_cuda(built: BuiltWheel, request: PackageRequest) -> Cuda | None:
    told = {major for name in built.needed if (major := cuda_of(name))}
    if len(told) > 1:
        words = " and ".join(map(str, sorted(told)))
        raise UsageError(f"the libraries need both CUDA {words}", where=built.path)
    said = request.cuda or built.cuda
    if said is None:
        return Cuda(major=min(told), release=str(min(told))) if told else None
    match = _RELEASE.fullmatch(said)
    if match is None:
        raise UsageError(f"'{said}' is not a CUDA version", hints=["use for example --cuda 12.8"])
    cuda = Cuda(major=int(match[1]), release=said)
    if told and cuda.major not in told:
        raise UsageError(f"the libraries need CUDA {min(told)}, not {said}", where=built.path)
    return cuda


def known_cuda_of(built: BuiltWheel, request: PackageRequest) -> Cuda:
    """Return the CUDA version, or raise an error if it is unknown."""
    if cuda := wheel_cuda(built, request):
        return cuda
    raise UsageError(
        "the CUDA version of the wheel is unknown",
        hints=["name it with --cuda, for example --cuda 13.0"],
        where=built.path,
    )


class Closure(Value, frozen=True, kw_only=True):
    """The libraries by the name that others need, and the libraries that need them."""

    found: dict[str, FoundLibrary] = {}
    wanted_by: dict[str, tuple[str, ...]] = {}
    notes: tuple[str, ...] = ()


def find_closure(built: BuiltWheel, request: PackageRequest, places: SearchPlaces) -> Closure:
    """Find all libraries to bundle."""
    cuda = wheel_cuda(built, request)
    walk = _Walk(providers(built, request), places, cuda.major if cuda else None)
    for library in built.libraries:
        walk.need_all(library.needed, library.path)
    for library in built.libraries:
        walk.offer_opened(library.soname or PurePosixPath(library.path).name)
    if walk.missing:
        raise _not_found(walk.missing, places)
    _check_sonames(walk.found)
    return Closure(
        found=walk.found,
        wanted_by={name: tuple(wanting) for name, wanting in walk.wanted_by.items()},
        notes=tuple(dict.fromkeys(walk.notes)),
    )


class _Walk:
    """``cuda`` selects the libraries opened at run time."""

    def __init__(
        self, provider: Callable[[str], LibraryProvider], places: SearchPlaces, cuda: int | None
    ):
        self._provider = provider
        self._places = places
        self._cuda = cuda
        self.found: dict[str, FoundLibrary] = {}
        self.wanted_by: dict[str, list[str]] = {}
        self.missing: dict[str, list[str]] = {}
        self.notes: list[str] = []

    def need_all(self, names: tuple[str, ...], by: str) -> None:
        for name in names:
            if self._provider(name) is LibraryProvider.BUNDLE:
                self._need(name, by)

    def _need(self, name: str, by: str) -> None:
        if name not in self.found and name not in self.missing:
            if found := self._places.find(name):
                self.found[found.name] = found
                self.need_all(found.facts.needed, found.name)
                self.offer_opened(found.name)
            else:
                self.missing[name] = []
        wanting = self.wanted_by if name in self.found else self.missing
        wanting.setdefault(name, []).append(by)

    def offer_opened(self, opener: str) -> None:
        """Add the libraries that ``opener`` opens at run time, which are optional."""
        for pattern in opened_by(opener, self._cuda):
            names = self._places.matching(pattern)
            for name in names:
                if self._provider(name) is LibraryProvider.BUNDLE:
                    self._offer(name, opener)
            if not names and self._provider(pattern) is LibraryProvider.BUNDLE:
                self.notes.append(f"{opener} opens {pattern}, which was not found")

    def _offer(self, name: str, opener: str) -> None:
        """Add a library, unless one of its own dependencies is missing."""
        if name in self.found:
            self.wanted_by.setdefault(name, []).append(opener)
            return
        attempt = _Walk(self._provider, self._places, self._cuda)
        attempt.found = dict(self.found)
        attempt.wanted_by = {other: list(by) for other, by in self.wanted_by.items()}
        attempt._need(name, opener)
        if attempt.missing:
            lacking = ", ".join(other for other in attempt.missing if other != name)
            self.notes.append(f"{opener} opens {name}, which needs {lacking}: it was not found")
            return
        self.found, self.wanted_by = attempt.found, attempt.wanted_by
        self.notes += attempt.notes


def _not_found(missing: dict[str, list[str]], places: SearchPlaces) -> MissingError:
    (name, wanting), *others = missing.items()
    hints = [f"not usable: {file}" for file in places.unfit.get(name, ())]
    hints += [
        f"searched {first_of(places.labels, _MOST_PLACES)}",
        "name a folder, a wheel or a folder of wheels that has it with --library-folder",
        f"use --exclude {name} if the target machine provides it",
    ]
    if others:
        hints.insert(0, f"also not found: {', '.join(other for other, _ in others)}")
    return MissingError(
        f"{name} was not found; it is needed by {', '.join(dict.fromkeys(wanting))}", hints=hints
    )


def _check_sonames(found: dict[str, FoundLibrary]) -> None:
    """Raise an error for two libraries of one name, since the loader would load only one."""
    seen: dict[str, FoundLibrary] = {}
    for library in found.values():
        soname = library.facts.soname or library.name
        other = seen.setdefault(soname, library)
        if other.source != library.source:
            raise UsageError(
                f"two libraries have the name {soname}: {other.source} and {library.source}",
                hints=[f"use --exclude {library.name} if the target machine provides it"],
            )


def to_be_hashed(closure: Closure) -> tuple[FoundLibrary, ...]:
    """Return the libraries to rename, because another wheel may bundle one with this name."""
    return tuple(found for found in closure.found.values() if not keeps_name(_called(found)))


def hashed_name(name: str, digest: str) -> str:
    """Return a name such as ``libcudart-1a2b3c4d.so.12``."""
    stem, dot, rest = name.partition(".so")
    return f"{stem}-{digest[:8]}{dot}{rest}"


def _called(found: FoundLibrary) -> str:
    return found.facts.soname or found.name


class BundledLibraries:
    """``digests`` are by the name that other libraries need."""

    def __init__(self, built: BuiltWheel, closure: Closure, digests: Mapping[str, str]):
        own = built.dist_info.partition("-")[0]
        self.folder = TORCH_FOLDER if built.is_torch else f"{own}{BUNDLED_FOLDER}"
        self._closure = closure
        self.names = {
            name: hashed_name(_called(found), digests[name]) if name in digests else _called(found)
            for name, found in closure.found.items()
        }

    def renamed(self, needed: tuple[str, ...]) -> dict[str, str]:
        """Return the needed names of a library that change, with their new names."""
        return {name: new for name in needed if (new := self.names.get(name, name)) != name}

    @property
    def files(self) -> dict[str, FoundLibrary]:
        """Return the files by new name; a file that is needed by two names is bundled once."""
        return {new: self._closure.found[name] for name, new in self.names.items()}

    def wanted_by(self, new: str) -> tuple[str, ...]:
        names = [name for name, other in self.names.items() if other == new]
        return tuple(dict.fromkeys(by for name in names for by in self._closure.wanted_by[name]))

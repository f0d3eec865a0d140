"""Finds the libraries that a wheel needs, and those to bundle."""

import os
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from functools import cached_property
from pathlib import Path, PurePosixPath

from stoker.knowledge.packages import table
from stoker.knowledge.wheels import keeps_name, opened_by
from stoker.model.artifact import LibraryFacts
from stoker.model.errors import MissingError, StorageError, UsageError
from stoker.model.value import Value
from stoker.wheel.engine import open_wheel
from stoker.wheel.facts import read_file, read_wheel
from stoker.wheel.package.built_wheel import BuiltWheel, LibrarySource
from stoker.wheel.package.requirements import LibraryProvider, Providers

# -- search places ---------------------------------------------------------------------------------
# The places that are searched for libraries to bundle: folders, wheels, the system.


_VARIABLES = ("CUDA_HOME", "CUDA_PATH")
_LOADER_VARIABLE = "LD_LIBRARY_PATH"
_USUAL_CUDA = Path("/usr/local/cuda")
_TOOLKIT_FOLDERS = ("targets/*/lib", "extras/CUPTI/lib64")


class FoundLibrary(Value, frozen=True, kw_only=True):
    """A library that was found in one of the places, with the name that was searched for."""

    name: str
    source: LibrarySource
    facts: LibraryFacts


class SearchPlace(ABC):
    """Libraries by file name."""

    label: str

    @property
    @abstractmethod
    def names(self) -> frozenset[str]: ...

    @abstractmethod
    def source(self, name: str) -> LibrarySource: ...

    @abstractmethod
    def facts(self, name: str) -> LibraryFacts | None:
        """Return the facts of a library; None for other files, such as linker scripts."""


class FolderPlace(SearchPlace):
    def __init__(self, folder: Path):
        self._folder = folder
        self.label = str(folder)

    @cached_property
    def names(self) -> frozenset[str]:
        try:
            return frozenset(path.name for path in self._folder.iterdir())
        except OSError as error:
            raise StorageError(f"cannot read {self._folder}: {error.strerror}") from error

    def source(self, name: str) -> LibrarySource:
        return LibrarySource(file=str((self._folder / name).resolve()))

    def facts(self, name: str) -> LibraryFacts | None:
        path = Path(self.source(name).file)
        return read_file(path, name) if path.is_file() else None


class WheelPlace(SearchPlace):
    """A wheel, such as one of NVIDIA's; the first of several members with one name counts."""

    def __init__(self, wheel: Path):
        self._wheel = wheel
        self.label = str(wheel)

    @cached_property
    def _members(self) -> dict[str, str]:
        with open_wheel(self._wheel) as wheel:
            return {PurePosixPath(member).name: member for member in reversed(wheel.members)}

    @cached_property
    def _facts(self) -> dict[str, LibraryFacts]:
        _, libraries, _ = read_wheel(self._wheel)
        return {library.path: library for library in libraries}

    @property
    def names(self) -> frozenset[str]:
        return frozenset(self._members)

    def source(self, name: str) -> LibrarySource:
        return LibrarySource(file=str(self._wheel.absolute()), member=self._members[name])

    def facts(self, name: str) -> LibraryFacts | None:
        return self._facts.get(self._members[name])


class SearchPlaces:
    """All places in order; the first with a library for the right machine counts."""

    def __init__(self, places: Sequence[SearchPlace], machine: str):
        self._places = places
        self._machine = machine
        self.unfit: dict[str, list[str]] = {}  # files with the name that cannot be used

    @property
    def labels(self) -> tuple[str, ...]:
        return tuple(place.label for place in self._places)

    def find(self, name: str) -> FoundLibrary | None:
        for place in self._places:
            if name in place.names and (found := self._take(place, name)):
                return found
        return None

    def matching(self, pattern: str) -> tuple[str, ...]:
        names = {name for place in self._places for name in place.names}
        return tuple(sorted(name for name in names if fnmatchcase(name, pattern)))

    def _take(self, place: SearchPlace, name: str) -> FoundLibrary | None:
        facts, source = place.facts(name), place.source(name)
        if facts and not facts.problem and facts.machine == self._machine:
            return FoundLibrary(name=name, source=source, facts=facts)
        why = (facts.problem or f"for {facts.machine}") if facts else "not an ELF file"
        self.unfit.setdefault(name, []).append(f"{source} ({why})")
        return None


def find_search_places(
    given: Iterable[str],
    libraries: Iterable[LibraryFacts],
    machine: str,
    environment: Mapping[str, str],
) -> SearchPlaces:
    """Return the user's places, then search paths of the wheel, toolkit, environment, system."""
    places = [place for path in given for place in _given(Path(path).expanduser().resolve())]
    folders = [*_searched(libraries), *_toolkit(environment), *_environment(environment)]
    folders += _system(machine)
    places += [FolderPlace(folder) for folder in folders]
    return SearchPlaces(list({place.label: place for place in places}.values()), machine)


def _given(path: Path) -> list[SearchPlace]:
    if path.is_dir():
        wheels = [WheelPlace(wheel) for wheel in sorted(path.glob("*.whl"))]
        return [*map(FolderPlace, _prefix(path)), *wheels]
    if not path.exists():
        raise UsageError(f"there is no file or folder '{path}'", hints=["check the path"])
    if path.suffix != ".whl":
        raise UsageError(
            f"'{path}' is neither a folder nor a wheel", hints=["name the folder that contains it"]
        )
    return [WheelPlace(path)]


def _prefix(folder: Path) -> Iterator[Path]:
    """Yield a folder and its known library folders, such as lib or nvidia/cublas/lib."""
    yield folder
    search = table().search
    for root in ("", *search.packages, "cusparselt"):
        for name in (*search.libraries, *_TOOLKIT_FOLDERS):
            if name != ".":
                yield from filter(Path.is_dir, sorted(folder.glob(str(Path(root, name)))))


def _searched(libraries: Iterable[LibraryFacts]) -> list[Path]:
    """Return the search paths of new libraries, which still contain their link folders."""
    paths = (path for library in libraries for path in (*library.rpath, *library.runpath))
    return [Path(path) for path in dict.fromkeys(paths) if _is_readable(path)]


def _toolkit(environment: Mapping[str, str]) -> list[Path]:
    named = [Path(environment[name]) for name in _VARIABLES if environment.get(name)]
    homes = named or [_USUAL_CUDA]
    return [path for home in homes for path in _prefix(home) if _is_readable(path)]


def _environment(environment: Mapping[str, str]) -> list[Path]:
    """Return LD_LIBRARY_PATH and the packages of the active virtual environment."""
    told = environment.get(_LOADER_VARIABLE, "").split(os.pathsep)
    active = environment.get("VIRTUAL_ENV")
    packages = sorted(Path(active).glob("lib/python*/site-packages")) if active else []
    inside = [path for folder in packages for path in _prefix(folder) if path not in packages]
    return [path for path in (*map(Path, told), *inside) if _is_readable(path)]


def _system(machine: str) -> list[Path]:
    search = table().search
    names = [name.format(triple=f"{machine}-linux-gnu") for name in search.libraries if name != "."]
    paths = (Path(prefix, name) for prefix in (*search.prefixes, "/") for name in names)
    return [path for path in paths if _is_readable(path)]


def _is_readable(path: Path | str) -> bool:
    path = Path(path)
    return path.is_absolute() and path.is_dir() and os.access(path, os.R_OK | os.X_OK)


# -- closure ---------------------------------------------------------------------------------------
# Finds the libraries that a wheel has to bundle.
#
# These are the libraries that it needs and nothing else provides, their own dependencies, and the
# libraries that they open by name at run time.


_MOST_PLACES = 12


class Closure(Value, frozen=True, kw_only=True):
    """The libraries by the name that others need, and the libraries that need them."""

    found: dict[str, FoundLibrary] = {}
    wanted_by: dict[str, tuple[str, ...]] = {}
    notes: tuple[str, ...] = ()


def gather(
    built: BuiltWheel, providers: Providers, places: SearchPlaces, *, cuda: int | None = None
) -> Closure:
    """Find all libraries to bundle. ``cuda`` selects the libraries opened at run time."""
    walk = _Walk(providers, places, cuda)
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
    def __init__(self, providers: Providers, places: SearchPlaces, cuda: int | None):
        self._providers = providers
        self._places = places
        self._cuda = cuda
        self.found: dict[str, FoundLibrary] = {}
        self.wanted_by: dict[str, list[str]] = {}
        self.missing: dict[str, list[str]] = {}
        self.notes: list[str] = []

    def need_all(self, names: tuple[str, ...], by: str) -> None:
        for name in names:
            if self._providers.of(name) is LibraryProvider.BUNDLE:
                self._need(name, by)

    def _need(self, name: str, by: str) -> None:
        if name not in self.found and name not in self.missing:
            if found := self._places.find(name):
                self._take(found)
            else:
                self.missing[name] = []
        wanting = self.wanted_by if name in self.found else self.missing
        wanting.setdefault(name, []).append(by)

    def _take(self, found: FoundLibrary) -> None:
        self.found[found.name] = found
        self.need_all(found.facts.needed, found.name)
        self.offer_opened(found.name)

    def offer_opened(self, opener: str) -> None:
        """Add the libraries that ``opener`` opens at run time, which are optional."""
        for pattern in opened_by(opener, self._cuda):
            names = self._places.matching(pattern)
            taken = [name for name in names if self._providers.of(name) is LibraryProvider.BUNDLE]
            for name in taken:
                self._offer(name, opener)
            if not names and self._providers.of(pattern) is LibraryProvider.BUNDLE:
                self.notes.append(f"{opener} opens {pattern}, which was not found")

    def _offer(self, name: str, opener: str) -> None:
        """Add a library, unless one of its own dependencies is missing."""
        if name in self.found:
            self.wanted_by.setdefault(name, []).append(opener)
            return
        attempt = _Walk(self._providers, self._places, self._cuda)
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
    labels = places.labels
    more = f" and {len(labels) - _MOST_PLACES} more" if len(labels) > _MOST_PLACES else ""
    hints += [
        f"searched {', '.join(labels[:_MOST_PLACES])}{more}",
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


# -- bundled ---------------------------------------------------------------------------------------
# The bundled libraries of a wheel: their folder and their new names. Pure.


_TORCH_FOLDER = "torch/lib"


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
        self.folder = _TORCH_FOLDER if built.is_torch else f"{own}.libs"
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

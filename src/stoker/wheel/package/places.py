"""The places that are searched for libraries to bundle: folders, wheels, the system."""

import os
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from functools import cached_property
from pathlib import Path, PurePosixPath

from stoker.knowledge.libraries import library_table
from stoker.model.artifact import LibraryFacts
from stoker.model.errors import StorageErrors, UsageError
from stoker.model.value import Value
from stoker.wheel.inspect.facts import read_library_file, read_wheel
from stoker.wheel.package.sources import LibrarySource
from stoker.wheel.zip import open_wheel

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
        with StorageErrors("read", self._folder):
            return frozenset(path.name for path in self._folder.iterdir())

    def source(self, name: str) -> LibrarySource:
        return LibrarySource(file=str((self._folder / name).resolve()))

    def facts(self, name: str) -> LibraryFacts | None:
        path = Path(self.source(name).file)
        return read_library_file(path, name) if path.is_file() else None


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
        with open_wheel(self._wheel) as wheel:
            _, libraries, _ = read_wheel(wheel)
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
            if name not in place.names:
                continue
            facts, source = place.facts(name), place.source(name)
            if facts and not facts.problem and facts.machine == self._machine:
                return FoundLibrary(name=name, source=source, facts=facts)
            why = (facts.problem or f"for {facts.machine}") if facts else "not an ELF file"
            self.unfit.setdefault(name, []).append(f"{source} ({why})")
        return None

    def matching(self, pattern: str) -> tuple[str, ...]:
        names = {name for place in self._places for name in place.names}
        return tuple(sorted(name for name in names if fnmatchcase(name, pattern)))


def find_search_places(
    given: Iterable[str],
    libraries: Iterable[LibraryFacts],
    machine: str,
    environment: Mapping[str, str],
) -> SearchPlaces:
    """Return the user's places, then search paths of the wheel, toolkit, environment, system."""
    places = [place for path in given for place in _given(Path(path).expanduser().resolve())]
    # The search paths of new libraries still contain their link folders.
    paths = (path for library in libraries for path in (*library.rpath, *library.runpath))
    folders = [Path(path) for path in dict.fromkeys(paths)]
    named = [Path(environment[name]) for name in _VARIABLES if environment.get(name)]
    folders += [path for home in named or [_USUAL_CUDA] for path in _prefix(home)]
    folders += map(Path, environment.get(_LOADER_VARIABLE, "").split(os.pathsep))
    active = environment.get("VIRTUAL_ENV")
    packages = sorted(Path(active).glob("lib/python*/site-packages")) if active else []
    folders += [path for each in packages for path in _prefix(each) if path not in packages]
    search = library_table().search
    names = [name.format(triple=f"{machine}-linux-gnu") for name in search.libraries if name != "."]
    folders += [Path(prefix, name) for prefix in (*search.prefixes, "/") for name in names]
    places += [
        FolderPlace(folder)
        for folder in folders
        if folder.is_absolute() and folder.is_dir() and os.access(folder, os.R_OK | os.X_OK)
    ]
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
    search = library_table().search
    for root in ("", *search.packages, "cusparselt"):
        for name in (*search.libraries, *_TOOLKIT_FOLDERS):
            if name != ".":
                yield from filter(Path.is_dir, sorted(folder.glob(str(Path(root, name)))))

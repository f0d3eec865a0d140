"""Computes the DT_RPATH of each library in the wheel."""

import posixpath
from collections.abc import Callable, Iterator, Mapping, Sequence

from stoker.knowledge.nvidia_packages import torch_search_path
from stoker.model.artifact import ElfKind, LibraryFacts
from stoker.model.errors import UsageError
from stoker.wheel.inspect.origins import installed_path, search_folders, starts_at_origin
from stoker.wheel.package.closure import TORCH_FOLDER, LibraryProvider

_ORIGIN = "$ORIGIN"


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
        origins = [f for f in (*library.runpath, *library.rpath) if starts_at_origin(f)]
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
        relative = [
            posixpath.relpath(f"/{folder}", f"/{here}")
            for folder in dict.fromkeys(self._folders(library))
        ]
        return tuple(_ORIGIN if path == "." else f"{_ORIGIN}/{path}" for path in relative)

    def _folders(self, library: LibraryFacts) -> Iterator[str]:
        """Return the folders of PyTorch, then of NVIDIA's packages, then of the wheel."""
        providers = {self._provider(name) for name in library.needed}
        if LibraryProvider.TORCH in providers:
            yield TORCH_FOLDER
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
    inside = all(map(starts_at_origin, present))
    as_rpath = library.kind is ElfKind.PROGRAM or not library.runpath or not wanted
    leads = {posixpath.normpath(f.replace(_ORIGIN, home(library.path))) for f in wanted}
    return inside and as_rpath and leads.issubset(search_folders(library))

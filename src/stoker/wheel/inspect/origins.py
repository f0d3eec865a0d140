"""Finds the origin of every needed library, and whose a bundled one is. Pure: the caller passes a
function that lists folders.

It ignores LD_LIBRARY_PATH and the loader's cache, which belong to one machine, not to the artifact.
"""

import posixpath
import re
from collections.abc import Callable, Collection, Iterable, Sequence

from packaging.requirements import InvalidRequirement
from packaging.utils import canonicalize_name

from stoker.knowledge.manylinux import is_system_library
from stoker.knowledge.sonames import (
    Bringer,
    bringer,
    comes_with_torch,
    cuda_of,
    is_nvidias,
    is_of_driver,
    unhashed,
)
from stoker.model.artifact import Dependency, LibraryFacts, LibraryOrigin
from stoker.model.distribution import read_requirement

BUNDLED_FOLDER = ".libs"  # the end of the folder where auditwheel and `stoker package` put them
_DATA = re.compile(r"[^/]+\.data/(?:platlib|purelib)/")
_CUDA = re.compile(r"-cu(\d{2})$", re.ASCII)  # at the end of a package's name
_ORIGIN = re.compile(r"\$ORIGIN\b|\$\{ORIGIN\}")


def resolve_needed(
    libraries: Sequence[LibraryFacts],
    *,
    names_in: Callable[[str], Collection[str]],
    files: Collection[str],
    requires: Sequence[str] = (),
) -> tuple[Dependency, ...]:
    """Return one row for each needed name and origin, missing ones first.

    ``names_in`` lists the files of an installed folder; ``files`` are the names of all files,
    without folders; ``requires`` are PEP 508 requirements.
    """
    known = {*files, *(library.soname for library in libraries if library.soname)}
    wanted: dict[tuple[LibraryOrigin, str], list[str]] = {}
    for library in libraries:
        # One set for all needed names: a hostile file has thousands of these and many folders.
        reachable = frozenset[str]().union(*map(names_in, search_folders(library)))
        for name in dict.fromkeys(library.needed):
            if name in reachable:
                origin = LibraryOrigin.FOUND
            elif name in known:
                origin = LibraryOrigin.BESIDE
            elif is_system_library(name):
                origin = LibraryOrigin.SYSTEM
            else:
                origin = LibraryOrigin.DRIVER if is_of_driver(name) else LibraryOrigin.MISSING
            wanted.setdefault((origin, name), []).append(library.path)
    required = _required(requires) if requires else {}
    # A library whose name tells no CUDA version has that of the others.
    told = {cuda for _, name in wanted if (cuda := cuda_of(name))}
    told = told or {int(number[1]) for name in required if (number := _CUDA.search(name))}
    common = told.pop() if len(told) == 1 else None
    found = [
        _dependency(name, origin, paths, required, common)
        for (origin, name), paths in wanted.items()
    ]
    order = list(reversed(LibraryOrigin))
    return tuple(sorted(found, key=lambda row: (order.index(row.origin), row.name)))


def by_folder(paths: Iterable[str]) -> Callable[[str], Collection[str]]:
    """Return the function from a folder to the names of the files in it, for installed paths."""
    names: dict[str, set[str]] = {}
    for path in paths:
        folder, _, name = path.rpartition("/")
        names.setdefault(folder or ".", set()).add(name)
    return lambda folder: names.get(folder, ())


def is_nvidias_library(path: str, soname: str | None) -> bool:
    """Return whether NVIDIA's packages provide a library, also under the name of a bundled one."""
    return any(is_nvidias(unhashed(name)) for name in (path.rpartition("/")[2], soname or ""))


def own_libraries(libraries: Sequence[LibraryFacts], project: str) -> tuple[LibraryFacts, ...]:
    """Return the libraries that the project of a wheel made itself. The others are bundled: those
    of NVIDIA, unless the project is NVIDIA's, and those in a folder such as ``mill.libs``.
    """
    if canonicalize_name(project).startswith("nvidia-"):
        return tuple(libraries)
    return tuple(
        library
        for library in libraries
        if not is_nvidias_library(library.path, library.soname)
        and not library.path.partition("/")[0].endswith(BUNDLED_FOLDER)
    )


def installed_path(path: str) -> str:
    """Return the installed path of a member of a wheel, relative to site-packages."""
    return _DATA.sub("", path, count=1) if _DATA.match(path) else path


def starts_at_origin(folder: str) -> bool:
    """Return whether a folder of a search path is relative to the library that has the path."""
    return _ORIGIN.match(folder) is not None


def search_folders(library: LibraryFacts) -> list[str]:
    """Return the folders in the library's own search path, relative to site-packages."""
    here = posixpath.dirname(installed_path(library.path)) or "."
    return [
        posixpath.normpath(_ORIGIN.sub(lambda _: here, folder))
        for folder in library.runpath or library.rpath
    ]


def portable_paths(
    libraries: Sequence[LibraryFacts], dependencies: Sequence[Dependency]
) -> dict[str, tuple[str, ...]]:
    """Return the search paths that become portable without the folders of the build machine.

    A path stays as it is if its library needs one that nothing else provides: it may be in one of
    these folders.
    """
    missing = (row for row in dependencies if row.origin is LibraryOrigin.MISSING)
    lacking = {path for row in missing for path in row.wanted_by}
    found: dict[str, tuple[str, ...]] = {}
    for library in libraries:
        present = library.runpath or library.rpath
        kept = tuple(folder for folder in present if starts_at_origin(folder))
        if kept != present and library.path not in lacking:
            found[library.path] = kept
    return found


def _dependency(
    name: str,
    origin: LibraryOrigin,
    wanted_by: list[str],
    required: dict[str, set[str]],
    common: int | None,
) -> Dependency:
    package = None
    if origin is LibraryOrigin.MISSING and (row := bringer(name)):
        package = _requirement_for(row, cuda_of(name), required)
        origin = LibraryOrigin.PACKAGE if package else LibraryOrigin.MISSING
        package = package or row.package(cuda_of(name) or common)
    elif origin is LibraryOrigin.MISSING and "torch" in required and comes_with_torch(name):
        origin, package = LibraryOrigin.PACKAGE, "torch"
    return Dependency(name=name, origin=origin, package=package, wanted_by=tuple(wanted_by))


def _requirement_for(row: Bringer, cuda: int | None, required: dict[str, set[str]]) -> str | None:
    """Return the required package that contains the libraries of ``row`` for that CUDA."""
    for name, extras in required.items():
        if name == row.package(cuda) or (cuda is None and _CUDA.sub("", name) == row.name):
            return name
        if name == "cuda-toolkit" and row.extra in extras:
            return f"{name}[{row.extra}]"
    return "torch" if row.of_torch and "torch" in required else None


def _required(requires: Sequence[str]) -> dict[str, set[str]]:
    """Return required names with their extras. Markers are ignored, but what an extra of the wheel
    requires is not required.
    """
    found: dict[str, set[str]] = {}
    for line in requires:
        try:
            requirement = read_requirement(line)
        except InvalidRequirement:
            continue
        if "extra" not in str(requirement.marker or ""):
            found.setdefault(canonicalize_name(requirement.name), set()).update(requirement.extras)
    return found

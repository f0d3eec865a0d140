"""Does the loader find everything, and only where it should look? Pure."""

import re
import shlex
from collections.abc import Callable, Collection, Iterable, Iterator

from stoker.artifact.closure import search_folders
from stoker.deliver.verify.case import Case, error, milder
from stoker.knowledge.sonames import bringer
from stoker.model.artifact import Dependency, ElfKind, LibraryFacts, LibraryOrigin
from stoker.model.finding import Finding

_ORIGIN = re.compile(r"\$ORIGIN\b|\$\{ORIGIN\}")
_SHARED_FOLDER = re.compile(r"nvidia/cu\d+/lib")
_STEPS_TO_THE_TOP = 3  # of an environment, from lib/python3.x/site-packages


def missing_libraries(case: Case) -> Iterator[Finding]:
    rows = [row for row in case.facts.dependencies if row.origin is LibraryOrigin.MISSING]
    if rows:
        finding = error(
            "missing-library",
            "libraries are needed that nobody brings",
            [_missing(row) for row in rows],
            (_packaging(case, rows),),
        )
        yield _as_bad_as(case, finding, (path for row in rows for path in row.wanted_by))


def _packaging(case: Case, rows: Iterable[Dependency]) -> str:
    """The command that makes a wheel with the missing libraries, or with requirements for them."""
    packages = {row.package for row in rows}
    mode = "bundle" if None in packages else "pypi"
    torch = " --torch VERSION" if "torch" in packages else ""
    return f"stoker package {shlex.quote(case.file_name)} --mode {mode}{torch}"


def _missing(row: Dependency) -> str:
    known = f"; {row.package} has it, but is not required" if row.package else ""
    more = f" and {len(row.wanted_by) - 1} more" if row.wanted_by[1:] else ""
    return f"{row.name}, needed by {row.wanted_by[0]}{more}{known}"


def unreachable_libraries(case: Case) -> Iterator[Finding]:
    """In the wheel, but not where those look that need them."""
    family = _Family(case)
    yield from _unreached(
        case,
        LibraryOrigin.BESIDE,
        family.is_brought,
        "library-off-path",
        "the wheel holds libraries that those who need them do not look for there",
    )


def unreachable_packages(case: Case) -> Iterator[Finding]:
    """What an extension needs of NVIDIA's packages PyTorch has loaded before."""
    if case.requires_torch:
        return
    family = _Family(case)
    yield from _unreached(
        case,
        LibraryOrigin.PACKAGE,
        lambda library, name: family.leads_to(library, _package_folder(name)),
        "package-off-path",
        "libraries of required packages are needed, and not looked for where these have them",
    )


def _unreached(
    case: Case,
    origin: LibraryOrigin,
    is_fine: Callable[[LibraryFacts, str], bool],
    name: str,
    title: str,
) -> Iterator[Finding]:
    by_path = {library.path: library for library in case.libraries}
    found = [
        (path, row.name)
        for row in case.facts.dependencies
        if row.origin is origin
        for path in row.wanted_by
        if path in by_path and not is_fine(by_path[path], row.name)
    ]
    if found:
        finding = error(name, title, [f"{path} needs {wanted}" for path, wanted in found])
        yield _as_bad_as(case, finding, (path for path, _ in found))


def _package_folder(name: str) -> re.Pattern[str]:
    """Where the package that brings a library puts it: of CUDA 12, or shared by all of 13."""
    row = bringer(name)
    own = row.name.removeprefix("nvidia-").replace("-", "_") if row else ""
    return re.compile(rf"(?:nvidia/)?{own}/lib|{_SHARED_FOLDER.pattern}")


class _Family:
    """Who loads whom. A library also finds what those find by DT_RPATH that load it."""

    def __init__(self, case: Case):
        self._places = case.places
        self._loaders: dict[str, list[LibraryFacts]] = {}
        for library in case.libraries:
            for name in library.needed:
                self._loaders.setdefault(name, []).append(library)

    def leads_to(self, library: LibraryFacts, folder: re.Pattern[str]) -> bool:
        everyone = [library, *(other for other in self._ancestors(library) if not other.runpath)]
        return any(folder.fullmatch(place) for one in everyone for place in search_folders(one))

    def is_brought(self, library: LibraryFacts, name: str) -> bool:
        """By one that loads this library: it is found by its path, or is loaded already."""
        return any(
            f"{folder}/{name}" in self._places
            for loader in self._ancestors(library)
            if name in loader.needed or not loader.runpath
            for folder in search_folders(loader)
        )

    def _ancestors(self, library: LibraryFacts) -> list[LibraryFacts]:
        found: dict[str, LibraryFacts] = {}
        waiting = [library]
        while waiting:
            one = waiting.pop()
            for loader in self._loaders.get(one.soname or one.path.rpartition("/")[2], ()):
                if loader.path not in found:
                    found[loader.path] = loader
                    waiting.append(loader)
        return list(found.values())


def absolute_paths(case: Case) -> Iterator[Finding]:
    yield from _bad_folders(
        case,
        lambda library: [folder for folder in _folders(library) if folder.startswith("/")],
        "absolute-rpath",
        "libraries are looked for in folders of the machine that built the wheel",
    )


def relative_paths(case: Case) -> Iterator[Finding]:
    yield from _bad_folders(
        case,
        lambda library: [
            folder
            for folder in _folders(library)
            if not folder.startswith("/") and not _ORIGIN.match(folder)
        ],
        "relative-rpath",
        "libraries are looked for below whatever folder the program was started in",
    )


def outside_paths(case: Case) -> Iterator[Finding]:
    yield from _bad_folders(
        case,
        lambda library: [folder for folder in search_folders(library) if _leads_out(folder)],
        "rpath-outside",
        "libraries are looked for outside the environment that the wheel is installed in",
    )


def _leads_out(folder: str) -> bool:
    return folder.split("/").count("..") > _STEPS_TO_THE_TOP


def _folders(library: LibraryFacts) -> Collection[str]:
    return (*library.rpath, *library.runpath)


def _bad_folders(
    case: Case, bad: Callable[[LibraryFacts], list[str]], name: str, title: str
) -> Iterator[Finding]:
    found = {library.path: folders for library in case.libraries if (folders := bad(library))}
    if found:
        lines = [f"{path}: {', '.join(folders)}" for path, folders in found.items()]
        yield _as_bad_as(case, error(name, title, lines), found)


def runpaths(case: Case) -> Iterator[Finding]:
    """LD_LIBRARY_PATH goes before DT_RUNPATH, which does not hold for what is loaded in turn."""
    of_packages = {
        row.name for row in case.facts.dependencies if row.origin is LibraryOrigin.PACKAGE
    }
    found = [
        library
        for library in case.libraries
        if library.kind is ElfKind.LIBRARY and library.runpath
        if of_packages.intersection(library.needed)
        or any(folder.startswith("nvidia/") for folder in search_folders(library))
    ]
    if found:
        yield error(
            "runpath-instead-of-rpath",
            "NVIDIA's packages are looked for by DT_RUNPATH: LD_LIBRARY_PATH goes first",
            [library.path for library in found],
        )


def _as_bad_as(case: Case, finding: Finding, paths: Iterable[str]) -> Finding:
    """A program that does not start leaves the package itself usable."""
    programs = {one.path for one in case.libraries if one.kind is ElfKind.PROGRAM}
    return milder(finding) if programs.issuperset(paths) else finding

"""Checks that the dynamic loader finds all libraries, and only in allowed folders."""

import re
import shlex
from collections.abc import Callable, Collection, Iterable, Iterator

from stoker.knowledge.sonames import bringer
from stoker.model.artifact import Dependency, ElfKind, LibraryFacts, LibraryOrigin
from stoker.model.finding import Finding, error, note
from stoker.model.value import first_of
from stoker.wheel.inspect.origins import by_folder, portable_paths, search_folders, starts_at_origin
from stoker.wheel.verify.tested import WheelUnderTest, milder

_STEPS_TO_THE_TOP = 3  # of an environment, from lib/python3.x/site-packages


def missing_libraries(wheel: WheelUnderTest) -> Iterator[Finding]:
    missing = [row for row in wheel.facts.dependencies if row.origin is LibraryOrigin.MISSING]
    if left_out := [row for row in missing if wheel.leaves_out(row.name)]:
        title = "the machine has to provide libraries that were excluded from the wheel"
        yield note("excluded-library", title, [_missing(row) for row in left_out])
    if rows := [row for row in missing if row not in left_out]:
        finding = error(
            "missing-library",
            "required libraries are missing",
            [_missing(row) for row in rows],
            (_packaging(wheel, {row.package for row in rows}),),
        )
        yield _as_bad_as(wheel, finding, (path for row in rows for path in row.wanted_by))


def _packaging(wheel: WheelUnderTest, packages: Collection[str | None]) -> str:
    """Return the command that requires the packages of libraries and bundles those of none."""
    mode = "pypi" if any(packages) else "bundle"
    torch = " --torch VERSION" if "torch" in packages else ""
    return f"stoker package {shlex.quote(wheel.file_name)} --mode {mode}{torch}"


def _missing(row: Dependency) -> str:
    known = f"; {row.package} has it, but the wheel does not require it" if row.package else ""
    return f"{row.name}, needed by {first_of(row.wanted_by, 1)}{known}"


def unreachable_libraries(wheel: WheelUnderTest) -> Iterator[Finding]:
    """Check that libraries in the wheel are on the search paths of those that need them."""
    family = _Family(wheel)
    yield from _unreached(
        wheel,
        LibraryOrigin.BESIDE,
        family.is_brought,
        "library-off-path",
        "libraries in the wheel are not on the search path of the libraries that need them",
    )


def unreachable_packages(wheel: WheelUnderTest) -> Iterator[Finding]:
    """Check the search paths to required packages.

    An extension of PyTorch is exempt, because PyTorch has loaded NVIDIA's libraries already.
    """
    if wheel.requires_torch:
        return
    family = _Family(wheel)

    def is_led_to(library: LibraryFacts, name: str) -> bool:
        """Its package has a folder of its own in CUDA 12, and all share one in CUDA 13."""
        row = bringer(name)
        own = row.name.removeprefix("nvidia-").replace("-", "_") if row else ""
        folder = re.compile(rf"(?:nvidia/)?{own}/lib|nvidia/cu\d+/lib")
        return family.leads_to(library, folder)

    yield from _unreached(
        wheel,
        LibraryOrigin.PACKAGE,
        is_led_to,
        "package-off-path",
        "libraries of required packages are not on the search path",
    )


def _unreached(
    wheel: WheelUnderTest,
    origin: LibraryOrigin,
    is_fine: Callable[[LibraryFacts, str], bool],
    name: str,
    title: str,
) -> Iterator[Finding]:
    by_path = {library.path: library for library in wheel.libraries}
    found = [
        (path, row.name)
        for row in wheel.facts.dependencies
        if row.origin is origin
        for path in row.wanted_by
        if path in by_path and not is_fine(by_path[path], row.name)
    ]
    if found:
        names = {wanted for _, wanted in found}
        packages = {row.package for row in wheel.facts.dependencies if row.name in names}
        lines = [f"{path} needs {wanted}" for path, wanted in found]
        finding = error(name, title, lines, (_packaging(wheel, packages),))
        yield _as_bad_as(wheel, finding, (path for path, _ in found))


class _Family:
    """The graph of which library loads which.

    A library inherits the DT_RPATH of the libraries that load it. Sets of libraries are bits of a
    number, because a hostile wheel has thousands of them, each of which needs all others.
    """

    def __init__(self, wheel: WheelUnderTest):
        self._libraries = wheel.libraries
        self._needing: dict[str, int] = {}  # the libraries that need a name
        self._finding: dict[str, int] = {}  # those whose folders have it, for all that they load
        self._ancestors: dict[str, int] = {}
        names_in = by_folder(wheel.places)
        for number, library in enumerate(self._libraries):
            bit = 1 << number
            for name in library.needed:
                self._needing[name] = self._needing.get(name, 0) | bit
            found = frozenset[str]().union(*map(names_in, search_folders(library)))
            for name in found.intersection(library.needed) if library.runpath else found:
                self._finding[name] = self._finding.get(name, 0) | bit

    def leads_to(self, library: LibraryFacts, folder: re.Pattern[str]) -> bool:
        loaders = self._loaders(library)
        everyone = [
            other
            for number, other in enumerate(self._libraries)
            if loaders >> number & 1 and not other.runpath
        ]
        places = {place for one in (library, *everyone) for place in search_folders(one)}
        return any(map(folder.fullmatch, places))

    def is_brought(self, library: LibraryFacts, name: str) -> bool:
        """Return whether a library that loads this one finds the name or has loaded it already."""
        return self._loaders(library) & self._finding.get(name, 0) != 0

    def _loaders(self, library: LibraryFacts) -> int:
        """Return the libraries that load a library, directly or through others."""
        if library.path not in self._ancestors:
            found = waiting = self._needing.get(_called(library), 0)
            while waiting:
                number = waiting.bit_length() - 1
                new = self._needing.get(_called(self._libraries[number]), 0) & ~found
                found |= new
                waiting = waiting & ~(1 << number) | new
            self._ancestors[library.path] = found
        return self._ancestors[library.path]


def _called(library: LibraryFacts) -> str:
    return library.soname or library.path.rpartition("/")[2]


def absolute_paths(wheel: WheelUnderTest) -> Iterator[Finding]:
    title = "search paths contain folders of the machine that built the wheel"
    yield from _bad_folders(wheel, "absolute-rpath", title, _own, lambda one: one.startswith("/"))


def relative_paths(wheel: WheelUnderTest) -> Iterator[Finding]:
    def is_bad(folder: str) -> bool:
        return not folder.startswith("/") and not starts_at_origin(folder)

    title = "search paths depend on the current directory"
    yield from _bad_folders(wheel, "relative-rpath", title, _own, is_bad)


def outside_paths(wheel: WheelUnderTest) -> Iterator[Finding]:
    def is_bad(folder: str) -> bool:
        return folder.split("/").count("..") > _STEPS_TO_THE_TOP

    title = "search paths lead out of the environment"
    yield from _bad_folders(wheel, "rpath-outside", title, search_folders, is_bad)


def _own(library: LibraryFacts) -> Collection[str]:
    return (*library.rpath, *library.runpath)


def _bad_folders(
    wheel: WheelUnderTest,
    name: str,
    title: str,
    folders_of: Callable[[LibraryFacts], Collection[str]],
    is_bad: Callable[[str], bool],
) -> Iterator[Finding]:
    found = {
        library.path: folders
        for library in wheel.libraries
        if (folders := list(filter(is_bad, folders_of(library))))
    }
    if found:
        lines = [f"{path}: {', '.join(folders)}" for path, folders in found.items()]
        finding = error(name, title, lines, (_repair(wheel, found),))
        # A library that was left out may be in such a folder of the target machine.
        needing = {one.path for one in wheel.libraries if any(map(wheel.leaves_out, one.needed))}
        expected = needing.issuperset(found)
        yield milder(finding) if expected else _as_bad_as(wheel, finding, found)


def _repair(wheel: WheelUnderTest, paths: Collection[str]) -> str:
    """Return the command that makes search paths portable, by the least change that does it."""
    if set(portable_paths(wheel.libraries, wheel.facts.dependencies)).issuperset(paths):
        return f"stoker package {shlex.quote(wheel.file_name)} --mode plain"
    rows = wheel.facts.dependencies
    wanted = [row for row in rows if not set(paths).isdisjoint(row.wanted_by)]
    lacking = [row for row in wanted if row.origin is LibraryOrigin.MISSING]
    return _packaging(wheel, {row.package for row in lacking} or {None})


def runpaths(wheel: WheelUnderTest) -> Iterator[Finding]:
    """Check that NVIDIA's packages are found by DT_RPATH.

    LD_LIBRARY_PATH overrides DT_RUNPATH, and libraries do not inherit it.
    """
    of_packages = {
        row.name
        for row in wheel.facts.dependencies
        if row.origin is LibraryOrigin.PACKAGE and row.package != "torch"
    }
    found = [
        library
        for library in wheel.libraries
        if library.kind is ElfKind.LIBRARY and library.runpath
        if of_packages.intersection(library.needed)
        or any(folder.startswith("nvidia/") for folder in search_folders(library))
    ]
    if found:
        yield error(
            "runpath-instead-of-rpath",
            "NVIDIA's packages are found by DT_RUNPATH, which LD_LIBRARY_PATH overrides",
            [library.path for library in found],
            (_packaging(wheel, ["nvidia"]),),
        )


def _as_bad_as(wheel: WheelUnderTest, finding: Finding, paths: Iterable[str]) -> Finding:
    """Return a warning if only programs are affected, since the package itself stays usable."""
    programs = {one.path for one in wheel.libraries if one.kind is ElfKind.PROGRAM}
    return milder(finding) if programs.issuperset(paths) else finding

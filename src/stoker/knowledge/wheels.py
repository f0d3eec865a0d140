"""What wheels may link against, and which packages provide libraries."""

import re
from collections.abc import Mapping
from fnmatch import fnmatchcase, translate
from functools import cache

from stoker.knowledge import Row, load
from stoker.model.value import whole_number

# -- manylinux -------------------------------------------------------------------------------------
# manylinux tags: which symbol versions and system libraries each of them promises.


class PlatformPolicy(Row, frozen=True, kw_only=True):
    """``newest``: of each machine, the newest version of each series of symbols."""

    name: str
    aliases: tuple[str, ...] = ()
    newest: dict[str, dict[str, str]]


class _ManylinuxTable(Row, frozen=True, kw_only=True):
    loaders: tuple[str, ...]
    libraries: dict[str, tuple[str, ...]]
    policy: tuple[PlatformPolicy, ...]


@cache
def _manylinux_table() -> _ManylinuxTable:
    return load("manylinux", _ManylinuxTable)


def policies() -> tuple[PlatformPolicy, ...]:
    """Return the policies, oldest first: a wheel that runs on one runs on all later ones."""
    return _manylinux_table().policy


def order(version: str) -> tuple[int, ...]:
    """Return the sort key of a symbol version: ``3.4.30`` is newer than ``3.4.9``."""
    return tuple(int(number) for number in version.split("."))


def excess(policy: PlatformPolicy, machine: str, versions: Mapping[str, str]) -> dict[str, str]:
    """Return the required versions that the tag does not promise."""
    promised = policy.newest.get(machine, {})
    series = {name for row in policies() for name in row.newest.get(machine, {})}
    return {
        name: version
        for name, version in versions.items()
        if name in series and order(version) > order(promised.get(name, "0"))
    }


def oldest_policy(machine: str, versions: Mapping[str, str]) -> PlatformPolicy | None:
    """Return the first tag that promises all required versions on that machine."""
    able = (policy for policy in policies() if machine in policy.newest)
    return next((policy for policy in able if not excess(policy, machine, versions)), None)


def is_system_library(name: str) -> bool:
    """Return whether some manylinux tag lets a wheel use that library of the system."""
    table = _manylinux_table()
    return any(name in names for names in table.libraries.values()) or any(
        fnmatchcase(name, pattern) for pattern in table.loaders
    )


# -- sonames ---------------------------------------------------------------------------------------
# Libraries that wheels need by name, and the packages that provide them.


_VERSION = re.compile(r"(?<=\.so)(?:\.\d+)+$")


class Bringer(Row, frozen=True, kw_only=True):
    """A package and the libraries in it, as `sonames.toml` explains the fields."""

    name: str
    libraries: tuple[str, ...]
    extra: str | None = None
    plain_from: int | None = None
    numbered: bool = False
    cuda: dict[str, int] = {}

    def package(self, cuda: int | None) -> str:
        """Return the name of the package for a major CUDA version; ``cuNN`` if that is unknown."""
        if self.plain_from is not None and (cuda or 0) >= self.plain_from:
            return self.name
        return f"{self.name}-cu{cuda or 'NN'}"


class _SonameTable(Row, frozen=True, kw_only=True):
    driver: tuple[str, ...]
    package: tuple[Bringer, ...]


@cache
def _soname_table() -> _SonameTable:
    return load("sonames", _SonameTable)


@cache
def _any_package() -> re.Pattern[str]:
    patterns = (pattern for package in _soname_table().package for pattern in package.libraries)
    return re.compile("|".join(map(translate, patterns)))


def is_of_driver(library: str) -> bool:
    return library in _soname_table().driver


def bringer(library: str) -> Bringer | None:
    """Return the package known to provide a library, with or without a version in its name."""
    names = (library, unversioned(library))
    if not any(map(_any_package().match, names)):  # one search for the many names that none brings
        return None
    for package in _soname_table().package:
        if any(fnmatchcase(name, pattern) for pattern in package.libraries for name in names):
            return package
    return None


def unversioned(library: str) -> str:
    """Return ``libc10.so`` for ``libc10.so.2.6``: distributions add versions that upstream
    lacks.
    """
    return _VERSION.sub("", library)


def cuda_of(library: str) -> int | None:
    """Return the major CUDA version that the name of a library tells."""
    version = library.partition(".so.")[2].partition(".")[0]
    if not version or (package := bringer(library)) is None:
        return None
    number = whole_number(version) if package.numbered else package.cuda.get(version)
    # Before CUDA 11 the number was one of two parts.
    return number if number is not None and number > 10 else None


def is_nvidias(library: str) -> bool:
    """Return whether NVIDIA's own packages provide a library."""
    package = bringer(library)
    return package is not None and package.name.startswith("nvidia-")


# -- nvidia packages -------------------------------------------------------------------------------
# How wheels find NVIDIA's libraries, and what PyTorch's official wheels require for them.


class Release(Row, frozen=True, kw_only=True):
    """A release of PyTorch for one CUDA, as officially packaged."""

    torch: str
    cuda: str
    marker: str
    requires: tuple[str, ...]

    def lines(self, machine: str) -> tuple[str, ...]:
        """Return PEP 508 requirements for a machine such as ``x86_64``."""
        marker = self.marker.format(machine=machine)
        parts = (line.partition("; ") for line in self.requires)
        return tuple(
            f"{what}; {marker} and {own}" if own else f"{what}; {marker}" for what, _, own in parts
        )


class _Layout(Row, frozen=True, kw_only=True):
    cuda: int
    folders: tuple[str, ...]


class _Opener(Row, frozen=True, kw_only=True):
    library: str
    opens: tuple[str, ...]


class _NvidiaPackageTable(Row, frozen=True, kw_only=True):
    keep: tuple[str, ...]
    never: tuple[str, ...]
    torch: dict[str, tuple[str, ...]]
    layout: tuple[_Layout, ...]
    opener: tuple[_Opener, ...]
    release: tuple[Release, ...]


@cache
def _nvidia_package_table() -> _NvidiaPackageTable:
    return load("nvidia_packages", _NvidiaPackageTable)


def releases() -> tuple[Release, ...]:
    """Return the releases, oldest first."""
    return _nvidia_package_table().release


def folders(cuda: int) -> tuple[str, ...]:
    """Return where the packages of a major CUDA version put libraries; empty if it is unknown."""
    return next((row.folders for row in _nvidia_package_table().layout if row.cuda == cuda), ())


def known_cuda() -> tuple[int, ...]:
    return tuple(row.cuda for row in _nvidia_package_table().layout)


def torch_search_path(folder: str) -> tuple[str, ...] | None:
    """Return the end of a library's search path in that folder of PyTorch's own wheel."""
    return _nvidia_package_table().torch.get(folder)


def opened_by(library: str, cuda: int | None) -> tuple[str, ...]:
    """Return patterns of the libraries that a library opens at run time."""
    version = library.partition(".so.")[2]
    return tuple(
        pattern.format(version=version, cuda=cuda or "*")
        for row in _nvidia_package_table().opener
        if fnmatchcase(library, row.library)
        for pattern in row.opens
    )


def keeps_name(library: str) -> bool:
    """Return whether a library must not be renamed."""
    return _matches(library, _nvidia_package_table().keep)


def never_bundled(library: str) -> bool:
    return _matches(library, _nvidia_package_table().never)


def _matches(library: str, patterns: tuple[str, ...]) -> bool:
    return any(fnmatchcase(library, pattern) for pattern in patterns)


# -- singletons ------------------------------------------------------------------------------------
# Libraries of which a process must have exactly one.


_HASH = re.compile(r"-[0-9a-f]{6,}$")


class _SingletonTable(Row, frozen=True, kw_only=True):
    glibc: tuple[str, ...]
    openmp: tuple[str, ...]


@cache
def _singleton_table() -> _SingletonTable:
    return load("singletons", _SingletonTable)


def unhashed(library: str) -> str:
    """Return the name before packaging: ``libgomp-a34b3233.so.1.0.0`` becomes
    ``libgomp.so.1.0.0``.
    """
    stem, dot, version = library.partition(".so")
    return _HASH.sub("", stem) + dot + version


def is_of_glibc(library: str) -> bool:
    return _stem(library) in _singleton_table().glibc


def is_openmp(library: str) -> bool:
    return _stem(library) in _singleton_table().openmp


def _stem(library: str) -> str:
    stem, dot, _ = unhashed(library).partition(".so")
    return stem if dot else ""

"""Libraries that wheels need by name: the packages that provide them, and those that a process
must have only once.
"""

import re
from fnmatch import fnmatchcase, translate
from functools import cache

from stoker.knowledge import Row, table
from stoker.model.value import whole_number

_VERSION = re.compile(r"(?<=\.so)(?:\.\d+)+$")
# As auditwheel writes it, and as the builds of PyTorch do: libjpeg.bd6b9199.so.8.
_HASH = re.compile(r"-[0-9a-f]{6,}$|\.[0-9a-f]{8}$")


class Bringer(Row, frozen=True, kw_only=True):
    """A package and the libraries in it, as `sonames.toml` explains the fields."""

    name: str
    libraries: tuple[str, ...]
    extra: str | None = None
    plain_from: int | None = None
    numbered: bool = False
    cuda: dict[str, int] = {}
    of_torch: bool = False

    def package(self, cuda: int | None) -> str:
        """Return the name of the package for a major CUDA version; ``cuNN`` if that is unknown."""
        if self.plain_from is not None and (cuda or 0) >= self.plain_from:
            return self.name
        return f"{self.name}-cu{cuda or 'NN'}"


class _SonameTable(Row, frozen=True, kw_only=True):
    driver: tuple[str, ...]
    with_torch: tuple[str, ...]
    package: tuple[Bringer, ...]


_soname_table = table("sonames", _SonameTable)


@cache
def _any_package() -> re.Pattern[str]:
    patterns = (pattern for package in _soname_table().package for pattern in package.libraries)
    return re.compile("|".join(map(translate, patterns)))


def is_of_driver(library: str) -> bool:
    return library in _soname_table().driver


def comes_with_torch(library: str) -> bool:
    """Return whether PyTorch holds a library that is not its own, for its extensions as well."""
    return library in _soname_table().with_torch


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


class _SingletonTable(Row, frozen=True, kw_only=True):
    """Libraries of which a process must have exactly one."""

    glibc: tuple[str, ...]
    openmp: tuple[str, ...]


_singleton_table = table("singletons", _SingletonTable)


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

"""Libraries that wheels need by name, and the packages that provide them."""

import re
from fnmatch import fnmatchcase, translate
from functools import cache

from stoker.knowledge import Row, load

_VERSION = re.compile(r"(?<=\.so)(?:\.\d+)+$")


class Bringer(Row, frozen=True, kw_only=True):
    """A package and the libraries in it. ``extra``: of the cuda-toolkit package."""

    name: str
    libraries: tuple[str, ...]
    extra: str | None = None


class _Table(Row, frozen=True, kw_only=True):
    driver: tuple[str, ...]
    package: tuple[Bringer, ...]


@cache
def _table() -> _Table:
    return load("sonames", _Table)


@cache
def _any_package() -> re.Pattern[str]:
    patterns = (pattern for package in _table().package for pattern in package.libraries)
    return re.compile("|".join(map(translate, patterns)))


def is_of_driver(library: str) -> bool:
    return library in _table().driver


def bringer(library: str) -> Bringer | None:
    """Return the package known to provide a library, with or without a version in its name."""
    names = (library, unversioned(library))
    if not any(map(_any_package().match, names)):  # one search for the many names that none brings
        return None
    for package in _table().package:
        if any(fnmatchcase(name, pattern) for pattern in package.libraries for name in names):
            return package
    return None


def unversioned(library: str) -> str:
    """Return ``libc10.so`` for ``libc10.so.2.6``: distributions add versions that upstream
    lacks.
    """
    return _VERSION.sub("", library)


def is_nvidias(library: str) -> bool:
    """Return whether NVIDIA's own packages provide a library."""
    package = bringer(library)
    return package is not None and package.name.startswith("nvidia-")

"""Libraries that wheels need by name, and who brings them."""

import re
from fnmatch import fnmatchcase, translate
from functools import cache

from stoker.knowledge.loader import Row, load


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
    """The package known to bring a library."""
    if not _any_package().match(library):  # one search for the many names that none brings
        return None
    for package in _table().package:
        if any(fnmatchcase(library, pattern) for pattern in package.libraries):
            return package
    return None


def is_nvidias(library: str) -> bool:
    """Whether a library is one that NVIDIA's own packages bring."""
    package = bringer(library)
    return package is not None and package.name.startswith("nvidia-")

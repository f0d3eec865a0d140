"""Libraries of which a process must have exactly one."""

import re
from functools import cache

from stoker.knowledge import Row, load

_HASH = re.compile(r"-[0-9a-f]{6,}$")


class _Table(Row, frozen=True, kw_only=True):
    glibc: tuple[str, ...]
    openmp: tuple[str, ...]


@cache
def _table() -> _Table:
    return load("singletons", _Table)


def unhashed(library: str) -> str:
    """Return the name before packaging: ``libgomp-a34b3233.so.1.0.0`` becomes
    ``libgomp.so.1.0.0``.
    """
    stem, dot, version = library.partition(".so")
    return _HASH.sub("", stem) + dot + version


def is_of_glibc(library: str) -> bool:
    return _stem(library) in _table().glibc


def is_openmp(library: str) -> bool:
    return _stem(library) in _table().openmp


def _stem(library: str) -> str:
    stem, dot, _ = unhashed(library).partition(".so")
    return stem if dot else ""

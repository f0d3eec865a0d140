"""GPU architectures that a project's build adds by itself."""

from collections.abc import Iterable
from functools import cache

from stoker.knowledge.loader import Row, load
from stoker.knowledge.sonames import unversioned


class _Added(Row, frozen=True, kw_only=True):
    project: str
    asked: str
    extra: tuple[str, ...]


class _Linked(Row, frozen=True, kw_only=True):
    project: str
    library: str


class _Table(Row, frozen=True, kw_only=True):
    added: tuple[_Added, ...]
    linked: tuple[_Linked, ...]


@cache
def _table() -> _Table:
    return load("extra_architectures", _Table)


def added(project: str, asked: Iterable[str]) -> frozenset[str]:
    """What comes along, as ``9.0a``, when ``asked`` are built."""
    wanted = set(asked)
    rows = (row for row in _table().added if row.project == project and row.asked in wanted)
    return frozenset(arch for row in rows for arch in row.extra)


def holds_foreign_code(project: str, library: str) -> bool:
    """Whether the architectures in a library are not the build's own choice."""
    name = unversioned(library)
    return any(row.project == project and row.library == name for row in _table().linked)

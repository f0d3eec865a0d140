"""What sources of well-known projects took when they were measured."""

from collections.abc import Iterator
from functools import cache

from stoker.knowledge import Row, load
from stoker.model.govern import Role

_MIB = 2**20


class KnownStep(Row, frozen=True, kw_only=True):
    peak: int  # bytes; of CUDA sources for one GPU target
    seconds: float  # likewise
    # The most memory until a percentage of its time, in percent of its peak; empty if not known.
    levels: tuple[tuple[int, int], ...] = ()


class _Project(Row, frozen=True, kw_only=True):
    name: str
    basis: str
    levels: tuple[tuple[int, int], ...] = ()
    steps: str  # a line for each source; a table of that many keys would take long to read


class _Table(Row, frozen=True, kw_only=True):
    project: tuple[_Project, ...]


def known_step(role: Role, source: str) -> KnownStep | None:
    """Return the figures of a source that a project is known to have, wherever its tree is."""
    if role not in (Role.CXX, Role.C, Role.CUDA) or (role is Role.CUDA) != source.endswith(".cu"):
        return None
    steps = _steps()
    return next((steps[path] for path in _suffixes(source) if path in steps), None)


@cache
def _steps() -> dict[str, KnownStep]:
    return {
        path: KnownStep(peak=int(peak) * _MIB, seconds=float(seconds), levels=project.levels)
        for project in load("known_steps", _Table).project
        for path, peak, seconds in (line.rsplit(" ", 2) for line in project.steps.splitlines())
    }


def _suffixes(path: str) -> Iterator[str]:
    """Yield the path, then the path without its first folder, and so on."""
    while path:
        yield path
        path = path.partition("/")[2]

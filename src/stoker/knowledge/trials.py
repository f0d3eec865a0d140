"""What `stoker tune` measures, and which steps it leaves alone."""

from collections.abc import Iterable, Sequence
from fnmatch import fnmatchcase
from functools import cache

from stoker.knowledge import Row, load
from stoker.model.govern import Mode
from stoker.model.tuning import Topic


class TrialRow(Row, frozen=True, kw_only=True):
    name: str
    topic: Topic
    mode: Mode = Mode.DEFAULT
    removes: tuple[str, ...] = ()
    adds: tuple[str, ...] = ()
    programs: dict[str, str] = {}
    wrapper: str = ""


class _Unmeasured(Row, frozen=True, kw_only=True):
    words: tuple[str, ...]
    debug: tuple[str, ...]


class _Table(Row, frozen=True, kw_only=True):
    trial: tuple[TrialRow, ...]
    unmeasured: _Unmeasured


@cache
def _table() -> _Table:
    return load("trials", _Table)


def trials() -> tuple[TrialRow, ...]:
    return _table().trial


def is_measurable(words: Sequence[str]) -> bool:
    """Return whether a command writes only to files that its options name."""
    return not matching(words, _table().unmeasured.words)


def has_debug_information(words: Sequence[str]) -> bool:
    return matching(words, _table().unmeasured.debug)


def matching(words: Iterable[str], patterns: Sequence[str]) -> bool:
    return any(fnmatchcase(word, pattern) for word in words for pattern in patterns)

"""What `stoker tune` measures, and which steps it leaves alone."""

from collections.abc import Iterable, Sequence
from fnmatch import fnmatchcase

from stoker.knowledge import Row, table
from stoker.model.govern import CompileMode
from stoker.model.tuning import Topic


class TrialRow(Row, frozen=True, kw_only=True):
    name: str
    topic: Topic
    mode: CompileMode = CompileMode.DEFAULT
    removes: tuple[str, ...] = ()
    adds: tuple[str, ...] = ()
    programs: dict[str, str] = {}
    wrapper: str = ""


class _Unmeasured(Row, frozen=True, kw_only=True):
    words: tuple[str, ...]
    debug: tuple[str, ...]


class _TrialTable(Row, frozen=True, kw_only=True):
    trial: tuple[TrialRow, ...]
    unmeasured: _Unmeasured


_trial_table = table("trials", _TrialTable)


def trials() -> tuple[TrialRow, ...]:
    return _trial_table().trial


def is_measurable(words: Sequence[str]) -> bool:
    """Return whether a command writes only to files that its options name."""
    return not matching(words, _trial_table().unmeasured.words)


def has_debug_information(words: Sequence[str]) -> bool:
    return matching(words, _trial_table().unmeasured.debug)


def matching(words: Iterable[str], patterns: Sequence[str]) -> bool:
    return any(fnmatchcase(word, pattern) for word in words for pattern in patterns)

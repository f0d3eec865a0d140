"""The modes of gcc's garbage collector: their options and what they change of a step."""

from collections.abc import Iterable
from fnmatch import fnmatchcase
from functools import cache

from stoker.knowledge import Row, load
from stoker.model.govern import Collector, Mode, ModeEffect


class _Mode(Row, frozen=True, kw_only=True):
    mode: Mode
    options: tuple[str, ...]
    memory: float
    seconds: float
    basis: str


class _Recorded(Row, frozen=True, kw_only=True):
    options: tuple[str, ...]
    harmless: tuple[str, ...]
    excluded: tuple[str, ...]


class _Table(Row, frozen=True, kw_only=True):
    mode: tuple[_Mode, ...]
    recorded: _Recorded


@cache
def _table() -> _Table:
    return load("compiler_modes", _Table)


@cache
def mode_options(mode: Mode) -> tuple[str, ...]:
    """Return what is added to the command; nothing in the default mode."""
    return next((row.options for row in _table().mode if row.mode is mode), ())


def mode_of(options: Iterable[str]) -> Mode:
    """Return the mode whose options these are."""
    added = tuple(options)
    return next((row.mode for row in _table().mode if row.options == added), Mode.DEFAULT)


@cache
def shipped_effects() -> tuple[ModeEffect, ...]:
    """Return what each mode changes, mildest first."""
    return tuple(
        ModeEffect(mode=row.mode, memory=row.memory, seconds=row.seconds) for row in _table().mode
    )


def collector_of(words: Iterable[str]) -> Collector:
    """Return whether the parameters of gcc's collector can be set for a command of gcc."""
    found = Collector.FREE
    for word in words:
        if word[:1] not in "-c":  # most words are paths; what matters is an option or a language
            continue
        table = _table().recorded
        if _matches(word, table.excluded):
            return Collector.NONE
        if _matches(word, table.options) and word not in table.harmless:
            found = Collector.RECORDED
    return found


def _matches(word: str, patterns: Iterable[str]) -> bool:
    return any(fnmatchcase(word, pattern) for pattern in patterns)

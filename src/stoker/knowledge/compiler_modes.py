"""The modes of gcc's garbage collector: their options and what they change of a step."""

import re
from collections.abc import Callable, Iterable, Sequence
from fnmatch import translate
from functools import cache

from stoker.knowledge import Row, load
from stoker.model.govern import Collector, Mode, ModeEffect

_Match = Callable[[str], re.Match[str] | None]


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


def collector_of(words: Sequence[str]) -> Collector:
    """Return whether the parameters of gcc's collector can be set for a command of gcc."""
    excluded, recorded = _patterns()
    if any(map(excluded, words)):
        return Collector.NONE
    harmless = _table().recorded.harmless
    recording = any(recorded(word) and word not in harmless for word in words)
    return Collector.RECORDED if recording else Collector.FREE


@cache
def _patterns() -> tuple[_Match, _Match]:
    """Return what matches the words that exclude a mode, and those that record it."""
    table = _table().recorded
    excluded, recorded = (
        re.compile("|".join(map(translate, patterns))).match
        for patterns in (table.excluded, table.options)
    )
    return excluded, recorded

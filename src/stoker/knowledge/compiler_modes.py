"""The modes of an attempt: gcc's garbage collector and other linkers, with their options and what
they change of a step.
"""

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


class _Linker(Row, frozen=True, kw_only=True):
    mode: Mode
    options: tuple[str, ...]
    program: str


class _Unlinked(Row, frozen=True, kw_only=True):
    options: tuple[str, ...]


class _Defined(Row, frozen=True, kw_only=True):
    symbols: frozenset[str]


class _Recorded(Row, frozen=True, kw_only=True):
    options: tuple[str, ...]
    harmless: tuple[str, ...]
    excluded: tuple[str, ...]


class _Table(Row, frozen=True, kw_only=True):
    mode: tuple[_Mode, ...]
    linker: tuple[_Linker, ...]
    unlinked: _Unlinked
    defined: _Defined
    recorded: _Recorded


@cache
def _table() -> _Table:
    return load("compiler_modes", _Table)


@cache
def mode_options(mode: Mode) -> tuple[str, ...]:
    """Return what is added to the command; nothing in the default mode."""
    options = {row.mode: row.options for row in _table().linker}
    options |= {row.mode: row.options for row in _table().mode}
    return options.get(mode, ())


@cache
def linker_programs() -> dict[Mode, str]:
    """Return the program of each linker that can replace the default one, best first."""
    return {row.mode: row.program for row in _table().linker}


def keeps_linker(words: Iterable[str]) -> bool:
    """Return whether the words of a link exclude another linker."""
    excluded, _, _ = _patterns()
    return any(map(excluded, words))


def symbols_of_linkers() -> frozenset[str]:
    """Return the symbols that some linkers define by themselves."""
    return _table().defined.symbols


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
    _, excluded, recorded = _patterns()
    if any(map(excluded, words)):
        return Collector.NONE
    harmless = _table().recorded.harmless
    recording = any(recorded(word) and word not in harmless for word in words)
    return Collector.RECORDED if recording else Collector.FREE


@cache
def _patterns() -> tuple[_Match, _Match, _Match]:
    """Return what matches the words that exclude a linker or a mode, and those that record it."""
    table = _table()
    unlinked, excluded, recorded = (
        re.compile("|".join(map(translate, patterns))).match
        for patterns in (table.unlinked.options, table.recorded.excluded, table.recorded.options)
    )
    return unlinked, excluded, recorded

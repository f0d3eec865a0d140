"""The modes of an attempt: gcc's garbage collector, threads of nvcc and other linkers.

Each has the options that it adds to a command, and what it changes of a step.
"""

import re
from collections.abc import Callable, Iterable, Sequence
from fnmatch import translate
from functools import cache

from msgspec.structs import replace

from stoker.knowledge import Row, table
from stoker.model.govern import Collector, CompileMode, ModeEffect, Step

_COLLECTOR_IN_ERRORS = b"ggc-min-"
_Match = Callable[[str], re.Match[str] | None]


class _Effect(Row, frozen=True, kw_only=True, rename={"least": "from"}):
    least: int  # peak in bytes in the default mode
    memory: float
    seconds: float

    def of(self, mode: CompileMode) -> ModeEffect:
        return ModeEffect(mode=mode, memory=self.memory, seconds=self.seconds)


class _Mode(Row, frozen=True, kw_only=True):
    mode: CompileMode
    options: tuple[str, ...]
    effects: tuple[_Effect, ...]  # smallest first
    basis: str


class _Linker(Row, frozen=True, kw_only=True):
    mode: CompileMode
    options: tuple[str, ...]
    program: str


class _Unlinked(Row, frozen=True, kw_only=True):
    options: tuple[str, ...]


class _Recorded(Row, frozen=True, kw_only=True):
    options: tuple[str, ...]
    harmless: tuple[str, ...]
    excluded: tuple[str, ...]


class _Threads(Row, frozen=True, kw_only=True):
    option: str
    serial: float
    basis: str
    excluded: tuple[str, ...]


class _ModeTable(Row, frozen=True, kw_only=True):
    mode: tuple[_Mode, ...]
    linker: tuple[_Linker, ...]
    unlinked: _Unlinked
    threads: _Threads
    recorded: _Recorded


_mode_table = table("compiler_modes", _ModeTable)


@cache
def mode_options(mode: CompileMode, threads: int = 1) -> tuple[str, ...]:
    """Return what is added to the command; nothing in the default mode."""
    if mode is CompileMode.THREADS:
        return (f"{_mode_table().threads.option}={threads}",)
    options = {row.mode: row.options for row in _mode_table().linker}
    options |= {row.mode: row.options for row in _mode_table().mode}
    return options.get(mode, ())


@cache
def linker_programs() -> dict[CompileMode, str]:
    """Return the program of each linker that can replace the default one."""
    return {row.mode: row.program for row in _mode_table().linker}


def keeps_linker(words: Iterable[str]) -> bool:
    """Return whether the words of a link exclude another linker."""
    return any(map(_patterns()[0], words))


def mode_of(options: Iterable[str]) -> tuple[CompileMode, int]:
    """Return the mode whose options these are, and its number of threads."""
    added = tuple(options)
    name, _, threads = added[0].partition("=") if added else ("", "", "")
    if name == _mode_table().threads.option:
        return CompileMode.THREADS, int(threads)
    return next(
        (row.mode for row in _mode_table().mode if row.options == added), CompileMode.DEFAULT
    ), 1


@cache
def cost_of_saving() -> float:
    """Return the share of time that the mildest mode which saves memory costs large steps."""
    lean = next(row for row in _mode_table().mode if row.mode is CompileMode.LEAN)
    return lean.effects[-1].seconds - 1


@cache
def error_names(mode: CompileMode) -> bytes:
    """Return how an error message of a compiler that does not know the mode's options begins to
    name them.
    """
    return (
        f"'{_mode_table().threads.option}".encode()
        if mode is CompileMode.THREADS
        else _COLLECTOR_IN_ERRORS
    )


def nvcc_rounds(step: Step) -> float:
    """Return the time that a step of nvcc takes, over what it does for one GPU target."""
    return step.rounds + (_mode_table().threads.serial if len(step.archs) > 1 else 0.0)


def thread_effects(step: Step) -> tuple[ModeEffect, ...]:
    """Return what each useful number of threads changes of a step of nvcc with one thread."""
    targets = len(step.archs)
    numbers = dict.fromkeys(-(-targets // rounds) for rounds in range(targets - 1, 0, -1))
    return tuple(
        ModeEffect(
            mode=CompileMode.THREADS,
            threads=threads,
            memory=float(threads),
            seconds=nvcc_rounds(replace(step, threads=threads)) / nvcc_rounds(step),
        )
        for threads in numbers
    )


def shipped_effects(peak: float) -> tuple[ModeEffect, ...]:
    """Return what each mode changes of a step with this peak by default, mildest first."""
    return tuple(
        next(each for each in reversed(row.effects) if each.least <= peak).of(row.mode)
        for row in _mode_table().mode
    )


def measured_effect(mode: CompileMode, peak: float) -> ModeEffect:
    """Return what a mode has changed of a step that had this peak in it."""
    effects = (
        each for row in _mode_table().mode if row.mode is mode for each in reversed(row.effects)
    )
    alike = (each.of(mode) for each in effects if each.least * each.memory <= peak)
    return next(alike, ModeEffect())


def collector_of(words: Sequence[str]) -> Collector:
    """Return whether the parameters of gcc's collector can be set for a command of gcc."""
    _, excluded, recorded, _ = _patterns()
    if any(map(excluded, words)):
        return Collector.NONE
    harmless = _mode_table().recorded.harmless
    recording = any(recorded(word) and word not in harmless for word in words)
    return Collector.RECORDED if recording else Collector.FREE


def has_free_threads(words: Sequence[str]) -> bool:
    """Return whether stoker may choose the number of threads of a command of nvcc."""
    return not any(map(_patterns()[3], words))


@cache
def _patterns() -> tuple[_Match, _Match, _Match, _Match]:
    """Return what matches the words that exclude a linker, those that exclude a mode of gcc, those
    that record it, and those that exclude threads of nvcc.
    """
    table = _mode_table()
    unlinked, excluded, recorded, threads = (
        re.compile("|".join(map(translate, patterns))).match
        for patterns in (
            table.unlinked.options,
            table.recorded.excluded,
            table.recorded.options,
            table.threads.excluded,
        )
    )
    return unlinked, excluded, recorded, threads

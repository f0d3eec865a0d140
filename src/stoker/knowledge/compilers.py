"""Modes of compilers and linkers, compiler caches, and the ways that `stoker tune` tries."""

import re
from collections.abc import Callable, Iterable, Sequence
from fnmatch import fnmatchcase, translate
from functools import cache
from urllib.parse import parse_qsl, unquote, urlsplit

from msgspec.structs import replace

from stoker.knowledge import Row, load
from stoker.model.errors import UsageError, unknown
from stoker.model.govern import Collector, CompileMode, ModeEffect, Step
from stoker.model.tuning import Topic

# -- compiler modes --------------------------------------------------------------------------------
# The modes of an attempt: gcc's garbage collector, threads of nvcc and other linkers, with their
# options and what they change of a step.


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


class _Defined(Row, frozen=True, kw_only=True):
    symbols: frozenset[str]


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
    defined: _Defined
    threads: _Threads
    recorded: _Recorded


@cache
def _mode_table() -> _ModeTable:
    return load("compiler_modes", _ModeTable)


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
    """Return the program of each linker that can replace the default one, best first."""
    return {row.mode: row.program for row in _mode_table().linker}


def keeps_linker(words: Iterable[str]) -> bool:
    """Return whether the words of a link exclude another linker."""
    return any(map(_patterns()[0], words))


def symbols_of_linkers() -> frozenset[str]:
    """Return the symbols that some linkers define by themselves."""
    return _mode_table().defined.symbols


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


# -- caches ----------------------------------------------------------------------------------------
# The remote storage that each compiler cache can use, and the variables that set it.


_FIELD = re.compile(r"\{([\w-]+)\}")


class CacheDefect(Row, frozen=True, kw_only=True):
    """A compiler that an engine cannot start, from a release on, until one of the engine."""

    engine: str
    compiler: str
    since: str
    fixed: str
    why: str

    def has(self, engine: str, compiler: str) -> bool:
        """Return whether a version of the engine breaks a version of the compiler."""
        return _numbers(engine) < _numbers(self.fixed) and _numbers(compiler) >= _numbers(
            self.since
        )


class RemoteSchemes(Row, frozen=True, kw_only=True):
    """Templates of variables, by engine and scheme of an address."""

    ccache: dict[str, dict[str, str]]
    sccache: dict[str, dict[str, str]]
    defect: tuple[CacheDefect, ...]


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", version)[:3])


@cache
def remote_schemes() -> RemoteSchemes:
    return load("caches", RemoteSchemes)


def remote_variables(engine: str, url: str) -> dict[str, str]:
    """Return the variables with which an engine uses a remote; raise UsageError if it cannot."""
    schemes: dict[str, dict[str, str]] = getattr(remote_schemes(), engine)
    scheme, separator, _ = url.partition("://")
    if not separator:
        hints = [f"for example {next(iter(schemes))}://HOST:PORT"]
        raise UsageError("--cache-remote is not an address with a scheme", hints=hints)
    if scheme not in schemes:
        raise unknown(f"scheme of --cache-remote for {engine}", scheme, schemes)
    fields = _fields(url)
    filled = {
        name: _FIELD.sub(lambda field: fields.get(field[1], ""), template).rstrip("/")
        for name, template in schemes[scheme].items()
    }
    return {name: value for name, value in filled.items() if value}


def _fields(url: str) -> dict[str, str]:
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError as error:
        raise UsageError(f"--cache-remote is not an address: {error}") from error
    host = parts.hostname or ""
    if not host and parts.scheme not in ("file", "redis+unix"):
        raise UsageError(f"--cache-remote has no host: {parts.scheme}://")
    user, password = unquote(parts.username or ""), unquote(parts.password or "")
    login = ":".join(filter(None, (parts.username, parts.password)))
    return {
        **dict(parse_qsl(parts.query)),
        "url": url,
        "host": host,
        "address": f"{host}:{port}" if port else host,
        "user": user if password else "",
        "password": password or user,
        "login": f"{login}@" if login else "",
        "path": parts.path.lstrip("/"),
    }


# -- trials ----------------------------------------------------------------------------------------
# What `stoker tune` measures, and which steps it leaves alone.


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


@cache
def _trial_table() -> _TrialTable:
    return load("trials", _TrialTable)


def trials() -> tuple[TrialRow, ...]:
    return _trial_table().trial


def is_measurable(words: Sequence[str]) -> bool:
    """Return whether a command writes only to files that its options name."""
    return not matching(words, _trial_table().unmeasured.words)


def has_debug_information(words: Sequence[str]) -> bool:
    return matching(words, _trial_table().unmeasured.debug)


def matching(words: Iterable[str], patterns: Sequence[str]) -> bool:
    return any(fnmatchcase(word, pattern) for word in words for pattern in patterns)


# -- features --------------------------------------------------------------------------------------
# The first release of gcc with a standard or a header of C++, and what a header declares.


class _Features(Row, frozen=True, kw_only=True):
    standard: dict[str, int]
    header: dict[str, int]
    declares: dict[str, tuple[str, ...]]


@cache
def _features() -> _Features:
    return load("cxx_features", _Features)


def first_gcc(kind: str, name: str) -> int | None:
    """Return the first major version of gcc with a ``standard``, such as 20, or a ``header``."""
    features = _features()
    return (features.standard if kind == "standard" else features.header).get(name)


def declaring_header(name: str) -> str | None:
    """Return the standard header that declares a name, such as ``sort`` or ``std::sort``."""
    plain = name.removeprefix("std::")
    return next((header for header, names in _features().declares.items() if plain in names), None)

"""A build's measured steps as a JSON file: what `stoker simulate` reads and history exports.

    {"what": "...", "note": "...", "steps": [{
        "output": "dir/x.o",          or "source"; one of them must be there
        "wall_s": 12.5,               or "start_s" and "end_s"
        "cpu_s": 12.1,                wall_s where it is missing
        "peak_bytes": 500000000,      or "peak_mb" (MiB), or "peak_gb" (10**9 bytes)
        "byte_seconds": 5.1e9,        integral of memory over time; may be missing
        "profile": [10, 100, 40],     the most in each equal part of its life, in percent of the
                                      peak; may be missing
        "needs": ["dir/y.o"],         outputs that must be there first; may be missing
        "killed": false,              the figures are lower bounds
        "mode": "lean",               in which it was measured; "default" where it is missing
        "effects": [{"mode": "lean", "memory": 0.7, "seconds": 1.1}],
                                      what the modes of gcc change of it, as factors of the default
                                      mode; shipped figures where it is missing
        "key", "role", "directory", "compiler", "flags", "archs", "threads", "input_bytes",
        "collector":                  as in Step; may be missing
    }]}

Steps stand in the order in which the build tool asked for them.
"""

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from graphlib import CycleError, TopologicalSorter
from posixpath import normpath

import msgspec
from msgspec.structs import asdict, replace

from stoker.govern.command_line import role_of_source
from stoker.model.errors import UsageError
from stoker.model.govern import Collector, CompileMode, ModeEffect, Role, Step, StepRecord, Trace
from stoker.model.value import UNDECODABLE, Percent, Value, prepared

_PARENT = re.compile(r"(?<![^/])__/")
_OF_STEP = ("directory", "compiler", "flags", "archs", "threads", "input_bytes", "collector")
_OBJECT_FOLDER = re.compile(r"CMakeFiles/[^/]+\.dir/")


class _TraceStep(Value, frozen=True, kw_only=True, omit_defaults=True):
    output: str = ""
    source: str = ""
    start_s: float | None = None
    end_s: float | None = None
    wall_s: float | None = None
    cpu_s: float | None = None
    peak_bytes: float | None = None
    peak_mb: float | None = None
    peak_gb: float | None = None
    byte_seconds: float | None = None
    profile: tuple[Percent, ...] = ()
    needs: tuple[str, ...] = ()
    killed: bool = False
    key: str = ""
    role: Role | None = None
    directory: str = ""
    compiler: str = ""
    flags: tuple[str, ...] = ()
    archs: tuple[str, ...] = ()
    threads: int = 1
    input_bytes: int = 0
    collector: Collector = Collector.NONE
    mode: CompileMode = CompileMode.DEFAULT
    effects: tuple[ModeEffect, ...] = ()


class _File(Value, frozen=True, kw_only=True, omit_defaults=True):
    what: str = ""
    note: str = ""
    steps: tuple[_TraceStep, ...]


def read_trace(content: bytes, where: str) -> Trace:
    """Return the trace in a file. ``where`` is the file's name, for errors."""
    try:
        file = msgspec.json.decode(content, type=prepared(_File))
    except UNDECODABLE as error:
        raise UsageError(f"not a trace: {error}", where=where) from error
    if not file.steps:
        raise UsageError("a trace without steps", where=where)
    records = [_record(entry, f"{where}: step {n}") for n, entry in enumerate(file.steps, 1)]
    steps = _with_known_needs(_with_names_of_their_own(records))
    _check_order(steps, where)
    return Trace(what=file.what, steps=steps, notes=tuple(_notes(file)))


def write_trace(trace: Trace) -> bytes:
    """Return a trace as bytes, with all data of every step; ``read_trace`` reads it back."""
    file = _File(
        what=trace.what,
        note="; ".join(trace.notes),
        steps=tuple(_entry(record) for record in trace.steps),
    )
    return msgspec.json.format(msgspec.json.encode(file))


def _record(entry: _TraceStep, where: str) -> StepRecord:
    seconds, peak = _seconds(entry), _peak(entry)
    if not (entry.output or entry.source):
        raise UsageError("neither output nor source", where=where)
    if seconds is None or peak is None:
        lacking = "wall_s" if seconds is None else "peak_bytes"
        raise UsageError(f"{entry.output or entry.source} has no {lacking}", where=where)
    try:
        record = StepRecord(
            step=_step(entry),
            wall_s=seconds,
            cpu_s=seconds if entry.cpu_s is None else entry.cpu_s,
            peak_bytes=round(peak),
            byte_seconds=entry.byte_seconds,
            profile=entry.profile,
            needs=entry.needs,
            mode=entry.mode,
            effects=entry.effects,
            killed=entry.killed,
        )
        # Converting checks the figures.
        return msgspec.convert(msgspec.to_builtins(record), prepared(StepRecord))
    except (msgspec.ValidationError, OverflowError) as error:
        what = f"{entry.output or entry.source} has a figure out of range"
        raise UsageError(f"{what}: {error}", where=where) from error


def _seconds(entry: _TraceStep) -> float | None:
    if entry.wall_s is not None or entry.start_s is None or entry.end_s is None:
        return entry.wall_s
    return entry.end_s - entry.start_s


def _peak(entry: _TraceStep) -> float | None:
    if entry.peak_mb is not None:
        return entry.peak_mb * 1024**2
    return entry.peak_gb * 1e9 if entry.peak_gb is not None else entry.peak_bytes


def _step(entry: _TraceStep) -> Step:
    source = entry.source or _source_of(entry.output)
    name = entry.output or " ".join([source, *entry.archs])
    return Step(
        key=entry.key or name,
        role=entry.role or role_of_source(source),
        source=source,
        output=name,
        **{each: getattr(entry, each) for each in _OF_STEP},
    )


def _source_of(output: str) -> str:
    """Return the source of an object: CMake makes ``lib/CMakeFiles/x.dir/__/core/y.cpp.o`` of
    ``core/y.cpp``.
    """
    path = _PARENT.sub("../", _OBJECT_FOLDER.sub("", output))
    return normpath(path.removesuffix(".o"))


def _entry(record: StepRecord) -> _TraceStep:
    known = asdict(record.step) | asdict(record)
    names = _TraceStep.__struct_fields__
    return _TraceStep(**{name: known[name] for name in names if name in known})


def _with_names_of_their_own(records: Iterable[StepRecord]) -> Iterator[StepRecord]:
    """Return the steps with unique names, because the same output may have been built twice."""
    seen: Counter[str] = Counter()
    for record in records:
        name = record.step.output
        seen[name] += 1
        if seen[name] > 1:
            name = f"{name} ({seen[name]})"
            record = replace(record, step=replace(record.step, output=name))
        yield record


def _with_known_needs(records: Iterable[StepRecord]) -> tuple[StepRecord, ...]:
    """Return the steps with only those needs that a step of the trace builds; other files existed
    before.
    """
    steps = tuple(records)
    made = {record.step.output for record in steps}
    return tuple(
        replace(record, needs=tuple(need for need in record.needs if need in made))
        if record.needs
        else record
        for record in steps
    )


def _check_order(steps: Iterable[StepRecord], where: str) -> None:
    try:
        TopologicalSorter({record.step.output: record.needs for record in steps}).prepare()
    except CycleError as error:
        raise UsageError(f"steps need each other: {' '.join(error.args[1])}", where=where) from None


def _notes(file: _File) -> Iterator[str]:
    if file.note:
        yield file.note
    killed = sum(entry.killed for entry in file.steps)
    if killed:
        yield f"{killed} steps were stopped before their end: their figures are lower bounds"
    guessed = sum(entry.byte_seconds is None for entry in file.steps)
    if guessed:
        yield f"only the peak is known of {guessed} steps; their memory over time is assumed"

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
from collections.abc import Iterable, Iterator, Sequence
from enum import IntEnum
from graphlib import CycleError, TopologicalSorter
from posixpath import normpath

import msgspec
from msgspec.structs import replace

from stoker.govern.command_line import as_remote, role_of_source
from stoker.govern.profile import PARTS
from stoker.knowledge.steps import client_costs
from stoker.model.errors import UsageError
from stoker.model.govern import (
    Collector,
    CompileMode,
    ModeEffect,
    Role,
    SimulatedWorkers,
    Step,
    StepRecord,
    Trace,
)
from stoker.model.value import UNDECODABLE, Percent, Value

_PARENT = re.compile(r"(?<![^/])__/")
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
        file = msgspec.json.decode(content, type=_File)
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
        )
        return msgspec.convert(msgspec.to_builtins(record), StepRecord)  # which checks the figures
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
        directory=entry.directory,
        compiler=entry.compiler,
        flags=entry.flags,
        archs=entry.archs,
        threads=entry.threads,
        input_bytes=entry.input_bytes,
        collector=entry.collector,
    )


def _source_of(output: str) -> str:
    """Return the source of an object: CMake makes ``lib/CMakeFiles/x.dir/__/core/y.cpp.o`` of
    ``core/y.cpp``.
    """
    path = _PARENT.sub("../", _OBJECT_FOLDER.sub("", output))
    return normpath(path.removesuffix(".o"))


def _entry(record: StepRecord) -> _TraceStep:
    step = record.step
    return _TraceStep(
        output=step.output,
        source=step.source,
        wall_s=record.wall_s,
        cpu_s=record.cpu_s,
        peak_bytes=record.peak_bytes,
        byte_seconds=record.byte_seconds,
        profile=record.profile,
        needs=record.needs,
        key=step.key,
        role=step.role,
        directory=step.directory,
        compiler=step.compiler,
        flags=step.flags,
        archs=step.archs,
        threads=step.threads,
        input_bytes=step.input_bytes,
        collector=step.collector,
        mode=record.mode,
        effects=record.effects,
    )


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


# -- remote steps ----------------------------------------------------------------------------------
# The steps of a simulated distribution: what compiles take here and elsewhere.
#
# The distributor preprocesses here, sends the result over the link, waits for the worker, and
# gets the object. What that costs was measured (`knowledge/distribution.toml`). CUDA and links
# stay here, because no distributor takes them.


class StagePlace(IntEnum):
    """Where a stage of a step runs; stages at the same place share it, except at workers."""

    HERE = 0
    LINK = 1
    WORKER = 2


Stages = tuple[
    tuple[StagePlace, float], ...
]  # seconds of each stage if it has its place for itself


def at_workers(
    steps: Sequence[StepRecord], distribution: SimulatedWorkers
) -> tuple[tuple[StepRecord, ...], dict[int, Stages]]:
    """Return the steps as the machine that builds sees them, and the stages of those that workers
    compile, by index.
    """
    stages = {
        index: _stages(record, distribution)
        for index, record in enumerate(steps)
        if record.step.role in (Role.C, Role.CXX) and record.wall_s > 0
    }
    seen = (
        _here(record, stages[index]) if index in stages else record
        for index, record in enumerate(steps)
    )
    return tuple(seen), stages


def seconds_at(place: StagePlace, steps: Iterable[Stages]) -> float:
    return sum(seconds for stages in steps for where, seconds in stages if where is place)


def _stages(record: StepRecord, distribution: SimulatedWorkers) -> Stages:
    costs = client_costs()
    client = costs.cpu_share * record.wall_s
    sent = client * costs.sent_per_client_second / distribution.bandwidth
    received = record.wall_s * costs.object_per_second / distribution.bandwidth
    compiled = record.wall_s * costs.worker_share
    stages = (
        (StagePlace.HERE, client),
        (StagePlace.LINK, sent),
        (StagePlace.WORKER, compiled),
        (StagePlace.LINK, received),
    )
    return tuple(stage for stage in stages if stage[1] > 0)


def _here(record: StepRecord, stages: Stages) -> StepRecord:
    """Return what is left of a step on this machine."""
    costs, seconds = client_costs(), sum(each for _, each in stages)
    peak = min(record.peak_bytes, costs.peak)
    begun = round(PARTS * stages[0][1] / seconds)
    rest = round(100 * costs.rest / max(peak, costs.rest))
    profile = tuple(100 if part <= begun else rest for part in range(PARTS))
    return replace(
        record,
        step=as_remote(record.step),
        wall_s=seconds,
        cpu_s=stages[0][1],
        peak_bytes=peak,
        byte_seconds=peak * seconds * sum(profile) / (100 * PARTS),
        profile=profile,
    )

"""What compilers record of their own phases, read from the files that their flags name. Pure.

clang writes a trace beside the object with ``-ftime-trace``, nvcc one with ``-fdevice-time-trace
FILE``, and a table of durations with ``--time FILE``.
"""

import csv
from collections.abc import Iterator
from contextlib import suppress
from enum import StrEnum
from io import StringIO
from itertools import pairwise
from posixpath import basename, join, splitext
from typing import Annotated

import msgspec
from msgspec import Meta

from stoker.model.govern import Step
from stoker.model.value import UNDECODABLE, Value, prepared

_SHORTEST = 0.005  # seconds of a phase that is kept: clang records each header and template
_CLANG = "-ftime-trace"
_NVCC_TRACE = ("-fdevice-time-trace", "--fdevice-time-trace")
_NVCC_TABLE = ("-time", "--time")
_FIELDS = 8  # of a row of nvcc's table
_Microseconds = Annotated[float, Meta(ge=0.0, le=1e16)]


class PhaseFormat(StrEnum):
    TRACE = "trace"
    TABLE = "table"


class CompilerPhase(Value, frozen=True, kw_only=True):
    """``start`` counts from the start of the step. Phases of one ``row`` are nested or follow each
    other; rows may overlap.
    """

    name: str
    start: float
    seconds: float
    detail: str = ""
    row: str = ""


class _Arguments(Value, frozen=True, kw_only=True):
    detail: str = ""


class _TraceEvent(Value, frozen=True, kw_only=True):
    name: str = ""
    ph: str = ""
    ts: _Microseconds = 0.0
    dur: _Microseconds = 0.0
    pid: int = 0
    tid: int = 0
    args: _Arguments = _Arguments()


class _TraceFile(Value, frozen=True, kw_only=True):
    traceEvents: tuple[_TraceEvent, ...] = ()  # noqa: N815 - as in the file


def phase_file(step: Step) -> tuple[PhaseFormat, str] | None:
    """Return the file that the flags of a step have its compiler write, relative to where it runs;
    None where there is none.
    """
    for flag, value in pairwise((*step.flags, "")):
        name, _, joined = flag.partition("=")
        if name == _CLANG:
            beside = splitext(step.output)[0] + ".json"
            is_file = joined.endswith(".json")
            return PhaseFormat.TRACE, joined if is_file else join(joined, beside)
        if name in _NVCC_TRACE:
            return PhaseFormat.TRACE, f"{joined or value}.json"
        if name in _NVCC_TABLE and (joined or value) != "-":
            return PhaseFormat.TABLE, joined or value
    return None


def read_phases(content: bytes, form: PhaseFormat, step: Step) -> tuple[CompilerPhase, ...]:
    """Return the phases that last long enough to be seen; nothing of a file that is damaged."""
    match form:
        case PhaseFormat.TRACE:
            found = _of_trace(content)
        case PhaseFormat.TABLE:
            found = _of_table(content.decode(errors="replace"), basename(step.source))
    return tuple(phase for phase in found if phase.seconds >= _SHORTEST)


def _of_trace(content: bytes) -> Iterator[CompilerPhase]:
    try:
        events = msgspec.json.decode(content, type=prepared(_TraceFile)).traceEvents
    except UNDECODABLE:
        return
    for event in events:
        # clang sums up each kind of phase in a row of its own.
        if event.ph == "X" and not event.name.startswith("Total "):
            yield CompilerPhase(
                name=event.name,
                start=event.ts / 1e6,
                seconds=event.dur / 1e6,
                detail=event.args.detail,
                row=f"{event.pid}.{event.tid}",
            )


def _of_table(text: str, source: str) -> Iterator[CompilerPhase]:
    """Return nvcc's phases. It prints durations only; without ``--threads`` the phases follow each
    other.
    """
    at = 0.0
    with suppress(csv.Error):  # such as for a field that is too long
        for row in csv.reader(StringIO(text)):
            if len(row) != _FIELDS or basename(row[0].strip()) != source:
                continue
            with suppress(ValueError):
                amount = float(row[6])  # milliseconds
                if 0 < amount < 1e9:
                    name, detail = row[1].strip(), row[4].strip()
                    yield CompilerPhase(name=name, start=at, seconds=amount / 1000, detail=detail)
                    at += amount / 1000

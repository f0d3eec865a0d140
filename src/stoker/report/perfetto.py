"""A run as a trace in Chrome's JSON format, which Perfetto and chrome://tracing open. Pure.

Process 1 has the steps, a thread for each lane, and the counters; process 2 has the steps that
wait. The phases that a compiler recorded of itself lie within its step.
"""

from collections import defaultdict, deque
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any

import msgspec

from stoker.report.analysis import lanes_of, levels, memory_at
from stoker.report.phases import CompilerPhase
from stoker.report.reported import AttemptSpan, RunAnalysis

Event = dict[str, Any]
Phases = Mapping[int, tuple[CompilerPhase, ...]]  # by span

_STEPS, _WAITS = 1, 2  # processes
_PATH = 1  # threads of the first process; lanes follow
_FIRST_LANE = 10
_ROWS = 32  # threads that one lane may have: its own, and more for phases that overlap
_SAMPLES = 8000  # of the memory counter at most, beside the starts and ends of steps
_SAMPLES_PER_STEP = 128  # as many as a profile of memory has points


def perfetto_trace(run: RunAnalysis, phases: Phases) -> bytes:
    events = [*_names(run), *_steps(run, phases), *_waits(run), *_path(run), *_counters(run)]
    events.sort(key=lambda event: event.get("ts", -1))
    about = {"command": run.command, "run": run.id, "limit_bytes": run.limit, "cpus": run.cpus}
    trace = {"traceEvents": events, "displayTimeUnit": "ms", "otherData": about}
    return msgspec.json.encode(trace)


def _us(seconds: float) -> int:
    return round(seconds * 1e6)


def _slice(
    process: int, thread: int, name: str, start: int, end: int, args: Mapping[str, object]
) -> Event:
    return {
        "ph": "X",
        "pid": process,
        "tid": thread,
        "name": name,
        "ts": start,
        "dur": max(1, end - start),
        "args": args,
    }


def _names(run: RunAnalysis) -> Iterator[Event]:
    yield _name("process_name", _STEPS, 0, "steps")
    if any(span.explanation for span in run.spans):
        yield _name("process_name", _WAITS, 0, "waiting steps")
    yield _name("thread_name", _STEPS, _PATH, "critical path")
    for lane in range(max((span.lane for span in run.spans), default=-1) + 1):
        yield _name("thread_name", _STEPS, _thread(lane), f"lane {lane + 1}")


def _name(what: str, process: int, thread: int, name: str) -> Event:
    return {"ph": "M", "pid": process, "tid": thread, "name": what, "args": {"name": name}}


def _thread(lane: int) -> int:
    return _FIRST_LANE + lane * _ROWS


def _steps(run: RunAnalysis, phases: Phases) -> Iterator[Event]:
    by_lane: dict[int, list[int]] = defaultdict(list)
    for index, span in enumerate(run.spans):
        by_lane[span.lane].append(index)
    for lane, indices in by_lane.items():
        ends = _ends([run.spans[index] for index in indices])
        for index, end in zip(indices, ends, strict=True):
            span, thread = run.spans[index], _thread(lane)
            start = _us(span.started)
            yield _slice(_STEPS, thread, span.step.title, start, end, _arguments(span))
            yield from _phases(phases.get(index, ()), thread, start, end)
            if not span.completed:
                yield _mark(thread, end, span.outcome.value)
            for pause in span.explanation.pauses if span.explanation else ():
                yield _mark(thread, _us(pause.at), "paused")


def _ends(spans: Sequence[AttemptSpan]) -> Iterator[int]:
    """Yield the ends of slices, cut where the next one starts: otherwise it would be drawn as a
    child.
    """
    for span, following in pairwise(spans):
        yield min(_us(span.ended), _us(following.started))
    for span in spans[-1:]:
        yield _us(span.ended)


def _arguments(span: AttemptSpan) -> dict[str, object]:
    """Return the figures of a step, in the units of the history."""
    found: dict[str, object] = {
        "kind": span.step.role.value,
        "target": span.target,
        "output": span.step.output,
        "outcome": span.outcome.value,
        "mode": span.record.mode.value,
        "cpu_s": span.record.cpu_s,
        "peak_bytes": span.record.peak_bytes,
        "byte_seconds": span.record.byte_seconds,
    }
    if span.explanation:
        found["predicted_bytes"] = span.explanation.needs_bytes
        found["waited_s"] = span.waited
    return found


def _mark(thread: int, at: int, name: str) -> Event:
    return {"ph": "i", "s": "t", "pid": _STEPS, "tid": thread, "name": name, "ts": at}


def _phases(phases: Sequence[CompilerPhase], thread: int, start: int, end: int) -> Iterator[Event]:
    """Return the phases in rows that do not overlap; the first row is that of the step itself."""
    rows: dict[str, list[CompilerPhase]] = defaultdict(list)
    for phase in phases:
        rows[phase.row].append(phase)
    extents = {
        row: (min(p.start for p in group), max(p.start + p.seconds for p in group))
        for row, group in rows.items()
    }
    ordered = sorted(extents, key=lambda row: extents[row])
    for row, offset in zip(ordered, lanes_of([extents[row] for row in ordered]), strict=True):
        if offset:
            yield _name("thread_name", _STEPS, thread + offset, "phases beside it")
        for phase in rows[row]:
            first = min(end, start + _us(phase.start))
            last = min(end, start + _us(phase.start + phase.seconds))
            if last > first and offset < _ROWS:
                detail = {"detail": phase.detail} if phase.detail else {}
                yield _slice(_STEPS, thread + offset, phase.name, first, last, detail)


def _waits(run: RunAnalysis) -> Iterator[Event]:
    waits = [(s.asked, s.started, s) for s in run.spans if s.asked is not None and s.waited]
    waits.sort(key=lambda wait: wait[:2])
    lanes = lanes_of([wait[:2] for wait in waits])
    last: dict[int, int] = {}  # ends of slices, by lane
    for (asked, started, span), lane in zip(waits, lanes, strict=True):
        start = max(_us(asked), last.get(lane, 0))
        last[lane] = max(start + 1, _us(started))
        yield _slice(_WAITS, lane + 1, span.step.title, start, last[lane], {})


def _path(run: RunAnalysis) -> Iterator[Event]:
    """Yield the steps of the critical path as slices; a repeated step may overlap the next."""
    ordered = sorted((run.spans[index] for index in run.path), key=lambda span: span.started)
    for span, end in zip(ordered, _ends(ordered), strict=True):
        yield _slice(_STEPS, _PATH, span.step.title, _us(span.started), end, {})


def _counters(run: RunAnalysis) -> Iterator[Event]:
    if any(span.explanation for span in run.spans):
        for at, _, _, waiting in levels(run.spans):
            yield _counter("waiting", "steps", at, waiting)
    # Running steps and their memory, at each start and end and at equal distances between.
    edges = {time for span in run.spans for time in (span.started, span.ended)}
    end = max(edges, default=0.0)
    samples = min(_SAMPLES, _SAMPLES_PER_STEP * len(run.spans))
    times = edges.union(end * sample / samples for sample in range(samples))
    to_come = deque(sorted(run.spans, key=lambda span: span.started))
    active: list[AttemptSpan] = []
    last = -1
    for time in sorted(times):
        while to_come and to_come[0].started <= time:
            active.append(to_come.popleft())
        active = [span for span in active if span.ended > time]
        used = round(sum(memory_at(span, time) for span in active))
        if used != last or time in edges:
            last = used
            yield _counter("memory", "bytes", time, used)
        if time in edges:
            yield _counter("running", "steps", time, len(active))


def _counter(name: str, unit: str, at: float, value: int) -> Event:
    return {"ph": "C", "pid": _STEPS, "name": name, "ts": _us(at), "args": {unit: value}}

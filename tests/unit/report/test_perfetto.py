"""A run as trace events: slices do not overlap, counters are those computed by hand."""

import json
from typing import Any

import pytest

from generated_runs import generated_attempts, summary_of
from stoker.model.govern import Basis, Role, Step, StepRecord
from stoker.model.runs import Attempt, Explanation, Outcome, Run
from stoker.report.analysis import RecordedRun, analyse
from stoker.report.dependencies import Dependencies
from stoker.report.perfetto import perfetto_trace
from stoker.report.phases import CompilerPhase

MB = 1_000_000


def attempt(
    name: str, started: float, seconds: float, megabytes: int, asked: float = 0.0
) -> Attempt:
    step = Step(key=name, role=Role.CXX, source=name, output=f"{name}.o")
    record = StepRecord(
        step=step,
        wall_s=seconds,
        cpu_s=seconds,
        peak_bytes=megabytes * MB,
        profile=(50,) * 64 + (100,) * 64,
    )
    explanation = Explanation(asked=asked, needs_bytes=MB, basis=Basis.EXACT)
    return Attempt(record=record, started=started, outcome=Outcome.DONE, explanation=explanation)


def events_of(
    attempts: list[Attempt], phases: dict[int, tuple[CompilerPhase, ...]] | None = None
) -> list[dict[str, Any]]:
    run = Run(
        id=3, started=0.0, ended=None, command="ninja", directory="/", summary=summary_of(attempts)
    )
    found = analyse(run, attempts, RecordedRun(), Dependencies({}))
    events: list[dict[str, Any]] = json.loads(perfetto_trace(found, phases or {}))["traceEvents"]
    return events


def counter(events: list[dict[str, Any]], name: str) -> dict[int, int]:
    """Return the values of a counter by the microsecond."""
    return {
        event["ts"]: next(iter(event["args"].values()))
        for event in events
        if event["ph"] == "C" and event["name"] == name
    }


def at(values: dict[int, int], seconds: float) -> int:
    return values[max(time for time in values if time <= seconds * 1e6)]


def test_counters() -> None:
    events = events_of([attempt("a", 0, 4, 100), attempt("b", 1, 4, 200, asked=0.5)])
    running, waiting, memory = (counter(events, name) for name in ("running", "waiting", "memory"))
    assert [at(running, second) for second in (0, 1, 4, 5)] == [1, 2, 1, 0]
    assert [at(waiting, second) for second in (0, 0.5, 1)] == [0, 1, 0]
    # a: 50 MB until 2, then 100; b: 100 MB until 3, then 200.
    assert [at(memory, s) // MB for s in (0.5, 1.5, 2.5, 3.5, 4.5)] == [50, 150, 200, 300, 200]
    assert at(memory, 5) == 0


def test_memory_is_counted_where_it_changes() -> None:
    values = counter(events_of([attempt("a", 0, 8, 100)]), "memory")
    assert len(values) < 8


def test_slices_of_a_thread_do_not_overlap() -> None:
    attempts = generated_attempts(400)
    ends: dict[tuple[int, int], int] = {}
    slices = [event for event in events_of(attempts) if event["ph"] == "X"]
    for event in slices:
        thread = event["pid"], event["tid"]
        assert event["ts"] >= ends.get(thread, 0)
        ends[thread] = event["ts"] + event["dur"]
    steps = [event for event in slices if "peak_bytes" in event["args"]]
    assert sorted(event["args"]["peak_bytes"] for event in steps) == sorted(
        attempt.record.peak_bytes for attempt in attempts
    )


def test_phases_lie_within_their_step_and_beside_each_other_where_they_overlap() -> None:
    phases = (
        CompilerPhase(name="front", start=0.0, seconds=2.0, row="1"),
        CompilerPhase(name="inner", start=0.5, seconds=1.0, row="1"),
        CompilerPhase(name="other", start=1.0, seconds=9.0, row="2"),
    )
    events = events_of([attempt("a", 1, 4, 100)], {0: phases})
    found = {event["name"]: event for event in events if event["ph"] == "X" and event["tid"] != 1}
    step = found["a"]
    assert found["front"]["tid"] == found["inner"]["tid"] == step["tid"]
    assert found["other"]["tid"] == step["tid"] + 1
    assert found["other"]["ts"] + found["other"]["dur"] == step["ts"] + step["dur"] == 5 * MB


def test_kills_are_marked() -> None:
    lost = generated_attempts(1)[0]
    lost = Attempt(record=lost.record, started=0.0, outcome=Outcome.OOM)
    (mark,) = [event for event in events_of([lost]) if event["ph"] == "i"]
    assert mark["name"] == "out of memory"
    assert mark["ts"] == pytest.approx(lost.record.wall_s * 1e6, abs=1)

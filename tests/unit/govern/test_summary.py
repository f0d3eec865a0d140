"""The summary of a run: kills, memory and bounds, collected while it runs."""

import gc
import tracemalloc
from collections.abc import Callable

import pytest
from msgspec.structs import replace

import governed_steps as make
from governed_steps import GB
from stoker.govern.policy.predict import Predictor
from stoker.govern.server.tally import Tally
from stoker.model.govern import Basis, CompileMode, ModeEffect, Role, StepRecord
from stoker.model.runs import Attempt, Explanation, Outcome


def tally() -> Tally:
    return Tally(cpus=2, policy="adaptive")


@pytest.mark.parametrize(
    ("counts", "kills"),
    [
        ([5, 5], 0),
        ([5, 7], 2),
        ([5, 7, None], 2),  # its group is gone before the last reading
        ([None, 5, None, 6, None], 1),
        ([None, None], 0),
    ],
)
def test_kills_are_counted_whatever_cannot_be_read(counts: list[int | None], kills: int) -> None:
    counted = tally()
    for count in counts:
        counted.read(used=0, limit=GB, oom_kills=count)
    assert counted.summary(0).oom_kills == kills


def test_a_limit_of_nothing_has_no_bounds() -> None:
    counted = tally()
    counted.read(used=0, limit=0, oom_kills=0)
    counted.add(Attempt(record=make.record("a"), started=0.0, outcome=Outcome.DONE))
    assert counted.summary(0).lower_bound_s is None


def test_the_peak_is_the_most_that_the_steps_had_at_once_or_one_of_them_alone() -> None:
    counted = tally()
    for used in (GB, 3 * GB, 0):
        counted.read(used=used, limit=8 * GB, oom_kills=0)
    assert counted.summary(0).peak_bytes == 3 * GB
    # Between two readings.
    counted.add(
        Attempt(record=make.record("a", peak=4 * GB), started=0.0, outcome=Outcome.PREEMPTED)
    )
    assert counted.summary(0).peak_bytes == 4 * GB


def test_steps_that_ended_and_attempts_that_were_repeated_are_counted_apart() -> None:
    counted = tally()
    for outcome in Outcome:
        counted.add(Attempt(record=make.record("a"), started=0.0, outcome=outcome))
    assert (counted.steps, counted.repeats) == (2, 3)
    assert counted.summary(0).steps == 2


def test_a_summary_keeps_no_steps() -> None:
    """It kept every record, which made the governor of a large build larger than its compilers."""
    first, second = Predictor(), Predictor()
    assert _growth(tally().add) < 50
    _growth(lambda attempt: first.learn(attempt.record))  # fills the caches that all tests share
    assert _growth(lambda attempt: second.learn(attempt.record)) < 1000  # a sample


def _growth(take: Callable[[Attempt], None], steps: int = 300) -> float:
    """Return the bytes that are kept of each step."""
    tracemalloc.start()
    try:
        for number in range(2 * steps):
            if number == steps:
                before = _kept()
            take(Attempt(record=_distinct(number), started=number, outcome=Outcome.DONE))
        return (_kept() - before) / steps
    finally:
        tracemalloc.stop()


def _kept() -> int:
    gc.collect()
    return tracemalloc.get_traced_memory()[0]


def _distinct(number: int) -> StepRecord:
    """A record whose parts are objects of its own, as of a step of a real build."""
    record = make.record(f"src/file_{number}.cpp", peak=GB + number)
    step = replace(record.step, key=f"{number:064}", flags=(f"-DNUMBER={number}",))
    profile = tuple((number + part) % 100 for part in range(128))
    return replace(record, step=step, profile=profile)


def test_spans_that_overlap_count_once_whatever_their_order() -> None:
    counted = tally()
    counted.read(used=0, limit=GB, oom_kills=0)
    for started in (10.0, 0.0, 0.5, 20.0, 9.5, 0.2):
        record = replace(make.record("a"), wall_s=1.0)
        counted.add(Attempt(record=record, started=started, outcome=Outcome.DONE))
    assert counted.summary(0).governed_s == pytest.approx(1.5 + 1.5 + 1.0)


def test_what_a_mode_brought_is_estimated_from_what_its_steps_took() -> None:
    effect = ModeEffect(mode=CompileMode.LEAN, memory=0.8, seconds=1.1)
    why = Explanation(asked=0.0, needs_bytes=GB, basis=Basis.EXACT, effect=effect)
    record = replace(make.record("a", peak=4 * GB), cpu_s=11.0, mode=CompileMode.LEAN)
    counted = tally()
    for outcome in (Outcome.DONE, Outcome.PREEMPTED):
        counted.add(Attempt(record=record, started=0.0, outcome=outcome, explanation=why))
    summary = counted.summary(0)
    assert summary.modes == {CompileMode.LEAN: 1}
    assert summary.mode_bytes == {CompileMode.LEAN: -GB}
    assert summary.mode_cpu_s == {CompileMode.LEAN: pytest.approx(1.0)}


def test_the_time_of_steps_that_must_not_be_started_twice_is_counted_by_the_reason() -> None:
    why = Explanation(asked=0.0, needs_bytes=GB, basis=Basis.EXACT)
    counted = tally()
    for reason in ("it reads a pipe", "", "it reads a pipe"):
        record = replace(make.record("a"), cpu_s=2.0)
        explained = replace(why, once=reason)
        attempt = Attempt(record=record, started=0.0, outcome=Outcome.DONE, explanation=explained)
        counted.add(attempt)
    assert counted.summary(0).once_cpu_s == {"it reads a pipe": 4.0}


def test_links_are_compared_with_the_same_links_by_the_default_linker() -> None:
    effect = ModeEffect(mode=CompileMode.LLD, seconds=0.25)
    why = Explanation(asked=0.0, needs_bytes=GB, basis=Basis.EXACT, effect=effect)
    record = replace(make.record("a", seconds=2.0, role=Role.LINK), mode=CompileMode.LLD)
    counted = tally()
    for explanation in (why, replace(why, effect=None)):
        attempt = Attempt(record=record, started=0.0, outcome=Outcome.DONE, explanation=explanation)
        counted.add(attempt)
    summary = counted.summary(0)
    assert (summary.links, summary.link_s, summary.default_link_s) == (2, 2.0, 8.0)
    assert (summary.mode_bytes, summary.mode_cpu_s) == ({}, {})


def test_a_run_counts_only_the_governor_s_time_that_was_spent_on_it() -> None:
    counted = tally()
    sum(number * number for number in range(300_000))  # CPU time of this process, for other runs
    counted.governed(0.25)
    counted.governed(0.5)
    assert counted.summary(0).governor_cpu_s == 0.75


def test_the_bound_is_of_the_time_in_which_steps_waited_or_ran() -> None:
    counted = tally()
    counted.read(used=0, limit=GB, oom_kills=0)
    for started in (0.0, 5.0, 100.0):
        counted.add(Attempt(record=make.record("a"), started=started, outcome=Outcome.DONE))
    assert counted.summary(0).governed_s == 25.0
    assert counted.summary(0).lower_bound_s is not None
    assert counted.summary(1).lower_bound_s is None

"""The memory of a kernel falls once, and that is seen, used and learned while it runs."""

from itertools import pairwise

import pytest
from msgspec.structs import replace

import governed_steps as make
from governed_steps import GB
from stoker.govern.policy import phases, upper
from stoker.govern.policy.phases import Falls
from stoker.govern.policy.predict import Predictor
from stoker.model.govern import Basis, Fall, Pace, Request, Role, Running, Step

NOW = Pace()
SEEN = Fall(fastest=0.12 * GB, slowest=0.08 * GB, rest=0.3, rest_high=0.5)


def kernel(name: str, archs: tuple[str, ...] = ("sm_90",)) -> Step:
    return make.step(f"csrc/{name}.cu", role=Role.CUDA, archs=archs)


def running(fall: Fall | None = SEEN, *, peak: float = 5 * GB) -> Running:
    expected = make.prediction(peak, high=1.4 * peak, seconds=None, basis=Basis.FOLDER)
    request = Request(id=1, asked=0.0, prediction=replace(expected, fall=fall))
    return make.running(request, current=0.0)


def after(step: Step, *readings: tuple[float, float]) -> Running:
    """Return a step, begun at 0, with these readings of seconds and GB."""
    seen = running()
    for at, memory in readings:
        seen = phases.grown(step, seen, round(memory * GB), round(memory * GB), at)
    return seen


def ahead(seen: Running, now: float, begin: float, end: float) -> float:
    return upper.running(seen, now, NOW, usual=False).memory(begin, end)


def test_a_kernel_has_fallen_when_most_of_its_memory_is_free_again() -> None:
    step = kernel("a")
    assert after(step, (20, 2), (40, 4), (50, 5)).fell_at is None
    assert after(step, (50, 5), (51, 2)).fell_at is None
    fallen = after(step, (50, 5), (52, 0.6), (90, 1.6), (95, 1.2))
    assert (fallen.fell_at, fallen.rest) == (52, 1.6 * GB)


def test_a_fall_that_was_none_is_taken_back() -> None:
    """cudafe++ of a large source gives its memory back before cicc starts."""
    step = kernel("a")
    assert after(step, (9, 0.9), (10, 0.1)).fell_at is None
    assert after(step, (9, 1.5), (10, 0.1)).fell_at == 10
    again = after(step, (9, 1.5), (10, 0.1), (20, 1.4))
    assert (again.fell_at, again.rest) == (None, 0)
    assert after(step, (9, 1.5), (10, 0.1), (40, 4), (50, 1)).fell_at == 50


@pytest.mark.parametrize(
    "step",
    [
        make.step("src/a.cpp"),
        make.step("liba.so", role=Role.LINK),
        kernel("a", ("sm_80", "sm_90")),  # it climbs for each target
    ],
)
def test_other_steps_keep_their_peak(step: Step) -> None:
    assert after(step, (50, 5), (52, 0.6)).fell_at is None
    assert Falls().expected(step) is None


def test_a_step_that_has_fallen_frees_the_memory_of_its_peak() -> None:
    step = kernel("a")
    climbing = after(step, (20, 2))
    assert ahead(climbing, 20, 40, 41) == 5 * GB
    fallen = after(step, (50, 5), (52, 0.6))
    assert ahead(fallen, 52, 0, 100) == 0.3 * 5 * GB  # as others of its folder
    settled = after(step, (50, 5), (52, 0.6), (90, 1.6), (110, 1.2))
    assert ahead(settled, 110, 0, 100) == 1.2 * GB  # as itself
    memory, variance = upper.running(settled, 110, NOW, usual=False).share(0, 100)
    assert memory < memory + variance**0.5 < 1.12 * 1.6 * GB
    assert upper.reach(settled) < upper.reach(climbing)


def test_before_its_fall_a_step_climbs_no_faster_than_others_did() -> None:
    seen = after(kernel("a"), (20, 2))
    levels = [ahead(seen, 20, at, at) for at in range(40)]
    assert all(after - before <= 0.14 * GB for before, after in pairwise(levels))
    assert max(levels) == 5 * GB
    latest = upper.running(seen, 20, NOW, usual=False).falls_in
    assert 3 / 0.08 <= latest <= 3 / 0.06
    assert ahead(seen, 20, latest + 1, latest + 2) == 0.5 * 5 * GB


def test_a_step_may_be_at_its_peak_at_any_time_before_any_has_fallen() -> None:
    unknown = Fall(fastest=None, slowest=None, rest=0.6, rest_high=0.6)
    young = replace(running(unknown), current=GB, peak=GB)
    assert ahead(young, 1.0, 0, 0.1) == 5 * GB
    assert ahead(young, 1.0, 500, 600) == 5 * GB
    own = replace(running(unknown), current=2 * GB, peak=2 * GB)
    assert ahead(own, 20, 0, 1) < 2.2 * GB  # it climbs as it did so far
    assert ahead(own, 20, 500, 600) == 5 * GB


def test_what_others_need_after_their_fall_counts_once_they_have_shown_it() -> None:
    falls, step = Falls(), kernel("a")
    before = falls.expected(kernel("b"))
    assert before
    assert before.fastest is None
    falls.see(step, after(step, (50, 5), (52, 0.6)), 52)
    young = falls.expected(kernel("b"))
    assert young
    assert (young.rest, young.rest_high) == (before.rest, before.rest_high)
    assert young.fastest == young.slowest == pytest.approx(5 * GB / 52)
    falls.see(step, after(step, (50, 5), (52, 0.6), (110, 1.5)), 110)
    shown = falls.expected(kernel("b"))
    assert shown
    assert shown.rest == pytest.approx(0.3)
    assert 0.3 < shown.rest_high < before.rest_high  # one step is not many


def test_the_peak_of_a_step_that_still_runs_is_that_of_the_next() -> None:
    predictor, step = Predictor(), kernel("a")
    unknown = predictor.predict(kernel("b"))
    predictor.falls.see(step, after(step, (50, 5), (52, 0.6)), 52)
    known = predictor.predict(kernel("b"))
    assert unknown.basis is Basis.PRIOR
    assert unknown.peak < known.peak == 5 * GB
    elsewhere = predictor.predict(make.step("other/c.cpp"))
    assert elsewhere.fall is None


def test_a_measured_step_follows_its_own_profile() -> None:
    step = kernel("a")
    known = Predictor([make.row(step, 5 * GB)])
    known.falls.see(step, after(step, (50, 5), (52, 0.6)), 52)
    assert known.predict(step).fall is None

"""The adaptive policy: in which mode of the compiler a step runs."""

from typing import Any

import pytest
from msgspec.structs import replace

import governed_steps as make
from governed_steps import GB
from stoker.govern.policy.adaptive import Adaptive
from stoker.model.govern import (
    Basis,
    CompileMode,
    ModeChoice,
    ModeEffect,
    Prediction,
    Reason,
    Request,
    State,
)

ADAPTIVE = Adaptive(cushion=0.0)

EFFECTS = (
    ModeEffect(mode=CompileMode.FAST, memory=1.3, seconds=0.95),
    ModeEffect(mode=CompileMode.LEAN, memory=0.7, seconds=1.06),
    ModeEffect(mode=CompileMode.LOW, memory=0.6, seconds=1.35),
)


def compile_of(peak: float, **more: object) -> Request:
    prediction = Prediction(
        peak=round(peak * GB), high=round(peak * GB), seconds=60.0, basis=Basis.EXACT
    )
    request = Request(id=1, asked=0.0, prediction=prediction, effects=EFFECTS)
    return replace(request, **more)


def modes(request: Request, **more: object) -> dict[int, ModeChoice]:
    state = State(now=1.0, cpus=4, limit=10 * GB, used=0, waiting=(request,))
    decision = ADAPTIVE.decide(replace(state, **more))
    assert decision.admit == (1,)
    return decision.modes


def test_steps_run_by_default_while_memory_is_not_the_bottleneck() -> None:
    assert modes(compile_of(8), contention=0.05) == {}


def test_steps_take_more_memory_while_it_is_idle() -> None:
    choice = ModeChoice(mode=CompileMode.FAST, reason=Reason.IDLE_MEMORY)
    small = compile_of(2)
    assert modes(small) == {1: choice}
    beside = [make.running(compile_of(2, id=identity)) for identity in (2, 3)]
    assert modes(small, running=tuple(beside)) == {1: choice}


def test_no_step_takes_more_memory_if_it_does_not_fit_then() -> None:
    beside = tuple(make.running(compile_of(2.5, id=identity)) for identity in (2, 3, 4))
    assert modes(compile_of(1), running=beside)[1].mode is CompileMode.FAST
    assert modes(compile_of(1.2), running=beside) == {}
    assert modes(compile_of(9)) == {}


def test_no_step_takes_the_memory_of_a_larger_step_that_waits() -> None:
    small, beside = compile_of(1), (make.running(compile_of(1, id=3)),)
    assert modes(small, waiting=(small, compile_of(8.9, id=2)), running=beside) == {}


def test_also_the_first_step_leaves_room_for_a_larger_one_that_waits() -> None:
    small = compile_of(2)
    assert modes(small, waiting=(small, compile_of(8.5, id=2))) == {}


def test_a_mode_is_tried_by_one_step_before_others_rely_on_what_it_is_assumed_to_save() -> None:
    effects = tuple(replace(each, assumed=True) for each in compile_of(4).effects)
    request = replace(compile_of(4), effects=effects)
    lean = modes(request, contention=0.5)[1].mode
    assert lean is CompileMode.LEAN
    assert request.in_mode(lean).prediction.peak == request.prediction.peak
    trial = make.running(replace(compile_of(1, id=2), effects=effects).in_mode(lean))
    assert modes(request, contention=0.5, running=(trial,)) == {}


def test_no_step_takes_more_memory_while_others_wait_for_it_and_may_meet() -> None:
    small = compile_of(2)
    beside = tuple(make.running(compile_of(2, id=identity)) for identity in (2, 3, 4))
    assert modes(small, running=beside, contention=0.02) == {}
    assert modes(small, waiting=(small, compile_of(9, id=2)), contention=0.02) == {}


@pytest.mark.parametrize("change", [{"ooms": 1}, {"preemptions": 1}, {"effects": EFFECTS[1:]}])
def test_steps_that_gain_nothing_or_failed_before_take_no_more_memory(change: Any) -> None:
    assert modes(compile_of(2, **change)) == {}


def test_steps_of_unknown_size_take_no_more_memory() -> None:
    unknown = replace(compile_of(2).prediction, basis=Basis.PRIOR)
    assert modes(compile_of(2, prediction=unknown)) == {}


def test_steps_save_memory_while_it_keeps_cpus_idle() -> None:
    choice = ModeChoice(mode=CompileMode.LEAN, reason=Reason.MEMORY_BOUND)
    assert modes(compile_of(8), contention=0.5) == {1: choice}


def test_a_mode_that_saves_nothing_of_this_step_is_not_used() -> None:
    useless = (ModeEffect(mode=CompileMode.LEAN, memory=0.98, seconds=1.1),)
    assert modes(compile_of(8, effects=useless), contention=0.5) == {}


@pytest.mark.parametrize(
    ("peak", "mode"), [(13, CompileMode.LEAN), (16, CompileMode.LOW), (30, CompileMode.LOW)]
)
def test_a_step_larger_than_the_limit_runs_in_the_mildest_mode_that_fits(
    peak: float, mode: CompileMode
) -> None:
    assert modes(compile_of(peak)) == {1: ModeChoice(mode=mode, reason=Reason.TOO_LARGE)}


def test_only_what_was_measured_is_taken_to_be_too_large() -> None:
    unknown = Prediction(peak=13 * GB, high=13 * GB, basis=Basis.FOLDER)
    assert modes(compile_of(1, prediction=unknown)) == {}


@pytest.mark.parametrize("basis", [Basis.EXACT, Basis.FOLDER])
def test_steps_save_memory_only_if_that_costs_less_time(basis: Basis) -> None:
    choice = ModeChoice(mode=CompileMode.LEAN, reason=Reason.MEMORY_BOUND)
    for seconds, expected in ((1.08, {1: choice}), (1.12, {})):
        effect = ModeEffect(mode=CompileMode.LEAN, memory=0.9, seconds=seconds)
        request = compile_of(8, effects=(effect,))
        known = replace(request.prediction, basis=basis)
        assert modes(replace(request, prediction=known), contention=0.5) == expected


def test_after_a_kill_the_mode_is_not_chosen_again() -> None:
    assert modes(compile_of(13, ooms=1, mode=CompileMode.LOW), contention=0.5) == {}


def test_steps_that_save_memory_run_side_by_side() -> None:
    state = State(
        now=1.0,
        cpus=4,
        limit=10 * GB,
        used=0,
        contention=0.5,
        waiting=tuple(compile_of(6.5, id=identity) for identity in (1, 2)),
    )
    assert ADAPTIVE.decide(state).admit == (1, 2)
    assert ADAPTIVE.decide(replace(state, contention=0.0)).admit == (1,)

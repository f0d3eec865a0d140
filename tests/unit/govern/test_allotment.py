"""How many CPUs the last steps get."""

import pytest
from msgspec.structs import replace

import governed_steps as make
from governed_steps import GB
from stoker.govern.history.simulate import simulate
from stoker.govern.policy.adaptive import Adaptive
from stoker.govern.policy.allotment import allotments
from stoker.knowledge.compiler_modes import thread_effects
from stoker.model.govern import (
    Basis,
    Collector,
    CompileMode,
    Reason,
    Request,
    Role,
    Running,
    State,
    StepRecord,
)

TARGETS = ("80", "90", "100", "120")


def kernel(name: str, seconds: float = 400, peak: float = 2 * GB) -> StepRecord:
    record = make.record(name, seconds=seconds, peak=peak, role=Role.CUDA)
    return replace(
        record, step=replace(record.step, archs=TARGETS, compiler="nvcc", collector=Collector.FREE)
    )


def request(identity: int, seconds: float = 400, *, flexible: bool = True) -> Request:
    faster = thread_effects(kernel("k").step) if flexible else ()
    known = make.prediction(2 * GB, seconds=seconds)
    return Request(id=identity, asked=0.0, prediction=known, path=seconds, faster=faster)


def state(*waiting: Request, **more: object) -> State:
    plain = State(now=0.0, cpus=16, limit=128 * GB, used=0, waiting=waiting)
    return replace(plain, **more)


def threads(given: State, room: float = 128 * GB) -> dict[int, int]:
    return {identity: effect.threads for identity, effect in allotments(given, room).items()}


def test_the_last_steps_use_all_cpus() -> None:
    assert threads(state(*map(request, range(4)))) == dict.fromkeys(range(4), 4)


def test_one_cpu_each_as_long_as_there_are_enough_steps() -> None:
    assert threads(state(*map(request, range(40)))) == {}
    light = (request(identity, 20, flexible=False) for identity in range(10, 400))
    assert threads(state(request(1), *light)) == {}


def test_steps_that_have_not_asked_yet_count() -> None:
    assert threads(state(request(1), work_left=16 * 400.0)) == {}


def test_a_step_that_would_outlast_all_others_gets_more_cpus_at_once() -> None:
    light = (request(identity, 5, flexible=False) for identity in range(10, 80))
    assert threads(state(request(1), *light)) == {1: 4}


def test_threads_are_used_only_if_the_build_ends_earlier() -> None:
    longer = request(9, 500, flexible=False)
    assert threads(state(request(1), longer)) == {}
    running = Running(request=longer, started=0.0, current=GB)
    assert threads(state(request(1), running=(running,))) == {}


@pytest.mark.parametrize("known", [True, False])
def test_a_step_that_runs_with_threads_ends_earlier(*, known: bool) -> None:
    """Otherwise the next step would seem to have time."""
    first, second = request(1, 20), request(2, 11)
    if not known:
        first = replace(first, prediction=replace(first.prediction, seconds=None))
    wide = first.in_mode(CompileMode.THREADS, 4)
    assert wide.path == pytest.approx(20 * 1.4 / 4.4)
    assert wide.in_mode(CompileMode.DEFAULT).path == pytest.approx(20)
    running = Running(request=wide, started=0.0, current=GB)
    assert threads(state(second, running=(running,))) == {2: 2}


def test_all_steps_that_end_last_get_more_cpus_or_none() -> None:
    assert threads(state(*map(request, range(5)))) == dict.fromkeys(range(5), 2)


def test_threads_fit_into_memory() -> None:
    kernels = state(*map(request, range(4)))
    assert threads(kernels, 17 * GB) == dict.fromkeys(range(4), 2)
    assert threads(kernels, 9 * GB) == {}


def test_steps_that_were_never_measured_count_with_their_worst_case() -> None:
    kernels = [request(identity) for identity in range(4)]
    unknown = [
        replace(each, prediction=replace(each.prediction, high=4 * GB, basis=Basis.PRIOR))
        for each in kernels
    ]
    assert threads(state(*unknown), 17 * GB) == {}
    assert threads(state(*unknown)) == dict.fromkeys(range(4), 4)


def test_the_policy_uses_as_many_threads_as_fit_now() -> None:
    decision = Adaptive().decide(state(request(1), limit=5 * GB))
    assert {each: (choice.threads, choice.reason) for each, choice in decision.modes.items()} == {
        1: (2, Reason.IDLE_CPUS)
    }
    assert Adaptive().decide(state(request(1), contention=0.5)).modes == {}


def test_a_simulated_build_ends_earlier_with_threads() -> None:
    steps = [kernel(name) for name in "abcd"]
    fixed = [replace(each, step=replace(each.step, collector=Collector.NONE)) for each in steps]
    free, bound = (
        simulate(each, Adaptive(), cpus=16, memory=64 * GB, history=each) for each in (steps, fixed)
    )
    assert free.modes == {CompileMode.THREADS: 4}
    assert free.wall_s < 0.4 * bound.wall_s

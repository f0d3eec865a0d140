"""The other policies, the queue, and the next request of a killed step."""

from math import inf

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

import governed_steps as make
from governed_steps import GB
from stoker.govern.history.simulate import simulate
from stoker.govern.history.simulated_steps import flat
from stoker.govern.policy.adaptive import Adaptive
from stoker.govern.policy.interface import NAMES, Policy
from stoker.govern.policy.memory_view import Slope
from stoker.govern.policy.open_steps import Queue, urgency
from stoker.govern.policy.policies import FixedJobs, Levels, TwoPhase, make_policy
from stoker.govern.policy.repeats import after_oom, after_preemption
from stoker.model.errors import UsageError
from stoker.model.govern import Basis, CompileMode, ModeEffect, Reason, Request, State


@pytest.mark.parametrize("name", NAMES)
def test_a_policy_is_found_by_its_name(name: str) -> None:
    assert make_policy(name, cpus=8).name.startswith(name)


def test_fixed_takes_a_number_of_jobs() -> None:
    assert make_policy("fixed", cpus=8) == FixedJobs(jobs=8)
    assert make_policy("fixed:3", cpus=8) == FixedJobs(jobs=3)


@pytest.mark.parametrize("text", ["adaptve", "fixed:0", "fixed:x", "levels:3", "fixed:-1", ""])
def test_what_is_no_policy_is_refused(text: str) -> None:
    with pytest.raises(UsageError):
        make_policy(text, cpus=8)


def test_a_misspelt_policy_gets_a_hint() -> None:
    with pytest.raises(UsageError) as error:
        make_policy("adaptve", cpus=8)
    assert "adaptive" in error.value.hints[0]


@given(make.states(), st.sampled_from([FixedJobs(jobs=2), Levels(), TwoPhase(), Adaptive()]))
def test_at_least_one_step_runs(
    state: State, policy: FixedJobs | Levels | TwoPhase | Adaptive
) -> None:
    decision = policy.decide(state)
    assert state.running or decision.admit or not state.waiting
    assert set(decision.admit) <= {request.id for request in state.waiting}


@pytest.mark.parametrize("policy", [FixedJobs(jobs=2), Levels(), TwoPhase(), Adaptive()])
def test_remote_steps_take_places_of_workers_and_no_cpu(policy: Policy) -> None:
    """Two CPUs are busy, and one of three places is taken."""
    busy = [make.running(make.request(i, GB / 4)) for i in (1, 2)]
    sent = make.running(replace(make.request(3, GB / 10), places=3))
    remote = [replace(make.request(10 + i, GB / 10), places=3) for i in range(4)]
    here = [make.request(20 + i) for i in range(4)]
    crowded = make.state(cpus=2, steps=[*busy, sent], waiting=[*remote, *here])
    decision = policy.decide(replace(crowded, distributed=True))
    assert decision.admit == (10, 11)
    assert not decision.on_trial


@pytest.mark.parametrize("policy", [FixedJobs(jobs=3), Levels(), TwoPhase()])
def test_a_step_that_needs_the_whole_machine_runs_alone(policy: Policy) -> None:
    alone = make.request(1, GB, slots=0)
    other, later = make.request(2, GB, asked=1), make.request(3, GB, asked=2)
    assert policy.decide(make.state(waiting=[alone, other])).admit == (1,)
    beside = make.state(steps=[make.running(other)], waiting=[alone, later])
    assert policy.decide(beside).admit == ()
    assert policy.decide(make.state(steps=[make.running(alone)], waiting=[other])).admit == ()
    earlier = make.request(4, GB, asked=-1)
    assert policy.decide(make.state(waiting=[earlier, alone, other])).admit == (4,)


@pytest.mark.parametrize("policy", [FixedJobs(jobs=3), Levels(ladder=((inf, 3),))])
def test_too_many_large_steps_at_once_do_not_fail_the_build(policy: Policy) -> None:
    """Two of them fit: the third one is killed again and again, until it runs alone."""
    steps = [make.record(f"{n}.cpp", peak=1.5 * GB, seconds=10.0 + n) for n in range(12)]
    result = simulate(steps, policy, cpus=4, memory=4 * GB, shape=flat)
    assert result.oom_kills
    assert result.failed == ()


def test_remote_steps_wait_for_memory_and_for_workers() -> None:
    """The size of each is unknown, which delays only steps that run here."""
    waiting = [
        replace(make.request(i, GB / 2, high=GB, basis=Basis.PRIOR), places=0) for i in range(20)
    ]
    open_state = replace(make.state(cpus=1, waiting=waiting), distributed=True)
    assert len(Adaptive(cushion=0.0).decide(open_state).admit) == 8
    few = [replace(request, places=3) for request in waiting]
    decision = Adaptive().decide(replace(open_state, waiting=few))
    assert len(decision.admit) == 3
    assert set(decision.held.values()) == {Reason.WORKERS}


def test_a_large_step_is_not_passed_by_remote_ones_for_ever() -> None:
    link = make.request(1, 7.5 * GB, path=50.0, asked=95.0)
    remote = [replace(make.request(10 + i, GB), places=0) for i in range(9)]
    sent = [make.running(request, started=95.0, current=GB) for request in remote[:4]]
    waiting = [link, *remote[4:]]
    state = replace(make.state(steps=sent, waiting=waiting), distributed=True)
    assert Adaptive().decide(state).admit == (14, 15, 16)
    patient = [replace(link, asked=0.0), *remote[4:]]
    assert Adaptive().decide(replace(state, waiting=patient)).admit == ()


def test_fixed_keeps_to_the_order_of_asking() -> None:
    waiting = [make.request(i, asked=10.0 - i, path=float(i)) for i in range(5)]
    busy = [make.running(make.request(9))]
    assert FixedJobs(jobs=3).decide(make.state(steps=busy, waiting=waiting)).admit == (4, 3)


@pytest.mark.parametrize(
    ("used", "jobs"), [(0.1, 32), (0.6, 16), (0.7, 8), (0.8, 4), (0.9, 2), (1.5, 2)]
)
def test_levels_climb_down_the_ladder(used: float, jobs: int) -> None:
    waiting = [make.request(i) for i in range(40)]
    state = make.state(cpus=64, waiting=waiting, other_usage=used * 8 * GB)
    assert len(Levels().decide(state).admit) == jobs


def test_levels_know_how_many_cpus_there_are() -> None:
    waiting = [make.request(i) for i in range(40)]
    assert len(Levels().decide(make.state(cpus=6, waiting=waiting)).admit) == 6


def test_two_phase_runs_the_heavy_ones_first_and_few_at_once() -> None:
    heavy = [make.request(i, 3 * GB) for i in range(4)]
    light = [make.request(100 + i, GB / 10) for i in range(20)]
    state = make.state(cpus=8, limit=8 * GB, waiting=[*light, *heavy])
    first = TwoPhase().decide(state).admit
    assert first == (0, 1)
    # The last heavy one still runs: the light ones wait.
    last = make.state(cpus=8, limit=8 * GB, steps=[make.running(heavy[3])], waiting=light)
    assert TwoPhase().decide(last).admit == ()
    assert len(TwoPhase().decide(make.state(cpus=8, waiting=light)).admit) == 8


@given(make.requests(0, 30), st.sets(st.integers(0, 30)))
def test_a_queue_is_in_order_whatever_comes_and_goes(
    requests: list[Request], gone: set[int]
) -> None:
    queue = Queue()
    for request in requests:
        queue.add(request)
        queue.add(replace(request, path=request.path + 1))
    for identity in gone:
        queue.remove(identity)
    left = [replace(r, path=r.path + 1) for r in requests if r.id not in gone]
    assert list(queue) == sorted(left, key=urgency)
    assert len(queue) == len(left)
    assert queue[:2] == sorted(left, key=urgency)[:2]


def test_who_is_not_there_cannot_be_removed() -> None:
    queue = Queue()
    queue.add(make.request(1))
    assert queue.remove(2) is None
    assert queue.remove(1) == make.request(1)
    assert queue.remove(1) is None


def test_a_step_that_asks_much_later_cannot_overtake() -> None:
    early, late = make.request(1, path=0, asked=0), make.request(2, path=60, asked=1000)
    assert urgency(early) < urgency(late)
    assert urgency(replace(late, asked=10.0)) < urgency(early)


EXPECTED = make.request(7, GB, high=1.5 * GB, profile=make.profile(50, 100), asked=3.0)


def test_a_step_that_kept_to_its_prediction_asks_for_the_same_again() -> None:
    """It met others at the wrong time."""
    again = after_preemption(make.running(EXPECTED, current=GB / 2, peak=GB))
    assert again == replace(EXPECTED, preemptions=1)


def test_a_step_that_was_paused_and_then_killed_has_its_peak_reserved_throughout() -> None:
    climbing = replace(EXPECTED.prediction, profile=make.profile(20, 100))
    known = replace(EXPECTED, prediction=climbing)
    step = make.running(known, current=GB / 2, peak=GB / 2)
    assert after_preemption(step).prediction == climbing
    paused = after_preemption(replace(step, paused_at=5.0))
    assert paused == replace(known, prediction=replace(climbing, profile=()), preemptions=1)


def test_a_step_that_passed_its_prediction_asks_for_what_it_used_throughout() -> None:
    again = after_preemption(make.running(EXPECTED, current=GB, peak=2 * GB))
    assert (again.id, again.asked, again.preemptions) == (7, 3.0, 1)
    assert (again.prediction.peak, again.prediction.high) == (2 * GB, 2 * GB)
    assert again.prediction.profile == ()
    slightly = after_preemption(make.running(EXPECTED, current=GB, peak=1.1 * GB))
    assert (slightly.prediction.peak, slightly.prediction.high) == (1.1 * GB, 1.5 * GB)


def test_a_step_that_is_killed_again_has_its_peak_reserved_throughout() -> None:
    once = after_preemption(make.running(EXPECTED, current=GB / 10))
    again = after_preemption(make.running(once, current=GB / 10))
    assert again.prediction == replace(EXPECTED.prediction, profile=())
    assert again.preemptions == 2


@given(make.requests(1, 1).filter(bool), st.integers(0, 12 * GB))
def test_after_a_preemption_it_asks_for_no_less_than_it_used(
    asked: list[Request], peak: int
) -> None:
    (before,) = asked
    again = after_preemption(make.running(before, peak=peak))
    assert max(peak, before.prediction.peak) <= again.prediction.peak <= again.prediction.high
    assert again.prediction.high == max(before.prediction.high, peak)
    assert again.preemptions == before.preemptions + 1
    assert again.prediction.profile in ((), before.prediction.profile)


def test_out_of_memory_means_twice_as_much_then_alone_then_never() -> None:
    first = after_oom(make.running(make.request(1, GB), peak=GB), observed=round(1.5 * GB))
    assert first is not None
    assert (first.prediction.high, first.slots, first.ooms) == (2 * GB, 1, 1)
    assert first.prediction.raised  # so `diagnose --explain` does not name the first figures
    second = after_oom(make.running(first, peak=GB), observed=9 * GB)
    assert second is not None
    assert (second.prediction.high, second.slots, second.ooms) == (9 * GB, 0, 2)
    assert after_oom(make.running(second), observed=9 * GB) is None


def test_after_running_out_of_memory_a_step_takes_no_more_than_by_default() -> None:
    effects = (ModeEffect(mode=CompileMode.FAST, memory=1.5, seconds=0.9),)
    fast = replace(make.request(1, GB), effects=effects).in_mode(CompileMode.FAST)
    again = after_oom(make.running(fast, peak=GB), observed=GB)
    assert again is not None
    assert again.mode is CompileMode.DEFAULT


def test_growth_is_that_of_the_last_second() -> None:
    slope = Slope()
    assert slope.add(0.0, 100) == 0
    assert slope.add(0.0, 200) == 0
    assert slope.add(0.5, 300) == 400
    for tick in range(1, 20):
        latest = slope.add(0.5 + tick * 0.25, 300)
    assert latest == 0


def test_what_has_ended_is_taken_out_as_if_it_had_grown_steadily() -> None:
    slope = Slope()
    slope.take_out(100, since=0.0)  # before the first reading
    slope.add(1.0, 500)
    slope.add(2.0, 1000)
    slope.take_out(200, since=0.0)
    assert slope.add(2.0, 800) == 800 - (500 - 100)
    slope.take_out(300, since=5.0)  # it began after the last reading
    assert slope.add(2.0, 800) == 400

"""The adaptive policy: which steps are paused, resumed and killed."""

from hypothesis import given
from msgspec.structs import replace

import governed_steps as make
from governed_steps import GB
from stoker.govern.policy.adaptive import Adaptive
from stoker.model.govern import Basis, Decision, Reason, State

ADAPTIVE = Adaptive(cushion=0.0)


@given(make.states())
def test_only_running_steps_are_paused_and_only_paused_steps_resume(state: State) -> None:
    decision = ADAPTIVE.decide(state)
    active = {step.id for step in state.running if step.paused_at is None}
    assert set(decision.pause) <= active
    assert set(decision.resume) <= {step.id for step in state.running} - active


@given(make.states())
def test_the_oldest_step_is_never_paused(state: State) -> None:
    if oldest := make.oldest(state):
        decision = ADAPTIVE.decide(state)
        assert oldest.id not in decision.pause
        assert oldest.paused_at is None or oldest.id in decision.resume


CLIMB = make.profile(*range(5, 101, 5))


def colliding(*, basis: Basis = Basis.EXACT, other_usage: float = 0.0) -> State:
    """One at its peak, one that climbs towards its own, and room for most of both."""
    shape = make.prediction(4 * GB, profile=CLIMB, seconds=20, basis=basis)
    old, young = (replace(make.request(n), prediction=shape) for n in (1, 2))
    steps = [
        make.running(old, started=80.5, current=4 * GB),
        make.running(young, started=83, current=3.4 * GB),
    ]
    return make.state(steps=steps, limit=7.5 * GB, growth=GB, other_usage=other_usage)


def test_a_step_that_would_meet_another_at_its_peak_is_paused() -> None:
    assert ADAPTIVE.decide(colliding()) == Decision(pause=(2,), reason=Reason.GROWTH)


def test_a_step_like_others_that_grows_is_paused_too_however_fast_they_grew() -> None:
    """Its own profile is not known, so the growth of memory counts, not the predicted one."""
    assert ADAPTIVE.decide(colliding(basis=Basis.FOLDER)) == Decision(
        pause=(2,), reason=Reason.GROWTH
    )


def test_when_memory_is_short_a_pause_is_too_late() -> None:
    assert ADAPTIVE.decide(colliding(other_usage=GB / 2)) == Decision(
        kill=(2,), reason=Reason.SHORTAGE
    )


def not_repeatable(state: State) -> State:
    """The same where no running step may be started twice."""
    steps = (replace(step, request=replace(step.request, restarts=False)) for step in state.running)
    return replace(state, running=tuple(steps))


def test_what_must_not_run_twice_is_paused_instead() -> None:
    state = colliding(basis=Basis.FOLDER, other_usage=GB / 2)
    assert ADAPTIVE.decide(state).kill == (2,)
    decision = ADAPTIVE.decide(not_repeatable(state))
    assert (decision.kill, decision.pause) == ((), (2,))


def test_a_governor_that_is_late_pauses_earlier() -> None:
    state = colliding()
    early = replace(state, limit=round(7.7 * GB))
    assert ADAPTIVE.decide(early).pause == ()
    assert ADAPTIVE.decide(replace(early, late=2.0)).pause == (2,)


def paused(*, since: float, old: float) -> State:
    """The younger one of ``colliding`` is paused since then; the older one uses so much."""
    state = colliding()
    first, second = state.running
    steps = [replace(first, current=round(old), peak=4 * GB), replace(second, paused_at=since)]
    return make.state(steps=steps, limit=7.5 * GB)


def test_a_paused_step_resumes_when_the_other_is_past_its_peak() -> None:
    waits = ADAPTIVE.decide(paused(since=99.5, old=4 * GB))
    assert waits == Decision()
    assert ADAPTIVE.decide(paused(since=99.5, old=GB)) == Decision(resume=(2,))


def test_a_step_is_killed_once_it_was_paused_for_longer_than_it_had_run() -> None:
    state = paused(since=99.5, old=4 * GB)
    assert ADAPTIVE.decide(state) == Decision()  # it had run for 16.5 s
    late = replace(state, now=117.0)
    assert ADAPTIVE.decide(late) == Decision(kill=(2,), reason=Reason.LONG_PAUSE)
    assert ADAPTIVE.decide(not_repeatable(late)) == Decision()


def climbing_together(*sizes: float, basis: Basis = Basis.PRIOR) -> State:
    """Steps that nothing is known about, oldest first, under a limit of 2 GB."""
    steps = [
        make.running(
            make.request(number, 0.3 * GB, basis=basis),
            started=90.0 + number,
            current=size * GB,
            peak=size * GB,
        )
        for number, size in enumerate(sizes, 1)
    ]
    return make.state(steps=steps, limit=2 * GB)


def test_one_of_two_unknown_steps_that_climb_together_pauses_before_they_meet() -> None:
    """The other one can then still need half as much again as it uses."""
    assert ADAPTIVE.decide(climbing_together(0.8, 0.75)) == Decision()
    paused = ADAPTIVE.decide(climbing_together(0.85, 0.8))
    assert (paused.pause, paused.kill, paused.reason) == ((2,), (), Reason.GROWTH)
    known = climbing_together(0.85, 0.8, basis=Basis.EXACT)
    assert ADAPTIVE.decide(known).pause == ()


def test_a_paused_step_resumes_only_on_a_free_cpu() -> None:
    state = replace(paused(since=99.5, old=GB), cpus=2)
    assert ADAPTIVE.decide(state).resume == (2,)
    full = replace(state, running=(*state.running, make.running(make.request(3), current=1)))
    assert ADAPTIVE.decide(full).resume == ()


def test_a_paused_step_does_not_grow_older() -> None:
    step = make.running(make.request(1), started=10, paused_at=30)
    assert (step.age(30), step.age(50)) == (20, 20)
    resumed = step.resumed(50)
    assert (resumed.age(50), resumed.age(60)) == (20, 30)


def test_nothing_is_killed_while_steps_grow_as_predicted() -> None:
    steps = [make.running(make.request(i, 2 * GB), started=99, current=1.8 * GB) for i in range(4)]
    assert ADAPTIVE.decide(make.state(steps=steps, growth=4 * GB)).kill == ()


def test_the_least_work_per_byte_is_lost() -> None:
    steps = [
        make.running(make.request(1, GB), started=0, current=3 * GB),
        make.running(make.request(2, GB), started=50, current=2 * GB),
        make.running(make.request(3, GB), started=90, current=2 * GB),
        make.running(make.request(4, GB), started=95, current=GB / 2),
        make.running(make.request(5, GB), started=60, current=GB),
    ]
    assert ADAPTIVE.decide(make.state(steps=steps)).kill == (3,)


def test_a_step_that_was_killed_before_is_spared() -> None:
    again = replace(make.request(2, GB), preemptions=3)
    steps = [
        make.running(make.request(1, GB), started=0, current=4 * GB),
        make.running(again, started=80, current=3 * GB),
        make.running(make.request(3, GB), started=60, current=3 * GB),
    ]
    assert ADAPTIVE.decide(make.state(steps=steps)).kill == (3,)


def test_steps_that_are_stopping_already_count_as_gone() -> None:
    steps = [
        make.running(make.request(1, GB), started=0, current=5 * GB),
        replace(make.running(make.request(2, GB), started=90, current=2 * GB), stopping=True),
        make.running(make.request(3, GB), started=95, current=2 * GB),
    ]
    assert ADAPTIVE.decide(make.state(steps=steps)).kill == ()


def test_the_only_step_that_is_not_being_stopped_is_never_killed() -> None:
    """An older one was told to stop, and its memory does not suffice."""
    steps = [
        make.running(make.request(1, GB), started=0, current=GB, stopping=True),
        make.running(make.request(2, GB), started=90, current=5 * GB),
    ]
    state = make.state(steps=steps, other_usage=4 * GB)
    assert ADAPTIVE.decide(state) == Decision()
    paused = replace(steps[1], paused_at=95.0)
    assert ADAPTIVE.decide(replace(state, running=(steps[0], paused))) == Decision(resume=(2,))


@given(make.states())
def test_a_step_that_is_being_killed_is_left_alone(state: State) -> None:
    decision = ADAPTIVE.decide(state)
    stopping = {step.id for step in state.running if step.stopping}
    assert not stopping & {*decision.kill, *decision.pause, *decision.resume}


def test_growth_beyond_all_predictions_is_met_before_it_arrives() -> None:
    steps = [
        make.running(make.request(i, GB, seconds=None), started=90 + i, current=1.9 * GB)
        for i in range(4)
    ]
    calm = make.state(steps=steps)
    assert ADAPTIVE.decide(calm) == Decision()
    assert ADAPTIVE.decide(replace(calm, growth=2.0 * GB)) != Decision()


def test_steps_are_killed_when_another_process_grows() -> None:
    steps = [make.running(make.request(i, 2 * GB), started=i, current=2 * GB) for i in range(3)]
    calm = make.state(steps=steps, other_usage=1.9 * GB)
    assert ADAPTIVE.decide(calm) == Decision()
    assert ADAPTIVE.decide(replace(calm, growth=float(GB))) != Decision()
    assert ADAPTIVE.decide(make.state(steps=steps, other_usage=2.1 * GB)).kill == (2,)

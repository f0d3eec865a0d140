"""The adaptive policy, one rule at a time, and properties of every state."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

import governed_steps as make
from governed_steps import GB
from stoker.govern.policy import upper
from stoker.govern.policy.adaptive import Adaptive
from stoker.govern.policy.profile import climb
from stoker.model.govern import Basis, Decision, Prediction, Reason, Request, State

ADAPTIVE = Adaptive(cushion=0.0)


def of(state: State, *identities: int) -> list[Request]:
    return [request for request in state.waiting if request.id in identities]


@given(make.states())
def test_it_admits_who_waits_and_kills_who_runs(state: State) -> None:
    decision = ADAPTIVE.decide(state)
    new = (*decision.admit, *decision.on_trial)
    assert set(new) <= {request.id for request in state.waiting}
    assert set(decision.kill) <= {step.id for step in state.running}
    assert len(set(new)) == len(new)


@given(make.states())
def test_a_step_runs_whenever_a_step_waits(state: State) -> None:
    decision = ADAPTIVE.decide(state)
    left = {step.id for step in state.running} - set(decision.kill)
    assert left or decision.admit or not state.waiting


@given(make.states())
def test_the_oldest_is_never_killed(state: State) -> None:
    oldest = make.oldest(state)
    assert oldest is None or oldest.id not in ADAPTIVE.decide(state).kill


@given(make.states())
def test_a_step_that_must_not_run_twice_is_never_killed(state: State) -> None:
    restarts = {step.id for step in state.running if step.request.restarts}
    assert set(ADAPTIVE.decide(state).kill) <= restarts


@given(make.states())
def test_cpus_are_never_promised_twice(state: State) -> None:
    """A paused step gets its CPU back when it resumes, unless it is about to be killed."""
    decision = ADAPTIVE.decide(state)
    new = of(state, *decision.admit, *decision.on_trial)
    running = (s.request for s in state.running if not (s.stopping and s.is_paused))
    slots = sum(request.slots_of(state.cpus) for request in (*running, *new))
    assert slots <= state.cpus or not new


@given(make.states())
def test_only_what_is_unknown_and_fits_now_runs_on_trial(state: State) -> None:
    decision = ADAPTIVE.decide(state)
    tried = of(state, *decision.on_trial)
    assert not any(request.prediction.learned or request.ooms for request in tried)
    new = sum(request.prediction.peak for request in (*of(state, *decision.admit), *tried))
    assert not tried or state.used + new <= state.limit
    assert not tried or state.pressure <= ADAPTIVE.stalled


@given(make.states())
def test_few_of_unknown_size_are_tried_at_once(state: State) -> None:
    decision = ADAPTIVE.decide(state)
    unknown = [r for r in of(state, *decision.admit) if r.prediction.basis is Basis.PRIOR]
    few = len(unknown) + len(decision.on_trial) <= max(2, state.cpus // 4)
    assert few or not decision.on_trial


@given(make.states())
def test_the_same_state_gets_the_same_decision(state: State) -> None:
    assert ADAPTIVE.decide(state) == Adaptive(cushion=0.0).decide(replace(state))


@given(
    peaks=st.lists(st.integers(0, 5 * GB), max_size=20),
    held=st.lists(st.integers(0, 5 * GB), max_size=6),
    other_usage=st.integers(0, 8 * GB),
)
def test_peaks_are_never_promised_beyond_the_limit(
    peaks: list[int], held: list[int], other_usage: int
) -> None:
    """Only peaks are known. At least one step runs, whatever it needs."""
    steps = [make.running(make.request(i, peak), current=peak // 2) for i, peak in enumerate(held)]
    waiting = [make.request(100 + i, peak, seconds=None) for i, peak in enumerate(peaks)]
    state = make.state(cpus=64, steps=steps, waiting=waiting, other_usage=other_usage)
    admitted = set(ADAPTIVE.decide(state).admit)
    promised = sum(r.prediction.peak for r in waiting if r.id in admitted) + sum(held)
    assert promised + other_usage <= state.limit or len(admitted) <= (not steps)


def admitted(state: State, policy: Adaptive = ADAPTIVE) -> set[int]:
    return set(policy.decide(state).admit)


def test_the_longest_path_goes_first() -> None:
    waiting = [make.request(i, path=float(i)) for i in range(20)]
    assert admitted(make.state(cpus=3, waiting=waiting)) == {17, 18, 19}


def test_light_steps_run_beside_heavy_ones_that_do_not_fit() -> None:
    """A window full of heavy steps must not leave CPUs idle."""
    heavy = [make.request(i, 5 * GB, path=100) for i in range(50)]
    light = [make.request(100 + i, GB / 2) for i in range(4)]
    assert admitted(make.state(waiting=[*heavy, *light])) == {0, 100, 101, 102, 103}


def test_a_step_larger_than_everything_runs_when_nothing_else_does() -> None:
    giant = make.request(1, 50 * GB, path=9)
    assert admitted(make.state(waiting=[giant, make.request(2)])) == {1}
    busy = make.running(make.request(3), current=GB)
    assert 1 not in admitted(make.state(steps=[busy], waiting=[giant, make.request(2)]))


def test_another_process_takes_memory_and_frees_it() -> None:
    waiting = [make.request(i, 2 * GB) for i in range(8)]
    assert len(admitted(make.state(waiting=waiting, other_usage=4 * GB))) == 2
    assert len(admitted(make.state(waiting=waiting, other_usage=0))) == 4


def test_threads_of_nvcc_count() -> None:
    waiting = [make.request(i, slots=4) for i in range(4)]
    assert len(admitted(make.state(cpus=8, waiting=waiting))) == 2


def test_a_step_with_more_threads_than_cpus_gets_them_all() -> None:
    assert admitted(make.state(cpus=4, waiting=[make.request(1, slots=16)])) == {1}


def test_a_step_that_wants_all_cpus_runs_alone() -> None:
    alone = make.request(1, slots=0, path=9)
    assert admitted(make.state(waiting=[alone, make.request(2)])) == {1}
    assert admitted(make.state(steps=[make.running(alone)], waiting=[make.request(2)])) == set()


def test_cpus_that_are_short_say_nothing_about_memory() -> None:
    busy = [make.running(make.request(i, GB / 10)) for i in range(3)]
    wide = make.request(10, GB, asked=99, slots=4, path=9)
    large = make.request(11, 2 * GB, asked=99)
    assert admitted(make.state(cpus=4, steps=busy, waiting=[wide, large])) == {11}


def test_few_steps_of_unknown_size_are_tried_until_they_have_shown_what_they_need() -> None:
    waiting = [make.request(i, GB, high=4 * GB, seconds=None, basis=Basis.PRIOR) for i in range(64)]
    decision = ADAPTIVE.decide(make.state(cpus=16, limit=12 * GB, waiting=waiting))
    assert (len(decision.admit), len(decision.on_trial)) == (3, 1)
    first = {*decision.admit, *decision.on_trial}
    rest = [request for request in waiting if request.id not in first]
    assert {decision.held[request.id] for request in rest} == {Reason.UNKNOWN_SIZE}
    fresh = [make.running(r, started=95) for r in waiting if r.id in first]
    later = make.state(cpus=16, limit=12 * GB, steps=fresh, waiting=rest)
    assert not ADAPTIVE.decide(later).on_trial
    settled = [replace(step, started=80.0, current=GB // 10, peak=GB // 4) for step in fresh]
    assert len(ADAPTIVE.decide(replace(later, running=tuple(settled))).on_trial) == 3


def test_with_much_memory_steps_of_unknown_size_do_not_wait_for_each_other() -> None:
    """A first build of 22 kernels on 16 CPUs with 124 GiB: 7 of them waited, 5 GiB were used."""
    kernels = [
        make.request(i, GB, high=2.7 * GB, seconds=None, basis=Basis.PRIOR) for i in range(22)
    ]
    roomy = make.state(cpus=16, limit=124 * 2**30, waiting=kernels)
    assert admitted(roomy) == set(range(16))
    running = [make.running(kernel, started=99, current=GB / 3) for kernel in kernels[:8]]
    later = make.state(cpus=16, limit=124 * 2**30, steps=running, waiting=kernels[8:])
    assert admitted(later) == set(range(8, 16))
    assert len(admitted(replace(roomy, limit=30 * GB))) == 11  # all at their worst


def test_heavy_steps_without_history_are_reserved_at_their_highest() -> None:
    unknown = [make.request(i, GB, high=3 * GB, seconds=None, basis=Basis.PRIOR) for i in range(8)]
    assert len(admitted(make.state(cpus=32, waiting=unknown))) == 2


def test_margins_of_learned_predictions_cancel_out() -> None:
    learned = [make.request(i, GB, high=1.2 * GB) for i in range(8)]
    # 7 + 0.2 * sqrt(7) GB fit at the most, 7 * 1.2 would not.
    assert len(admitted(make.state(cpus=7, waiting=learned))) == 7


def test_nothing_is_added_while_memory_pressure_stalls_the_machine() -> None:
    busy = make.running(make.request(1), current=GB)
    state = make.state(steps=[busy], waiting=[make.request(2)])
    assert admitted(state) == {2}
    assert admitted(replace(state, pressure=30.0)) == set()


# 5 GB are in use and stay so, and 3 GB are free: no worst case of any of these fits.
BUSY = make.running(make.request(1, 5 * GB, seconds=500), started=90, current=5 * GB)
UNKNOWN = make.request(10, GB, high=4 * GB, seconds=None, basis=Basis.PRIOR)


def tried(*waiting: Request, cpus: int = 8, **more: float) -> tuple[int, ...]:
    state = make.state(cpus=cpus, steps=[BUSY], waiting=waiting, **more)
    decision = ADAPTIVE.decide(state)
    assert decision.admit == ()
    return decision.on_trial


def test_a_step_of_unknown_size_is_tried_where_its_usual_need_fits() -> None:
    assert tried(UNKNOWN) == (10,)
    assert tried(UNKNOWN, other_usage=2.5 * GB) == ()
    large = make.request(10, 3.5 * GB, high=9 * GB, seconds=None, basis=Basis.PRIOR)
    assert tried(large) == ()


def test_steps_of_unknown_size_that_still_grow_are_expected_to_need_what_is_usual() -> None:
    """A kernel of nvcc grows for a minute: what is free now is not free then."""
    climbing = make.running(replace(UNKNOWN, id=2), started=80, current=GB // 10, on_trial=True)
    tall = replace(UNKNOWN, prediction=_unknown(3.2 * GB))
    for limit, expected in ((10 * GB, ()), (10.5 * GB, (10,))):
        state = make.state(limit=limit, steps=[BUSY, climbing], waiting=[tall])
        assert ADAPTIVE.decide(state).on_trial == expected


def test_where_the_worst_case_fits_nothing_is_a_trial() -> None:
    decision = ADAPTIVE.decide(make.state(limit=20 * GB, steps=[BUSY], waiting=[UNKNOWN]))
    assert (decision.admit, decision.on_trial) == ((10,), ())


@pytest.mark.parametrize("basis", [Basis.PRIOR, Basis.FOLDER])
def test_a_trial_has_the_caution_of_a_learned_prediction(basis: Basis) -> None:
    """A quarter of the way to the highest should be free, beside the step that runs."""
    narrow = make.request(10, 2 * GB, high=4.8 * GB, seconds=None, basis=basis)
    assert tried(narrow) == (10,)
    wider = make.request(10, 2 * GB, high=6.4 * GB, seconds=None, basis=basis)
    assert tried(wider) == ()


@pytest.mark.parametrize("basis", [Basis.EXACT, Basis.SOURCE])
def test_what_is_known_is_never_tried(basis: Basis) -> None:
    """One knows that it will not fit."""
    late = make.request(10, 4 * GB, profile=make.profile(10, 10, 10, 100), seconds=100, basis=basis)
    assert tried(late) == ()


def test_what_ran_out_of_memory_is_never_tried() -> None:
    assert tried(replace(UNKNOWN, ooms=1)) == ()
    assert tried(replace(UNKNOWN, preemptions=1)) == (10,)


def test_trials_share_what_is_free() -> None:
    narrow = make.request(10, 0.9 * GB, high=3.2 * GB, seconds=None, basis=Basis.FOLDER)
    assert tried(*(replace(narrow, id=10 + n) for n in range(8)), cpus=32) == (10, 11)
    assert tried(*(replace(UNKNOWN, id=10 + n) for n in range(8)), cpus=32) == (10,)


def test_few_trials_are_unsettled_at_once() -> None:
    light = [replace(UNKNOWN, id=10 + n, prediction=_unknown(GB / 4)) for n in range(8)]
    assert tried(*light, cpus=8) == (10, 11)
    fresh = [make.running(request, started=95, on_trial=True) for request in light[:2]]
    state = make.state(steps=[BUSY, *fresh], waiting=light[2:])
    assert ADAPTIVE.decide(state).on_trial == ()
    settled = [replace(step, started=80.0) for step in fresh]
    state = make.state(limit=11 * GB, steps=[BUSY, *settled], waiting=light[2:])
    assert ADAPTIVE.decide(state).on_trial == (12, 13)


def _unknown(peak: float) -> Prediction:
    return make.prediction(peak, high=4 * GB, seconds=None, basis=Basis.PRIOR)


def test_trials_get_the_cpus_that_are_left() -> None:
    wide = replace(UNKNOWN, slots=2)
    assert tried(wide, cpus=3) == (10,)
    assert tried(wide, cpus=2) == ()
    known = make.request(20, GB / 10, path=9)
    state = make.state(cpus=3, steps=[BUSY], waiting=[known, wide])
    decision = ADAPTIVE.decide(state)
    assert (decision.admit, decision.on_trial) == ((20,), ())


def test_admission_goes_before_trial() -> None:
    """What was promised for certain is not free for a trial."""
    known = make.request(20, 2.5 * GB, path=9)
    state = make.state(steps=[BUSY], waiting=[UNKNOWN, known])
    decision = ADAPTIVE.decide(state)
    assert (decision.admit, decision.on_trial) == ((20,), ())


def test_a_trial_hardly_blocks_other_steps() -> None:
    """Only what such steps need as a rule is reserved for it."""
    trial = make.running(UNKNOWN, started=95, current=GB / 2, on_trial=True)
    known = make.request(20, GB)
    assert admitted(make.state(steps=[BUSY, trial], waiting=[known])) == {20}
    certain = replace(trial, on_trial=False)
    assert admitted(make.state(steps=[BUSY, certain], waiting=[known])) == set()


def climbing(identity: int, peak: float, seconds: float = 100.0) -> Request:
    """In a straight line."""
    return make.request(identity, peak, profile=climb(0.5), seconds=seconds)


def test_peaks_that_do_not_meet_share_memory() -> None:
    nearly_done = make.running(climbing(1, 5 * GB), started=0.0, current=4.5 * GB)
    new = climbing(2, 5 * GB)
    assert admitted(make.state(now=90, steps=[nearly_done], waiting=[new])) == {2}
    flat = make.request(3, 5 * GB, seconds=100)
    assert admitted(make.state(now=90, steps=[nearly_done], waiting=[flat])) == set()


def test_peaks_that_meet_do_not() -> None:
    young = make.running(climbing(1, 5 * GB), started=0.0, current=GB)
    assert admitted(make.state(now=20, steps=[young], waiting=[climbing(2, 5 * GB)])) == set()


def test_a_place_is_kept_for_a_heavy_step_that_was_passed() -> None:
    long = make.running(make.request(1, 5 * GB, seconds=200), started=90, current=5 * GB)
    heavy = make.request(2, 6 * GB, asked=50, path=100)
    slow, quick = make.request(3, 3 * GB, seconds=500), make.request(4, 3 * GB, seconds=50)
    just_asked = replace(heavy, asked=99.0)
    assert admitted(make.state(steps=[long], waiting=[just_asked, slow])) == {3}
    assert admitted(make.state(steps=[long], waiting=[heavy, slow])) == set()
    # What is over before the place is needed may still use it.
    assert admitted(make.state(steps=[long], waiting=[heavy, quick])) == {4}


def test_no_step_overtakes_one_that_was_the_most_urgent_for_too_long() -> None:
    long = make.running(make.request(1, 5 * GB, seconds=200), started=390, current=5 * GB)
    heavy = make.request(2, 6 * GB, asked=50, path=1000)
    quick = make.request(3, GB / 10, seconds=1)
    state = make.state(now=400, steps=[long], waiting=[heavy, quick])
    # All steps of a long queue have waited for minutes: that alone keeps no CPU idle.
    assert admitted(replace(state, first_for=100.0)) == {3}
    assert admitted(replace(state, first_for=121.0)) == set()


def test_no_trial_starts_before_a_step_that_was_the_most_urgent_for_too_long() -> None:
    """An endless series of trials would occupy the CPUs and the memory that it needs."""
    heavy = make.request(2, 6 * GB, asked=50, path=1000)
    alone = replace(make.request(2, slots=0, asked=50, path=1000), ooms=2)
    for first in (heavy, alone):
        state = make.state(now=400, steps=[BUSY], waiting=[first, replace(UNKNOWN, asked=399.0)])
        decision = ADAPTIVE.decide(replace(state, first_for=121.0))
        assert (decision.admit, decision.on_trial) == ((), ())
        assert decision.held[10] is Reason.TURN
        assert ADAPTIVE.decide(state).on_trial == (10,)


def test_five_thousand_who_wait_cost_little(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only a few of them are looked at closely: time is not asserted, work is."""
    asked = 0
    span = upper.expected

    def counted(prediction: Prediction, spread: float) -> upper.Expected:
        nonlocal asked
        asked += 1
        return span(prediction, spread)

    heavy = [make.request(i, 3 * GB + i % 97, path=float(i)) for i in range(5000)]
    busy = [make.running(make.request(9000 + i, GB), current=GB) for i in range(6)]
    monkeypatch.setattr(upper, "expected", counted)
    decision = ADAPTIVE.decide(make.state(cpus=64, steps=busy, waiting=heavy))
    assert decision == Decision(held={request.id: Reason.MEMORY for request in heavy})
    assert 0 < asked < 100


@given(make.states(), st.floats(0, 1000))
def test_where_memory_was_short_before_changes_no_decision(state: State, ahead: float) -> None:
    decision = ADAPTIVE.decide(replace(state, tight_at=state.now + ahead))
    assert replace(decision, tight_at=0.0) == replace(ADAPTIVE.decide(state), tight_at=0.0)


@given(make.states())
def test_only_steps_that_still_wait_are_held(state: State) -> None:
    decision = ADAPTIVE.decide(state)
    waiting = {request.id for request in state.waiting}
    assert set(decision.held) <= waiting - set(decision.admit)


def test_a_step_that_does_not_fit_waits_for_memory_and_the_next_one_does_not() -> None:
    heavy, light = make.request(2, 7 * GB), make.request(3, GB / 10)
    busy = make.running(make.request(1, 4 * GB), current=4 * GB)
    decision = ADAPTIVE.decide(make.state(steps=[busy], waiting=[heavy, light]))
    assert decision.admit == (3,)
    assert decision.held == {2: Reason.MEMORY}


def test_under_memory_pressure_every_step_waits() -> None:
    busy = make.running(make.request(1), current=GB)
    state = replace(make.state(steps=[busy], waiting=[make.request(2)]), pressure=50.0)
    assert ADAPTIVE.decide(state) == Decision(held={2: Reason.PRESSURE})

"""Memory over a step's life: what is expected when, and what fits beside it."""

from math import inf, sqrt

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

import governed_steps as make
from governed_steps import GB
from stoker.govern.policy import upper
from stoker.govern.policy.forecast import Forecast
from stoker.govern.policy.profile import Profile
from stoker.model.govern import Basis, Pace, Prediction, Request, Running, State

LATER = 10.0  # seconds from now: what is in use now need not be in use then
HILL = make.profile(20, 100, 40, 40)  # of 100 s: up after 25 s, down after 50 s


def step(
    *,
    current: float,
    profile: Profile = (),
    seconds: float | None = 100.0,
    basis: Basis = Basis.EXACT,
) -> Running:
    """Predicted: a peak of 1 GB, at most 1.2 GB, after 100 s. It began at 0."""
    expected = make.prediction(GB, high=1.2 * GB, profile=profile, seconds=seconds, basis=basis)
    return make.running(Request(id=1, asked=0.0, prediction=expected), current=current)


def ahead(seen: Running, now: float) -> upper.Expected:
    """Expected memory of a step whose age is all that is known of its progress."""
    age = seen.age(now)
    return upper.expected_from(seen.request.prediction, (age, age), seen.current)


def test_a_profile_is_stretched_to_the_expected_life() -> None:
    expected = upper.expected(make.prediction(GB, profile=HILL, seconds=100))
    assert expected(0, 20) == 0.2 * GB
    assert expected(0, 30) == GB  # the most of the whole span
    assert expected(30, 40) == GB
    assert expected(55, 90) == 0.4 * GB
    assert expected(500, 600) == 0.4 * GB  # later than expected, it is near its end


def test_without_a_profile_or_a_duration_the_peak_counts_throughout() -> None:
    assert upper.expected(make.prediction(GB))(0.0, 0.1) == GB
    assert upper.expected(make.prediction(GB, profile=HILL, seconds=None))(0.0, 0.1) == GB


@given(make.predictions(), st.floats(0, 2000), st.floats(0, 2000), st.floats(0, 2000))
def test_a_longer_span_needs_no_less(
    prediction: Prediction, begin: float, length: float, more: float
) -> None:
    expected = upper.expected(prediction)
    short, long = expected(begin, begin + length), expected(begin, begin + length + more)
    assert 0 <= short <= long <= prediction.peak
    # Before its end no time is forgotten.
    assert expected(0.0, 10_000) == prediction.peak


def test_a_late_step_is_expected_to_run_a_while_longer() -> None:
    known = make.prediction(GB, seconds=100)
    assert upper.remaining(known, 0) == pytest.approx(102)
    assert upper.remaining(known, 300) == pytest.approx(30)
    assert upper.remaining(make.prediction(GB, seconds=None), 5) == inf


def test_the_share_of_the_last_wave_that_lies_ahead() -> None:
    known = make.prediction(GB, seconds=100)
    assert [upper.to_come(known, age) for age in (0, 50, 100, 200)] == [1.0, 0.5, 0.0, 0.0]
    twice = replace(known, waves=2)
    assert [upper.to_come(twice, age) for age in (0, 50, 75, 100)] == [1.0, 1.0, 0.5, 0.0]
    assert upper.to_come(replace(known, basis=Basis.FOLDER), 90) == 1.0
    assert upper.to_come(replace(known, seconds=None), 90) == 1.0


def test_on_its_course_it_follows_its_profile() -> None:
    memory = ahead(step(current=0.2 * GB, profile=HILL), 10)
    assert memory(5, 10) == 0.2 * GB
    assert memory(20, 30) == GB
    assert memory(50, 60) == 0.4 * GB


def test_what_is_in_use_now_is_so_for_a_moment_and_may_then_fall() -> None:
    memory = ahead(step(current=GB, profile=HILL), 45)
    assert memory(0.0, 0.25) == memory(0.9, 8.0) == GB
    assert memory(LATER, 20) == 0.4 * GB


def test_a_step_above_its_course_is_taken_at_what_it_uses() -> None:
    """Its life is not the one that was recorded: it may never fall."""
    memory = ahead(step(current=0.7 * GB, profile=HILL), 60)
    assert memory(LATER, 20) == memory(100, 200) == 0.7 * GB
    early = ahead(step(current=0.7 * GB, profile=HILL), 10)
    assert early(20, 30) == GB
    assert early(60, 70) == 0.7 * GB


def test_below_its_course_it_needs_less_the_later_it_is() -> None:
    """Predicted to be at 1 GB throughout, seen at 0.8 GB."""
    low = step(current=0.8 * GB, profile=make.profile(100))
    assert ahead(low, 10)(LATER, 20) == pytest.approx(0.98 * GB)
    assert ahead(low, 80)(LATER, 20) == pytest.approx(0.84 * GB)
    assert ahead(low, 200)(LATER, 20) == pytest.approx(0.8 * GB)


def test_below_its_course_all_that_is_to_come_shrinks() -> None:
    low = step(current=0.2 * GB, profile=make.profile(40, 40, 40, 100))
    # Half of what was expected at half of its time: three quarters of what was to come.
    assert ahead(low, 50)(30, 40) == pytest.approx(0.75 * GB)


def test_without_a_profile_being_low_says_nothing() -> None:
    assert ahead(step(current=0.2 * GB), 90)(LATER, 20) == GB


def test_of_a_step_like_others_being_low_says_nothing_either() -> None:
    guessed = step(current=0.2 * GB, profile=make.profile(100), basis=Basis.FOLDER)
    assert ahead(guessed, 90)(LATER, 20) == GB


def test_beyond_its_highest_it_may_go_as_far_again() -> None:
    def later(current: float, now: float) -> float:
        return ahead(step(current=current, profile=HILL), now)(LATER, 20)

    assert later(1.1 * GB, now=50) == pytest.approx(1.1 * GB)
    assert later(2.2 * GB, now=50) == pytest.approx(2.7 * GB)
    assert later(2.2 * GB, now=100) == pytest.approx(2.2 * GB)


@given(
    make.predictions(),
    st.integers(0, 12 * GB),
    st.floats(0, 2000),
    st.floats(0, 2000),
    st.floats(0, 2000),
)
def test_what_is_expected_is_within_reason(
    prediction: Prediction, current: int, now: float, begin: float, length: float
) -> None:
    seen = make.running(Request(id=1, asked=0.0, prediction=prediction), current=current)
    memory = ahead(seen, now)
    assert memory(0.0, length) >= current
    most = max(prediction.peak, current + max(0, current - prediction.high))
    assert 0 <= memory(begin, begin + length) <= most * 1.000001
    assert memory(begin, begin + length) <= memory(begin, begin + 2 * length)


def lived(peak: float, age: float, *, profile: Profile = HILL, spread: float = 1.0) -> upper.Ages:
    """Predicted: up to 1 GB after 25 s of 100 s."""
    known = make.prediction(GB, profile=profile, seconds=100)
    course = replace(upper.course(known, Pace()), spread=spread)
    return upper.lived(course, age, round(peak))


def test_a_step_on_its_course_has_lived_its_age() -> None:
    assert lived(0.2 * GB, 20) == (20, 20)
    assert lived(GB, 40) == (40, 40)
    assert lived(0.9 * GB, 40) == (40, 40)  # its peak may be a little lower this time


def test_a_step_that_has_not_reached_its_peak_is_slower_than_predicted() -> None:
    assert lived(0.2 * GB, 40) == pytest.approx((25.5, 25.5), abs=0.1)
    assert lived(0.2 * GB, 60) == pytest.approx((25.5, 25.5), abs=0.1)
    # So slow is no step; it is a smaller one.
    assert lived(0.2 * GB, 100) == (40, 40)


def test_a_step_that_has_reached_its_peak_early_is_faster_than_predicted() -> None:
    assert lived(GB, 10) == pytest.approx((25, 25), abs=0.1)


def test_where_durations_differ_a_step_may_be_anywhere_near_its_age() -> None:
    assert lived(GB, 60, spread=1.5) == (40, 90)
    assert lived(0.2 * GB, 20, spread=1.5) == pytest.approx((20 / 1.5, 25.5), abs=0.1)


@given(make.predictions(), st.floats(0, 1000), st.integers(0, 12 * GB), st.floats(1, 3))
def test_how_far_a_step_is_stays_within_reason(
    prediction: Prediction, age: float, peak: int, spread: float
) -> None:
    course = replace(upper.course(prediction, Pace()), spread=spread)
    least, most = upper.lived(course, age, peak)
    assert 0 <= least <= most
    assert least >= min(age / spread, age / 2.5) * 0.999999
    assert most <= max(age * spread, prediction.seconds or 0.0) * 1.000001


def test_a_pace_stretches_what_was_seen_of_the_step_itself() -> None:
    slow = Pace(usual=2.0, spread=1.2)
    known = make.prediction(GB, seconds=100)
    guessed = replace(known, basis=Basis.FOLDER)
    course, uncertain = upper.course(known, slow), upper.course(guessed, slow)
    assert (course.prediction.seconds, course.spread) == (200, 1.1)
    assert (uncertain.prediction.seconds, uncertain.spread) == (100, 1.0)


def test_peaks_that_meet_at_another_pace_do_not_fit() -> None:
    """The one that runs is at 5 GB for 10 s more, and twice as long on a slower machine."""
    first, second = make.profile(100, 20), make.profile(20, 20, 20, 100)
    busy = make.running(make.request(1, 5 * GB, profile=first, seconds=40), current=5 * GB)
    later = make.request(2, 5 * GB, profile=second, seconds=20)
    as_predicted = make.state(now=10, steps=[busy])
    assert Forecast(as_predicted, 8 * GB).fits(later)
    uncertain = replace(as_predicted, pace=Pace(spread=1.5))
    assert not Forecast(uncertain, 8 * GB).fits(later)


def alone(request: Request, cpus: int) -> float:
    forecast = Forecast(make.state(cpus=cpus), inf)
    forecast.add(request)
    return forecast.highest()


@given(make.states())
def test_what_fits_stays_within_the_room_or_runs_alone(state: State) -> None:
    forecast = Forecast(state, state.limit)
    for request in state.waiting:
        if forecast.fits(request):
            before = forecast.highest()
            forecast.add(request)
            most = max(before, state.limit, alone(request, state.cpus))
            assert forecast.highest() <= most * 1.000001


@given(make.states(), st.floats(0, 5000), st.floats(0, 5000))
def test_the_further_one_looks_the_more_may_be_in_use(
    state: State, within: float, more: float
) -> None:
    forecast = Forecast(state, state.limit)
    now = sum(step.current for step in state.running)
    assert now * 0.999999 <= forecast.highest(within)
    assert forecast.highest(within) <= forecast.highest(within + more) <= forecast.highest()


@given(make.states(), st.booleans())
def test_every_active_step_holds_its_cpus_also_on_trial(state: State, usual: bool) -> None:
    active = (step for step in state.running if not step.is_paused)
    taken = sum(step.request.slots_of(state.cpus) for step in active)
    forecast = Forecast(state, state.limit, usual=usual)
    assert forecast.free_slots == state.cpus - taken


def test_a_day_is_forecast_in_a_few_hundred_stretches_and_never_too_low() -> None:
    steps = [
        make.running(make.request(i, GB, seconds=20.0 * (i + 1)), started=0.0) for i in range(2000)
    ]
    forecast = Forecast(make.state(now=0, cpus=2000, steps=steps), 0)
    assert forecast.highest() >= 2000 * GB
    assert len(forecast._until) < 400


def test_peaks_that_do_not_meet_fit_together() -> None:
    """Each is at 5 GB in one half of its life and at 1 GB in the other; there are 8 GB."""
    first, second = make.profile(100, 20), make.profile(20, 100)
    busy = make.running(make.request(1, 5 * GB, profile=first, seconds=100), current=5 * GB)
    forecast = Forecast(make.state(now=10, steps=[busy]), 8 * GB)
    assert forecast.fits(make.request(2, 5 * GB, profile=second, seconds=100))
    assert not forecast.fits(make.request(2, 5 * GB, profile=first, seconds=100))
    assert not forecast.fits(make.request(2, 5 * GB, seconds=100))
    # Later than it should have been, and still up: it may never come down.
    assert not Forecast(make.state(now=80, steps=[busy]), 8 * GB).fits(
        make.request(2, 5 * GB, profile=second, seconds=10)
    )


def test_who_is_added_is_seen_by_the_next() -> None:
    busy = make.running(make.request(1, GB, seconds=100), current=GB)
    forecast = Forecast(make.state(now=10, steps=[busy]), 8 * GB)
    late = make.profile(20, 100)
    assert forecast.fits(make.request(2, 5 * GB, profile=late, seconds=100))
    forecast.add(make.request(2, 5 * GB, profile=late, seconds=100))
    assert not forecast.fits(make.request(3, 5 * GB, profile=late, seconds=100))
    assert forecast.fits(make.request(4, 5 * GB, seconds=20))  # gone before it is needed


@given(make.states(), st.booleans())
def test_what_fits_into_spans_fits_into_each_stretch(state: State, usual: bool) -> None:
    """The short cuts of the search decide as if it looked at every stretch."""
    forecast = Forecast(state, state.limit, usual=usual)
    for request in state.waiting:
        slow = Forecast(state, state.limit, usual=usual)
        slow._look_ahead()
        for each in forecast.added:
            slow._take(slow._starting(each))
        claim = slow._starting(request)
        each_fits = all(slow._fits_in(claim, index, 1) for index in range(len(slow._until)))
        assert forecast.fits(request) == (each_fits or not (state.running or forecast.added))
        if each_fits:
            forecast.add(request)


def test_a_place_is_kept_at_the_time_there_is_one() -> None:
    busy = make.running(make.request(1, 5 * GB, seconds=100), current=5 * GB)
    forecast = Forecast(make.state(now=0, steps=[busy]), 8 * GB)
    forecast.reserve(make.request(2, 6 * GB, seconds=100))
    assert forecast.fits(make.request(3, 3 * GB, seconds=50))
    assert not forecast.fits(make.request(3, 3 * GB, seconds=150))


def test_a_step_on_trial_counts_with_what_it_reaches_as_a_rule() -> None:
    measured = make.running(make.request(1, 5 * GB, seconds=100), current=5 * GB)
    unknown = make.request(2, 2 * GB, high=4 * GB, seconds=None, basis=Basis.PRIOR)
    certain = make.running(unknown, current=GB, peak=GB)
    trial = replace(certain, on_trial=True)

    def highest(step: Running, *, usual: bool = False) -> float:
        state = make.state(now=10, steps=[step, measured])
        return Forecast(state, 8 * GB, usual=usual).highest() / GB - 5

    assert highest(certain) == pytest.approx(4)
    assert highest(certain, usual=True) == highest(trial) == pytest.approx(2.5)
    assert highest(replace(trial, current=3 * GB, peak=3 * GB)) == pytest.approx(4.5)


def margins(count: int, basis: Basis, now: float = 0.0) -> float:
    """What is kept free for so many steps over their peaks, in widths of a prediction."""
    profile = make.profile(100)
    asked = make.request(1, GB, high=1.2 * GB, profile=profile, seconds=100, basis=basis)
    steps = [make.running(replace(asked, id=n), current=GB) for n in range(count)]
    forecast = Forecast(make.state(now=now, cpus=count, steps=steps), inf)
    return (forecast.highest() - count * GB) / (0.2 * GB)


def test_errors_of_shipped_figures_add_up_and_others_cancel_out() -> None:
    assert margins(9, Basis.PRIOR) == pytest.approx(9)
    assert margins(9, Basis.FOLDER) == pytest.approx(sqrt(9))
    assert margins(9, Basis.EXACT) == pytest.approx(3 * margins(1, Basis.EXACT))


def test_what_was_seen_of_this_very_step_needs_less_of_a_margin() -> None:
    assert 0 <= margins(1, Basis.EXACT) < margins(1, Basis.FOLDER) == pytest.approx(1)


def test_margins_shrink_as_a_step_shows_what_it_is() -> None:
    assert margins(1, Basis.EXACT, now=50) == pytest.approx(margins(1, Basis.EXACT) / 2)
    assert margins(1, Basis.EXACT, now=100) == pytest.approx(0)
    assert margins(1, Basis.FOLDER, now=100) == pytest.approx(1)

"""Memory over a step's life: what is expected, what is kept, and when it shrinks."""

from math import inf

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

import governed_steps as make
from governed_steps import GB
from stoker.govern import course
from stoker.govern.forecast import Forecast
from stoker.model.govern import Basis, Prediction, Request, Running, State


def step(
    *,
    current: float,
    peak: float | None = None,
    mean: float | None = None,
    seconds: float | None = 100.0,
    basis: Basis = Basis.EXACT,
) -> Running:
    """Predicted: a peak of 1 GB, at most 1.2 GB, after 100 s."""
    expected = make.prediction(GB, high=1.2 * GB, mean=mean, seconds=seconds, basis=basis)
    asked = Request(id=1, asked=0.0, prediction=expected)
    return make.running(asked, current=current, peak=peak)


def test_the_mean_gives_the_curve() -> None:
    line = make.prediction(GB, mean=GB / 2, seconds=100)
    assert course.level(line, 50) == pytest.approx(GB / 2)
    assert course.level(line, 100) == GB
    assert course.level(line, 500) == GB


def test_one_gpu_target_after_another_climbs_again() -> None:
    two = replace(make.prediction(GB, mean=GB / 2, seconds=100), waves=2)
    assert course.level(two, 25) == pytest.approx(GB / 2)
    assert course.level(two, 50) == course.level(two, 75) == GB
    # Between two targets nothing is given back; after the last it is.
    asked = Request(id=1, asked=0.0, prediction=two)
    fallen = make.running(asked, current=0.2 * GB, peak=GB)
    assert course.reserved(fallen, now=50) == GB
    assert course.reserved(fallen, now=90) == pytest.approx(0.36 * GB)


@given(make.predictions().filter(lambda p: bool(p.mean and p.seconds)))
def test_the_area_below_the_curve_is_the_mean(prediction: Prediction) -> None:
    assert prediction.seconds is not None
    assert prediction.mean is not None
    parts = 4000
    ages = ((i + 0.5) / parts * prediction.seconds for i in range(parts))
    area = sum(course.level(prediction, age) for age in ages) / parts
    assert area == pytest.approx(prediction.mean, rel=0.02, abs=0.002 * prediction.peak + 1)


def test_without_a_mean_or_a_duration_the_peak_counts_throughout() -> None:
    assert course.level(make.prediction(GB), 0.0) == GB
    assert course.level(make.prediction(GB, mean=GB / 2, seconds=None), 0.0) == GB


def test_a_young_step_keeps_its_whole_prediction() -> None:
    assert course.reserved(step(current=GB / 10), now=1) == GB


def test_a_step_past_its_peak_gives_back_what_it_will_hardly_need_again() -> None:
    fallen = step(current=0.2 * GB, peak=GB)
    assert course.reserved(fallen, now=50) == pytest.approx(0.6 * GB)
    assert course.reserved(fallen, now=90) == pytest.approx(0.28 * GB)
    assert course.reserved(fallen, now=200) == pytest.approx(0.2 * GB)


def test_a_step_that_never_came_near_its_peak_keeps_it() -> None:
    """Its peak may be yet to come: a linker at the end, a second GPU target."""
    assert course.reserved(step(current=0.2 * GB, peak=0.5 * GB), now=90) == GB


def test_a_step_of_unknown_duration_never_gives_back() -> None:
    assert course.reserved(step(current=0.2 * GB, peak=GB, seconds=None), now=500) == GB
    guessed = step(current=0.2 * GB, peak=GB, basis=Basis.FOLDER)
    assert course.reserved(guessed, now=90) == GB


def test_below_its_curve_it_needs_less_the_later_it_is() -> None:
    """Predicted to be at 1 GB throughout, seen at 0.8 GB."""
    low = step(current=0.8 * GB, mean=GB)
    assert course.reserved(low, now=10) == pytest.approx(0.98 * GB)
    assert course.reserved(low, now=90) == pytest.approx(0.82 * GB)


def test_beyond_its_highest_it_may_go_as_far_again() -> None:
    assert course.reserved(step(current=1.1 * GB), now=50) == pytest.approx(1.1 * GB)
    assert course.reserved(step(current=2.2 * GB), now=50) == pytest.approx(2.7 * GB)
    assert course.reserved(step(current=2.2 * GB), now=100) == pytest.approx(2.2 * GB)


@given(
    make.predictions(), st.integers(0, 8 * GB), st.integers(0, GB), st.floats(0, 2000), st.data()
)
def test_what_is_kept_is_never_less_than_what_is_used(
    prediction: Prediction, current: int, above: int, now: float, data: st.DataObject
) -> None:
    asked = Request(id=1, asked=0.0, prediction=prediction)
    seen = make.running(asked, current=current, peak=current + above)
    kept = course.reserved(seen, now)
    assert kept >= current * 0.999999
    delay = data.draw(st.floats(0, 2000))
    assert current * 0.999999 <= course.ahead(seen, now)(delay) <= kept * 1.000001


def test_a_late_step_is_expected_to_go_on_for_a_while() -> None:
    known = make.prediction(GB, seconds=100)
    assert course.remaining(known, 0) == pytest.approx(110)
    assert course.remaining(known, 300) == pytest.approx(30)
    assert course.remaining(make.prediction(GB, seconds=None), 5) == inf


# -- the forecast -------------------------------------------------------------------------------


@given(make.states())
def test_what_fits_stays_within_the_room(state: State) -> None:
    forecast = Forecast(state, state.limit)
    for request in state.waiting:
        if forecast.free_slots < state.cpus and forecast.fits(request):
            before = forecast.highest
            forecast.add(request)
            assert forecast.highest <= max(before, state.limit) * 1.000001


def test_many_steps_are_forecast_in_few_stretches_and_never_too_low() -> None:
    steps = [
        make.running(make.request(i, GB, seconds=float(i + 1)), started=0.0) for i in range(200)
    ]
    forecast = Forecast(make.state(now=0, cpus=200, steps=steps), 0)
    assert forecast.highest >= 200 * GB
    assert len(forecast._until) < 20


def test_margins_shrink_as_a_step_shows_what_it_is() -> None:
    seen = step(current=GB, mean=GB)
    highest = [Forecast(make.state(now=now, steps=[seen]), 0).highest for now in (0, 50, 100)]
    assert highest == pytest.approx([1.2 * GB, 1.1 * GB, GB])

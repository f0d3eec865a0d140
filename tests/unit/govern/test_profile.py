"""Profiles: how they are recorded from any reports, and what is assumed without one."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

import governed_steps as make
from governed_steps import GB
from stoker.govern.policy.profile import SHORTEST, Profile, Recorder, climb, profile_of
from stoker.model.govern import PARTS, Role, Step, StepRecord

# Ages in tenths of a second, or far apart: both a crowd in one stretch and many doublings.
AGES = st.integers(0, 100).map(lambda tenths: tenths / 10) | st.floats(0, 30_000)
REPORTS = st.lists(st.tuples(AGES, st.integers(0, 8 * GB)), max_size=60).map(sorted)


def recorded(reports: list[tuple[float, int]], seconds: float) -> Profile:
    recorder = Recorder()
    for age, memory in reports:
        recorder.add(age, memory)
    return recorder.profile(seconds)


@given(REPORTS, st.floats(1.0, 1000))
def test_any_reports_give_a_profile_that_reaches_its_peak(
    reports: list[tuple[float, int]], more: float
) -> None:
    seconds = max((age for age, _ in reports), default=0.0) + more
    profile = recorded(reports, seconds)
    if not any(memory for _, memory in reports):
        assert profile == ()
    else:
        assert len(profile) == PARTS
        assert max(profile) == 100
        assert min(profile) >= 0


@given(REPORTS.filter(lambda reports: any(memory for _, memory in reports)), st.floats(1.0, 1000))
def test_a_profile_is_never_below_what_was_reported(
    reports: list[tuple[float, int]], more: float
) -> None:
    """Also not in the parts between two reports, in which the earlier one holds."""
    seconds = reports[-1][0] + more
    profile = recorded(reports, seconds)
    peak = max(memory for _, memory in reports)
    ends = [age for age, _ in reports[1:]] + [seconds]
    for (age, memory), end in zip(reports, ends, strict=True):
        first, last = int(age / seconds * PARTS), min(PARTS - 1, int(end / seconds * PARTS))
        # In the parts between, where rounding of times cannot matter, and where it began.
        assert max(profile[max(0, first - 1) : first + 2]) >= 100 * memory / peak
        for part in profile[first + 1 : last]:
            assert part >= 100 * memory / peak


@given(REPORTS, st.floats(1.0, 30_000))
def test_what_is_reported_after_the_end_belongs_to_the_last_part(
    reports: list[tuple[float, int]], seconds: float
) -> None:
    """Clocks of a governor and a launcher do not begin at the same moment."""
    profile = recorded(reports, seconds)
    peak = max((memory for _, memory in reports), default=0)
    late = [memory for age, memory in reports if age >= seconds]
    assert max(profile, default=100) == 100
    assert not peak or not late or profile[-1] >= 100 * max(late) / peak


@pytest.mark.parametrize("seconds", [1.0, 5.0, 51.2, 60.0, 500.0, 40_000.0])
def test_stretches_that_double_keep_what_was_highest(seconds: float) -> None:
    """A short spike a third into its life is there however long the life is, and in its place."""
    at = seconds / 3
    profile = recorded([(0.0, 10), (at, 100), (at + 0.01, 20)], seconds)
    width = max(1, round(0.4 / seconds * PARTS))  # parts that a first stretch may touch
    place = int(PARTS / 3)
    assert max(profile) == 100
    assert all(abs(n - place) <= width + 1 for n, part in enumerate(profile) if part == 100)
    assert (profile[0], profile[-1]) == (10, 20)


def test_a_saw_is_recorded_as_one() -> None:
    saw = [(n / 10, 10 * (n % 10 + 1)) for n in range(200)]
    profile = recorded(saw, 20.0)
    tops = [n for n, part in enumerate(profile) if part == 100]
    assert tops[0] < 8
    assert tops[-1] == PARTS - 1
    assert min(profile) <= 20


@given(REPORTS, st.floats(0, SHORTEST, exclude_max=True))
def test_short_lives_have_no_parts(reports: list[tuple[float, int]], seconds: float) -> None:
    assert recorded(reports, seconds) == ()


def test_who_never_reported_has_none() -> None:
    assert Recorder().profile(100.0) == ()


def test_a_recorder_can_be_asked_before_the_end() -> None:
    recorder = Recorder()
    recorder.add(0.0, 50)
    assert recorder.profile(10.0) == (100,) * PARTS
    recorder.add(15.0, 100)
    assert recorder.profile(30.0) == make.profile(50, 100)


@given(st.floats(0.01, 1))
def test_a_climb_has_its_mean(mean: float) -> None:
    """Each part counts with its end, and in whole percent: never less, and hardly more."""
    profile = climb(mean)
    assert len(profile) == PARTS
    assert list(profile) == sorted(profile)
    assert profile[-1] == 100
    assert mean - 1e-9 <= sum(profile) / PARTS / 100 <= mean + 1 / PARTS + 0.01


@given(st.floats(0.01, 1), st.integers(1, 200))
def test_after_its_first_wave_a_climb_stays_up(mean: float, waves: int) -> None:
    profile = climb(mean, waves)
    assert all(part == 100 for part in profile[PARTS // waves :])
    assert max(profile) == 100


def test_a_flat_climb_is_the_peak_throughout() -> None:
    assert climb(1.0) == (100,) * PARTS


def test_what_was_recorded_counts_more_than_the_mean() -> None:
    saw = make.profile(10, 100, 10, 100)
    assert profile_of(make.record("a", byte_seconds=5 * GB, profile=saw)) == saw


def test_a_profile_of_other_parts_is_brought_to_the_usual_ones() -> None:
    assert profile_of(make.record("a", profile=(10, 100))) == make.profile(10, 100)
    many = tuple(n % 4 * 30 + 10 for n in range(4 * PARTS))
    assert profile_of(make.record("a", profile=many)) == (100,) * PARTS


@given(st.lists(st.integers(0, 100), min_size=1, max_size=300))
def test_any_profile_of_other_parts_keeps_what_was_highest(parts: list[int]) -> None:
    profile = profile_of(make.record("a", profile=tuple(parts)))
    assert len(profile) == PARTS
    assert max(profile) == max(parts)
    for n, part in enumerate(parts):
        assert max(profile[n * PARTS // len(parts) : (n + 1) * PARTS // len(parts) + 1]) >= part


def test_with_a_mean_alone_a_climb_is_assumed() -> None:
    assert profile_of(make.record("a", seconds=10, byte_seconds=8 * GB)) == climb(0.8)
    targets = Step(key="k", role=Role.CUDA, archs=("80", "90", "100"))
    several = StepRecord(step=targets, wall_s=10, cpu_s=10, peak_bytes=GB, byte_seconds=8.0 * GB)
    assert profile_of(several) == climb(0.8, 3)


@pytest.mark.parametrize("integral", [None, 0.0])
def test_with_neither_there_is_none(integral: float | None) -> None:
    assert profile_of(make.record("a", byte_seconds=integral)) == ()


def test_a_step_without_memory_has_none() -> None:
    assert profile_of(make.record("a", peak=0, byte_seconds=5.0)) == ()

"""Lower bounds of the time of a build, on examples that can be checked by hand."""

import pytest

import governed_steps as make
from governed_steps import GB
from stoker.govern.bounds import bounds, critical_path, paths


def test_cpus_bound_from_below() -> None:
    steps = [make.record(f"{n}", seconds=10, peak=1) for n in range(8)]
    found = bounds(steps, cpus=4, memory=100 * GB)
    assert (found.lower, found.limited_by) == (20, "CPUs")


def test_the_longest_path_bounds_from_below() -> None:
    steps = [
        make.record("a", seconds=10),
        make.record("b", seconds=20, needs=["a"]),
        make.record("c", seconds=5, needs=["a"]),
        make.record("d", seconds=7, needs=["b", "c"]),
    ]
    assert paths(steps) == {"a": 37, "b": 27, "c": 12, "d": 7}
    assert critical_path(steps) == 37
    found = bounds(steps, cpus=64, memory=100 * GB)
    assert (found.lower, found.limited_by) == (37, "the longest path")


def test_memory_over_time_bounds_from_below() -> None:
    steps = [make.record(f"{n}", seconds=10, peak=4 * GB, byte_seconds=20 * GB) for n in range(16)]
    found = bounds(steps, cpus=16, memory=8 * GB)
    assert found.lower == 40
    assert found.reserving == 80


def test_an_integral_that_was_not_measured_gives_no_bound() -> None:
    steps = [make.record(f"{n}", seconds=10, peak=4 * GB) for n in range(16)]
    assert bounds(steps, cpus=16, memory=8 * GB).lower == 10


def test_who_reserves_peaks_runs_only_so_many_large_ones_at_once() -> None:
    """Steps just above a third of memory: two at once, though their area would allow more."""
    steps = [make.record(f"{n}", seconds=10, peak=2.7 * GB) for n in range(6)]
    found = bounds(steps, cpus=16, memory=8 * GB)
    assert found.reserving == pytest.approx(30)
    assert found.limited_by == "peaks of memory"
    assert found.larger == found.reserving


def test_a_very_long_chain_is_no_trouble() -> None:
    steps = [make.record("0", seconds=1)]
    steps += [make.record(f"{n}", seconds=1, needs=[f"{n - 1}"]) for n in range(1, 5000)]
    assert critical_path(steps) == 5000


def test_no_steps_take_no_time() -> None:
    assert bounds([], cpus=4, memory=GB).larger == 0

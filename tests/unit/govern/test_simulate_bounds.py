"""Lower bounds of the time of a build, on examples that can be checked by hand."""

import pytest
from msgspec.structs import replace

import governed_steps as make
from governed_steps import GB
from stoker.govern.history.simulate import simulate
from stoker.govern.policy.adaptive import Adaptive
from stoker.govern.policy.bounds import bounds, critical_path, paths
from stoker.knowledge.compiler_modes import shipped_effects
from stoker.model.govern import Collector, CompileMode


def test_cpus_bound_from_below() -> None:
    steps = [make.record(f"{n}", seconds=10, peak=1) for n in range(8)]
    found = bounds(steps, cpus=4, memory=100 * GB)
    assert (found.lower_s, found.limited_by) == (20, "CPUs")


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
    assert (found.lower_s, found.limited_by) == (37, "the longest path")


def test_memory_over_time_bounds_from_below() -> None:
    steps = [make.record(f"{n}", seconds=10, peak=4 * GB, byte_seconds=20 * GB) for n in range(16)]
    found = bounds(steps, cpus=16, memory=8 * GB)
    assert found.lower_s == 40


def test_an_integral_that_was_not_measured_gives_no_bound() -> None:
    steps = [make.record(f"{n}", seconds=10, peak=4 * GB) for n in range(16)]
    assert bounds(steps, cpus=16, memory=8 * GB).lower_s == 10


def test_memory_limits_where_few_large_steps_fit_at_once() -> None:
    """Steps just above a third of memory: two at once, if their peaks meet. More memory would
    help, but a schedule in which peaks alternate could be faster, so the bound says less.
    """
    steps = [make.record(f"{n}", seconds=10, peak=2.7 * GB) for n in range(6)]
    found = bounds(steps, cpus=16, memory=8 * GB)
    assert (found.lower_s, found.limited_by) == (10, "memory")


def test_a_faster_mode_of_the_compiler_lowers_the_bound() -> None:
    free = make.record("a", seconds=10, peak=GB // 2)
    free = replace(free, step=replace(free.step, collector=Collector.FREE))
    fast, *_ = shipped_effects(free.peak_bytes)
    assert bounds([free], cpus=1, memory=8 * GB).lower_s == pytest.approx(10 * fast.seconds)
    measured = replace(free, mode=CompileMode.FAST)
    assert bounds([measured], cpus=1, memory=8 * GB).lower_s == pytest.approx(10)


def test_more_cpus_help_steps_that_wait_for_disks_too() -> None:
    """A simulated step holds its CPU although its CPU time is small."""
    steps = [replace(make.record(f"{n}", seconds=10), cpu_s=1.0) for n in range(8)]
    found = [simulate(steps, Adaptive(), cpus=n, memory=64 * GB).bounds for n in (1, 2, 4, 8)]
    assert [each.lower_s for each in found] == [80, 40, 20, 10]
    assert {each.limited_by for each in found[:3]} == {"CPUs"}


def test_a_very_long_chain_is_no_trouble() -> None:
    steps = [make.record("0", seconds=1)]
    steps += [make.record(f"{n}", seconds=1, needs=[f"{n - 1}"]) for n in range(1, 5000)]
    assert critical_path(steps) == 5000


def test_no_steps_take_no_time() -> None:
    assert bounds([], cpus=4, memory=GB).lower_s == 0

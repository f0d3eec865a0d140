"""Builds whose history comes from a machine that was faster, slower or busy: on a virtual clock."""

from collections.abc import Sequence
from functools import cache
from random import Random

import pytest
from msgspec.structs import replace

import governed_steps as make
from conftest import slow
from governed_steps import GB
from stoker.govern.history.simulate import simulate
from stoker.govern.policy.adaptive import Adaptive
from stoker.govern.policy.policies import FixedJobs
from stoker.model.govern import StepRecord
from stoker.model.simulation import SimulationResult

PROFILES = {
    "climbs": make.profile(*range(5, 101, 5)),
    "gcc": make.profile(30, 55, 62, 68, 74, 80, 84, 88, 92, 96, 100, 100),
    "late": make.profile(20, 20, 25, 30, 30, 40, 60, 100),
    "plateau": make.profile(20, 100, 100, 100, 100, 40),
    "hump": make.profile(20, 60, 100, 100, 60, 40, 30, 30),
    "saw": make.profile(20, 60, 100, 20, 60, 100),
}
ORDERS = ("mixed", *map(slow, ("heavy first", "light first")))


def project(shape: str, order: str) -> tuple[StepRecord, ...]:
    """8 steps of 1.1 GB, 40 light ones."""
    rising = make.profile(*range(20, 101, 10))
    light = [
        make.record(f"l{n}.cpp", seconds=2 + n % 3, peak=0.15 * GB, profile=rising)
        for n in range(40)
    ]
    heavy = [
        make.record(f"h{n}.cpp", seconds=18 + n % 4, peak=1.1 * GB, profile=PROFILES[shape])
        for n in range(8)
    ]
    if order != "mixed":
        return tuple(heavy + light if order == "heavy first" else light + heavy)
    for n, step in enumerate(heavy):
        light.insert(n * len(light) // len(heavy), step)
    return tuple(light)


def recorded(
    steps: Sequence[StepRecord], speed: float, *, busy: float = 0.0
) -> tuple[StepRecord, ...]:
    """As a machine measured them on which they took ``speed`` times as long, and up to 2**busy
    times more or less, and whose peaks differ a little.
    """
    chance = Random(7)

    def elsewhere(step: StepRecord) -> StepRecord:
        seconds = step.wall_s * speed * 2 ** chance.uniform(-busy, busy)
        peak = round(step.peak_bytes * (1 + chance.uniform(-0.1, 0.1) * busy))
        return replace(step, wall_s=seconds, cpu_s=seconds, peak_bytes=peak)

    return tuple(map(elsewhere, steps))


def build(steps: Sequence[StepRecord], history: Sequence[StepRecord] = ()) -> SimulationResult:
    return simulate(steps, Adaptive(), cpus=2, memory=2 * GB, history=history)


@cache
def cold(shape: str, order: str) -> SimulationResult:
    return build(project(shape, order))


@cache
def one_at_a_time(shape: str, order: str) -> float:
    steps = project(shape, order)
    return simulate(steps, FixedJobs(jobs=1), cpus=2, memory=2 * GB).wall_s


@pytest.mark.parametrize("speed", [0.4, *map(slow, (0.5, 0.7, 1.0, 1.4, 2.0)), 2.5])
@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("shape", PROFILES)
def test_a_history_of_another_speed_does_no_harm(shape: str, order: str, speed: float) -> None:
    steps = project(shape, order)
    warm = build(steps, recorded(steps, speed))
    assert (warm.failed, warm.oom_kills, warm.preemptions) == ((), 0, 0)
    assert warm.wall_s <= 1.05 * cold(shape, order).wall_s
    assert warm.wall_s <= 0.68 * one_at_a_time(shape, order)


@pytest.mark.parametrize("speed", [slow(0.5), 1.0, slow(2.0)])
@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("shape", PROFILES)
def test_a_history_of_a_busy_machine_costs_little(shape: str, order: str, speed: float) -> None:
    """Its durations are wrong by up to two thirds, each in its own way."""
    steps = project(shape, order)
    warm = build(steps, recorded(steps, speed, busy=0.7))
    assert warm.failed == ()
    # Where memory rises from 20 to 100 percent at once, no decision can come in between, and a
    # forecast allows for half of the spread of durations only: with all of it there are none.
    assert warm.oom_kills + warm.preemptions <= 3
    assert warm.wall_s <= 1.16 * cold(shape, order).wall_s
    assert warm.wall_s <= 0.76 * one_at_a_time(shape, order)

"""Whole builds on a virtual clock: properties that hold for any steps."""

from collections.abc import Sequence
from statistics import median

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

import governed_steps as make
from governed_steps import GB
from stoker.govern.history.simulate import simulate
from stoker.govern.history.simulated_steps import (
    Shape,
    climbing,
    flat,
    measured,
    recorded,
    scattered,
    with_cache_hits,
    with_nvcc_threads,
)
from stoker.govern.policy.adaptive import Adaptive
from stoker.govern.policy.interface import Policy
from stoker.govern.policy.policies import FixedJobs, Levels, TwoPhase
from stoker.govern.policy.profile import Profile
from stoker.model.govern import PARTS, Decision, Role, State, StepRecord
from stoker.model.simulation import SimulationResult


def early(record: StepRecord, share: float) -> float:
    """A front end that needs more than what follows."""
    return record.peak_bytes * (share / 0.2 if share < 0.2 else 1 - 0.6 * (share - 0.2) / 0.8)


def late(record: StepRecord, share: float) -> float:
    """A linker or an assembler at the end."""
    return record.peak_bytes * (0.3 if share < 0.8 else 1.0)


def twice(record: StepRecord, share: float) -> float:
    """One GPU target after another."""
    return record.peak_bytes * (1.0 if share % 0.5 > 0.3 else 0.2)


SHAPES: list[Shape] = [recorded, climbing, flat, early, late, twice]


class Watched:
    """A policy that records when each step began and what was decided. Ids count from 1, in the
    order in which steps ask.
    """

    def __init__(self, policy: Policy):
        self._policy = policy
        self.decided: list[tuple[State, Decision]] = []
        self.began: dict[int, float] = {}

    @property
    def name(self) -> str:
        return self._policy.name

    def decide(self, state: State) -> Decision:
        decision = self._policy.decide(state)
        self.decided.append((replace(state, waiting=tuple(state.waiting)), decision))
        for identity in (*decision.admit, *decision.on_trial):
            self.began.setdefault(identity, state.now)
        return decision


def project(heavy: int = 6, light: int = 60) -> tuple[StepRecord, ...]:
    """Light and heavy steps in turn, 0.3 and 2 GB."""
    steps = [make.record(f"l{n}.cpp", seconds=2 + n % 7, peak=0.3 * GB) for n in range(light)]
    for n in range(heavy):
        heavy_one = make.record(f"h{n}.cpp", seconds=30 + n, peak=2 * GB)
        steps.insert(n * len(steps) // heavy, heavy_one)
    return tuple(steps)


@pytest.mark.slow
@given(
    steps=make.builds(largest=8 * GB),
    known=make.builds(largest=20 * GB),
    cpus=st.integers(1, 8),
    shape=st.sampled_from(SHAPES),
)
def test_every_step_ends_that_fits_into_memory_at_all(
    steps: tuple[StepRecord, ...], known: tuple[StepRecord, ...], cpus: int, shape: Shape
) -> None:
    """Also when history is about quite another build with the same names."""
    watched = Watched(Adaptive())
    result = simulate(
        steps, watched, cpus=cpus, memory=8 * GB, history=known, shape=shape, window=12
    )
    assert result.failed == ()
    assert len(watched.began) == len(steps)
    assert result.peak_bytes <= 8 * GB
    # The clock agrees with the bound but for steps that end within a billionth of a second.
    assert result.wall_s >= result.bounds.lower_s - 1e-6


@pytest.mark.slow
@settings(max_examples=20)
@given(steps=make.builds(largest=6 * GB), shape=st.sampled_from(SHAPES))
def test_decisions_can_be_replayed(steps: tuple[StepRecord, ...], shape: Shape) -> None:
    first, second = Watched(Adaptive()), Watched(Adaptive())
    result = simulate(steps, first, cpus=4, memory=8 * GB, shape=shape)
    assert simulate(steps, second, cpus=4, memory=8 * GB, shape=shape) == result
    assert first.decided == second.decided
    for state, decision in first.decided:
        assert Adaptive().decide(state) == decision


@settings(max_examples=20)
@given(steps=make.builds(largest=8 * GB), shape=st.sampled_from(SHAPES))
def test_the_oldest_step_keeps_running_in_every_build(
    steps: tuple[StepRecord, ...], shape: Shape
) -> None:
    watched = Watched(Adaptive())
    simulate(steps, watched, cpus=6, memory=8 * GB, shape=shape)
    for state, decision in watched.decided:
        if state.running:
            oldest = min(state.running, key=lambda step: (step.started, step.id))
            assert oldest.id not in decision.kill


@pytest.mark.slow
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("warm", [True, False])
def test_the_shape_of_memory_may_be_any(shape: Shape, warm: bool) -> None:
    steps = project()
    history = steps if warm else ()
    results = [
        simulate(actual, Adaptive(), cpus=8, memory=6 * GB, history=history, shape=shape)
        for actual in (scattered(steps, by=0.1, seed=seed) for seed in (1, 2, 3))
    ]
    assert not any(result.failed for result in results)
    # What is at its peak at once cannot be stopped in time where peaks are not as in history.
    foreseen = warm and shape is not flat
    reserving = sum(step.peak_bytes * step.wall_s for step in steps) / (6 * GB)
    usual = median(r.wall_s / max(r.bounds.lower_s, reserving) for r in results)
    assert usual < (1.25 if foreseen else 2.5)


def test_history_makes_it_faster() -> None:
    steps = project(heavy=12, light=120)
    cold = simulate(steps, Adaptive(), cpus=8, memory=6 * GB)
    warm = simulate(steps, Adaptive(), cpus=8, memory=6 * GB, history=steps)
    assert warm.wall_s < cold.wall_s
    assert warm.preemptions <= cold.preemptions


def test_using_phases_is_faster_than_reserving_peaks() -> None:
    steps = [
        make.record(f"{n}.cpp", seconds=5 + n % 23, peak=GB * (0.2 + n % 17 / 8))
        for n in range(150)
    ]

    def line(record: StepRecord, share: float) -> float:
        return record.peak_bytes * share

    result = simulate(steps, Adaptive(), cpus=16, memory=8 * GB, history=steps, shape=line)
    assert result.oom_kills == 0
    reserving = sum(step.peak_bytes * step.wall_s for step in steps) / (8 * GB)
    assert result.wall_s < 0.9 * reserving


def test_heavy_steps_whose_peaks_do_not_meet_run_together() -> None:
    """One is heavy at first and the other in the end: history knows, and memory is short."""

    def result(*profiles: Profile) -> SimulationResult:
        steps = [
            make.record(f"{n}.cpp", seconds=60, peak=5 * GB, profile=profile)
            for n, profile in enumerate(profiles)
        ]
        return simulate(steps, Adaptive(), cpus=4, memory=8 * GB, history=steps)

    together = result(make.profile(100, 10, 10), make.profile(10, 10, 100))
    apart = result(make.profile(100), make.profile(100))
    assert 60 <= together.wall_s < 63  # how reliable durations are is not known at first
    assert apart.wall_s == pytest.approx(120)
    assert (together.preemptions, together.oom_kills) == (0, 0)
    # Both in the end: the second begins later, but need not wait for the first one's.
    both = result(make.profile(10, 10, 100), make.profile(10, 10, 100))
    assert 60 < both.wall_s < 120
    assert both.oom_kills == 0


def test_gpu_targets_one_after_another_are_no_surprise() -> None:
    def result(*archs: str) -> SimulationResult:
        steps = [
            replace(step, step=replace(step.step, role=Role.CUDA, archs=archs))
            for step in project(heavy=12, light=120)
        ]
        return simulate(steps, Adaptive(), cpus=8, memory=6 * GB, history=steps, shape=twice)

    assert result("80", "90").oom_kills == 0
    assert result("80", "90").wall_s <= result("90").wall_s


@pytest.mark.parametrize("warm", [True, False])
def test_a_heavy_step_does_not_wait_for_all_the_light_ones(warm: bool) -> None:
    """It needs most of the memory, and light steps never stop coming."""
    light = [make.record(f"{n}.cpp", seconds=20, peak=1.5 * GB) for n in range(150)]
    steps = [*light[:20], make.record("heavy.cpp", seconds=21, peak=6 * GB), *light[20:]]
    watched = Watched(Adaptive())
    result = simulate(
        steps,
        watched,
        cpus=16,
        memory=8 * GB,
        history=steps if warm else (),
        shape=flat,
        window=32,
    )
    asked = next(
        request.asked
        for state, _ in watched.decided
        for request in state.waiting
        if request.id == 21
    )
    assert result.wall_s > 500
    assert watched.began[21] - asked < 340  # the longest time as the most urgent, and what ran then


def test_light_steps_are_seen_behind_a_window_of_heavy_ones() -> None:
    heavy = [make.record(f"h{n}.cpp", seconds=40, peak=5 * GB) for n in range(20)]
    light = [make.record(f"l{n}.cpp", seconds=1, peak=0.2 * GB) for n in range(200)]
    steps = [*heavy, *light]
    result = simulate(steps, Adaptive(), cpus=4, memory=8 * GB, history=steps, shape=flat)
    assert result.wall_s < 1.02 * sum(step.wall_s for step in heavy)


def test_one_job_at_a_time_takes_the_sum() -> None:
    steps = project()
    result = simulate(steps, FixedJobs(jobs=1), cpus=8, memory=100 * GB)
    assert result.wall_s == pytest.approx(sum(step.wall_s for step in steps))


def test_more_jobs_than_cpus_share_them() -> None:
    steps = [make.record(f"{n}.cpp", seconds=10) for n in range(8)]
    result = simulate(steps, FixedJobs(jobs=8), cpus=2, memory=100 * GB)
    assert result.wall_s == pytest.approx(40)


def test_a_step_begins_when_what_it_needs_is_there() -> None:
    steps = [
        make.record("end", seconds=5, needs=["a", "b"]),
        make.record("a", seconds=10),
        make.record("b", seconds=20),
    ]
    watched = Watched(Adaptive())
    result = simulate(steps, watched, cpus=4, memory=100 * GB, history=steps)
    assert watched.began == {1: 0, 2: 0, 3: pytest.approx(20)}
    assert result.wall_s == pytest.approx(25)


def test_the_longest_path_begins_first() -> None:
    chain = [make.record("a", seconds=10), make.record("b", seconds=50, needs=["a"])]
    others = [make.record(f"{n}", seconds=15) for n in range(4)]
    steps = [*others, *chain]
    watched = Watched(Adaptive())
    simulate(steps, watched, cpus=1, memory=100 * GB, history=steps)
    assert min(watched.began, key=lambda index: watched.began[index]) == 5


def test_the_window_bounds_what_is_asked() -> None:
    steps = [make.record(f"{n}.cpp") for n in range(50)]
    watched = Watched(Adaptive())
    simulate(steps, watched, cpus=2, memory=100 * GB, window=10)
    assert max(len(s.waiting) + len(s.running) for s, _ in watched.decided) == 10


def test_memory_that_runs_out_is_the_kernels_to_free() -> None:
    """Four at once of 3 GB each on 8 GB: kills are counted, charged and tried again."""
    steps = [make.record(f"{n}.cpp", seconds=10, peak=3 * GB) for n in range(4)]
    result = simulate(steps, FixedJobs(jobs=4), cpus=4, memory=8 * GB)
    assert result.oom_kills > 0
    assert result.lost_s > 0
    assert result.wall_s > 10


def test_a_step_that_cannot_fit_fails_and_the_others_continue() -> None:
    steps = [make.record("giant", peak=9 * GB), *project()]
    result = simulate(steps, Adaptive(), cpus=4, memory=8 * GB)
    assert result.failed == ("giant",)
    assert result.oom_kills == 3


@pytest.mark.parametrize("policy", [Adaptive(), FixedJobs(jobs=3), Levels(), TwoPhase()])
def test_with_ample_memory_every_policy_ends_well(policy: Policy) -> None:
    steps = project()
    result = simulate(steps, policy, cpus=4, memory=200 * GB, history=steps)
    assert (result.failed, result.oom_kills, result.preemptions) == ((), 0, 0)


def test_an_empty_build_takes_no_time() -> None:
    assert simulate((), Adaptive(), cpus=4, memory=GB).wall_s == 0


def test_a_policy_that_lets_nothing_run_is_found_out() -> None:
    class Idle:
        name = "idle"

        def decide(self, state: State) -> Decision:  # noqa: ARG002
            return Decision()

    with pytest.raises(AssertionError, match="idle lets nothing run"):
        simulate(project(), Idle(), cpus=4, memory=GB)


def test_a_step_that_is_slower_than_history_says_does_not_meet_the_next_one_at_its_peak() -> None:
    """History says that the first is past its peak when the second comes to its own."""
    climb = tuple(range(1, 101))
    first = replace(make.record("first", seconds=100, peak=4 * GB), profile=(*climb, *[5] * 100))
    other = replace(make.record("other", seconds=80, peak=4 * GB), profile=climb)
    slower = replace(first, wall_s=110)
    memory = round(6.9 * GB)
    result = simulate([slower, other], Adaptive(), cpus=2, memory=memory, history=[first, other])
    assert (result.failed, result.oom_kills, result.preemptions, result.pauses) == ((), 0, 0, 0)
    assert result.wall_s == pytest.approx(slower.wall_s)


def test_steps_that_need_more_than_history_says_are_paused_before_memory_is_short() -> None:
    steps = project()
    actual = scattered(steps, by=0.1, seed=3)
    result = simulate(actual, Adaptive(), cpus=8, memory=6 * GB, history=steps, shape=climbing)
    assert (result.failed, result.oom_kills) == ((), 0)
    assert result.pauses > 0


@pytest.mark.parametrize("shape", SHAPES)
def test_a_shape_is_measured_as_a_governor_would(shape: Shape) -> None:
    step = make.record("a.cpp", seconds=10, peak=GB)
    (known,) = measured([step], shape)
    assert known.mean is not None
    samples = [shape(step, (n + 0.5) / 5000) for n in range(5000)]
    assert known.mean == pytest.approx(sum(samples) / 5000, rel=0.01)
    assert known.peak_bytes == GB
    assert len(known.profile) == PARTS
    for part, percent in enumerate(known.profile):
        assert percent >= 99 * shape(step, (part + 0.5) / PARTS) / GB


def test_a_step_too_short_to_have_a_profile_is_measured_without() -> None:
    assert measured([make.record("a.cpp", seconds=0.4)], late)[0].profile == ()


@given(make.profiles().filter(bool), st.floats(0, 1))
def test_recorded_memory_follows_the_profile(profile: Profile, share: float) -> None:
    step = make.record("a.cpp", peak=GB, profile=profile)
    part = min(PARTS - 1, int(share * PARTS))
    before = profile[part - 1] if part else 0
    lowest = min(before, profile[part])
    assert lowest * GB / 100 <= recorded(step, share) <= profile[part] * GB / 100


def test_recorded_memory_rises_steadily_and_falls_at_once() -> None:
    step = make.record("a.cpp", peak=GB, profile=(40, 80, 20) + (20,) * (PARTS - 3))
    shares = (0.5, 1.0, 1.5, 1.999, 2.0, 2.5)
    memory = [recorded(step, share / PARTS) / GB for share in shares]
    assert memory == pytest.approx([0.2, 0.4, 0.6, 0.8, 0.2, 0.2], abs=0.001)


@given(st.floats(0, 1))
def test_without_a_profile_memory_climbs(share: float) -> None:
    step = make.record("a.cpp", byte_seconds=7 * GB)
    assert recorded(step, share) == climbing(step, share)


@given(make.profiles().filter(bool))
def test_what_is_measured_of_a_profile_is_never_below_it(profile: Profile) -> None:
    step = make.record("a.cpp", seconds=100, peak=GB, profile=profile)
    again = measured([step], recorded)[0].profile
    assert all(new >= old for new, old in zip(again, profile, strict=True))


@given(st.floats(0.05, 1))
def test_climbing_keeps_the_measured_mean(share: float) -> None:
    step = make.record("a.cpp", seconds=10, peak=GB, byte_seconds=share * 10 * GB)
    samples: Sequence[float] = [climbing(step, (n + 0.5) / 2000) for n in range(2000)]
    assert sum(samples) / 2000 == pytest.approx(share * GB, rel=0.02)
    assert climbing(step, 1.0) == GB


def test_scattered_peaks_stay_within_their_share() -> None:
    steps = project()
    other = scattered(steps, by=0.1, seed=1)
    assert scattered(steps, by=0.1, seed=1) == other != scattered(steps, by=0.1, seed=2)
    ratios = [new.peak_bytes / old.peak_bytes for new, old in zip(other, steps, strict=True)]
    assert 0.9 <= min(ratios) < 0.95
    assert 1.05 < max(ratios) <= 1.1


def test_a_warm_cache_leaves_links_and_the_compiles_that_it_lacks() -> None:
    compiles = tuple(make.record(f"{n}.o") for n in range(200))
    link = make.record("app", role=Role.LINK, needs=[step.step.output for step in compiles])
    left = with_cache_hits((*compiles, link), share=0.9, seed=1)
    assert 5 < len(left) - 1 < 40
    assert left[-1].needs == tuple(step.step.output for step in left[:-1])
    assert with_cache_hits((*compiles, link), share=0.0, seed=1) == (*compiles, link)
    result = simulate(left, Adaptive(), cpus=4, memory=8 * GB, history=left)
    assert result.wall_s >= 10 * (len(left) - 1) / 4


def test_threads_of_nvcc_need_memory_and_save_time() -> None:
    one = make.record("one.cu", seconds=90, role=Role.CUDA)
    several = replace(
        one, step=replace(one.step, key="two", archs=("80", "86", "90"), output="two")
    )
    same, wide = with_nvcc_threads((one, several), 3)
    assert same == one
    assert wide.peak_bytes == 3 * several.peak_bytes
    assert wide.wall_s < several.wall_s / 2
    assert wide.step.targets_at_once == 3

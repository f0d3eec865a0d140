"""The steps of a simulated build: their memory over time, and what other conditions change.

The memory of a step follows a ``Shape``, by default its recorded profile.
"""

from collections.abc import Callable, Sequence
from functools import lru_cache
from math import ceil
from random import Random

from msgspec.structs import replace

from stoker.govern.policy.profile import SHORTEST, climbed
from stoker.knowledge.compiler_modes import nvcc_rounds, shipped_effects
from stoker.knowledge.steps import typical_share
from stoker.model.govern import PARTS, CompileMode, ModeEffect, Role, StepRecord

Shape = Callable[[StepRecord, float], float]  # bytes in use after a share of the step's life
Effects = Callable[[StepRecord], Sequence[ModeEffect]]  # what modes change of a step

_INSTANTS = 2 * PARTS  # at which a shape is sampled
_CACHED = (Role.C, Role.CXX, Role.CUDA)


def recorded(record: StepRecord, share: float) -> float:
    """Follow the recorded profile; without one, climb as compilers usually do. A part of a profile
    is the most in it: memory rises to it until the end of the part, and falls to it at once.
    """
    levels = record.profile
    if not levels:
        return climbing(record, share)
    part = min(int(share * len(levels)), len(levels) - 1)
    before, level = levels[part - 1] if part else 0, levels[part]
    left = part + 1 - share * len(levels) if before < level else 0.0
    return record.peak_bytes * (level - left * (level - before)) / 100


def climbing(record: StepRecord, share: float) -> float:
    """Climb steeply at first, then slowly until the end, with the measured mean."""
    mean = record.mean or typical_share() * record.peak_bytes
    return record.peak_bytes * climbed(mean / record.peak_bytes, share) if mean else 0.0


def flat(record: StepRecord, share: float) -> float:  # noqa: ARG001 - a shape
    """Use the peak throughout: the worst case for a policy that does not reserve it."""
    return record.peak_bytes


def scattered(steps: Sequence[StepRecord], *, by: float, seed: int) -> tuple[StepRecord, ...]:
    """Return the steps with peaks drawn uniformly within a share of the recorded ones."""
    if not by:
        return tuple(steps)
    random = Random(seed)
    return tuple(_scaled(step, 1 + random.uniform(-by, by)) for step in steps)


def _scaled(step: StepRecord, factor: float) -> StepRecord:
    integral = None if step.byte_seconds is None else step.byte_seconds * factor
    return replace(step, peak_bytes=round(step.peak_bytes * factor), byte_seconds=integral)


def with_cache_hits(
    steps: Sequence[StepRecord], *, share: float, seed: int
) -> tuple[StepRecord, ...]:
    """Return the steps that are left if a compiler cache has this share of the compiles, drawn at
    random. A hit takes no time.
    """
    random = Random(seed)
    hits = {
        step.step.output for step in steps if step.step.role in _CACHED and random.random() < share
    }
    return tuple(
        replace(step, needs=tuple(need for need in step.needs if need not in hits))
        for step in steps
        if step.step.output not in hits
    )


def with_nvcc_threads(steps: Sequence[StepRecord], threads: int) -> tuple[StepRecord, ...]:
    """Return the steps as if each compile of CUDA for several GPU targets asked for so many
    threads, which the governor does not change.
    """
    return tuple(
        replace(with_threads(step, threads), mode=CompileMode.DEFAULT)
        if step.step.role is Role.CUDA and len(step.step.archs) > 1
        else step
        for step in steps
    )


def measured(steps: Sequence[StepRecord], shape: Shape) -> tuple[StepRecord, ...]:
    """Return the steps with the memory integral and profile that a governor would record."""
    return tuple(_measured(step, shape) for step in steps)


def _measured(step: StepRecord, shape: Shape) -> StepRecord:
    if step.killed:  # in a simulation it ends there
        step = replace(step, killed=False)
    if step.mode is CompileMode.THREADS:  # the governor chooses again
        step = with_threads(step, 1)
    follows = shape is recorded and len(step.profile) == PARTS
    if follows and step.byte_seconds is not None:
        return step
    instants = _instants(step, shape)
    most = max(instants)
    profile = step.profile if follows else ()
    if most and step.wall_s >= SHORTEST and not follows:
        parts = map(max, instants[::2], instants[1::2])
        profile = tuple([ceil(100 * part / most) for part in parts])
    integral = step.wall_s * sum(instants) / _INSTANTS
    return replace(step, byte_seconds=integral, profile=profile)


def _instants(step: StepRecord, shape: Shape) -> list[float]:
    """Return the memory of a step at regular times of its life."""
    climbs = shape is climbing or (shape is recorded and not step.profile)
    if not climbs or not step.peak_bytes:
        return [shape(step, (instant + 0.5) / _INSTANTS) for instant in range(_INSTANTS)]
    mean = step.mean or typical_share() * step.peak_bytes
    return [step.peak_bytes * share for share in _climb(mean / step.peak_bytes)]


@lru_cache(maxsize=256)
def _climb(mean: float) -> tuple[float, ...]:
    """Return shares of the peak; steps whose mean is not known all climb in the same way."""
    return tuple(climbed(mean, (instant + 0.5) / _INSTANTS) for instant in range(_INSTANTS))


def in_mode(
    record: StepRecord, mode: CompileMode, effects: Effects, threads: int = 1
) -> StepRecord:
    """Return what the step takes in another mode than it was measured in."""
    if mode is CompileMode.THREADS:
        return with_threads(record, threads)
    if mode is record.mode:
        return record
    known = {effect.mode: effect for effect in effects(record)}
    before, after = (known.get(each, ModeEffect()) for each in (record.mode, mode))
    return _costing(record, after.memory / before.memory, after.seconds / before.seconds, mode)


def with_threads(record: StepRecord, threads: int) -> StepRecord:
    """Return what a step of nvcc takes with so many threads. Its CPU time stays the same."""
    before, step = record.step, replace(record.step, threads=threads)
    mode = CompileMode.THREADS if threads > 1 else CompileMode.DEFAULT
    memory = step.targets_at_once / before.targets_at_once
    seconds = nvcc_rounds(step) / nvcc_rounds(before)
    changed = _costing(record, memory, seconds, mode)
    return replace(changed, step=step, profile=(), cpu_s=record.cpu_s)


def _costing(record: StepRecord, memory: float, seconds: float, mode: CompileMode) -> StepRecord:
    """Return the record with other memory and time."""
    scaled = _scaled(record, memory)
    integral = scaled.byte_seconds
    return replace(
        scaled,
        wall_s=record.wall_s * seconds,
        cpu_s=record.cpu_s * seconds,
        byte_seconds=integral and integral * seconds,
        mode=mode,
    )


def recorded_effects(record: StepRecord) -> Sequence[ModeEffect]:
    return record.effects or shipped_effects(record.peak_bytes)

"""Lower bounds of a build's duration: times that no schedule of its steps can beat.

A step counts with the least that it could take: alone on its CPU, in the mode of its compiler that
is fastest. Its memory counts in the mode that takes least of it over time.
"""

from collections.abc import Mapping, Sequence

from msgspec.structs import replace

from stoker.govern.policy.critical_path import paths_left
from stoker.knowledge.compiler_modes import nvcc_rounds, shipped_effects
from stoker.model.govern import Collector, ModeEffect, Role, StepRecord
from stoker.model.simulation import Bounds


def bounds(
    steps: Sequence[StepRecord],
    *,
    cpus: int,
    memory: int,
    others: Mapping[str, float] | None = None,
) -> Bounds:
    """Return the largest lower bound, and what the build is limited by. A step whose memory
    integral is unknown adds nothing to the memory term. ``others`` are lower bounds of other
    resources, by name.
    """
    best = [at_best(step) for step in steps]
    lower = {
        "the longest path": critical_path(best),
        "CPUs": cpu_bound(best, cpus),
        "memory": memory_bound(best, memory),
        **(others or {}),
    }
    # Memory also limits a build in which few large steps fit at once, although a schedule that
    # lets their peaks alternate can be faster than this.
    limits = lower | {"memory": max(lower["memory"], _widths(best, cpus, memory))}
    return Bounds(
        lower_s=max(lower.values()), limited_by=max(limits, key=lambda name: limits[name])
    )


class RunningBound:
    """Adds up the steps of a run as they end. It has no dependencies, and keeps no step: a run may
    have a hundred thousand.
    """

    def __init__(self) -> None:
        self._longest_s = self._cpu_s = self._byte_seconds = 0.0

    def add(self, step: StepRecord) -> None:
        best = at_best(step)
        self._longest_s = max(self._longest_s, best.wall_s)
        self._cpu_s += best.cpu_s
        self._byte_seconds += best.byte_seconds or 0.0

    def seconds(self, *, cpus: int, memory: int) -> float:
        """Return a time that no schedule of the steps can beat."""
        return max(self._longest_s, self._cpu_s / cpus, self._byte_seconds / memory)


def at_best(record: StepRecord) -> StepRecord:
    """Return the record with the least time and memory that its step could take."""
    record = uncontended(record)
    step = record.step
    if step.role is Role.CUDA and len(step.archs) > 1:
        parallel = replace(step, threads=len(step.archs))
        shorter = min(1.0, nvcc_rounds(parallel) / nvcc_rounds(step))
        return replace(record, wall_s=record.wall_s * shorter)
    if step.collector is Collector.NONE:
        return record
    effects = (ModeEffect(), *(record.effects or shipped_effects(record.peak_bytes)))
    own = next((each for each in effects if each.mode is record.mode), ModeEffect())
    shorter = min(1.0, *(each.seconds / own.seconds for each in effects))
    area = own.memory * own.seconds
    less = min(1.0, *(each.memory * each.seconds / area for each in effects))
    integral = record.byte_seconds
    return replace(
        record,
        wall_s=record.wall_s * shorter,
        cpu_s=record.cpu_s * shorter,
        byte_seconds=integral and integral * less,
    )


def uncontended(record: StepRecord) -> StepRecord:
    """Return the record as if the step had a CPU for itself: its duration becomes its CPU time."""
    if not 0 < record.cpu_s < record.wall_s:
        return record
    share = record.cpu_s / record.wall_s
    byte_seconds = None if record.byte_seconds is None else record.byte_seconds * share
    return replace(record, wall_s=record.cpu_s, byte_seconds=byte_seconds)


def cpu_bound(steps: Sequence[StepRecord], cpus: int) -> float:
    return sum(step.cpu_s for step in steps) / cpus


def memory_bound(steps: Sequence[StepRecord], memory: int) -> float:
    return sum(step.byte_seconds or 0.0 for step in steps) / memory


def critical_path(steps: Sequence[StepRecord]) -> float:
    return max(paths(steps).values(), default=0.0)


def paths(steps: Sequence[StepRecord]) -> dict[str, float]:
    """Return the critical-path seconds from the start of each output's step to the end."""
    seconds = {step.step.output: step.wall_s for step in steps}
    return paths_left({step.step.output: step.needs for step in steps}, seconds.__getitem__)


def _widths(steps: Sequence[StepRecord], cpus: int, memory: int) -> float:
    """Return the largest bound from steps that cannot run together: at most k steps that are larger
    than memory / (k + 1) run at once. A k above the number of CPUs adds nothing.
    """
    return max(
        sum(step.wall_s for step in steps if step.peak_bytes > memory / (k + 1)) / k
        for k in range(1, cpus + 1)
    )

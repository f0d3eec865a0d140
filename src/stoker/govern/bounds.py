"""Lower bounds of a build's duration on a machine, for any scheduler."""

from collections.abc import Mapping, Sequence
from graphlib import TopologicalSorter

from stoker.model.govern import Bounds, StepRecord


def bounds(
    steps: Sequence[StepRecord],
    *,
    cpus: int,
    memory: int,
    others: Mapping[str, float] | None = None,
) -> Bounds:
    """Return the bounds for steps with the durations of an uncontended run. A step whose memory
    integral is unknown adds nothing to the memory term. ``others`` are lower bounds of other
    resources, by name.
    """
    lower = {
        "the longest path": critical_path(steps),
        "CPUs": cpu_bound(steps, cpus),
        "memory": memory_bound(steps, memory),
        **(others or {}),
    }
    reserving = {"peaks of memory": max(_area(steps, memory), _widths(steps, cpus, memory))}
    every = {**lower, **reserving}
    return Bounds(
        lower=max(lower.values()),
        reserving=max(reserving.values()),
        limited_by=max(every, key=lambda name: every[name]),
    )


def cpu_bound(steps: Sequence[StepRecord], cpus: int) -> float:
    return sum(step.cpu_seconds for step in steps) / cpus


def memory_bound(steps: Sequence[StepRecord], memory: int) -> float:
    return sum(step.byte_seconds or 0.0 for step in steps) / memory


def critical_path(steps: Sequence[StepRecord]) -> float:
    return max(paths(steps).values(), default=0.0)


def paths(steps: Sequence[StepRecord]) -> dict[str, float]:
    """Return the critical-path seconds from the start of each output's step to the end."""
    seconds = {step.step.output: step.seconds for step in steps}
    users: dict[str, list[str]] = {output: [] for output in seconds}
    for step in steps:
        for need in step.needs:
            users[need].append(step.step.output)
    longest: dict[str, float] = {}
    for output in TopologicalSorter(users).static_order():
        after = max((longest[user] for user in users[output]), default=0.0)
        longest[output] = seconds[output] + after
    return longest


def _area(steps: Sequence[StepRecord], memory: int) -> float:
    return sum(step.peak * step.seconds for step in steps) / memory


def _widths(steps: Sequence[StepRecord], cpus: int, memory: int) -> float:
    """Return the largest bound from steps that cannot run together: at most k steps that are larger
    than memory / (k + 1) run at once. A k above the number of CPUs adds nothing.
    """
    return max(
        sum(step.seconds for step in steps if step.peak > memory / (k + 1)) / k
        for k in range(1, cpus + 1)
    )

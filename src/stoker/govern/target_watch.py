"""Refuses steps that compile for other GPU targets than the plan of their run.

The governor only passes steps on: what a command compiles for, and how that differs from a plan,
is decided in ``stoker.plan.compiled``.
"""

from stoker.model.events import KernelStarts, TargetsDiffer
from stoker.model.govern import Step
from stoker.model.plan import PlannedTargets
from stoker.plan.compiled import device_compile, difference


class TargetWatch:
    """The targets of one run."""

    def __init__(self, planned: PlannedTargets):
        self._planned = planned

    def judge(self, run: int, step: Step, now: float) -> TargetsDiffer | KernelStarts | None:
        """Return why a step must not run, or what it compiles for; None without device code."""
        compiled = device_compile(step)
        if compiled is None:
            return None
        if differs := difference(self._planned, compiled):
            return TargetsDiffer(
                at=now, run=run, title=step.title, difference=differs, flags=compiled.flags
            )
        return KernelStarts(at=now, run=run, title=step.title, targets=compiled.named)

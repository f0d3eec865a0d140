"""Chooses how many CPUs each waiting step should use, so that the last steps use all of them.

More CPUs make a step of nvcc shorter, and cost memory and some CPU time. So they are worth it
only for a step that would still run when all other work is done.
"""

from collections.abc import Iterator
from heapq import heapify, heapreplace
from math import inf

from stoker.govern.policy.upper import remaining
from stoker.model.govern import ModeEffect, Request, Running, State


def allotments(state: State, room: float) -> dict[int, ModeEffect]:
    """Return the waiting steps that should use more CPUs than they ask for, with the mode.

    The step that ends last gets more CPUs again and again, as long as the build ends earlier by
    that. Steps that are too long to run one after the other must fit beside one another. ``room``
    is the memory that steps may use.
    """
    if not any(request.faster for request in state.waiting):
        return {}
    plan = _Plan(state, room)
    best = plan.length
    chosen: dict[int, ModeEffect] = {}
    result: dict[int, ModeEffect] = {}
    for identity, effect in plan.widened():
        chosen[identity] = effect
        if plan.length < best:
            best, result = plan.length, dict(chosen)
    return result


class _Task:
    """A step that is left, with the CPUs that it gets in the plan."""

    def __init__(self, request: Request, cpus: int, seconds: float, after: float):
        """Prepare a task. ``after`` is the time from its end to the end of the build."""
        known = request.prediction
        self.id = request.id
        self._seconds, self._after = seconds, after
        # To repeat a step that needs more than expected would cost more than its threads bring.
        self._peak = known.peak if known.learned else known.high
        self._wider = iter(effect for effect in request.faster if effect.threads <= cpus)
        self._effect = ModeEffect(threads=request.slots_of(cpus))

    @property
    def cpus(self) -> int:
        return self._effect.threads

    @property
    def memory(self) -> float:
        return self._peak * self._effect.memory

    @property
    def seconds(self) -> float:
        return self._seconds * self._effect.seconds

    @property
    def end(self) -> float:
        """The seconds from now to the end of the build, if the step runs now."""
        return self.seconds + self._after

    def widen(self) -> ModeEffect | None:
        """Use more CPUs; return the new effect, or ``None`` if there is none."""
        effect = next(self._wider, None)
        self._effect = effect or self._effect
        return effect


def _waiting(request: Request, cpus: int) -> _Task:
    seconds = request.prediction.seconds or request.path
    return _Task(request, cpus, seconds, max(0.0, request.path - seconds))


def _running(step: Running, state: State) -> _Task:
    request, age = step.request, step.age(state.now)
    seconds, known = remaining(request.prediction, age), request.prediction.seconds
    if known is None or seconds == inf:
        return _Task(request, state.cpus, max(0.0, request.path - age), 0.0)
    return _Task(request, state.cpus, seconds, max(0.0, request.path - known))


class _Plan:
    """All steps that are left, as far as they are known."""

    def __init__(self, state: State, room: float):
        self._cpus, self._room = state.cpus, max(1.0, room)
        waiting = [_waiting(request, state.cpus) for request in state.waiting]
        running = [_running(step, state) for step in state.running]
        self._tasks = [*waiting, *running]
        self._running_until = max((task.end for task in running), default=0.0)
        self._work = max(sum(task.seconds * task.cpus for task in self._tasks), state.work_left)
        self._area = sum(task.seconds * task.memory for task in self._tasks)
        self._last = [(-task.end, task.id, task) for task in waiting]
        heapify(self._last)

    @property
    def length(self) -> float:
        """The least time in which the steps can end."""
        end = max(-self._last[0][0], self._running_until)
        return max(end, self._work / self._cpus, self._area / self._room)

    def widened(self) -> Iterator[tuple[int, ModeEffect]]:
        """Give more CPUs to the step that ends last, and yield it, while that can help."""
        while -self._last[0][0] >= self.length:
            _, identity, task = self._last[0]
            self._count(task, -1)
            effect = task.widen()
            self._count(task, 1)
            heapreplace(self._last, (-task.end, identity, task))
            if effect is None or not self._fits():
                return
            yield identity, effect

    def _count(self, task: _Task, sign: int) -> None:
        self._work += sign * task.seconds * task.cpus
        self._area += sign * task.seconds * task.memory

    def _fits(self) -> bool:
        """Return whether all steps of which no two can run one after the other fit at once."""
        half = self.length / 2
        long = [task for task in self._tasks if task.end > half]
        fits = sum(task.cpus for task in long) <= self._cpus
        return fits and sum(task.memory for task in long) <= self._room

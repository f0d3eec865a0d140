"""Which modes a step may run in: of gcc's garbage collector, threads of nvcc, and linkers.

The policy chooses among them; the words that a mode adds to a command are in `knowledge`.
"""

from collections.abc import Iterator
from heapq import heapify, heapreplace
from math import inf

from msgspec.structs import replace

from stoker.govern import profile
from stoker.govern.command_line import link_identity
from stoker.govern.predict import Predictor
from stoker.govern.protocol import Ask
from stoker.knowledge.compilers import error_names
from stoker.model.govern import (
    Collector,
    CompileMode,
    Gc,
    LinkerChoice,
    ModeEffect,
    Reason,
    Request,
    Role,
    Running,
    State,
    Step,
    StepRecord,
)

_ALLOWED = {
    Gc.OFF: (),
    Gc.AUTO: (Collector.FREE,),
    Gc.ALWAYS: (Collector.FREE, Collector.RECORDED),
}


class Modes:
    """The modes that the settings allow and the compilers know."""

    def __init__(self, predictor: Predictor, *, gc: Gc, nvcc_threads: bool) -> None:
        """Prepare. ``gc`` says where modes of gcc may be used, and ``nvcc_threads`` whether the
        governor may choose those of nvcc.
        """
        self._predictor = predictor
        self._collectors = _ALLOWED[gc]
        self._nvcc_threads = nvcc_threads
        self._linkers: dict[int, LinkerChoice] = {}  # by run
        self._refusing: set[str] = set()  # compilers that do not know the options of a mode

    def effects(self, step: Step, peak: int) -> tuple[ModeEffect, ...]:
        """Return the modes of gcc that the step may use. ``peak`` is the predicted one."""
        allowed = step.role is not Role.CUDA and step.collector in self._collectors
        return self._predictor.effects(step, peak) if allowed and not self.refuses(step) else ()

    def faster(self, step: Step) -> tuple[ModeEffect, ...]:
        """Return the numbers of threads that the step may use besides one."""
        free = step.role is Role.CUDA and step.collector is Collector.FREE and step.threads == 1
        allowed = free and self._nvcc_threads and not self.refuses(step)
        return self._predictor.faster(step) if allowed else ()

    def effect(self, request: Request, record: StepRecord) -> ModeEffect | None:
        """Return what the mode of an attempt has changed; ``None`` if that is unknown. The time of
        gcc is that predicted, because durations differ more from build to build.
        """
        if request.mode.is_collector:
            effect, prediction = request.effect, request.prediction
            if not prediction.learned or not prediction.peak:
                return effect
            default = prediction.peak / effect.reserved
            return replace(effect, memory=record.peak_bytes / default, assumed=False)
        before = self._predictor.default_seconds(record.step) if request.mode.is_linker else None
        if not before or not record.wall_s:
            return None
        return ModeEffect(mode=request.mode, seconds=record.wall_s / before)

    def link_with(self, run: int, choice: LinkerChoice) -> None:
        """Set the linkers of a run; without a choice no command line has to be looked at."""
        if choice.measured or choice.every is not CompileMode.DEFAULT:
            self._linkers[run] = choice

    def linker(self, ask: Ask) -> CompileMode:
        """Return the mode of a link; the default one for other commands."""
        choice = self._linkers.get(ask.run)
        if choice is None or not ask.repeatable:
            return CompileMode.DEFAULT
        return choice.of(link_identity(ask.command, ask.directory))

    def forget(self, run: int) -> None:
        """Drop the linkers of a run that has ended."""
        self._linkers.pop(run, None)

    def refuses(self, step: Step) -> bool:
        """Return whether the compiler is known not to know the options of a mode."""
        return step.compiler in self._refusing

    def refuse(self, step: Step) -> None:
        """Note that the compiler does not know the options of a mode."""
        self._refusing.add(step.compiler)


def failed_by_mode(mode: CompileMode, tail: bytes) -> bool:
    """Return whether a failed step may succeed as the user wrote it; any link may. ``tail`` is the
    end of what it printed.
    """
    return mode.is_linker or (mode is not CompileMode.DEFAULT and error_names(mode) in tail)


def without_modes(request: Request) -> Request:
    """Return the request of a step that runs as the user wrote it."""
    return replace(request.in_mode(CompileMode.DEFAULT), effects=(), faster=())


def forced_by(request: Request) -> Reason | None:
    """Return why a step asks for another mode: its linker, or it ran out of memory before."""
    if request.mode is CompileMode.DEFAULT:
        return None
    return Reason.LINKER if request.mode.is_linker else Reason.TOO_LARGE


# -- allotment -------------------------------------------------------------------------------------
# Chooses how many CPUs each waiting step should use, so that the last steps use all of them.
#
# More CPUs make a step of nvcc shorter, and cost memory and some CPU time. So they are worth it
# only for a step that would still run when all other work is done.


_UNKNOWN = 1.0  # seconds; durations are compared, so any number does if none is known
_CAUTION = 2
_WORTHWHILE = 0.95  # the end of the build over the end with one CPU for each step


def allotments(state: State, room: float) -> dict[int, ModeEffect]:
    """Return the waiting steps that should use more CPUs than they ask for, with the mode.

    The step that ends last gets more CPUs again and again, as long as the build ends earlier by
    that. Steps that are too long to run one after the other must fit beside one another. ``room``
    is the memory that steps may use.
    """
    if not any(request.faster for request in state.waiting):
        return {}
    plan = _Plan(state, room)
    first = best = plan.length
    chosen: dict[int, ModeEffect] = {}
    result: dict[int, ModeEffect] = {}
    for identity, effect in plan.widened():
        chosen[identity] = effect
        if plan.length < best:
            best, result = plan.length, dict(chosen)
    return result if best < first * _WORTHWHILE else {}


class _Task:
    """A step that is left, with the CPUs that it gets in the plan."""

    def __init__(self, request: Request, cpus: int, seconds: float, after: float):
        """Prepare a task. ``after`` is the time from its end to the end of the build."""
        known = request.prediction
        self.id = request.id
        self._seconds, self._after = seconds, after
        # A step that was never measured may need far more than expected, and to repeat it would
        # cost more than its threads bring.
        self._peak = known.peak if known.learned else _CAUTION * known.high
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
    seconds = request.prediction.seconds or request.path or _UNKNOWN
    return _Task(request, cpus, seconds, max(0.0, request.path - seconds))


def _running(step: Running, state: State) -> _Task:
    request, age = step.request, step.age(state.now)
    seconds, known = profile.remaining(request.prediction, age), request.prediction.seconds
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

"""Modes of a step: what they change of it, which of them it may use, and in which it starts.

A mode is of gcc's garbage collector, threads of nvcc, or a linker; the words that it adds to a
command are in `knowledge`. `ModeEffects` learns what modes of gcc change. `Modes` knows which modes
the settings allow and the compilers know. `ModeChooser` chooses one of them:

If CPUs are idle because steps wait for memory, steps start in a mode that needs less memory and
more time. A step that would not fit alone starts in the mildest mode in which it does. If no step
waits for memory, steps start in a mode that needs more of it and less time, as far as it fits. If
too few steps are left for all CPUs, the longest ones use several.
"""

from collections import defaultdict
from collections.abc import Iterator
from functools import cached_property
from heapq import nlargest
from statistics import median
from typing import TYPE_CHECKING

from msgspec.structs import replace

from stoker.govern.allotment import allotments
from stoker.govern.command_line import link_identity
from stoker.govern.forecast import Forecast
from stoker.govern.protocol import Ask
from stoker.knowledge.compiler_modes import (
    cost_of_saving,
    error_names,
    measured_effect,
    shipped_effects,
)
from stoker.knowledge.steps import known_step
from stoker.model.govern import (
    Collector,
    CompileMode,
    Gc,
    LinkerChoice,
    ModeChoice,
    ModeEffect,
    Reason,
    Request,
    Role,
    State,
    Step,
    StepRecord,
)
from stoker.model.value import Bytes, Ratio, Value

if TYPE_CHECKING:  # it learns what modes change with the class ModeEffects
    from stoker.govern.predict import Predictor

_MOST_EFFECT = 1000.0  # what a damaged history can do
KEPT = 64  # latest figures of each kind that count [tables-4cpu-2G-cold 1.23 with 16]

_Kind = tuple[Role, str, CompileMode]  # steps of a build folder in one mode
_ALLOWED = {
    Gc.OFF: (),
    Gc.AUTO: (Collector.FREE,),
    Gc.ALWAYS: (Collector.FREE, Collector.RECORDED),
}


class ModeKnowledge(Value, frozen=True, kw_only=True):
    """All that was learned about modes, as it is stored."""

    peaks: dict[str, dict[CompileMode, Bytes]]
    effects: list[tuple[Role, str, dict[CompileMode, ModeEffect]]]
    responses: list[tuple[Role, str, CompileMode, list[Ratio]]]


class ModeEffects:
    """What modes of gcc change of a step: as measured of its source, else as of others in its
    folder. In its methods, ``default`` is the latest peak of the same command in the default mode;
    ``None`` if it never ran so.

    Shipped figures are facts about the projects that they were measured on and assumptions about
    others: a source of large tables has no garbage. Only memory is learned: durations differ more
    from build to build than modes change them.
    """

    def __init__(self) -> None:
        # Peaks as measured in other modes, by key.
        self._peaks: defaultdict[str, dict[CompileMode, int]] = defaultdict(dict)
        # What modes were seen to change, by source: it hardly depends on flags.
        self._effects: defaultdict[tuple[Role, str], dict[CompileMode, ModeEffect]]
        self._effects = defaultdict(dict)
        # The same over what is shipped, by build folder: 0 where a mode changes nothing.
        self._responses: defaultdict[_Kind, list[float]] = defaultdict(list)

    def knowledge(self) -> ModeKnowledge:
        return ModeKnowledge(
            peaks=dict(self._peaks),
            effects=[(*source, effects) for source, effects in self._effects.items()],
            responses=[(*kind, found) for kind, found in self._responses.items()],
        )

    def recall(self, known: ModeKnowledge) -> None:
        self._peaks.update(known.peaks)
        for role, source, effects in known.effects:
            self._effects[role, source] = effects
        for role, directory, mode, responses in known.responses:
            self._responses[role, directory, mode] = responses

    def has_seen(self, step: Step) -> bool:
        """Return whether the step was measured in another mode than the default one."""
        return step.key in self._peaks

    def in_default_mode(self, row: StepRecord, default: float | None) -> StepRecord:
        """Return what the step would have taken by default, by its own factors or shipped ones."""
        self._peaks[row.step.key][row.mode] = row.peak_bytes
        own = (each for each in self._measured(row.step, default) if each.mode is row.mode)
        effect = next(own, measured_effect(row.mode, row.peak_bytes))
        integral = row.byte_seconds
        return replace(
            row,
            peak_bytes=round(row.peak_bytes / effect.memory),
            wall_s=row.wall_s / effect.seconds,
            byte_seconds=integral and integral / effect.memory / effect.seconds,
            mode=CompileMode.DEFAULT,
        )

    def learn(self, step: Step, mode: CompileMode, default: float | None) -> None:
        """Learn from a step that was measured in ``mode`` last."""
        for effect in self._measured(step, default):
            self._effects[step.role, step.source][effect.mode] = effect
            if effect.mode is mode and mode.is_collector:
                self._learn_response(step, effect, default or 0.0)

    def _learn_response(self, step: Step, effect: ModeEffect, default: float) -> None:
        """Note how much of the shipped change of memory a mode has brought."""
        shipped = next(each for each in shipped_effects(default) if each.mode is effect.mode)
        if shipped.memory != 1.0:
            response = max(0.0, (effect.memory - 1) / (shipped.memory - 1))
            kind = step.role, step.directory, effect.mode
            self._responses[kind] = [*self._responses[kind][1 - KEPT :], response]

    def _measured(self, step: Step, default: float | None) -> Iterator[ModeEffect]:
        """Yield what modes change of a step that was measured in them and in the default mode."""
        if default is not None:
            for mode, peak in self._peaks.get(step.key, {}).items():
                # No mode changes memory that much; a step that used next to none shows nothing.
                memory = min(_MOST_EFFECT, max(1 / _MOST_EFFECT, max(1, peak) / max(1, default)))
                yield replace(measured_effect(mode, peak), mode=mode, memory=memory)

    def of(self, step: Step, peak: int) -> tuple[ModeEffect, ...]:
        """Return what modes change of a step with this peak by default."""
        measured = self._effects.get((step.role, step.source), {})
        known = known_step(step.role, step.source) is not None
        return tuple(
            measured.get(each.mode) or self._expected(step, each, known=known)
            for each in shipped_effects(peak)
        )

    def _expected(self, step: Step, shipped: ModeEffect, *, known: bool) -> ModeEffect:
        responses = self._responses.get((step.role, step.directory, shipped.mode))
        if not responses and shipped.mode is CompileMode.LOW:
            # What is not garbage in the lean mode is none in the low mode either.
            responses = self._responses.get((step.role, step.directory, CompileMode.LEAN))
        if responses:
            memory = 1 + median(responses) * (shipped.memory - 1)
            return replace(shipped, memory=memory)
        return shipped if known else replace(shipped, assumed=True)


class Modes:
    """The modes that the settings allow and the compilers know."""

    def __init__(self, predictor: "Predictor", *, gc: Gc, nvcc_threads: bool) -> None:
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


class ModeChooser:
    """Chooses modes in one state; ``chosen`` has the choices of the steps that start."""

    def __init__(self, state: State, room: float) -> None:
        """Prepare. ``room`` is the memory that steps may use."""
        self._state = state
        self._room = room
        # Whether more CPUs are idle because steps wait for memory than it costs in time to save it:
        # then steps save memory, otherwise they may take more.
        self._memory_bound = state.contention > cost_of_saving()
        self.chosen: dict[int, ModeChoice] = {}

    def choose(self, asked: Request, request: Request) -> None:
        """Note that a step starts in the mode of ``request``, and why that is not the one in which
        it has asked.
        """
        if request is asked:
            return
        if request.mode is CompileMode.FAST:
            reason = Reason.IDLE_MEMORY
        elif request.threads > asked.threads:
            reason = Reason.IDLE_CPUS
        else:
            reason = Reason.TOO_LARGE if self._is_too_large(asked) else Reason.MEMORY_BOUND
        self.chosen[request.id] = ModeChoice(
            mode=request.mode, threads=request.threads, reason=reason
        )

    def _is_too_large(self, request: Request) -> bool:
        """Return whether a step is known not to fit even alone."""
        return request.learned and request.prediction.peak > self._room

    def saving(self, request: Request) -> Request:
        """Return the request in the mode in which it should save memory now, if it should."""
        if not request.effects or request.ooms:
            return request
        if self._is_too_large(request):
            modes = (request.in_mode(each.mode) for each in request.effects)
            smaller = (each for each in modes if each.prediction.peak <= self._room)
            return next(smaller, request.in_mode(request.effects[-1].mode))
        if not self._memory_bound:
            return request
        saving = [each for each in request.effects if _memory_seconds(each) < 1]
        best = min((each for each in saving if not each.assumed), key=_memory_seconds, default=None)
        if best is None and saving and request.learned and not self._is_measured:
            # Nothing is known of such steps: one of them shows what the mildest mode changes.
            best = saving[0]
        return request.in_mode(best.mode) if best else request

    @cached_property
    def _is_measured(self) -> bool:
        """Whether a step runs in a mode whose effect on such steps is only assumed."""
        return any(
            step.request.mode is not CompileMode.FAST and step.request.effect.assumed
            for step in self._state.running
        )

    @cached_property
    def _allotted(self) -> dict[int, ModeEffect]:
        """The steps that should use several CPUs."""
        return {} if self._memory_bound else allotments(self._state, self._room)

    def faster(self, request: Request, forecast: Forecast) -> Request:
        """Return the request of a step that fits with the threads that it should use, or in the
        mode fast if its size is known, no step waits for memory, and it fits in that mode beside
        some of the largest waiting steps.
        """
        if wanted := self._allotted.get(request.id):
            return _widened(request, wanted.threads, forecast)
        if self._memory_bound or not _gains(request):
            return request
        fast = request.in_mode(CompileMode.FAST)
        known = fast.prediction
        beside = max(1, self._state.cpus // 4)
        others = sum(nlargest(beside, (each.prediction.high for each in self._state.waiting)))
        all_of_them = replace(known, peak=known.peak + others, high=known.high + others)
        larger = replace(fast, prediction=all_of_them)
        fits = larger.prediction.high <= forecast.room and forecast.fits(larger)
        return fast if fits else request


def _widened(request: Request, most: int, forecast: Forecast) -> Request:
    """Return the request with as many threads as fit, but no more than ``most``."""
    wider = (request.in_mode(each.mode, each.threads) for each in reversed(request.faster))
    fitting = (each for each in wider if each.threads <= most and forecast.fits(each))
    return next(fitting, request)


def _memory_seconds(effect: ModeEffect) -> float:
    """Return what a mode takes of memory times duration, which is what steps compete for."""
    return effect.memory * effect.seconds


def _gains(request: Request) -> bool:
    """Return whether the step is known to take less time if it takes more memory."""
    default = request.mode is CompileMode.DEFAULT and request.learned
    unclear = request.ooms or request.preemptions or not default
    effects = () if unclear else request.effects
    return any(each.mode is CompileMode.FAST and each.seconds < 1 for each in effects)

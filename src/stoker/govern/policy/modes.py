"""Which modes a step may use: those that the settings allow and its compiler knows."""

from msgspec.structs import replace

from stoker.govern.command_line import has_free_linker
from stoker.govern.policy.predict import Predictor
from stoker.govern.protocol import Ask
from stoker.knowledge.compiler_modes import error_names
from stoker.model.govern import (
    Collector,
    CompileMode,
    ModeEffect,
    Reason,
    Request,
    Role,
    Step,
    StepRecord,
)
from stoker.model.terms import Gc

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
        self._linkers: dict[int, CompileMode] = {}  # by run
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

    def link_with(self, run: int, linker: CompileMode) -> None:
        """Set the linker of a run; for the default one no command line has to be looked at."""
        if linker is not CompileMode.DEFAULT:
            self._linkers[run] = linker

    def linker(self, ask: Ask) -> CompileMode:
        """Return the mode of a link; the default one for other commands."""
        linker = self._linkers.get(ask.run)
        chosen = linker and ask.repeatable and has_free_linker(ask.command)
        return linker if linker and chosen else CompileMode.DEFAULT

    def forget(self, run: int) -> None:
        """Drop the linker of a run that has ended."""
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

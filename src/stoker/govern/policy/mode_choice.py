"""In which mode a step starts.

If CPUs are idle because steps wait for memory, steps start in a mode that needs less memory and
more time. A step that would not fit alone starts in the mildest mode in which it does. If no step
waits for memory, steps start in a mode that needs more of it and less time, as far as it fits. If
too few steps are left for all CPUs, the longest ones use several.
"""

from functools import cached_property
from heapq import nlargest

from msgspec.structs import replace

from stoker.govern.policy.allotment import allotments
from stoker.govern.policy.forecast import Forecast
from stoker.knowledge.compiler_modes import cost_of_saving
from stoker.model.govern import CompileMode, ModeChoice, ModeEffect, Reason, Request, State


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

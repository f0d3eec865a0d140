"""Memory and CPU slots from now on: what is taken while which steps still run, and what fits.

The future is cut into stretches at the expected ends of the running steps. Within a stretch memory
only grows, so that its value at the end stands for all of it. Every prediction has a margin: those
of predictions that were learned are independent errors and add as squares, those of shipped figures
may all be wrong the same way and add up.
"""

from bisect import bisect_left
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from math import inf, sqrt

from stoker.govern import course
from stoker.model.govern import Basis, Request, Running, State

_MOST_CUTS = 12  # more would cost time and gain nothing


@dataclass(frozen=True, slots=True)
class _Claim:
    """What one step takes, from the beginning of a stretch to its own end."""

    first: int
    end: float  # seconds from now
    slots: int
    extra: float  # added to its memory
    variance: float  # added to everybody's
    memory: Callable[[float], float]  # some seconds from now


class Forecast:
    """Starts with those who run; whoever is admitted is added, so that the next one sees it."""

    def __init__(self, state: State, room: float):
        self._room = room
        self._cpus = state.cpus
        claims = [_running_claim(step, state) for step in state.running]
        self._until = _cuts([claim.end for claim in claims])
        self._memory = [0.0] * len(self._until)
        self._variance = [0.0] * len(self._until)
        self._slots = [0] * len(self._until)
        for claim in claims:
            self._take(claim)

    @property
    def free_slots(self) -> int:
        return self._cpus - self._slots[0]

    @property
    def highest(self) -> float:
        """The most memory that is expected to be in use at any time, margins included."""
        taken = zip(self._memory, self._variance, strict=True)
        return max(memory + sqrt(variance) for memory, variance in taken)

    def fits(self, request: Request) -> bool:
        """Whether it can start now."""
        return self._has_room(self._claim(request, 0))

    def add(self, request: Request) -> None:
        """It starts now."""
        claim = self._claim(request, 0)
        self._cut(claim.end)
        self._take(claim)

    def reserve(self, request: Request) -> None:
        """Keep a place for it at the earliest time it can start, as far as ends are known."""
        later = [self._claim(request, first) for first in range(1, len(self._until))]
        if later:
            self._take(next((claim for claim in later if self._has_room(claim)), later[-1]))

    def _claim(self, request: Request, first: int) -> _Claim:
        prediction = request.prediction
        begin = self._until[first - 1] if first else 0.0
        extra, variance = _margins(request, 1.0)
        return _Claim(
            first=first,
            end=begin + course.remaining(prediction, 0.0),
            slots=request.slots_of(self._cpus),
            extra=extra,
            variance=variance,
            memory=lambda delay: course.level(prediction, delay - begin),
        )

    def _cut(self, end: float) -> None:
        """Part a stretch; what is in use at its end stands for both parts."""
        index = bisect_left(self._until, end)
        if self._until[index] != end and len(self._until) < 2 * _MOST_CUTS:
            self._until.insert(index, end)
            self._memory.insert(index, self._memory[index])
            self._variance.insert(index, self._variance[index])
            self._slots.insert(index, self._slots[index])

    def _has_room(self, claim: _Claim) -> bool:
        for index, memory in self._stretches(claim):
            if not self._slots[index]:
                continue  # with nobody beside it anything fits
            total = self._memory[index] + memory
            margin = sqrt(self._variance[index] + claim.variance)
            if self._slots[index] + claim.slots > self._cpus or total + margin > self._room:
                return False
        return True

    def _take(self, claim: _Claim) -> None:
        for index, memory in self._stretches(claim):
            self._memory[index] += memory
            self._variance[index] += claim.variance
            self._slots[index] += claim.slots

    def _stretches(self, claim: _Claim) -> Iterator[tuple[int, float]]:
        """Those it lives in, with its memory at the end of each."""
        for index in range(claim.first, len(self._until)):
            yield index, claim.extra + claim.memory(min(self._until[index], claim.end))
            if self._until[index] >= claim.end:
                return


def _running_claim(step: Running, state: State) -> _Claim:
    prediction, age = step.request.prediction, state.now - step.started
    extra, variance = _margins(step.request, course.to_come(prediction, age))
    return _Claim(
        first=0,
        end=course.remaining(prediction, age),
        slots=step.request.slots_of(state.cpus),
        extra=extra,
        variance=variance,
        memory=course.ahead(step, state.now),
    )


def _margins(request: Request, to_come: float) -> tuple[float, float]:
    """What is added to a step's own memory, and what to the variance of all.

    The more of its life has been seen, the less is uncertain.
    """
    prediction = request.prediction
    width = max(0, prediction.high - prediction.peak) * to_come
    return (width, 0.0) if prediction.basis is Basis.PRIOR else (0.0, width**2)


def _cuts(ends: list[float]) -> list[float]:
    """Ends of stretches: every end, or every so many, always the last; then for ever."""
    known = sorted((end for end in ends if end < inf), reverse=True)
    each = -(-len(known) // _MOST_CUTS) or 1
    return [*reversed(known[::each]), inf]

"""Memory and CPU slots from now on: what is taken while which steps still run, and what fits.

The future is cut into stretches, the longer the further away they are: so far ahead nobody knows to
the second. In each stretch a step counts with the most that it is expected to use there. Every
prediction has a margin: those of predictions that were learned are independent errors and add as
squares, those of shipped figures may all be wrong the same way and add up.
"""

from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import islice
from math import inf, sqrt

from stoker.govern import course
from stoker.model.govern import Basis, Prediction, Request, Running, State

_SHORTEST = 0.25  # seconds
_GROWTH = 1.03  # from one stretch's end to the next one's
# Share of a learned prediction's width that is kept free: to be wrong now and then, and kill the
# youngest, costs less than CPUs without work.
_CAUTION = 0.25
_LOOKED_AT = 16  # of those who wait, to tell how far to look


def _ends() -> tuple[float, ...]:
    ends = [_SHORTEST]
    while ends[-1] < 24 * 3600:
        ends.append(max(ends[-1] + _SHORTEST, ends[-1] * _GROWTH))
    return tuple(ends)


_ENDS = _ends()


@dataclass(frozen=True, slots=True)
class _Claim:
    """What one step takes, from the beginning of a stretch to its own end. Times are seconds from
    now; ``margin`` is a share of its memory.
    """

    first: int
    end: float
    slots: int
    memory: course.Span
    margin: float
    independent: bool


class Forecast:
    """Starts with those who run; whoever is admitted is added, so that the next one sees it."""

    def __init__(self, state: State, room: float, *, spare_trials: bool = False):
        """``spare_trials``: for steps on trial nothing is kept free but where there is room."""
        self._room = room
        self._cpus = state.cpus
        self._pace = state.pace
        self._until = _stretches(state)
        self._memory = [0.0] * len(self._until)
        self._variance = [0.0] * len(self._until)
        self._slots = [0] * len(self._until)
        for step in sorted(state.running, key=lambda step: step.on_trial):
            claim = _running_claim(step, state)
            if spare_trials and step.on_trial and not self._has_room(claim):
                claim = replace(claim, memory=_constant(step.current), margin=0.0)
            self._take(claim)

    @property
    def free_slots(self) -> int:
        return self._cpus - self._slots[0]

    def highest(self, within: float = inf) -> float:
        """The most memory that is expected to be in use in so many seconds, margins included."""
        last = bisect_left(self._until, within)
        taken = zip(self._memory[: last + 1], self._variance, strict=False)
        return max(memory + sqrt(variance) for memory, variance in taken)

    def fits(self, request: Request) -> bool:
        """Whether it can start now."""
        return self._has_room(self._claim(request, 0))

    def add(self, request: Request) -> None:
        """It starts now."""
        self._take(self._claim(request, 0))

    def reserve(self, request: Request) -> None:
        """Keep a place for it at the earliest time it can start, as far as ends are known."""
        slots = self._slots
        later = [n for n in range(1, len(slots)) if slots[n] < slots[n - 1]]
        claims = [self._claim(request, first) for first in later]
        if claims:
            self._take(next((claim for claim in claims if self._has_room(claim)), claims[-1]))

    def _claim(self, request: Request, first: int) -> _Claim:
        begin = self._until[first - 1] if first else 0.0
        margin, independent = _margin(request, 1.0)
        prediction = course.paced(request.prediction, self._pace)
        expected = course.span(prediction)
        spread = course.spread_of(prediction, self._pace)
        return _Claim(
            first=first,
            end=begin + course.remaining(prediction, 0.0) * spread,
            slots=request.slots_of(self._cpus),
            memory=lambda start, end: expected((start - begin) / spread, (end - begin) * spread),
            margin=margin,
            independent=independent,
        )

    def _has_room(self, claim: _Claim) -> bool:
        for index, memory, variance in self._shares(claim):
            if not self._slots[index]:
                continue  # with nobody beside it anything fits
            total = self._memory[index] + memory + sqrt(self._variance[index] + variance)
            if self._slots[index] + claim.slots > self._cpus or total > self._room:
                return False
        return True

    def _take(self, claim: _Claim) -> None:
        for index, memory, variance in self._shares(claim):
            self._memory[index] += memory
            self._variance[index] += variance
            self._slots[index] += claim.slots

    def _shares(self, claim: _Claim) -> Iterator[tuple[int, float, float]]:
        """The stretches it lives in, with its memory and variance in each."""
        begin = self._until[claim.first - 1] if claim.first else 0.0
        for index in range(claim.first, len(self._until)):
            end = self._until[index]
            memory = claim.memory(begin, min(end, claim.end))
            margin = memory * claim.margin
            if claim.independent:
                yield index, memory, margin * margin
            else:
                yield index, memory + margin, 0.0
            if end >= claim.end:
                return
            begin = end


def _stretches(state: State) -> list[float]:
    """Their ends: as far as lives of those who run, and of the next ones, are known; then all the
    rest.
    """
    first = islice(state.waiting, _LOOKED_AT)
    lives = [course.remaining(course.paced(each.prediction, state.pace), 0.0) for each in first]
    positions = (_position(step, state) for step in state.running)
    lives += [course.remaining(prediction, ages[0]) for prediction, ages, _ in positions]
    horizon = max((life for life in lives if life < inf), default=0.0)
    horizon *= state.pace.spread  # some may be slower
    return [*_ENDS[: bisect_left(_ENDS, horizon)], horizon, inf]


def _running_claim(step: Running, state: State) -> _Claim:
    prediction, ages, spread = _position(step, state)
    margin, independent = _margin(step.request, course.to_come(prediction, ages[0]))
    expected = course.ahead(prediction, ages, step.current)
    return _Claim(
        first=0,
        end=course.remaining(prediction, ages[0]) * spread,
        slots=step.request.slots_of(state.cpus),
        memory=lambda begin, end: expected(begin / spread, end * spread),
        margin=margin,
        independent=independent,
    )


def _position(step: Running, state: State) -> tuple[Prediction, course.Ages, float]:
    """Return what is predicted of a step at today's pace, how much of it has passed, and by which
    factor the rest may be faster or slower.
    """
    prediction = course.paced(step.request.prediction, state.pace)
    spread = course.spread_of(prediction, state.pace)
    return prediction, course.lived(prediction, step.age(state.now), step.peak, spread), spread


def _margin(request: Request, to_come: float) -> tuple[float, bool]:
    """A share of its memory, and whether it is an error of its own. The more of a step's life has
    been seen, the less is uncertain.
    """
    prediction = request.prediction
    width = max(0.0, prediction.high / prediction.peak - 1) if prediction.peak else 0.0
    caution = _CAUTION if prediction.learned else 1.0
    return width * to_come * caution, prediction.basis is not Basis.PRIOR


def _constant(memory: float) -> course.Span:
    return lambda *_: memory

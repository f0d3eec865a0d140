"""Memory and CPU slots from now on: what the running steps will take, and what fits beside them.

The future is divided into stretches, which are longer the further ahead they are. In each stretch
a step counts with the most memory that it is expected to use there. Every prediction has a margin.
Errors of learned predictions are independent, so their margins add as squares; shipped figures may
all be wrong in the same direction, so theirs add up.
"""

from bisect import bisect_left
from collections.abc import Iterable
from dataclasses import dataclass, replace
from itertools import chain, islice
from math import inf, sqrt

from stoker.govern import profile
from stoker.model.govern import Basis, Prediction, Request, Running, State

_SHORTEST = 0.25  # seconds
_GROWTH = 1.03  # factor from one stretch's end to the next
# Share of a learned prediction's width that is kept free. Being wrong now and then, and killing the
# youngest step, costs less than idle CPUs.
_CAUTION = 0.25
_LOOKED_AT = 16  # waiting steps whose durations decide how far ahead to look
_COARSE = 8  # every eighth stretch is checked first, because most conflicts last longer than that


def _ends() -> tuple[float, ...]:
    ends = [_SHORTEST]
    while ends[-1] < 24 * 3600:
        ends.append(max(ends[-1] + _SHORTEST, ends[-1] * _GROWTH))
    return tuple(ends)


_ENDS = _ends()


@dataclass(frozen=True, slots=True)
class _Claim:
    """What one step takes in the stretches from ``first`` to ``last``, which it starts at ``begin``
    and leaves at ``end``, in seconds from now. ``margin`` is a share of its memory.
    """

    first: int
    last: int
    begin: float
    end: float
    slots: int
    memory: profile.Expected
    spread: float
    margin: float
    independent: bool

    def share(self, begin: float, end: float) -> tuple[float, float]:
        """Return its memory and the variance of that between two times."""
        end = min(self.end, end)
        memory = self.memory((begin - self.begin) / self.spread, (end - self.begin) * self.spread)
        margin = memory * self.margin
        return (memory, margin * margin) if self.independent else (memory + margin, 0.0)


class Forecast:
    """What the running steps will use. A step that is admitted is added, so that the next check
    includes it.

    A stretch is summed when it is first looked at. Most checks fail early, and looking at every
    stretch for every decision would cost a simulation most of its time.
    """

    def __init__(self, state: State, room: float, *, spare_trials: bool = False):
        """Prepare a forecast. ``room`` is the memory that steps may use. With ``spare_trials`` a
        step on trial counts with its current memory if its prediction does not fit.
        """
        self._room = room
        self._cpus = state.cpus
        self._pace = state.pace
        positions = [(step, *_position(step, state)) for step in state.running]
        lives = (profile.remaining(prediction, ages[0]) for _, prediction, ages, _ in positions)
        self._until = _stretches(state, lives)
        self._claims: list[_Claim] = []
        # Memory, variance and slots of each stretch that was looked at.
        self._sums: list[tuple[float, float, int] | None] = [None] * len(self._until)
        self._reserved: Request | None = None
        self._tight = 0  # the stretch at which the latest check failed
        self.remote = sum(step.request.remote for step in state.running)
        for step, prediction, ages, spread in sorted(positions, key=lambda each: each[0].on_trial):
            claim = self._running_claim(step, prediction, ages, spread)
            if spare_trials and step.on_trial and not self._has_room(claim):
                claim = replace(claim, memory=profile.Expected(step.current), margin=0.0)
            self._take(claim)

    @property
    def free_slots(self) -> int:
        return self._cpus - self._slots(0)

    def highest(self, within: float = inf) -> float:
        """Return the most memory expected within so many seconds, margins included."""
        last = bisect_left(self._until, within)
        sums = (self._sum(index) for index in range(last + 1))
        return max(memory + sqrt(variance) for memory, variance, _ in sums)

    def fits(self, request: Request) -> bool:
        """Return whether the step can start now."""
        claim = self._claim(request, 0)
        if self._reserved and self._has_room(claim):
            self._keep_place(self._reserved)
            self._reserved = None
        return self._has_room(claim)

    def add(self, request: Request) -> None:
        """Count a step that starts now."""
        self._take(self._claim(request, 0))
        self.remote += request.remote

    def reserve(self, request: Request) -> None:
        """Keep a place for a step at the earliest time at which it can start.

        To find that time is expensive, so it waits until a step is found that would fit.
        """
        self._reserved = request

    def _keep_place(self, request: Request) -> None:
        ends = sorted({claim.last + 1 for claim in self._claims})
        ends = ends[: bisect_left(ends, len(self._until))]
        if not self.remote:  # a remote step has no slot
            ends = [index for index in ends if self._slots(index) < self._slots(index - 1)]
        claims = [self._claim(request, first) for first in ends]
        if claims:
            self._take(next((claim for claim in claims if self._has_room(claim)), claims[-1]))

    def _claim(self, request: Request, first: int) -> _Claim:
        begin = self._until[first - 1] if first else 0.0
        margin, independent = _margin(request, 1.0)
        prediction = profile.paced(request.prediction, self._pace)
        spread = profile.spread_of(prediction, self._pace)
        end = begin + profile.remaining(prediction, 0.0) * spread
        return _Claim(
            first=first,
            last=bisect_left(self._until, end),
            begin=begin,
            end=end,
            slots=request.slots_of(self._cpus),
            memory=profile.expected(prediction),
            spread=spread,
            margin=margin,
            independent=independent,
        )

    def _running_claim(
        self, step: Running, prediction: Prediction, ages: profile.Ages, spread: float
    ) -> _Claim:
        margin, independent = _margin(step.request, profile.to_come(prediction, ages[0]))
        end = profile.remaining(prediction, ages[0]) * spread
        return _Claim(
            first=0,
            last=bisect_left(self._until, end),
            begin=0.0,
            end=end,
            slots=step.request.slots_of(self._cpus),
            memory=profile.expected_from(prediction, ages, step.current),
            spread=spread,
            margin=margin,
            independent=independent,
        )

    def _has_room(self, claim: _Claim) -> bool:
        first, last = claim.first, claim.last
        if first <= self._tight <= last and not self._fits_at(claim, self._tight):
            return False
        for index in chain(range(first, last, _COARSE), range(first, last + 1)):
            if not self._fits_at(claim, index):
                self._tight = index
                return False
        return True

    def _fits_at(self, claim: _Claim, index: int) -> bool:
        taken, variance, slots = self._sum(index)
        if not slots and not taken:
            return True  # a step that runs alone always fits
        if slots + claim.slots > self._cpus:
            return False
        memory, own = claim.share(self._begin(index), self._until[index])
        return taken + memory + sqrt(variance + own) <= self._room

    def _take(self, claim: _Claim) -> None:
        self._claims.append(claim)
        for index in range(claim.first, claim.last + 1):
            if known := self._sums[index]:
                memory, variance = claim.share(self._begin(index), self._until[index])
                self._sums[index] = known[0] + memory, known[1] + variance, known[2] + claim.slots

    def _sum(self, index: int) -> tuple[float, float, int]:
        """Return memory, variance and slots of all claims in one stretch."""
        if known := self._sums[index]:
            return known
        memory, variance, slots = 0.0, 0.0, 0
        begin, end = self._begin(index), self._until[index]
        for claim in self._claims:
            if claim.first <= index <= claim.last:
                each, own = claim.share(begin, end)
                memory, variance, slots = memory + each, variance + own, slots + claim.slots
        self._sums[index] = memory, variance, slots
        return memory, variance, slots

    def _slots(self, index: int) -> int:
        return sum(claim.slots for claim in self._claims if claim.first <= index <= claim.last)

    def _begin(self, index: int) -> float:
        return self._until[index - 1] if index else 0.0


def _stretches(state: State, running: Iterable[float]) -> list[float]:
    """Return the ends of the stretches: as far ahead as the durations of the running and the next
    steps are known, then all the rest.
    """
    first = islice(state.waiting, _LOOKED_AT)
    waiting = (profile.remaining(profile.paced(each.prediction, state.pace), 0.0) for each in first)
    horizon = max((life for life in chain(waiting, running) if life < inf), default=0.0)
    horizon *= state.pace.spread  # some may be slower
    return [*_ENDS[: bisect_left(_ENDS, horizon)], horizon, inf]


def _position(step: Running, state: State) -> tuple[Prediction, profile.Ages, float]:
    """Return the step's prediction at today's pace, how much of it has passed, and the factor by
    which the rest may be faster or slower.
    """
    prediction = profile.paced(step.request.prediction, state.pace)
    spread = profile.spread_of(prediction, state.pace)
    return prediction, profile.lived(prediction, step.age(state.now), step.peak, spread), spread


def _margin(request: Request, to_come: float) -> tuple[float, bool]:
    """Return the margin as a share of the step's memory, and whether it is independent of other
    steps. The more of a step has been seen, the less is uncertain.
    """
    prediction = request.prediction
    width = max(0.0, prediction.high / prediction.peak - 1) if prediction.peak else 0.0
    caution = _CAUTION if prediction.learned else 1.0
    return width * to_come * caution, prediction.basis is not Basis.PRIOR

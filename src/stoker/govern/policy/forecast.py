"""The memory and CPU slots that running steps will use from now on.

The future is divided into stretches, which are longer the further ahead they are. In each stretch
a step counts with the most memory that it is expected to use there. Every prediction has a margin.
Errors of learned predictions are independent, so their margins add as squares; shipped figures may
all be wrong in the same direction, so theirs add up.
"""

from bisect import bisect_left
from collections.abc import Iterable
from itertools import chain
from math import inf, sqrt
from typing import NamedTuple

from stoker.govern.policy import upper
from stoker.govern.policy.upper import Upper
from stoker.model.govern import Request, State

_SHORTEST = 0.25  # seconds of the first stretches
_GROWTH = 1.03  # factor from one stretch's end to the next


def _ends() -> tuple[float, ...]:
    ends = [_SHORTEST]
    while ends[-1] < 24 * 3600:
        ends.append(max(ends[-1] + _SHORTEST, ends[-1] * _GROWTH))
    return tuple(ends)


_ENDS = _ends()


class _Claim(NamedTuple):
    """What one step takes from the stretch ``first`` on."""

    first: int
    slots: int
    upper: Upper


class Forecast:
    """What the running steps will use. A step that is admitted is added, so that the next check
    includes it.

    Stretches are summed when they are first looked at, alone or as a span of 2, 4, 8 or more. A
    span counts with the most that each step uses anywhere in it, so most spans that have room are
    recognized without looking at their parts. Where even the highest predictions of all steps fit
    together, which is the rule on machines with enough memory, nothing is summed at all.
    """

    def __init__(self, state: State, room: float, *, usual: bool = False):
        """Prepare a forecast. ``room`` is the memory that steps may use. With ``usual`` a step that
        was never measured counts with its usual need, and not with its worst case.
        """
        self._state = state
        self.room = room
        self._usual = usual
        self.remote, self._busy, self._highest = 0, 0, 0.0
        for step in state.running:
            self.remote += step.request.remote and not step.lent
            self._busy += step.slots_of(state.cpus)
            tried = upper.is_tried(step, usual=usual)
            self._highest += max(upper.most_of(step), upper.reach(step) if tried else 0.0)
        self.added: list[Request] = []
        self._until: list[float] = []  # the ends of the stretches, once they are looked at
        self._claims: list[_Claim] = []
        # Memory, variance and slots of each span that was looked at, by first stretch and length.
        self._sums: dict[tuple[int, int], tuple[float, float, int]] = {}
        self._reserved: Request | None = None
        self._tight = 0  # the stretch at which the latest check failed

    def _look_ahead(self) -> None:
        """Compute what the running and the added steps will take, when that is first needed."""
        if self._until:
            return
        state = self._state
        claims = [
            _Claim(
                first=0,
                slots=step.slots_of(state.cpus),
                upper=upper.running(step, state.now, state.pace, usual=self._usual),
            )
            for step in state.running
        ]
        self._until = _stretches(state, (claim.upper.life for claim in claims))
        self._tight = bisect_left(self._until, state.tight_at - state.now)
        for claim in claims:
            self._take(claim)
        for request in self.added:
            self._take(self._starting(request))

    @property
    def free_slots(self) -> int:
        return self._state.cpus - self._busy

    def highest(self, within: float = inf) -> float:
        """Return the most memory expected within so many seconds, margins included."""
        self._look_ahead()
        last = bisect_left(self._until, within)
        sums = (self._sum(index, 1) for index in range(last + 1))
        return max(memory + sqrt(variance) for memory, variance, _ in sums)

    def fits(self, request: Request) -> bool:
        """Return whether the step can start now."""
        if not self._state.running and not self.added:
            return True  # a step that runs alone always fits
        if self._slots_wanted(request) > max(0, self.free_slots):
            return False
        if (
            self._highest + upper.most_at_start(request.prediction) <= self.room
            and not self._reserved
        ):
            return True
        self._look_ahead()
        claim = self._starting(request)
        if not self._has_room(claim):
            return False
        if not self._reserved:
            return True
        self._keep_place(self._reserved)
        self._reserved, self._highest = None, inf
        return self._has_room(claim)

    def _slots_wanted(self, request: Request) -> int:
        """Return the CPUs that must be free for a step to start."""
        return 0 if request.id in self._state.placed else request.slots_of(self._state.cpus)

    def add(self, request: Request) -> None:
        """Count a step that starts now."""
        self.remote += request.remote
        self._busy += request.slots_of(self._state.cpus)
        self._highest += upper.most_at_start(request.prediction)
        self.added.append(request)
        if self._until:
            self._take(self._starting(request))

    @property
    def tight_at(self) -> float:
        """The time at which the latest check failed: the middle of that stretch."""
        if not self._tight:
            return 0.0
        begin, end = self._until[self._tight - 1], self._until[self._tight]
        return self._state.now + (begin if end == inf else (begin + end) / 2)

    def reserve(self, request: Request) -> None:
        """Keep a place for a step at the earliest time at which it can start.

        To find that time is expensive, so it waits until a step is found that would fit.
        """
        self._reserved = request

    def _keep_place(self, request: Request) -> None:
        ends = sorted({bisect_left(self._until, claim.upper.until) + 1 for claim in self._claims})
        ends = ends[: bisect_left(ends, len(self._until))]
        if not self.remote:  # a remote step has no slot
            ends = [index for index in ends if self._slots(index) < self._slots(index - 1)]
        claim = self._starting(request)
        claims = [
            claim._replace(first=first, upper=upper.delayed(claim.upper, self._begin(first)))
            for first in ends
        ]
        if claims:
            self._take(next((claim for claim in claims if self._has_room(claim)), claims[-1]))

    def _starting(self, request: Request) -> _Claim:
        state = self._state
        own = upper.starting(request.prediction, state.pace, usual=self._usual)
        return _Claim(first=0, slots=self._slots_wanted(request), upper=own)

    def _has_room(self, claim: _Claim) -> bool:
        # Where the latest claim did not fit, this one hardly does. As time passes, that moves on to
        # the next stretch.
        for index in (self._tight, self._tight + 1):
            if claim.first <= index < len(self._until) and not self._fits_in(claim, index, 1):
                self._tight = index
                return False
        return self._fits_between(claim, 0, 1 << (len(self._until) - 1).bit_length())

    def _fits_between(self, claim: _Claim, first: int, length: int) -> bool:
        """Return whether a claim fits into each stretch of a span; look at its halves if it does
        not fit into the span as a whole.
        """
        if first + length <= claim.first or self._fits_in(claim, first, length):
            return True
        if length == 1:
            self._tight = first
            return False
        half = length // 2
        return self._fits_between(claim, first, half) and self._fits_between(
            claim, first + half, half
        )

    def _fits_in(self, claim: _Claim, first: int, length: int) -> bool:
        """Return whether a claim fits into a span as a whole, or ends before it."""
        begin = self._begin(first)
        if begin >= claim.upper.until:
            return True
        taken, variance, slots = self._sum(first, length)
        if not slots and not taken:
            return True
        if claim.slots and slots + claim.slots > self._state.cpus:
            return False
        memory, own = claim.upper.share(begin, self._end(first, length))
        return taken + memory + sqrt(variance + own) <= self.room

    def _take(self, claim: _Claim) -> None:
        self._claims.append(claim)
        for (first, length), (taken, variance, slots) in self._sums.items():
            begin = self._begin(first)
            if claim.first < first + length and begin < claim.upper.until:
                memory, own = claim.upper.share(begin, self._end(first, length))
                self._sums[first, length] = taken + memory, variance + own, slots + claim.slots

    def _sum(self, first: int, length: int) -> tuple[float, float, int]:
        """Return the memory, variance and slots of all claims in a span."""
        if known := self._sums.get((first, length)):
            return known
        memory, variance, slots, stop = 0.0, 0.0, 0, first + length
        begin, end = self._begin(first), self._end(first, length)
        for claim in self._claims:
            if claim.first < stop and begin < claim.upper.until:
                each, own = claim.upper.share(begin, end)
                memory, variance, slots = memory + each, variance + own, slots + claim.slots
        self._sums[first, length] = memory, variance, slots
        return memory, variance, slots

    def _slots(self, index: int) -> int:
        begin = self._begin(index)
        active = (each for each in self._claims if each.first <= index and begin < each.upper.until)
        return sum(claim.slots for claim in active)

    def _begin(self, first: int) -> float:
        """Return when a stretch begins; infinity for one after the last."""
        if first > len(self._until):
            return inf
        return self._until[first - 1] if first else 0.0

    def _end(self, first: int, length: int) -> float:
        return self._until[first + length - 1] if first + length < len(self._until) else inf


def _stretches(state: State, running: Iterable[float]) -> list[float]:
    """Return the ends of the stretches: as far ahead as the durations of the running steps and of
    the next one are known, then all the rest.
    """
    first = state.waiting[:1]
    waiting = (upper.course(each.prediction, state.pace).seconds for each in first)
    horizon = max((life for life in chain(waiting, running) if life < inf), default=0.0)
    horizon *= state.pace.spread  # some may be slower
    return [*_ENDS[: bisect_left(_ENDS, horizon)], horizon, inf]

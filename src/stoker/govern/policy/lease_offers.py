"""Leases as the governor sees them: who may have one, how many there are, and what they count as.

Independent of how launchers take them; the page is in leases.py.
"""

from collections.abc import Collection, Iterable
from typing import Protocol

from stoker.govern.policy.entry import Entry, StepPhase
from stoker.govern.policy.interface import MOMENT
from stoker.model.events import RunningStep
from stoker.model.govern import LEASE_BYTES, LEASE_S, Basis, Prediction, StepRecord

_SHARE = 0.5  # of the memory that no running step may still use
# More places for each CPU, and one: short compiles also wait for their processes. With these, 6,000
# trivial compiles on 16 CPUs take 1.14 to 1.19 of ninja's time, with two more in all 1.16 to 1.32.
_BEYOND = 0.5


class LeasePage(Protocol):
    """What launchers take places from. ``claim`` are the bytes that count for each, and
    ``all_cpus`` the CPUs of the machine.
    """

    all_cpus: int
    places: int
    claim: int

    def note(
        self, family: int, peak: int, seconds: float, now: float, running: Iterable[float]
    ) -> None: ...
    def exclude(self, family: int) -> None: ...
    def offers(self, family: int) -> bool: ...
    def largest(self, family: int) -> int: ...
    def grant(self, places: int) -> None: ...
    def taken(self) -> int: ...


class LeaseOffers:
    """Offers places to short steps while no other step needs them. Without a page there are
    none.
    """

    def __init__(self, page: LeasePage | None):
        self._page = page
        self.taken = 0  # steps that run by a lease
        self._wanted = 0.0  # when a step last had one or was to take one

    @property
    def claimed(self) -> int:
        """The memory that steps with a lease may use."""
        return self.taken * self._page.claim if self._page else 0

    @property
    def are_open(self) -> bool:
        """Whether steps run by leases, or may start so at any time."""
        return bool(self.taken or (self._page and self._page.places))

    def asked(self, entry: Entry) -> None:
        """Take in a step that asks. Of a family with one that is known to be large, or that has
        outgrown its lease, no step gets another.
        """
        expected = entry.request.prediction
        large = expected.learned and expected.peak > LEASE_BYTES
        if self._page and (large or entry.phase is not StepPhase.WAITING):
            self._page.exclude(entry.family)

    def note(self, entry: Entry, record: StepRecord, now: float, holding: Iterable[Entry]) -> None:
        """Take in a step that has ended."""
        if self._page and entry.family:
            beside = (e for e in holding if e.family == entry.family and e is not entry)
            running = (e.running.started for e in beside)
            self._page.note(entry.family, record.peak_bytes, record.wall_s, now, running)

    def ended(self, now: float) -> None:
        """Take in that a step has run by a lease."""
        self._wanted = now

    def prediction(self, family: int) -> Prediction:
        """Return what a step was expected to need that has run by a lease."""
        peak = self._page.largest(family) if self._page else 0
        return Prediction(peak=peak, high=LEASE_BYTES, basis=Basis.LEASE)

    def count(self, now: float, *, wanted: bool) -> bool:
        """Count the places that are taken; return whether that has changed."""
        before, page = self.taken, self._page
        self.taken = page.taken() if page and self.are_open else 0
        if self.taken or wanted:
            self._wanted = now
        return self.taken != before

    def offer(
        self,
        now: float,
        holding: Collection[Entry],
        waiting: Iterable[int],
        *,
        cpus: int,
        free_bytes: int,
    ) -> bool:
        """Grant the places that are free; return whether there are any. ``holding`` are the steps
        with a permit, ``waiting`` the families of those without one.
        """
        if self._page is None:
            return False
        for entry in holding:
            if entry.running.current > LEASE_BYTES or entry.running.age(now) > LEASE_S:
                self._page.exclude(entry.family)
        running = [entry.running for entry in holding]
        places = 0
        disturbed = any(step.is_paused or step.stopping for step in running)
        wanted = now - self._wanted <= MOMENT
        if wanted and not disturbed and all(map(self._page.offers, waiting)):
            claimed = sum(max(0, s.request.prediction.high - s.current) for s in running)
            fitting = int(_SHARE * (free_bytes - claimed) / self._page.claim)
            free = cpus - sum(s.slots_of(cpus) for s in running)
            beyond = int(free > 0 and cpus >= self._page.all_cpus and 1 + _BEYOND * cpus)
            places = max(0, min(free + beyond, fitting))
        self._page.grant(places)
        return places > 0

    def withdraw(self) -> None:
        """Offer none; those that are taken remain."""
        if self._page:
            self._page.grant(0)

    def shown(self) -> tuple[RunningStep, ...]:
        """Return the lines of an overview: their launchers say nothing before they end."""
        usual = self._page.claim // 2 if self._page else 0
        line = RunningStep(step=0, title="short step", seconds=0.0, paused=False, memory=usual)
        return (line,) * self.taken

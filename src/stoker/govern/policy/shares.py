"""How several runs share the machine: each has limits of its own, and none waits for another's end.

Next is always the run that has the fewest CPUs for its weight. Pure.
"""

from collections import deque
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence

from stoker.govern.policy.entry import Entry
from stoker.model.govern import Request, Running
from stoker.model.terms import RunShare


class Shares:
    """The runs that are there, with the CPUs and the memory that each may use."""

    def __init__(self, cpus: int, cap: int | None) -> None:
        """Prepare. ``cpus`` and ``cap`` are the limits until the first run comes."""
        self.cpus, self.cap = cpus, cap  # of all runs together
        self._runs: dict[int, RunShare] = {}
        self._served: dict[int, float] = {}  # when a step of each run was last admitted

    @property
    def are_several(self) -> bool:
        return len(self._runs) > 1

    def add(self, run: int, share: RunShare) -> None:
        self._runs[run] = share
        self._add_up()

    def remove(self, run: int) -> bool:
        """Forget a run that has ended; return whether the limits are those of other runs now."""
        self._served.pop(run, None)
        known = self._runs.pop(run, None)
        if known and self._runs:
            self._add_up()
        return bool(known and self._runs)

    def _add_up(self) -> None:
        """Let all runs together use what each of them may use."""
        shares = self._runs.values()
        self.cpus = max(share.cpus for share in shares)
        caps = [share.cap for share in shares if share.cap is not None]
        self.cap = sum(caps) if len(caps) == len(shares) else None

    def cap_of(self, run: int) -> int | None:
        share = self._runs.get(run)
        return share.cap if share else None

    def served(self, run: int, now: float) -> None:
        """Note that a step of a run was admitted."""
        self._served[run] = now

    def in_turn(
        self,
        waiting: Iterable[Entry],
        held: Mapping[int, Sequence[Running]],
        placed: Container[int] = (),
    ) -> Iterator[Request]:
        """Yield the waiting steps of several runs, without those that would exceed the limits of
        their own run. ``held`` are the steps with a permit, by run, and ``placed`` the steps that
        need no free CPU.
        """
        by_run: dict[int, deque[Request]] = {}
        for entry in waiting:
            request, ours = entry.request, held.get(entry.run, ())
            if self.allow(entry.run, request, ours, placed=request.id in placed):
                by_run.setdefault(entry.run, deque()).append(request)
        taken = {run: self._slots(held.get(run, ())) for run in by_run}
        while by_run:
            run = min(by_run, key=lambda each: self._rank(each, taken[each]))
            request = by_run[run].popleft()
            taken[run] += max(1, request.slots_of(self.cpus))
            if not by_run[run]:
                del by_run[run]
            yield request

    def _rank(self, run: int, cpus: int) -> tuple[float, float]:
        """Return a sort key of a run that has so many CPUs; among equals, the one that was last
        served longest ago is next, also where there is only one CPU.
        """
        return cpus / self._share(run).weight, self._served.get(run, 0.0)

    def allow(
        self, run: int, request: Request, held: Sequence[Running], *, placed: bool = False
    ) -> bool:
        """Return whether a run may start a step beside its others; it may always have one. A step
        that is ``placed`` needs no CPU of its own.
        """
        share, cpus = self._share(run), self._slots(held)
        memory = sum(max(step.current, step.request.prediction.peak) for step in held)
        fits = share.cap is None or memory + request.prediction.high <= share.cap
        has_cpu = placed or cpus + request.slots_of(self.cpus) <= share.cpus
        return not cpus or (fits and has_cpu)

    def _slots(self, steps: Iterable[Running]) -> int:
        return sum(step.slots_of(self.cpus) for step in steps)

    def _share(self, run: int) -> RunShare:
        return self._runs.get(run) or RunShare(cpus=self.cpus)

"""The deadlines of runs: which steps would end too late, and what happens to them.

A step that would end after the deadline of its run is set aside, and the other steps of the run
continue. Once none of those runs or waits, the steps aside are refused: the build tool then ends
by itself, and what it has made stays. Independent of how steps are admitted.
"""

from collections.abc import Iterable, Iterator, Mapping

from stoker.govern.entry import Entry
from stoker.model.value import Value, duration

# Seconds without a step that may start, after which no other one is expected to ask: a build tool
# starts all that it can at once.
_SETTLED = 2.0
_MOST_NAMED = 5  # steps that never fit; a warning for each of a thousand hides the others


class Deadline(Value, frozen=True, kw_only=True):
    """When the steps of a run should have ended, how many seconds it had in all, and how many
    seconds later the steps that still run are ended.
    """

    at: float
    span: float
    grace: float


class Deadlines:
    """The deadlines of all runs, and the steps that were set aside because of them."""

    def __init__(self) -> None:
        self.aside: dict[int, Entry] = {}  # by the number of the step
        self._runs: dict[int, Deadline] = {}
        self._idle_since: dict[int, float] = {}
        self._named: dict[int, set[str]] = {}

    def __bool__(self) -> bool:
        return bool(self._runs)

    def limit(self, run: int, deadline: Deadline) -> None:
        self._runs[run] = deadline
        self._named[run] = set()

    def forget(self, run: int) -> None:
        """Forget a run that has ended."""
        for known in (self._runs, self._idle_since, self._named):
            known.pop(run, None)

    def is_late(self, run: int, seconds: float, now: float) -> bool:
        """Return whether a step of so many seconds would end after the deadline of its run."""
        deadline = self._runs.get(run)
        return deadline is not None and now + seconds > deadline.at

    def is_over(self, run: int, now: float) -> bool:
        """Return whether the steps of a run must end now."""
        deadline = self._runs.get(run)
        return deadline is not None and now >= deadline.at + deadline.grace

    def fits(self, run: int, seconds: float) -> bool:
        """Return whether a step could end in time if it were the first one of its run."""
        return run not in self._runs or seconds <= self._runs[run].span

    def over(self, busy: Iterable[int], now: float) -> Iterator[Entry]:
        """Yield the steps to refuse: those of runs that are over, or in which no other step runs or
        waits. ``busy`` are the runs of the steps that do.
        """
        waiting = {entry.run for entry in self.aside.values()} - set(busy)
        self._idle_since = {run: self._idle_since.get(run, now) for run in waiting}
        for entry in list(self.aside.values()):
            idle = now - self._idle_since.get(entry.run, now)
            if idle >= _SETTLED or self.is_over(entry.run, now):
                yield entry

    def refusal(self, entry: Entry, seconds: float, now: float, ran: float) -> str:
        """Return what the launcher of a step prints that was refused, or ended after it ran."""
        if ran:
            over = f"the {duration(self._runs[entry.run].span)} of --stop-after are over"
            return f"stoker: {entry.title} was ended after {duration(ran)}: {over}\n"
        left = duration(max(0.0, self._runs[entry.run].at - now))
        takes = _about(seconds, at_least=entry.request.prediction.at_least)
        return (
            f"stoker: {entry.title} was not started: it takes {takes}, and "
            f"--stop-after leaves {left}\n"
        )

    def too_long(
        self, run: int, expected: Mapping[str, float], *, at_least: bool = False
    ) -> Iterator[str]:
        """Yield a warning for steps that take longer than the run has in all, longest first.
        ``expected`` has the seconds of steps by name, which are lower bounds with ``at_least``;
        every step is named once.
        """
        named = self._named.get(run)
        if named is None:
            return
        new = [
            name
            for name in sorted(expected, key=lambda name: -expected[name])
            if name not in named and not self.fits(run, expected[name])
        ]
        span = duration(self._runs[run].span)
        for name in new[: max(0, _MOST_NAMED - len(named))]:
            takes = _about(expected[name], at_least=at_least)
            yield f"{name} takes {takes}: it does not fit into --stop-after {span}"
        named.update(new)


def _about(seconds: float, *, at_least: bool) -> str:
    return f"{'at least' if at_least else 'about'} {duration(seconds)}"

"""The deadlines of runs: which steps would end too late, and what happens to them.

A step that would end after the deadline of its run is set aside, and the other steps of the run
continue. Once none of those runs or waits, the steps aside are refused: the build tool then ends
by itself, and what it has made stays. Independent of how steps are admitted.
"""

from collections.abc import Callable, Iterator, Mapping

from stoker.govern.policy.entry import Entry
from stoker.govern.policy.expectations import Expectations
from stoker.govern.policy.interface import MOMENT
from stoker.govern.policy.open_steps import OpenSteps
from stoker.model.events import AnyEvent, StepTooLate, Warned
from stoker.model.govern import Reason
from stoker.model.value import Value, duration

_MOST_NAMED = 5  # steps that never fit; a warning for each of a thousand hides the others


class _Deadline(Value, frozen=True, kw_only=True):
    """When the steps of a run should have ended, how many seconds it had in all, and how many
    seconds later the steps that still run are ended.
    """

    at: float
    span: float
    grace: float


class Deadlines:
    """The deadlines of all runs, and the steps that were set aside because of them."""

    def __init__(
        self, steps: OpenSteps, expected: Expectations, emit: Callable[[AnyEvent], None]
    ) -> None:
        self._steps = steps
        self._expected = expected
        self._emit = emit
        self.aside: dict[int, Entry] = {}  # by the number of the step
        self._runs: dict[int, _Deadline] = {}
        self._idle_since: dict[int, float] = {}
        self._named: dict[int, set[str]] = {}

    def __bool__(self) -> bool:
        return bool(self._runs)

    def limit(self, run: int, left: float, span: float, now: float, *, grace: float) -> None:
        """Start no step of the run that would end in more than ``left`` seconds, and end those that
        run ``grace`` seconds later; ``span`` is the whole time of the run.
        """
        self._runs[run] = _Deadline(at=now + left, span=span, grace=grace)
        self._named[run] = set()

    def forget(self, run: int) -> None:
        """Forget a run that has ended."""
        for known in (self._runs, self._idle_since, self._named):
            known.pop(run, None)

    def _is_late(self, entry: Entry, now: float) -> bool:
        """Return whether a step would end after the deadline of its run."""
        deadline = self._runs.get(entry.run)
        return deadline is not None and now + self._expected.seconds(entry) > deadline.at

    def is_over(self, run: int, now: float) -> bool:
        """Return whether the steps of a run must end now."""
        deadline = self._runs.get(run)
        return deadline is not None and now >= deadline.at + deadline.grace

    def refused(self, now: float) -> Iterator[Entry]:
        """Set the waiting steps aside that would end too late. Yield the steps to refuse: those of
        runs that are over, or in which no other step has run or waited for a moment.
        """
        for entry in list(self._steps.waiting()):
            if self._is_late(entry, now):
                self._set_aside(entry, now)
        busy = {entry.run for entry in self._steps.holding.values()}
        busy |= {entry.run for entry in self._steps.waiting()}
        idle = {entry.run for entry in self.aside.values()} - busy
        self._idle_since = {run: self._idle_since.get(run, now) for run in idle}
        for entry in list(self.aside.values()):
            waited = now - self._idle_since.get(entry.run, now)
            if waited >= MOMENT or self.is_over(entry.run, now):
                yield entry

    def _set_aside(self, entry: Entry, now: float) -> None:
        self._steps.set_aside(entry.request.id)
        entry.clock.hold(Reason.DEADLINE, now)
        self.aside[entry.request.id] = entry
        expected = {entry.step.output or entry.title: self._expected.seconds(entry)}
        self.expect(entry.run, expected, now, at_least=entry.request.prediction.at_least)

    def look_again(self, now: float) -> None:
        """Let steps wait again that turn out to be shorter than they were expected to be."""
        for identity, entry in list(self.aside.items()):
            entry.request = self._expected.again(entry, entry.request)
            if not self._is_late(entry, now):
                del self.aside[identity]
                self._steps.wait(entry.request)

    def refusal(self, entry: Entry, now: float, ran: float) -> str:
        """Report a step that is refused, or was ended after it ran; return what its launcher
        prints.
        """
        seconds = max(ran, self._expected.seconds(entry))
        self._emit(
            StepTooLate(
                at=now,
                step=entry.request.id,
                run=entry.run,
                title=entry.title,
                seconds=seconds,
                fits=self._fits(entry.run, seconds),
                ran_s=ran,
            )
        )
        if ran:
            over = f"the {duration(self._runs[entry.run].span)} of --stop-after are over"
            return f"stoker: {entry.title} was ended after {duration(ran)}: {over}\n"
        left = duration(max(0.0, self._runs[entry.run].at - now))
        takes = _about(seconds, at_least=entry.request.prediction.at_least)
        return (
            f"stoker: {entry.title} was not started: it takes {takes}, and "
            f"--stop-after leaves {left}\n"
        )

    def _fits(self, run: int, seconds: float) -> bool:
        """Return whether a step could end in time if it were the first one of its run."""
        return run not in self._runs or seconds <= self._runs[run].span

    def expect(
        self, run: int, seconds: Mapping[str, float], now: float, *, at_least: bool = False
    ) -> None:
        """Warn of steps that take longer than the run has in all, longest first. ``seconds`` are by
        output; ``at_least`` says that they are lower bounds. Every step is named once.
        """
        named = self._named.get(run)
        if named is None:
            return
        new = [
            name
            for name in sorted(seconds, key=lambda name: -seconds[name])
            if name not in named and not self._fits(run, seconds[name])
        ]
        span = duration(self._runs[run].span)
        for name in new[: max(0, _MOST_NAMED - len(named))]:
            takes = _about(seconds[name], at_least=at_least)
            text = f"{name} takes {takes}: it does not fit into --stop-after {span}"
            self._emit(Warned(at=now, run=run, text=text))
        named.update(new)


def _about(seconds: float, *, at_least: bool) -> str:
    return f"{'at least' if at_least else 'about'} {duration(seconds)}"

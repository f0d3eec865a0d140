"""One run that the governor serves: its client, and all that is counted and kept for it."""

from msgspec.structs import replace

from stoker.govern.connections import Peer
from stoker.govern.graph import WorkLeft
from stoker.govern.history_writer import HistoryWriter, KeptRun
from stoker.govern.processes import process_behind
from stoker.govern.summary import Tally
from stoker.machine.cgroups import KillCounter
from stoker.model.events import Overview
from stoker.model.govern import GovernorOptions
from stoker.model.runs import Attempt, Outcome, RunSummary

_LAST_WRITES = 2.0  # seconds that the end of a run waits for the history


class ServedRun:
    """Adds up a run from the greeting of its client to its summary, and writes it to the history.

    ``root`` is the folder in which the run was started.
    """

    def __init__(
        self,
        client: Peer,
        history: HistoryWriter,
        kept: KeptRun,
        options: GovernorOptions,
        *,
        root: str,
        now: float,
    ):
        self.client = client
        self.root = root
        self.work = WorkLeft()
        self.tally = Tally(cpus=options.cpus, policy=options.policy)
        self.kills = KillCounter(process_behind(client.socket))
        self._history = history
        self._kept = kept
        self._began = now
        self._summary: RunSummary | None = None
        self._deadline = 0.0  # when the summary is sent without the history

    def add(self, attempt: Attempt) -> None:
        """Take in an attempt that has ended."""
        if attempt.outcome is Outcome.DONE:
            self.work.finished(attempt.record.step.output, attempt.record.seconds)
        self.tally.add(attempt)
        self._history.add(self._kept, attempt.since(self._began))

    def overview(self, view: Overview, now: float) -> Overview:
        """Return the governor's overview, with what is left to do."""
        seen = view.done + len(view.running) + view.waiting
        left = self.work.seconds(now, (step.seconds for step in view.running))
        total = max(seen, view.done + self.work.steps)
        return replace(view, total=total, total_known=self.work.is_known, seconds_left=left)

    def finish(self, status: int, cache_hits: int, written_bytes: int | None, now: float) -> None:
        """End the run; its summary follows."""
        self._summary = replace(
            self.tally.summary(status), cache_hits=cache_hits, written_bytes=written_bytes
        )
        self._history.end_run(self._kept, self._summary)
        self._deadline = now + _LAST_WRITES

    @property
    def is_finishing(self) -> bool:
        """Whether its summary has not been taken yet."""
        return self._summary is not None

    def take_summary(self, now: float) -> RunSummary | None:
        """Return the summary, once, as soon as the history has the run, because the client may read
        it there next.
        """
        if self._summary is None or not (self._kept.settled or now >= self._deadline):
            return None
        summary, self._summary = self._summary, None
        return replace(summary, run=self._kept.row or None)

"""One run that the governor serves: its client, and all that is counted and kept for it."""

from msgspec.structs import replace

from stoker.govern.server.build_files import valid_text
from stoker.govern.server.connections import Peer
from stoker.govern.server.graph import WorkLeft
from stoker.govern.server.history_writer import HistoryWriter
from stoker.govern.server.peers import process_behind
from stoker.govern.server.tally import Tally
from stoker.machine.counters import KillCounter
from stoker.model.events import KernelStarts, Overview, TargetsDiffer
from stoker.model.govern import Step
from stoker.model.runs import Attempt, Outcome, RunSummary
from stoker.model.terms import GovernorOptions, RunShare
from stoker.model.variant import PlannedTargets
from stoker.plan.compiled import device_compile, difference

_LAST_WRITES_OF_RUN = 2.0  # seconds that the end of a run waits for the history


class ServedRun:
    """Adds up a run from the greeting of its client to its summary, and writes it to the history.

    ``root`` is the folder in which the run was started; ``targets`` are those of its plan.
    """

    def __init__(
        self,
        client: Peer,
        number: int,
        history: HistoryWriter,
        options: GovernorOptions,
        share: RunShare,
        *,
        command: str,
        root: str,
        targets: PlannedTargets | None,
        now: float,
    ):
        self.client = client
        self.number = number
        self.root = root
        self._targets = targets
        self.work = WorkLeft()
        self.tally = Tally(cpus=share.cpus, policy=options.policy)
        self.kills = KillCounter(process_behind(client.socket))
        self.history = history
        self._kept = history.start_run(valid_text(command), valid_text(root))
        self._began = now
        self._summary: RunSummary | None = None
        self._deadline = 0.0  # when the summary is sent without the history

    def add(self, attempt: Attempt) -> None:
        """Take in an attempt that has ended."""
        if attempt.outcome is Outcome.DONE:
            self.work.finished(attempt.record.step.output, attempt.record.wall_s)
        self.tally.add(attempt)
        self.history.add(self._kept, attempt.since(self._began))

    @property
    def compiles_anything(self) -> bool:
        """Whether no plan says for which targets it compiles."""
        return self._targets is None

    def judge(self, step: Step, now: float) -> TargetsDiffer | KernelStarts | None:
        """Return that a step compiles for other targets than the plan, or what it compiles for;
        None without a plan or device code.
        """
        compiled = device_compile(step) if self._targets else None
        if self._targets is None or compiled is None:
            return None
        if differs := difference(self._targets, compiled):
            return TargetsDiffer(
                at=now, run=self.number, title=step.title, difference=differs, flags=compiled.flags
            )
        return KernelStarts(at=now, run=self.number, title=step.title, targets=compiled.named)

    def overview(self, view: Overview, now: float) -> Overview:
        """Return the governor's overview, with what is done and what is left to do."""
        done = self.tally.steps + self.work.found
        seen = done + len(view.running) + view.waiting
        left = self.work.time(now, (step.seconds for step in view.running))
        return replace(
            view,
            done=done,
            repeats=self.tally.repeats,
            total=max(seen, done + self.work.steps),
            total_known=self.work.is_known,
            seconds_left=left and left.seconds,
            at_least=left is not None and left.at_least,
        )

    def finish(self, status: int, cache_hits: int, written_bytes: int | None, now: float) -> None:
        """End the run; its summary follows."""
        self._summary = replace(
            self.tally.summary(status), cache_hits=cache_hits, written_bytes=written_bytes
        )
        self.history.end_run(self._kept, self._summary)
        self._deadline = now + _LAST_WRITES_OF_RUN

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

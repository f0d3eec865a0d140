"""The runs that the governor serves now: what they are told, and the histories that write them.

Independent of launchers and of what is decided about their steps.
"""

import time
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec

from stoker.govern.policy.predict import Predictor
from stoker.govern.protocol import encode
from stoker.govern.server.connections import Peer
from stoker.govern.server.history_writer import HistoryWriter
from stoker.govern.server.served_run import ServedRun
from stoker.model.events import AnyEvent, Overview, StepPauses, StepTooLate, Warned
from stoker.model.terms import GovernorOptions, RunShare, RunTerms
from stoker.outside.folders import history


class Runs:
    """Keeps each run by its number, from the greeting of its client until that is gone.

    ``send`` sends what is unsent to a client, and a message.
    """

    def __init__(self, options: GovernorOptions, send: Callable[[Peer, bytes], None]):
        self._options = options
        self._send = send
        self._served: dict[int, ServedRun] = {}
        self._histories = {str(history()): HistoryWriter()}  # by file: runs may differ in homes
        self._cpu_told = time.process_time()
        self._warned: dict[int, str] = {}  # by run: why its history is not written

    def __bool__(self) -> bool:
        return bool(self._served)

    def __iter__(self) -> Iterator[ServedRun]:
        return iter(self._served.values())

    def get(self, run: int) -> ServedRun | None:
        return self._served.get(run)

    def predictor(self) -> Predictor:
        """Return a predictor that knows the governor's own history."""
        return next(iter(self._histories.values())).predictor()

    def start(
        self,
        client: Peer,
        run: int,
        command: str,
        directory: str,
        terms: RunTerms,
        share: RunShare,
        now: float,
    ) -> None:
        """Take in a run that has greeted, and welcome it."""
        self.count_cpu()
        path = share.history or next(iter(self._histories))
        if path not in self._histories:
            self._histories[path] = HistoryWriter(Path(path))
        self._served[run] = ServedRun(
            client,
            run,
            self._histories[path],
            self._options,
            share,
            command=command,
            root=directory,
            targets=terms.targets,
            now=now,
        )
        self._send(client, encode("welcome", msgspec.json.encode(self._options)))
        if skipped := self._histories[path].skipped:
            self.emit(Warned(at=now, run=run, text=skipped))

    def remove(self, run: int) -> None:
        """Forget a run whose client is gone."""
        self._served.pop(run).kills.close()
        self._warned.pop(run, None)

    def count_cpu(self) -> None:
        """Divide the governor's CPU time since the last call among the runs that are there."""
        now = time.process_time()
        for served in self:
            served.tally.governed((now - self._cpu_told) / len(self._served))
        self._cpu_told = now

    def oom_kills(self) -> dict[int, int]:
        """Return how many processes the kernel has killed, by run, where that can be read."""
        counts = ((served.number, served.kills.read()) for served in self)
        return {run: count for run, count in counts if count is not None}

    def emit(self, event: AnyEvent) -> None:
        """Queue an event for the clients that it concerns; ``send_events`` sends it."""
        message = encode("event", msgspec.json.encode(event))
        whose = getattr(event, "run", None)
        if isinstance(event, StepPauses) and (paused := self.get(event.run)):
            paused.tally.paused()
        for served in self:
            # A client that does not read gets no overviews, only the other events.
            late = served.client.blocked and isinstance(event, Overview)
            if whose in (None, served.number) and not late:
                served.client.unsent += message
                if isinstance(event, StepTooLate):  # its run must know why the command fails
                    self._send(served.client, b"")

    def send_events(self) -> None:
        for served in self:
            self._send(served.client, b"")

    def send_summaries(self, now: float) -> None:
        for served in self:
            if summary := served.take_summary(now):
                self.warn(now)
                self._send(served.client, encode("summary", msgspec.json.encode(summary)))

    def warn(self, now: float) -> None:
        """Tell each run if its history cannot be written, or is written again."""
        for served in self:
            problem = served.history.problem or ""
            if problem != self._warned.get(served.number, ""):
                self._warned[served.number] = problem
                text = problem or "the history is written again"
                self.emit(Warned(at=now, run=served.number, text=text))

    def close(self) -> None:
        """Write the histories to their ends, with what was learned."""
        for each in self._histories.values():
            each.close()
            each.keep_learned()

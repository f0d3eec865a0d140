"""Writes into the history in a thread, so that the governor never waits for SQLite.

What cannot be written now, because of a lock or a full disk, is kept up to a bound and tried again.
Independent of how the history is stored.
"""

import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from threading import Condition, Thread

from stoker.govern.history import DamagedError, History
from stoker.model.errors import StokerError
from stoker.model.govern import StepRecord
from stoker.model.runs import Attempt, RunSummary
from stoker.model.value import Value

_MOST_PENDING = 4096  # attempts that wait to be written; further attempts are dropped
_GATHER = 0.5  # seconds for which attempts are collected, because a transaction is expensive
_RETRY = 1.0  # seconds before a retry
_LOCK_TIMEOUT_S = 5.0  # seconds for which the thread waits for a lock
_START_LOCK_TIMEOUT_S = 1.0  # seconds: the first run waits for its governor
_LAST_WRITES = 2.0  # seconds that the exiting governor waits for pending writes


class KeptRun:
    """A run that is being written. ``settled`` is set once its end is committed, or failed
    to be.
    """

    def __init__(self, command: str, directory: str):
        self.command = command
        self.directory = directory
        self.started = time.time()
        self.settled = False
        self.row = 0
        self.where: object = None  # the history that has the row


class _Write(Value, frozen=True, kw_only=True):
    """A pending write. ``apply`` gets the history and the run's row in it."""

    run: KeptRun
    apply: Callable[[History, int], object]
    last: bool = False  # whether it is the last write of its run


class HistoryWriter:
    """Writes runs and attempts to the history in a thread. ``problem`` says why writes fail, and is
    ``None`` again when they succeed.
    """

    def __init__(self, path: Path | None = None, *, timeout_s: float = _LOCK_TIMEOUT_S):
        self.problem: str | None = None
        self._path = path
        self._timeout_s = timeout_s
        self._pending: deque[_Write] = deque()
        self._changed = Condition()
        self._hurry = self._closing = False
        self._generation = 0  # a new file may have the inode of one that was removed
        self._thread = Thread(target=self._work, name="history", daemon=True)
        self._thread.start()

    def recent(self) -> tuple[StepRecord, ...]:
        """Return the records to learn from; empty if the history cannot be read."""
        try:
            with History(
                self._path, timeout_s=min(self._timeout_s, _START_LOCK_TIMEOUT_S)
            ) as history:
                return history.recent()
        except StokerError as error:
            self._fail(error)
            return ()

    def start_run(self, command: str, directory: str) -> KeptRun:
        run = KeptRun(command, directory)
        self._put(_Write(run=run, apply=lambda *_: None))
        return run

    def add(self, run: KeptRun, attempt: Attempt) -> None:
        if len(self._pending) < _MOST_PENDING:
            self._put(_Write(run=run, apply=lambda history, row: history.add(row, attempt)))

    def end_run(self, run: KeptRun, summary: RunSummary) -> None:
        end = _Write(run=run, apply=lambda history, row: history.end_run(row, summary), last=True)
        self._put(end, hurry=True)

    def close(self, timeout: float = _LAST_WRITES) -> None:
        """Write what is pending, if that can be done in ``timeout`` seconds."""
        with self._changed:
            self._closing = self._hurry = True
            self._changed.notify()
        self._thread.join(timeout)

    def _put(self, write: _Write, *, hurry: bool = False) -> None:
        with self._changed:
            self._pending.append(write)
            self._hurry |= hurry
            if hurry or len(self._pending) == 1:  # otherwise the thread is awake already
                self._changed.notify()

    # -- in the thread ---------------------------------------------------------------------------

    def _work(self) -> None:
        history: History | None = None
        while batch := self._next_batch():
            final = self._closing
            if history and history.has_moved:
                history = self._close(history)
            try:
                history = history or History(self._path, timeout_s=self._timeout_s)
                _write(history, (self._generation, history.file), batch)
            except StokerError as error:
                self._fail(error)
                history = self._close(history)
                if isinstance(error, DamagedError):
                    continue
                _settle(batch)
                if final:
                    break
                self._wait_before_retry()
            else:
                self._succeed(batch)
                _settle(batch)
        self._close(history)

    def _close(self, history: History | None) -> History | None:
        """Close the history. If the next one is another file, rows of runs become invalid."""
        if history:
            self._generation += history.has_moved
            history.close()
        return None

    def _next_batch(self) -> tuple[_Write, ...]:
        """Return all pending writes; empty if no more will come."""
        with self._changed:
            self._changed.wait_for(lambda: self._pending or self._closing)
            self._changed.wait_for(lambda: self._hurry, _GATHER)
            self._hurry = False
            return tuple(self._pending)

    def _wait_before_retry(self) -> None:
        with self._changed:
            self._changed.wait_for(lambda: self._hurry, _RETRY)

    def _fail(self, error: StokerError) -> None:
        # Keep the first reason: later ones usually follow from it.
        self.problem = self.problem or f"the history is not written: {error}"

    def _succeed(self, batch: tuple[_Write, ...]) -> None:
        self.problem = None
        with self._changed:
            for _ in batch:
                self._pending.popleft()


def _write(history: History, where: object, batch: tuple[_Write, ...]) -> None:
    """Write a batch in one transaction. A run without a row in this history gets one; ``where``
    identifies this history.
    """
    rows: dict[KeptRun, int] = {}
    for write in batch:
        run = write.run
        if run not in rows:
            known = run.where == where
            rows[run] = run.row if known else history.start_run(*_beginning(run))
        with suppress(OverflowError, ValueError):  # a value that no database can hold
            write.apply(history, rows[run])
    history.commit()
    for run, row in rows.items():
        run.row, run.where = row, where


def _beginning(run: KeptRun) -> tuple[str, str, float]:
    return run.command, run.directory, run.started


def _settle(batch: tuple[_Write, ...]) -> None:
    for write in batch:
        if write.last:
            write.run.settled = True

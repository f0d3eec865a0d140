"""Writes into the history in a thread, so that the governor never waits for SQLite.

What cannot be written now, because of a lock or a full disk, is kept up to a bound and tried
again. Independent of how the history is stored.
"""

import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path
from threading import Condition, Thread

import msgspec

from stoker import __version__
from stoker.govern.history.store import DamagedError, History
from stoker.govern.policy.predict import Knowledge, Predictor
from stoker.knowledge import tables_digest
from stoker.model.errors import StokerError
from stoker.model.runs import Attempt, RunSummary
from stoker.model.value import UNDECODABLE, Value, counted, first_of, prepared

_MOST_PENDING = 4096  # attempts that wait to be written; further attempts are dropped
_GATHER = 0.5  # seconds for which attempts are collected, because a transaction is expensive
_RETRY = 1.0  # seconds before a retry
_LOCK_TIMEOUT_S = 5.0  # seconds for which the thread waits for a lock
_START_LOCK_TIMEOUT_S = 1.0  # seconds: the first run waits for its governor
_MUCH_NEW = 200  # records
_MOST_NAMED = 3  # records that a warning names
_LONGEST_NAME = 200  # characters
_FORMAT = 4  # of stored knowledge
_LAST_WRITES = 2.0  # seconds that the exiting governor waits for pending writes


class RunBeingWritten:
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

    run: RunBeingWritten
    apply: Callable[[History, int], object]
    last: bool = False  # whether it is the last write of its run


class HistoryWriter:
    """Writes runs and attempts to the history in a thread. ``problem`` says why writes fail, and is
    ``None`` again when they succeed.
    """

    def __init__(self, path: Path | None = None, *, timeout_s: float = _LOCK_TIMEOUT_S):
        self.problem: str | None = None
        self.skipped: str | None = None  # the records that the predictor could not use
        self._path = path
        self._timeout_s = timeout_s
        self._pending: deque[_Write] = deque()
        self._changed = Condition()
        self._hurry = self._closing = False
        self._generation = 0  # a new file may have the inode of one that was removed
        self._thread = Thread(target=self._work, name="history", daemon=True)
        self._thread.start()

    def predictor(self) -> Predictor:
        """Return a predictor that knows the history; nothing if that cannot be read."""
        try:
            with History(
                self._path, timeout_s=min(self._timeout_s, _START_LOCK_TIMEOUT_S)
            ) as history:
                predictor = _predictor(history, history.learned(_kind()))
                names = [record.step.title for record in predictor.unusable]
                self.skipped = _skipped([*history.unreadable, *names])
                return predictor
        except StokerError as error:
            self._fail(error)
            return Predictor()

    def keep_learned(self) -> None:
        """Store what is learned from the history if much is new in it, so that the next governor
        starts sooner. Records of other governors are part of it.
        """
        with suppress(StokerError), History(self._path, timeout_s=self._timeout_s) as history:
            last, stored = history.last_attempt(), history.learned(_kind())
            if last - (stored[0] if stored else 0) >= _MUCH_NEW:
                content = msgspec.msgpack.encode(_predictor(history, stored).knowledge())
                history.keep_learned(_kind(), last, content)

    def start_run(self, command: str, directory: str) -> RunBeingWritten:
        run = RunBeingWritten(command, directory)
        self._put(_Write(run=run, apply=lambda *_: None))
        return run

    def add(self, run: RunBeingWritten, attempt: Attempt) -> None:
        if len(self._pending) < _MOST_PENDING:
            self._put(_Write(run=run, apply=lambda history, row: history.add(row, attempt)))

    def end_run(self, run: RunBeingWritten, summary: RunSummary) -> None:
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
                with self._changed:
                    self._changed.wait_for(lambda: self._hurry, _RETRY)
            else:
                self.problem = None
                with self._changed:
                    for _ in batch:
                        self._pending.popleft()
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

    def _fail(self, error: StokerError) -> None:
        # Keep the first reason: later ones usually follow from it.
        self.problem = self.problem or f"the history is not written: {error}"


def _predictor(history: History, stored: tuple[int, bytes] | None) -> Predictor:
    """Return a predictor that knows the history. ``stored`` is what was learned before."""
    known = None
    with suppress(*UNDECODABLE):
        known = stored and msgspec.msgpack.decode(stored[1], type=prepared(Knowledge))
    return Predictor(history.recent(after=stored[0] if stored and known else 0), known)


def _skipped(names: Sequence[str]) -> str | None:
    """Return which records of the history were skipped; ``None`` if none was."""
    if not names:
        return None
    what = f"{counted(len(names), 'record')} of the history cannot be used and"
    shown = first_of([name[:_LONGEST_NAME] for name in names], _MOST_NAMED)
    return f"{what} {'was' if len(names) == 1 else 'were'} skipped: {shown}"


@cache
def _kind() -> str:
    """Return what changes whenever stored knowledge would mean something else."""
    tables = tables_digest("memory_priors", "known_steps", "compiler_modes")
    return f"{__version__} {_FORMAT} {tables}"


def _write(history: History, where: object, batch: tuple[_Write, ...]) -> None:
    """Write a batch in one transaction. A run without a row in this history gets one; ``where``
    identifies this history.
    """
    rows: dict[RunBeingWritten, int] = {}
    for write in batch:
        run = write.run
        if run not in rows:
            rows[run] = run.row
            if run.where != where:
                rows[run] = history.start_run(run.command, run.directory, run.started)
        with suppress(OverflowError, ValueError):  # a value that no database can hold
            write.apply(history, rows[run])
    history.commit()
    for run, row in rows.items():
        run.row, run.where = row, where


def _settle(batch: tuple[_Write, ...]) -> None:
    for write in batch:
        if write.last:
            write.run.settled = True

"""What the daemon keeps of each run: its summary, and how it reaches the history."""

import time
from bisect import bisect_left, bisect_right
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import cache
from operator import itemgetter
from pathlib import Path
from threading import Condition, Thread

import msgspec
from msgspec.structs import replace

from stoker import __version__
from stoker.govern.bounds import RunningBound
from stoker.govern.connections import Peer
from stoker.govern.graph import WorkLeft
from stoker.govern.history import DamagedError, History
from stoker.govern.predict import Knowledge, Predictor
from stoker.govern.processes import process_behind
from stoker.knowledge import digest
from stoker.knowledge.compilers import nvcc_rounds
from stoker.machine.counters import KillCounter
from stoker.model.errors import StokerError
from stoker.model.events import KernelStarts, Overview, TargetsDiffer
from stoker.model.govern import CompileMode, GovernorOptions, Role, RunShare, Step, StepRecord
from stoker.model.plan import PlannedTargets
from stoker.model.runs import Attempt, Outcome, RunSummary
from stoker.model.value import UNDECODABLE, Value, counted
from stoker.plan.compiled import device_compile, difference

_MOST_PENDING = 4096  # attempts that wait to be written; further attempts are dropped
_GATHER = 0.5  # seconds for which attempts are collected, because a transaction is expensive
_RETRY = 1.0  # seconds before a retry
_LOCK_TIMEOUT_S = 5.0  # seconds for which the thread waits for a lock
_START_LOCK_TIMEOUT_S = 1.0  # seconds: the first run waits for its governor
_MUCH_NEW = 200  # records
_MOST_NAMED = 3  # records that a warning names
_LONGEST_NAME = 200  # characters
_FORMAT = 2  # of stored knowledge
_LAST_WRITES = 2.0  # seconds that the exiting governor waits for pending writes
_LAST_WRITES_OF_RUN = 2.0  # seconds that the end of a run waits for the history


class Tally:
    """Collects the attempts and readings of a run and makes its summary."""

    def __init__(self, *, cpus: int, policy: str):
        self._cpus = cpus
        self._policy = policy
        self._began = time.monotonic()
        self._governor_cpu = 0.0
        self._steps = self._remote_steps = 0
        self._bound = RunningBound()
        self._spans: list[tuple[float, float]] = []  # in which attempts waited or ran
        self._outcomes: Counter[Outcome] = Counter()
        self._modes: Counter[CompileMode] = Counter()
        self._mode_bytes: Counter[CompileMode] = Counter()
        self._mode_cpu: defaultdict[CompileMode, float] = defaultdict(float)
        self._threads_saved = 0.0
        self._links = 0
        self._link_s = self._default_link_s = 0.0
        self._cpu_seconds = 0.0
        self._once_cpu: defaultdict[str, float] = defaultdict(float)
        self._peak = 0
        self._pauses = 0
        self._limit = 0
        self._first_kills: int | None = None
        self._last_kills: int | None = None

    def read(self, *, used: int, limit: int, oom_kills: int | None) -> None:
        """Take in a reading: what the run's steps use, the limit in force, and the counter of
        kills, which is ``None`` where it cannot be read.
        """
        self._peak, self._limit = max(self._peak, used), limit
        if oom_kills is not None:
            self._first_kills = oom_kills if self._first_kills is None else self._first_kills
            self._last_kills = oom_kills

    def governed(self, cpu_seconds: float) -> None:
        """Add CPU time that the governor has spent on this run."""
        self._governor_cpu += cpu_seconds

    def paused(self) -> None:
        self._pauses += 1

    def add(self, attempt: Attempt) -> None:
        self._outcomes[attempt.outcome] += 1
        # A short step may start and end between two readings.
        self._peak = max(self._peak, attempt.record.peak_bytes)
        self._cpu_seconds += attempt.record.cpu_s
        if attempt.explanation and attempt.explanation.once:
            self._once_cpu[attempt.explanation.once] += attempt.record.cpu_s
        asked = attempt.explanation.asked if attempt.explanation else attempt.started
        _cover(self._spans, asked, max(asked, attempt.started + attempt.record.wall_s))
        if attempt.outcome in (Outcome.DONE, Outcome.FAILED):
            self._steps += 1
            self._remote_steps += attempt.record.step.role is Role.REMOTE
            self._bound.add(attempt.record)
        if attempt.outcome is Outcome.DONE:
            self._links += attempt.record.step.role is Role.LINK
        if attempt.outcome is Outcome.DONE and attempt.record.mode is not CompileMode.DEFAULT:
            self._modes[attempt.record.mode] += 1
            self._threads_saved += _saved_by_threads(attempt.record)
            self._add_effect(attempt)

    def _add_effect(self, attempt: Attempt) -> None:
        """Add what the mode of the attempt has changed against the default one."""
        effect, record = attempt.explanation and attempt.explanation.effect, attempt.record
        if effect and effect.mode.is_linker:
            self._link_s += record.wall_s
            self._default_link_s += record.wall_s / effect.seconds
        elif effect:
            self._mode_bytes[effect.mode] += round(record.peak_bytes * (1 - 1 / effect.memory))
            self._mode_cpu[effect.mode] += record.cpu_s * (1 - 1 / effect.seconds)

    def summary(self, status: int) -> RunSummary:
        bound = None
        if self._steps and self._limit and status == 0:
            bound = self._bound.seconds(cpus=self._cpus, memory=self._limit)
        governed = sum(end - begin for begin, end in self._spans)
        return RunSummary(
            status=status,
            steps=self._steps,
            remote_steps=self._remote_steps,
            wall_s=time.monotonic() - self._began,
            cpu_s=self._cpu_seconds,
            governor_cpu_s=self._governor_cpu,
            peak_bytes=self._peak,
            limit_bytes=self._limit,
            oom_kills=(self._last_kills or 0) - (self._first_kills or 0),
            preemptions=self._outcomes[Outcome.PREEMPTED],
            retries=self._outcomes[Outcome.PREEMPTED] + self._outcomes[Outcome.OOM],
            lower_bound_s=bound,
            governed_s=governed if self._spans else None,
            policy=self._policy,
            cpus=self._cpus,
            pauses=self._pauses,
            once_cpu_s=dict(self._once_cpu),
            modes=dict(self._modes),
            mode_bytes=dict(self._mode_bytes),
            mode_cpu_s=dict(self._mode_cpu),
            threads_saved_s=self._threads_saved,
            links=self._links,
            link_s=self._link_s,
            default_link_s=self._default_link_s,
        )


def _cover(spans: list[tuple[float, float]], begin: float, end: float) -> None:
    """Add a span to spans that are in order and apart, and unite those that it touches."""
    first = bisect_left(spans, begin, key=itemgetter(1))
    last = bisect_right(spans, end, key=itemgetter(0))
    if first < last:
        begin, end = min(begin, spans[first][0]), max(end, spans[last - 1][1])
    spans[first:last] = [(begin, end)]


def _saved_by_threads(record: StepRecord) -> float:
    """Return the seconds by which one thread would have taken longer, as estimated."""
    if record.mode is not CompileMode.THREADS:
        return 0.0
    one = replace(record.step, threads=1)
    return record.wall_s * (nvcc_rounds(one) / nvcc_rounds(record.step) - 1)


# -- history writer --------------------------------------------------------------------------------
# Writes into the history in a thread, so that the governor never waits for SQLite.
#
# What cannot be written now, because of a lock or a full disk, is kept up to a bound and tried
# again. Independent of how the history is stored.


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
                predictor, _ = _predictor(history)
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
            predictor, new = _predictor(history)
            if new >= _MUCH_NEW:
                content = msgspec.msgpack.encode(predictor.knowledge())
                history.keep_learned(_kind(), history.last_attempt(), content)

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


def _predictor(history: History) -> tuple[Predictor, int]:
    """Return a predictor that knows the history, and how many records were not stored as learned
    before.
    """
    stored, known = history.learned(_kind()), None
    with suppress(*UNDECODABLE):
        known = stored and msgspec.msgpack.decode(stored[1], type=Knowledge)
    records = history.recent(after=stored[0] if stored and known else 0)
    return Predictor(records, known), len(records)


def _skipped(names: Sequence[str]) -> str | None:
    """Return which records of the history were skipped; ``None`` if none was."""
    if not names:
        return None
    more = f" and {len(names) - _MOST_NAMED} more" if len(names) > _MOST_NAMED else ""
    what = f"{counted(len(names), 'record')} of the history cannot be used and"
    return (
        f"{what} {'was' if len(names) == 1 else 'were'} skipped: "
        f"{', '.join(name[:_LONGEST_NAME] for name in names[:_MOST_NAMED])}{more}"
    )


@cache
def _kind() -> str:
    """Return what changes whenever stored knowledge would mean something else."""
    tables = digest("memory_priors", "known_steps", "compiler_modes")
    return f"{__version__} {_FORMAT} {tables}"


def _write(history: History, where: object, batch: tuple[_Write, ...]) -> None:
    """Write a batch in one transaction. A run without a row in this history gets one; ``where``
    identifies this history.
    """
    rows: dict[RunBeingWritten, int] = {}
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


def _beginning(run: RunBeingWritten) -> tuple[str, str, float]:
    return run.command, run.directory, run.started


def _settle(batch: tuple[_Write, ...]) -> None:
    for write in batch:
        if write.last:
            write.run.settled = True


# -- served run ------------------------------------------------------------------------------------
# One run that the governor serves: its client, and all that is counted and kept for it.


class ServedRun:
    """Adds up a run from the greeting of its client to its summary, and writes it to the history.

    ``root`` is the folder in which the run was started; ``targets`` are those of its plan.
    """

    def __init__(
        self,
        client: Peer,
        history: HistoryWriter,
        kept: RunBeingWritten,
        options: GovernorOptions,
        share: RunShare,
        *,
        root: str,
        targets: PlannedTargets | None,
        now: float,
    ):
        self.client = client
        self.root = root
        self._targets = targets
        self.work = WorkLeft()
        self.tally = Tally(cpus=share.cpus, policy=options.policy)
        self.kills = KillCounter(process_behind(client.socket))
        self._history = history
        self._kept = kept
        self._began = now
        self._summary: RunSummary | None = None
        self._deadline = 0.0  # when the summary is sent without the history

    def add(self, attempt: Attempt) -> None:
        """Take in an attempt that has ended."""
        if attempt.outcome is Outcome.DONE:
            self.work.finished(attempt.record.step.output, attempt.record.wall_s)
        self.tally.add(attempt)
        self._history.add(self._kept, attempt.since(self._began))

    def judge(self, run: int, step: Step, now: float) -> TargetsDiffer | KernelStarts | None:
        """Return that a step compiles for other targets than the plan, or what it compiles for;
        None without a plan or device code.
        """
        compiled = device_compile(step) if self._targets else None
        if self._targets is None or compiled is None:
            return None
        if differs := difference(self._targets, compiled):
            return TargetsDiffer(
                at=now, run=run, title=step.title, difference=differs, flags=compiled.flags
            )
        return KernelStarts(at=now, run=run, title=step.title, targets=compiled.named)

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

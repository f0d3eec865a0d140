"""Adds up what happens in a run, for its summary."""

import time
from bisect import bisect_left, bisect_right
from collections import Counter, defaultdict
from operator import itemgetter

from msgspec.structs import replace

from stoker.govern.policy.bounds import RunningBound
from stoker.knowledge.compiler_modes import nvcc_rounds
from stoker.model.govern import CompileMode, Role, StepRecord
from stoker.model.runs import Attempt, Outcome, RunSummary

_REPEATED = (Outcome.PREEMPTED, Outcome.OOM, Outcome.REFUSED)


class Tally:
    """Collects the attempts and readings of a run and makes its summary."""

    def __init__(self, *, cpus: int, policy: str):
        self._cpus = cpus
        self._policy = policy
        self._began = time.monotonic()
        self._governor_cpu = 0.0
        self.steps = self._remote_steps = 0
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
            self.steps += 1
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

    @property
    def repeats(self) -> int:
        """The attempts after which a step had to run again."""
        return sum(self._outcomes[each] for each in _REPEATED)

    def summary(self, status: int) -> RunSummary:
        bound = None
        if self.steps and self._limit and status == 0:
            bound = self._bound.seconds(cpus=self._cpus, memory=self._limit)
        governed = sum(end - begin for begin, end in self._spans)
        return RunSummary(
            status=status,
            steps=self.steps,
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

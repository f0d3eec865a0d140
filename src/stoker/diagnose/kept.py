"""Keeps the output of runs that failed, and diagnoses runs by that and by what was measured.

What is kept is bounded, without secrets, and readable by its owner only. A run is known by its
number in the history.
"""

import os
import re
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path

import msgspec
from msgspec.structs import replace

from stoker.diagnose.about import About
from stoker.diagnose.answers import answers
from stoker.diagnose.sieve import read_log
from stoker.diagnose.values import (
    Diagnosis,
    Evidence,
    FailedRun,
    FoundCause,
    Status,
    what_to_give,
)
from stoker.diagnose.verdict import apart, diagnose, finding_of, merged
from stoker.knowledge.failures import failures
from stoker.model.build import StageEnd, StageResult
from stoker.model.errors import StokerError, StorageError
from stoker.model.govern import Role
from stoker.model.runs import Attempt, Outcome, Run, RunSummary
from stoker.model.secrets import HIDDEN, is_secret, redact
from stoker.model.value import Value, size
from stoker.outside import folders
from stoker.outside.deleting import remove_file
from stoker.outside.files import read_json, write_whole

_RECORD = "record.json"  # in the folder of a build
_MOST_LOGS = 20
_MOST_RUNS = 500  # whose causes are known; a few hundred bytes each
_LEAST_SECRET = 6  # characters of a variable's value that is searched for in an output


class KeptRun(Value, frozen=True, kw_only=True):
    """A run that failed. ``build_folder`` has the logs of a build, which keeps its own."""

    run: int
    ended: float
    failed: FailedRun
    summary: RunSummary | None = None
    build_folder: str = ""
    cause: str = ""
    title: str = ""

    @property
    def log(self) -> Path:
        return _folder() / f"{self.run}.log"


def keep(
    output: bytes, failed: FailedRun, summary: RunSummary | None, *, build_folder: str = ""
) -> KeptRun:
    """Keep a run that failed, with its output; outputs of older runs are removed."""
    failed = replace(failed, command=redact(failed.command))
    kept = KeptRun(
        run=_number(failed, summary),
        ended=time.time(),
        failed=failed,
        summary=summary,
        build_folder=build_folder,
    )
    if output:
        write_whole(kept.log, without_secrets(output), private=True)
    write_about(kept)
    for number, old in enumerate(sorted(kept_runs(), reverse=True)):
        if number >= _MOST_LOGS:
            remove_file(_folder() / f"{old}.log")
        if number >= _MOST_RUNS:
            remove_file(_folder() / f"{old}.json")
    return kept


def without_secrets(output: bytes) -> str:
    """Return an output without what looks like a secret, and without the values of variables whose
    names say that they are.
    """
    text = "\n".join(map(redact, output.decode("utf-8", "replace").split("\n")))
    for name, value in os.environ.items():
        if is_secret(name) and len(value) >= _LEAST_SECRET:
            text = text.replace(value, HIDDEN)
    return text


def write_about(kept: KeptRun) -> None:
    """Write what is known of a kept run beside its output."""
    write_whole(_folder() / f"{kept.run}.json", msgspec.json.encode(kept), private=True)


def kept_runs() -> list[int]:
    """Return the numbers of all runs that are kept."""
    found = (path.stem for path in _folder().glob("*.json"))
    return [int(name) for name in found if name.isdecimal()]


def kept_run(run: int) -> KeptRun | None:
    """Return the run with that number; ``None`` if it is not kept."""
    return read_json(_folder() / f"{run}.json", KeptRun)


def last_failed() -> KeptRun | None:
    """Return the run that failed last."""
    found = [kept for run in kept_runs() if (kept := kept_run(run))]
    return max(found, key=lambda kept: kept.ended, default=None)


def with_causes(runs: Iterable[Run]) -> tuple[Run, ...]:
    """Return runs with the causes of those that failed."""
    failed = {run: kept.title for run in kept_runs() if (kept := kept_run(run))}
    return tuple(replace(run, cause=failed.get(run.id, "")) for run in runs)


def _number(failed: FailedRun, summary: RunSummary | None) -> int:
    """Return the number of the run in the history. A run in which nothing was compiled is not there
    yet: the governor, which adds runs, was not started.
    """
    from stoker.govern.history import History

    if summary is None:
        return 0  # the governor died
    if summary.run is not None:
        return summary.run
    try:
        with History() as history:
            run = history.start_run(failed.command, failed.folder, time.time() - summary.wall_s)
            history.end_run(run, summary)
            return run
    except StorageError:
        return 0


def _folder() -> Path:
    return folders.state() / "failed"


# -- measured --------------------------------------------------------------------------------------
# What the governor measured of a run, and what that says about its causes.
#
# A log can only hint that memory ran out; the kernel's counter knows.


_OF_CUDA, _OF_HOST = "oom-nvcc", "oom-host-compiler"
_KILLED = re.compile(r"\bKilled\b|signal 9\b")
_DOUBTFUL = 0.4  # that a killed process lacked memory, where the run had enough
_ENOUGH = 0.5  # of the limit is the most that a run with enough memory uses
_LIKELY = 0.9  # that memory was it, where the counter moved and no other cause is known
_ALONE = 0.8  # of the limit: a step that needed this much leaves no room for others
_MOST_SHOWN = 5


class Measured(Value, frozen=True, kw_only=True):
    """Measurements of a run. ``killed`` and ``failed`` are steps whose last attempt ended so."""

    status: int | None = None  # of the command
    oom_kills: int = 0
    peak: int = 0
    limit: int = 0
    killed: tuple[Attempt, ...] = ()
    failed: tuple[Attempt, ...] = ()

    @property
    def alone(self) -> str:
        """What a step needed that ran out of memory by itself; empty if none did."""
        most = max((attempt.record.peak_bytes for attempt in self.killed), default=0)
        return f"{size(most)} of {size(self.limit)}" if 0 < _ALONE * self.limit <= most else ""

    @property
    def had_enough(self) -> bool:
        """Whether the run was far from its limit, and the kernel killed nothing of it."""
        killed = self.oom_kills or self.killed
        return not killed and 0 < self.peak < _ENOUGH * self.limit


def of_summary(summary: RunSummary | None) -> Measured:
    if summary is None:
        return Measured()
    return Measured(
        status=summary.status,
        oom_kills=summary.oom_kills,
        peak=summary.peak_bytes,
        limit=summary.limit_bytes,
    )


def of_attempts(attempts: Iterable[Attempt], summary: RunSummary | None) -> Measured:
    last = {attempt.record.step.key: attempt for attempt in attempts}.values()
    return replace(
        of_summary(summary),
        killed=tuple(attempt for attempt in last if attempt.outcome is Outcome.OOM),
        failed=tuple(attempt for attempt in last if attempt.outcome is Outcome.FAILED),
    )


def with_measured(diagnosis: Diagnosis, measured: Measured, about: About) -> Diagnosis:
    """Return the diagnosis of a log with the measurements of its run, which can prove that memory
    ran out, or that there was enough of it.
    """
    if measured.status == 0:
        return diagnosis
    if measured.had_enough:
        doubted = (_with_doubt(finding, measured) for finding in diagnosis.findings)
        diagnosis = replace(diagnosis, findings=tuple(_ranked(doubted)))
    found = _out_of_memory(diagnosis.findings, measured, about)
    if found:
        others = [finding for finding in diagnosis.findings if finding.cause != found.cause]
        ranked = apart(_ranked([found, *others]))
        return replace(diagnosis, status=Status.FAILED, findings=tuple(ranked), unexplained=())
    silent = diagnosis.status in (Status.NOTHING_FAILED, Status.EMPTY)
    if silent and (measured.status or measured.failed):
        shown = tuple(map(_step, measured.failed[:_MOST_SHOWN]))
        return replace(diagnosis, status=Status.UNKNOWN, unexplained=shown)
    return diagnosis


def _ranked(findings: Iterable[FoundCause]) -> list[FoundCause]:
    return sorted(findings, key=lambda finding: -finding.confidence)


def _out_of_memory(
    findings: Sequence[FoundCause], measured: Measured, about: About
) -> FoundCause | None:
    if not measured.oom_kills and not measured.killed:
        return None
    evidence = tuple(_memory(measured))
    about = about.of_run(replace(about.run, alone=measured.alone))
    for finding in findings:
        if finding.cause in (_OF_CUDA, _OF_HOST):
            fix = answers(failures()[finding.cause], about) if measured.alone else finding.fix
            evidence = (*evidence, *finding.evidence)
            return replace(finding, confidence=1.0, evidence=evidence, fix=fix)
    if findings and not measured.killed:
        return None  # it was killed and tried again; what failed is something else
    cuda = any(attempt.record.step.role is Role.CUDA for attempt in measured.killed)
    confidence = 1.0 if measured.killed else _LIKELY
    cause = failures()[_OF_CUDA if cuda else _OF_HOST]
    return finding_of(cause, confidence, evidence, about.with_groups({}, cause.known))


def _with_doubt(finding: FoundCause, measured: Measured) -> FoundCause:
    """Return a finding that a process was killed for lack of memory as a guess."""
    texts = (evidence.text for evidence in finding.evidence)
    if finding.cause not in (_OF_CUDA, _OF_HOST) or not any(map(_KILLED.search, texts)):
        return finding
    text = (
        "the kernel killed no process of the run for lack of memory, and the most it used was "
        f"{size(measured.peak)} of {size(measured.limit)}: perhaps a user, a job scheduler or a "
        "daemon such as earlyoom sent the signal"
    )
    doubt = Evidence(line=0, text=text)
    confidence = min(finding.confidence, _DOUBTFUL)
    return replace(finding, confidence=confidence, evidence=(doubt, *finding.evidence))


def _memory(measured: Measured) -> Iterable[Evidence]:
    if measured.oom_kills:
        text = f"the kernel killed {measured.oom_kills} processes of the run for lack of memory"
        if measured.peak:
            text += f"; the most it used was {size(measured.peak)} of {size(measured.limit)}"
        yield Evidence(line=0, text=text)
    yield from map(_step, measured.killed[:_MOST_SHOWN])


def _step(attempt: Attempt) -> Evidence:
    step, record = attempt.record.step, attempt.record
    how = "was killed for lack of memory" if attempt.outcome is Outcome.OOM else "failed"
    took = f"after {record.wall_s:.0f} s, with {size(record.peak_bytes)}"
    status = f", status {attempt.status}" if attempt.status else ""
    return Evidence(line=0, text=f"{step.role} {step.source or step.output} {how} {took}{status}")


# -- diagnoses -------------------------------------------------------------------------------------
# Runs and builds, by what was kept of them.


class _Record(Value, frozen=True, kw_only=True):
    """What matters here of record.json in a run folder."""

    stages: tuple[StageResult, ...] = ()
    summary: RunSummary | None = None
    error: str | None = None


def diagnose_last() -> Diagnosis:
    """Diagnose the last run that failed."""
    return _of_kept(last_failed())


def diagnose_folder(folder: Path, about: About | None = None) -> Diagnosis:
    """Diagnose a run of `stoker build`: the logs of its failed stages, or all logs if none is
    named.
    """
    record = _record(folder)
    about = about or About(run=FailedRun(command="stoker build"))
    logs = list(_failed_logs(folder, record))
    if not logs and not record.stages:
        raise what_to_give(f"no *.log in {folder}")
    diagnosis = merged([_of_file(log, log.name, about) for log in logs])
    diagnosis = with_measured(diagnosis, of_summary(record.summary), about)
    if record.error and not (diagnosis.findings or diagnosis.unexplained):
        # The build failed between its stages.
        error = Evidence(line=0, text=redact(record.error), file=_RECORD)
        return replace(diagnosis, status=Status.UNKNOWN, unexplained=(error,))
    return diagnosis


def keep_run(output: bytes, failed: FailedRun, summary: RunSummary | None) -> Diagnosis:
    """Keep the output of a command of `stoker run` that failed, and diagnose it."""
    kept = keep(output, failed, summary)
    return _noted(kept, _of_kept(kept))


def keep_build(folder: Path, failed: FailedRun) -> Diagnosis:
    """Remember a build that failed, whose folder has its logs, and diagnose it."""
    kept = keep(b"", failed, _record(folder).summary, build_folder=str(folder))
    return _noted(kept, _of_kept(kept))


def diagnose_run(number: str) -> Diagnosis:
    """Diagnose a run of the history: by its output if that was kept, and by its measurements."""
    if kept := kept_run(int(number)):
        return _of_kept(kept)
    found, measured = measured_run(number)
    return with_measured(Diagnosis(status=Status.EMPTY, run=found), measured, About(run=found))


def _of_kept(kept: KeptRun | None) -> Diagnosis:
    if kept is None:
        raise what_to_give("no run that failed is kept")
    about = About(run=kept.failed)
    if kept.build_folder and Path(kept.build_folder).is_dir():
        return diagnose_folder(Path(kept.build_folder), about)
    diagnosis = Diagnosis(status=Status.EMPTY, run=kept.failed)
    if kept.log.exists():
        diagnosis = _of_file(kept.log, "", about)
    measured = of_summary(kept.summary) if kept.summary else Measured(status=1)
    if measured.oom_kills and kept.run:
        with suppress(StokerError):  # the history may have been cleaned
            measured = measured_run(str(kept.run))[1]
    return with_measured(diagnosis, measured, about)


def _noted(kept: KeptRun, diagnosis: Diagnosis) -> Diagnosis:
    """Remember the cause, for `stoker history`, and return the diagnosis."""
    for best in diagnosis.findings[:1]:
        write_about(replace(kept, cause=best.cause, title=best.title))
    return diagnosis


def _of_file(log: Path, name: str, about: About) -> Diagnosis:
    with log.open("rb") as stream:
        return diagnose(read_log(stream), file=name, about=about)


def _failed_logs(folder: Path, record: _Record) -> Iterator[Path]:
    if not record.stages:
        yield from sorted(folder.glob("*.log"))
    for stage in record.stages:
        if stage.end is StageEnd.FAILED and (folder / Path(stage.log).name).exists():
            yield folder / Path(stage.log).name


def _record(folder: Path) -> _Record:
    record = read_json(folder / _RECORD, _Record)
    return record or _Record(summary=read_json(folder / "summary.json", RunSummary))


def measured_run(number: str) -> tuple[FailedRun, Measured]:
    from stoker.govern.history import History

    with History() as history:
        run = history.find(number)
        measured = of_attempts(history.attempts(run.id), run.summary)
    return FailedRun(command=run.command, folder=run.directory), measured

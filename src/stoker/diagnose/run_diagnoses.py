"""Diagnoses runs and builds by what was kept of them and by what was measured."""

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from msgspec.structs import replace

from stoker.diagnose.about import About
from stoker.diagnose.kept import (
    KeptRun,
    earlier_runs,
    keep,
    kept_run,
    last_failed,
    write_about,
)
from stoker.diagnose.measured import Measured, of_attempts, of_summary, with_measured
from stoker.diagnose.sieve import read_log
from stoker.diagnose.values import Diagnosis, FailedRun, LogEvidence, Status, what_to_give
from stoker.diagnose.verdict import diagnose, merged
from stoker.model.build import StageEnd, StageResult
from stoker.model.errors import StokerError
from stoker.model.runs import RunSummary
from stoker.model.secrets import redact
from stoker.model.value import Value
from stoker.outside.files import read_json

_RECORD = "record.json"  # in the folder of a build


class _Record(Value, frozen=True, kw_only=True):
    """What matters here of record.json in a run folder."""

    stages: tuple[StageResult, ...] = ()
    summary: RunSummary | None = None
    error: str | None = None


def diagnose_last() -> Diagnosis:
    """Diagnose the last run that failed."""
    kept = last_failed()
    if kept is None:
        raise what_to_give("no run that failed is kept")
    return diagnose_kept(kept)


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
        error = LogEvidence(line=0, text=redact(record.error), file=_RECORD)
        return replace(diagnosis, status=Status.UNKNOWN, unexplained=(error,))
    return diagnosis


def keep_run(
    output: bytes, failed: FailedRun, summary: RunSummary | None, began: float = 0.0
) -> Diagnosis:
    """Keep the output of a command of `stoker run` that failed, and diagnose it."""
    kept = keep(output, failed, summary, began=began)
    return _noted(kept, diagnose_kept(kept))


def keep_build(folder: Path, failed: FailedRun) -> Diagnosis:
    """Remember a build that failed, whose folder has its logs, and diagnose it."""
    kept = keep(b"", failed, _record(folder).summary, build_folder=str(folder))
    return _noted(kept, diagnose_kept(kept))


def diagnose_run(number: str) -> Diagnosis:
    """Diagnose a run of the history: by its output if that was kept, and by its measurements."""
    if kept := kept_run(int(number)):
        return diagnose_kept(kept)
    found, measured = measured_run(number)
    return with_measured(Diagnosis(status=Status.EMPTY, run=found), measured, About(run=found))


def diagnose_kept(kept: KeptRun) -> Diagnosis:
    """Diagnose a run that was kept. What was offered for its cause when the same command failed
    before is not offered again.
    """
    return _without_tried(_diagnosed(kept), kept)


def _without_tried(diagnosis: Diagnosis, kept: KeptRun) -> Diagnosis:
    before = next(iter(earlier_runs(kept)), None)
    best = next(iter(diagnosis.findings), None)
    if best is None or before is None or before.cause != best.cause or not before.fix:
        return diagnosis
    left = tuple(fix for fix in best.fix if fix.text != before.fix)
    if left == best.fix:
        return diagnosis
    text = f"run {before.run} failed with the same cause, for which was offered: {before.fix}"
    again = LogEvidence(line=0, text=text, file="history")
    best = replace(best, fix=left, evidence=(*best.evidence, again))
    return replace(diagnosis, findings=(best, *diagnosis.findings[1:]))


def _diagnosed(kept: KeptRun) -> Diagnosis:
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
        fix = best.fix[0].text if best.fix else ""
        write_about(replace(kept, cause=best.cause, title=best.title, fix=fix))
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
    from stoker.govern.history.store import History

    with History() as history:
        run = history.find(number)
        measured = of_attempts(history.attempts(run.id), run.summary)
    return FailedRun(command=run.command, folder=run.directory), measured

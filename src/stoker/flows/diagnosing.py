"""`stoker diagnose`: find a log, a run or both, and diagnose them."""

import os
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import BinaryIO

from msgspec.structs import replace

from stoker.diagnose.measured import Measured, of_attempts, of_summary, with_measured
from stoker.diagnose.parameters import parameters
from stoker.diagnose.sieve import read_log
from stoker.diagnose.values import Diagnosis, Evidence, Status
from stoker.diagnose.verdict import diagnose, first_error, merged
from stoker.govern.history import History
from stoker.govern.running import OutputFile, opened
from stoker.machine.system import read_machine
from stoker.machine.tools import read_toolbox
from stoker.model.build import StageEnd, StageResult
from stoker.model.errors import StorageError, UsageError
from stoker.model.runs import Run, RunSummary
from stoker.model.secrets import redact
from stoker.model.value import Value
from stoker.outside.files import read_json
from stoker.plan.records import RECORD

_LAST_LINES = 15  # of a log without an error
_HINTS = ("give a log file, - for standard input, a run folder, or a run of `stoker history`",)


class _Record(Value, frozen=True, kw_only=True):
    """What matters here of record.json in a run folder."""

    stages: tuple[StageResult, ...] = ()
    summary: RunSummary | None = None
    error: str | None = None


def diagnose_what(what: str, run: str | None = None) -> Diagnosis:
    """Diagnose a file, ``-``, a run folder or a run's number; ``run`` is the run that
    wrote a file.
    """
    if what == "-":
        return _of_stream(sys.stdin.buffer, run)
    path = Path(what)
    try:
        if path.is_dir():
            return diagnose_folder(path)
        if not path.exists() and what.isdecimal():
            return _of_run(_find_run(what))
        with path.open("rb") as stream:
            return _of_stream(stream, run, file=what)
    except FileNotFoundError as error:
        raise UsageError(f"there is no log or run '{what}'", hints=_HINTS) from error
    except OSError as error:
        raise StorageError(f"cannot read {what}: {error.strerror}") from error


def diagnose_folder(folder: Path) -> Diagnosis:
    """Diagnose a run of `stoker build`: the logs of its failed stages, or all logs if none is
    named.
    """
    record = _record(folder)
    facts = _facts("stoker build")
    logs = list(_failed_logs(folder, record))
    if not logs and not record.stages:
        raise UsageError(f"no *.log in {folder}", hints=_HINTS)
    diagnosis = merged([_of_file(log, facts) for log in logs])
    diagnosis = with_measured(diagnosis, of_summary(record.summary), facts)
    if record.error and not (diagnosis.findings or diagnosis.unexplained):
        # The build failed between its stages.
        error = Evidence(line=0, text=redact(record.error), file=RECORD)
        return replace(diagnosis, status=Status.UNKNOWN, unexplained=(error,))
    return diagnosis


def diagnose_outputs(outputs: tuple[OutputFile, ...], summary: RunSummary | None) -> Diagnosis:
    """Diagnose a command of `stoker run` from its output and its measurements."""
    found = [diagnose(read_log(stream)) for stream in opened(outputs)]
    return with_measured(merged(found), of_summary(summary), {})


def excerpt(log: Path) -> str:
    """Return the first complete error of a stage's log, or its last lines if it has none."""
    try:
        with log.open("rb") as stream:
            read = read_log(stream)
    except OSError:
        return ""
    lines = first_error(read) or read.lines[-_LAST_LINES:]
    return "\n".join(redact(line.text) for line in lines)


def _of_stream(stream: BinaryIO, run: str | None, file: str = "") -> Diagnosis:
    if run is None:
        return diagnose(read_log(stream), file=file)
    found = _find_run(run)
    facts = _facts(found.command)
    diagnosis = diagnose(read_log(stream), file=file, facts=facts)
    return with_measured(diagnosis, _measured(found), facts)


def _of_run(run: Run) -> Diagnosis:
    return with_measured(merged([]), _measured(run), _facts(run.command))


def _of_file(log: Path, facts: Mapping[str, str]) -> Diagnosis:
    with log.open("rb") as stream:
        return diagnose(read_log(stream), file=log.name, facts=facts)


def _failed_logs(folder: Path, record: _Record) -> Iterator[Path]:
    if not record.stages:
        yield from sorted(folder.glob("*.log"))
    for stage in record.stages:
        if stage.end is StageEnd.FAILED and (folder / Path(stage.log).name).exists():
            yield folder / Path(stage.log).name


def _record(folder: Path) -> _Record:
    record = read_json(folder / RECORD, _Record)
    return record or _Record(summary=read_json(folder / "summary.json", RunSummary))


def _find_run(number: str) -> Run:
    with History() as history:
        return history.find(number)


def _measured(run: Run) -> Measured:
    with History() as history:
        return of_attempts(history.attempts(run.id), run.summary)


def _facts(command: str) -> Mapping[str, str]:
    return parameters(read_machine(), read_toolbox(os.environ), command)

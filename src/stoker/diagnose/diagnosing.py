"""`stoker diagnose`: find a log, a run or both, and diagnose them."""

import sys
from pathlib import Path
from typing import BinaryIO

from stoker.diagnose.about import About
from stoker.diagnose.sieve import read_log
from stoker.diagnose.values import Diagnosis, what_to_give
from stoker.diagnose.verdict import diagnose, first_error
from stoker.model.errors import StorageError
from stoker.model.secrets import redact

_LAST_LINES = 15  # of a log without an error


def diagnose_what(what: str | None, run: str | None = None) -> Diagnosis:
    """Diagnose a file, ``-``, a run folder, a run's number, or by default the last run that failed.
    ``run`` is the run that wrote a file.
    """
    if what is None:
        from stoker.diagnose.run_diagnoses import diagnose_last

        return diagnose_last()
    if what == "-":
        return _of_stream(sys.stdin.buffer, run)
    path = Path(what)
    try:
        if path.is_dir() or (not path.exists() and what.isdecimal()):
            from stoker.diagnose.run_diagnoses import diagnose_folder, diagnose_run

            return diagnose_folder(path) if path.is_dir() else diagnose_run(what)
        with path.open("rb") as stream:
            return _of_stream(stream, run, file=what)
    except FileNotFoundError as error:
        raise what_to_give(f"there is no log or run '{what}'") from error
    except OSError as error:
        raise StorageError(f"cannot read {what}: {error.strerror}") from error


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
    from stoker.diagnose.measured import with_measured  # a log alone needs neither
    from stoker.diagnose.run_diagnoses import measured_run

    found, measured = measured_run(run)
    about = About(run=found)
    diagnosis = diagnose(read_log(stream), file=file, about=about)
    return with_measured(diagnosis, measured, about)

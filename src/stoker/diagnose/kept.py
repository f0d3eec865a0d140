"""Keeps the output of runs that failed. A run is known by its number in the history.

What is kept is bounded, without secrets, and readable by its owner only.
"""

import os
import time
from collections.abc import Iterable
from pathlib import Path

import msgspec
from msgspec.structs import replace

from stoker.diagnose.values import FailedRun
from stoker.model.errors import StorageError
from stoker.model.runs import Run, RunSummary
from stoker.model.secrets import HIDDEN, is_secret, redact
from stoker.model.value import Value
from stoker.outside import folders
from stoker.outside.deleting import remove_file
from stoker.outside.files import read_json, write_whole

_MOST_LOGS = 20
_MOST_RUNS = 500  # whose causes are known; a few hundred bytes each
_LEAST_SECRET = 6  # characters of a variable's value that is searched for in an output


class KeptRun(Value, frozen=True, kw_only=True):
    """A run that failed. ``build_folder`` has the logs of a build, which keeps its own."""

    run: int
    began: float = 0.0  # 0 if that is not known
    ended: float
    failed: FailedRun
    summary: RunSummary | None = None
    build_folder: str = ""
    cause: str = ""
    title: str = ""
    fix: str = ""  # the first one that was offered

    @property
    def log(self) -> Path:
        return _folder() / f"{self.run}.log"


def keep(
    output: bytes,
    failed: FailedRun,
    summary: RunSummary | None,
    *,
    began: float = 0.0,
    build_folder: str = "",
) -> KeptRun:
    """Keep a run that failed, with its output; outputs of older runs are removed."""
    failed = replace(failed, command=redact(failed.command))
    kept = KeptRun(
        run=_number(failed, summary),
        began=began,
        ended=time.time(),
        failed=failed,
        summary=summary,
        build_folder=build_folder,
    )
    if output:
        write_whole(kept.log, redacted_output(output), private=True)
    write_about(kept)
    for number, old in enumerate(sorted(kept_runs(), reverse=True)):
        if number >= _MOST_LOGS:
            remove_file(_folder() / f"{old}.log")
        if number >= _MOST_RUNS:
            remove_file(_folder() / f"{old}.json")
    return kept


def redacted_output(output: bytes) -> str:
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


def earlier_runs(kept: KeptRun) -> list[KeptRun]:
    """Return the runs of the same command in the same folder that failed before, the last first."""
    found = [one for run in kept_runs() if run < kept.run and (one := kept_run(run))]
    same = [one for one in found if one.failed.command == kept.failed.command]
    here = [one for one in same if one.failed.folder == kept.failed.folder]
    return sorted(here, key=lambda one: -one.run)


def with_causes(runs: Iterable[Run]) -> tuple[Run, ...]:
    """Return runs with the causes of those that failed."""
    failed = {run: kept.title for run in kept_runs() if (kept := kept_run(run))}
    return tuple(replace(run, cause=failed.get(run.id, "")) for run in runs)


def _number(failed: FailedRun, summary: RunSummary | None) -> int:
    """Return the number of the run in the history. A run in which nothing was compiled is not there
    yet: the governor, which adds runs, was not started.
    """
    from stoker.govern.history.store import History

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
    return folders.failed_runs()

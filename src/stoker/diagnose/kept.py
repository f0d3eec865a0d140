"""Keeps the output of runs that failed, so that the reason can be read without building again.

What is kept is bounded, without secrets, and readable by its owner only. A run is known by its number
in the history.
"""

import time
from pathlib import Path

import msgspec

from stoker.diagnose.values import FailedRun
from stoker.model.errors import StorageError
from stoker.model.runs import RunSummary
from stoker.model.secrets import redact
from stoker.model.value import Value
from stoker.outside import folders
from stoker.outside.files import read_json, write_whole

_MOST_RUNS = 20


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
    output: bytes, failed: FailedRun, summary: RunSummary, *, build_folder: str = ""
) -> KeptRun:
    """Keep a run that failed, with its output. Older ones are removed."""
    kept = KeptRun(
        run=_number(failed, summary),
        ended=time.time(),
        failed=failed,
        summary=summary,
        build_folder=build_folder,
    )
    lines = output.decode("utf-8", "replace").split("\n")
    write_whole(kept.log, "\n".join(map(redact, lines)), private=True)
    write_about(kept)
    for old in sorted(kept_runs(), reverse=True)[_MOST_RUNS:]:
        for file in _folder().glob(f"{old}.*"):
            file.unlink(missing_ok=True)
    return kept


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


def _number(failed: FailedRun, summary: RunSummary) -> int:
    """Return the number of the run in the history. A run in which nothing was compiled is not there
    yet: the governor, which adds them, was not started.
    """
    from stoker.govern.history import History

    if summary.run is not None:
        return summary.run
    try:
        with History() as history:
            run = history.start_run(failed.command, failed.folder, time.time() - summary.wall_s)
            history.end_run(run, summary)
            return run
    except StorageError:
        return 0  # the last one that the history could not take


def _folder() -> Path:
    return folders.state() / "failed"

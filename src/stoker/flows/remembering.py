"""`stoker history`: what was learned, and handing it on."""

from pathlib import Path

from stoker.flows.simulating import find_trace
from stoker.govern.history import History
from stoker.govern.trace import read_trace, write_trace
from stoker.model.errors import StorageError, UsageError
from stoker.model.runs import Attempt, Outcome, Run
from stoker.outside.files import write_named


def runs() -> tuple[Run, ...]:
    with History() as history:
        return history.runs()


def steps(run: int) -> tuple[Attempt, ...]:
    """Every attempt of a run, the hungriest first."""
    with History() as history:
        found = history.attempts(run)
    if not found:
        raise UsageError(f"the history has no steps of a run {run}", hints=["stoker history"])
    return tuple(sorted(found, key=lambda attempt: -attempt.record.peak))


def export(run: int, path: Path) -> int:
    """Write a run as a trace; gives the number of steps."""
    trace = find_trace(str(run))
    write_named(path, write_trace(trace))
    return len(trace.steps)


def take_in(path: Path) -> int:
    """Learn from another machine's trace, as if it had been a run here: all of it or nothing."""
    try:
        content = path.read_bytes()
    except OSError as error:
        raise StorageError(f"cannot read {path}: {error.strerror}") from error
    trace = read_trace(content, path.name)
    with History() as history:
        run = history.start_run(f"imported: {trace.what or path.name}", str(path.parent))
        for record in trace.steps:
            history.add(run, Attempt(record=record, started=0.0, outcome=Outcome.DONE))
    return len(trace.steps)

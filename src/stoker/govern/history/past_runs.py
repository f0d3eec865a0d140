"""`stoker history`: the measured runs, their export as traces, and the import of traces."""

import os
from collections.abc import Iterable
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from posixpath import normpath

from stoker.govern.command_line import build_folder
from stoker.govern.history.store import History
from stoker.govern.history.trace import read_trace, write_trace
from stoker.model.errors import StorageError, UsageError, unreadable
from stoker.model.govern import CompileMode, StepRecord, Timing, Trace
from stoker.model.runs import Attempt, Outcome, Run
from stoker.model.value import Value, counted, duration, size, whole_number
from stoker.outside.files import write_named
from stoker.outside.terminal import Group, Listing, Page, Text
from stoker.source.ninja import read_durations

_MOST_DIGITS = 18  # of the number of a run: SQLite takes no more than 64 bits
_RUNS = ("`stoker history` lists the runs",)


class MeasuredRun(Value, frozen=True, kw_only=True):
    """A run with its attempts, in the order in which they started."""

    run: Run
    attempts: tuple[Attempt, ...]


def measured_run(word: str | None) -> MeasuredRun:
    """Return the run with that number or run folder, by default the latest one that has steps."""
    with History() as history:
        run = history.find(word)
        attempts = history.attempts(run.id)
    if not attempts:
        raise UsageError(f"run {run.id} has no measured steps: {run.command}", hints=_RUNS)
    return MeasuredRun(run=run, attempts=attempts)


def find_trace(source: str) -> Trace:
    path = Path(source)
    try:
        if path.is_file():
            return read_trace(path.read_bytes(), source)
    except OSError as error:
        raise StorageError(f"cannot read {path}: {error.strerror}") from error
    if path.is_dir() or whole_number(source, _MOST_DIGITS):
        return trace_of_run(source)
    raise UsageError(
        f"there is no trace '{source}'",
        hints=["give a trace's file, or the number of a run in the history"],
    )


def trace_of_run(word: str) -> Trace:
    """Return the steps of a run, which is given by its number or its run folder; also those that
    ran at its deadline.
    """
    measured = measured_run(word)
    wanted = (Outcome.DONE, Outcome.DEADLINE)
    steps = tuple(attempt.record for attempt in measured.attempts if attempt.outcome in wanted)
    if not steps:
        raise UsageError(f"run {measured.run.id} has no steps that ended well", hints=_RUNS)
    return Trace(what=measured.run.command, steps=steps)


def runs() -> tuple[Run, ...]:
    """Return all runs, newest first."""
    with History() as history:
        return history.runs()


def attempts_of(measured: MeasuredRun, step: str | None = None) -> tuple[Attempt, ...]:
    """Return the attempts of a run, largest peak first.

    With ``step``, part of a source or output name, return those of the matching steps in the order
    in which they started.
    """
    run = measured.run.id
    if step is None:
        return tuple(sorted(measured.attempts, key=lambda attempt: -attempt.record.peak_bytes))
    named = ((attempt, attempt.record.step) for attempt in measured.attempts)
    matching = tuple(attempt for attempt, at in named if step in at.source or step in at.output)
    if not matching:
        hint = f"`stoker history {run} --all` lists the steps"
        raise UsageError(f"no step of run {run} has '{step}' in its name", hints=[hint])
    return matching


def with_steps(runs: Iterable[Run]) -> tuple[Run, ...]:
    """Return the runs that have measured steps, still run, or failed for a reason that is known."""
    with History() as history:
        measured = history.attempts_by_run()
    return tuple(run for run in runs if run.id in measured or run.cause or not run.summary)


def timings_of(folder: Path) -> dict[str, Timing]:
    """Return what the steps took, by output. The history comes before ninja's log, whose times
    include the time that a step waited for its permit.
    """
    found = {name: Timing(seconds=seconds) for name, seconds in read_durations(folder).items()}
    name = build_folder(str(folder))
    with suppress(StorageError), History() as history:
        for record in history.recent():
            if record.step.directory == name and record.step.output:
                timing = Timing(seconds=record.wall_s, peak=record.peak_bytes)
                output = record.step.output
                absolute = output.startswith("/")
                found[os.path.relpath(output, folder) if absolute else normpath(output)] = timing
    return found


def export(run: str, path: Path) -> int:
    """Write a run as a trace and return the number of its steps."""
    trace = trace_of_run(run)
    write_named(path, write_trace(trace))
    return len(trace.steps)


def import_trace(path: Path) -> tuple[int, int]:
    """Add another machine's trace to the history as a run of its own, wholly or not at all.

    Returns the id of the run and the number of its steps.
    """
    try:
        content = path.read_bytes()
    except OSError as error:
        raise unreadable(path, error) from error
    trace = read_trace(content, path.name)
    with History() as history:
        run = history.start_run(f"imported: {trace.what or path.name}", str(path.parent))
        for record in trace.steps:
            history.add(run, Attempt.elsewhere(record))
    return run, len(trace.steps)


def runs_page(runs: tuple[Run, ...], left_out: int) -> Page:
    more = (
        [Text(f"{counted(left_out, 'run')} without steps: --all shows all runs")]
        if left_out
        else []
    )
    if not runs:
        return Group(Text("nothing yet: `stoker run -- ninja` measures a build"), *more)
    table = Listing(
        "run",
        "when",
        "status",
        ">took",
        ">steps",
        ">peak",
        ">repeated",
        "command",
        "folder",
        "cause",
    )
    for run in runs:
        when = datetime.fromtimestamp(run.started).strftime("%Y-%m-%d %H:%M")
        summary = run.summary
        figures: tuple[str | Text, ...] = ("", "", "", "", "")
        if summary:
            failed = f"failed ({summary.status})"
            figures = (
                Text("ok", style="ok") if summary.status == 0 else Text(failed, style="error"),
                duration(summary.wall_s),
                str(summary.steps),
                size(summary.peak_bytes),
                str(summary.retries or ""),
            )
        table.add(str(run.id), when, *figures, run.command, run.directory, run.cause)
    return Group(table, *more)


def steps_page(attempts: tuple[Attempt, ...], most: int) -> Page:
    modes = (
        ("mode",) if any(each.record.mode is not CompileMode.DEFAULT for each in attempts) else ()
    )
    table = Listing(">peak", ">took", ">CPU", "how it ended", *modes, "step")
    for attempt in attempts[:most]:
        record = attempt.record
        cells = (
            size(record.peak_bytes),
            duration(record.wall_s),
            duration(record.cpu_s),
            attempt.outcome.value,
            *(_mode(record) for _ in modes),
            record.step.title,
        )
        table.add(*cells)
    rest = len(attempts) - most
    more = [Text(f"and {rest} more: --all shows them")] if rest > 0 else []
    return Group(table, *more)


def _mode(record: StepRecord) -> str:
    if record.mode is CompileMode.THREADS:
        return f"{record.step.threads} threads"
    return "" if record.mode is CompileMode.DEFAULT else record.mode.value

"""Runs and their steps as tables."""

from datetime import datetime

from rich.console import Group, RenderableType
from rich.text import Text

from stoker.model.govern import Mode, StepRecord
from stoker.model.runs import Attempt, Run
from stoker.model.value import duration, size
from stoker.outside.terminal import Listing


def runs_page(runs: tuple[Run, ...]) -> RenderableType:
    if not runs:
        return Text("nothing yet: `stoker run -- ninja` measures a build")
    table = Listing("run", "when", ">took", ">steps", ">peak", ">repeated", "command")
    for run in runs:
        when = datetime.fromtimestamp(run.started).strftime("%Y-%m-%d %H:%M")
        summary = run.summary
        figures = ("", "", "", "")
        if summary:
            figures = (
                duration(summary.wall_s),
                str(summary.steps),
                size(summary.peak_bytes),
                str(summary.retries or ""),
            )
        table.add(str(run.id), when, *figures, run.command)
    return table


def steps_page(attempts: tuple[Attempt, ...], most: int) -> RenderableType:
    modes = ("mode",) if any(each.record.mode is not Mode.DEFAULT for each in attempts) else ()
    table = Listing(">peak", ">took", ">CPU", "how it ended", *modes, "step")
    for attempt in attempts[:most]:
        record = attempt.record
        cells = (
            size(record.peak),
            duration(record.seconds),
            duration(record.cpu_seconds),
            attempt.outcome.value,
            *(_mode(record) for _ in modes),
            record.step.title,
        )
        table.add(*cells)
    rest = len(attempts) - most
    more = [Text(f"and {rest} more: --all shows them")] if rest > 0 else []
    return Group(table, *more)


def _mode(record: StepRecord) -> str:
    if record.mode is Mode.THREADS:
        return f"{record.step.threads} threads"
    return "" if record.mode is Mode.DEFAULT else record.mode.value

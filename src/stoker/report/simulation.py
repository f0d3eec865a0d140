"""A table of simulated builds, one row for each machine and policy."""

from collections.abc import Sequence

from rich.console import Group, RenderableType
from rich.text import Text

from stoker.model.govern import Distribution, SimulationResult, Trace
from stoker.model.value import size
from stoker.outside.terminal import Listing

_COLUMNS = (
    ">CPUs",
    ">memory",
    ">workers",
    "policy",
    ">time",
    ">saves",
    ">of bound",
    ">bound",
    "limited by",
    ">peak",
    ">paused",
    ">preempted",
    ">OOM kills",
    ">failed",
)
# Columns that are left out where no row has a figure, so that the table fits 80 columns.
_IF_ANY = (">workers", ">saves", ">paused", ">preempted", ">OOM kills", ">failed")


def simulation_page(trace: Trace, results: Sequence[SimulationResult]) -> RenderableType:
    rows = [simulation_row(result, results[0]) for result in results]
    shown = [n for n, name in enumerate(_COLUMNS) if name not in _IF_ANY or _has_any(rows, n)]
    table = Listing(*(_COLUMNS[n] for n in shown))
    for row in rows:
        table.add(*(row[n] for n in shown))
    head = Text(f"{trace.what}, {len(trace.steps)} steps, simulated", style="bold")
    notes = [Text(f"note: {note}", style="dim") for note in trace.notes]
    return Group(head, table, *notes)


def _has_any(rows: Sequence[Sequence[str]], column: int) -> bool:
    return any(row[column] not in ("", "0") for row in rows)


def _workers(distribution: Distribution | None) -> str:
    return f"{distribution.workers} x {distribution.jobs}" if distribution else ""


def simulation_row(result: SimulationResult, first: SimulationResult) -> tuple[str, ...]:
    """Return a row of the table. ``saves`` is relative to the first row; the bound is the larger
    one.
    """
    saved = 1 - result.wall_seconds / first.wall_seconds if first.wall_seconds else 0.0
    bound = result.bounds.larger
    return (
        str(result.cpus),
        size(result.memory),
        _workers(result.distribution),
        result.policy,
        f"{result.wall_seconds:,.0f} s",
        f"{saved:.0%}" if result is not first else "",
        f"{result.wall_seconds / bound:.2f}" if bound else "",
        f"{bound:,.0f} s",
        result.bounds.limited_by,
        f"{result.peak / result.memory:.0%}",
        str(result.pauses),
        str(result.preemptions),
        str(result.oom_kills),
        str(len(result.failed)),
    )

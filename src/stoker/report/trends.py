"""How builds of a folder changed over many runs: time, CPU time, peak, cache hits, and the step
that became slower. Runs and their measured steps come in, values and a terminal page go out;
`trends_page.py` makes the web page.
"""

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from itertools import groupby, pairwise

from stoker.model.runs import Attempt, Outcome, Run, RunSummary, command_of
from stoker.model.value import Value, duration, size
from stoker.outside.terminal import Group, Listing, Page, Text

MOST_RUNS = 30  # of one command
_NOTABLE = 1.10  # factor of the CPU time of the same steps
_LEAST_S = 1.0  # of CPU time that a change has to make
_BAR = 10
_YEAR = len("2026-")
_SHORT = 7  # characters of a commit, where space is scarce
_COMMIT = 8  # characters
COLUMNS = ("run", "when", "commit", "steps", "CPU", "peak", "cached", "took")


class StepCosts(Value, frozen=True, kw_only=True):
    """The CPU seconds of the finished steps of a run, by output."""

    seconds: Mapping[str, float]


class TrendChange(Value, frozen=True, kw_only=True):
    """A run whose steps needed notably more or less CPU time than the same steps before."""

    run: int
    before: int
    commit: str
    factor: float
    step: str  # the one that changed most
    step_before_s: float
    step_after_s: float


class Trend(Value, frozen=True, kw_only=True):
    """The runs of one command in one folder, oldest first, and what changed between them."""

    command: str
    directory: str
    runs: tuple[Run, ...]
    changes: tuple[TrendChange, ...]


def costs_of(attempts: Iterable[Attempt]) -> StepCosts:
    done = (one.record for one in attempts if one.outcome is Outcome.DONE)
    return StepCosts(
        seconds={record.step.output or record.step.source: record.cpu_s for record in done}
    )


def trends(runs: Iterable[Run], costs: Mapping[int, StepCosts]) -> tuple[Trend, ...]:
    """Return a trend for each command in each folder, the one that ran last first. Only successful
    runs count.
    """

    def kind(run: Run) -> tuple[str, str]:
        return command_of(run.command), run.directory

    ended = [run for run in runs if run.summary and run.summary.status == 0]
    ended.sort(key=lambda run: (kind(run), run.started))
    found = [_trend(tuple(group)[-MOST_RUNS:], costs) for _, group in groupby(ended, key=kind)]
    return tuple(sorted(found, key=lambda trend: -trend.runs[-1].started))


def _trend(runs: tuple[Run, ...], costs: Mapping[int, StepCosts]) -> Trend:
    changes = (_change(old, new, costs) for old, new in pairwise(runs))
    return Trend(
        command=command_of(runs[0].command),
        directory=runs[0].directory,
        runs=runs,
        changes=tuple(change for change in changes if change),
    )


def _change(old: Run, new: Run, costs: Mapping[int, StepCosts]) -> TrendChange | None:
    """Compare the steps that both runs have: one may have built more than the other. CPU time
    counts, because other programs make a build longer, but hardly change its CPU time.
    """
    before, after = (costs[run.id].seconds if run.id in costs else {} for run in (old, new))
    common = before.keys() & after.keys()
    was, now = (sum(one[name] for name in common) for one in (before, after))
    if not common or not was or abs(now - was) < _LEAST_S:
        return None
    factor = now / was
    if 1 / _NOTABLE < factor < _NOTABLE:
        return None
    step = max(
        sorted(common), key=lambda name: (after[name] - before[name]) * (1 if now > was else -1)
    )
    return TrendChange(
        run=new.id,
        before=old.id,
        commit=summary_of_ended(new).commit or "",
        factor=factor,
        step=step,
        step_before_s=before[step],
        step_after_s=after[step],
    )


def summary_of_ended(run: Run) -> RunSummary:
    assert run.summary is not None  # only ended runs have a trend
    return run.summary


def trends_page(found: Sequence[Trend]) -> Page:
    """Return a chart of each command: a line for each run, a bar for its time."""
    if not found:
        return Text("no successful run here yet: `stoker history` lists the runs of all folders")
    parts: list[Page] = []
    for trend in found:
        parts += [Text(trend.command, style="bold"), Text(trend.directory, style="dim")]
        parts += [Text(change_text(change), style="warning") for change in trend.changes]
        parts += [_chart(trend), Text()]
    return Group(*parts[:-1])


def _chart(trend: Trend) -> Listing:
    """Return a table that fits into 80 columns."""
    table = Listing("run", "when", "commit", ">CPU", ">peak", ">cached", ">took", "")
    longest = max(summary_of_ended(run).wall_s for run in trend.runs)
    for run in trend.runs:
        number, when, commit, _, *figures = cells(run)
        bar = "█" * max(1, round(_BAR * summary_of_ended(run).wall_s / (longest or 1.0)))
        table.add(number, when[_YEAR:], commit[:_SHORT], *figures, Text(bar, style="bar"))
    return table


def cells(run: Run) -> tuple[str, ...]:
    """Return the values of `COLUMNS`."""
    summary = summary_of_ended(run)
    return (
        str(run.id),
        datetime.fromtimestamp(run.started).strftime("%Y-%m-%d %H:%M"),
        (summary.commit or "")[:_COMMIT],
        str(summary.steps),
        duration(summary.cpu_s),
        size(summary.peak_bytes),
        f"{share:.0%}" if (share := cached_share(summary)) else "",
        duration(summary.wall_s),
    )


def cached_share(summary: RunSummary) -> float:
    """Return the share of compiles whose result a cache had."""
    hits = summary.cache_hits or 0
    return hits / (hits + summary.steps) if hits else 0.0


def change_text(change: TrendChange) -> str:
    more = "more" if change.factor > 1 else "less"
    share = abs(change.factor - 1)
    at = f" at commit {change.commit[:_COMMIT]}" if change.commit else ""
    step = f"{change.step}: {duration(change.step_before_s)} -> {duration(change.step_after_s)}"
    return (
        f"run {change.run}{at}: the same steps took {share:.0%} {more} CPU time than in run "
        f"{change.before}, most of all {step}"
    )

"""How builds of a folder changed over many runs: time, CPU time, peak, cache hits, and the step
that became slower. Runs and their measured steps come in, values and pages go out.
"""

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from html import escape
from itertools import groupby, pairwise

from stoker.model.runs import Attempt, Outcome, Run, RunSummary
from stoker.model.value import Value, duration, size
from stoker.outside.streams import xml_text
from stoker.outside.terminal import Group, Listing, Page, Text

MOST_RUNS = 30  # of one command
_NOTABLE = 1.10  # factor of the CPU time of the same steps
_LEAST_S = 1.0  # of CPU time that a change has to make
_BAR = 10
_YEAR = len("2026-")
_SHORT = 7  # characters of a commit, where space is scarce
_COMMIT = 8  # characters


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
    """Return a trend for each command, the one that ran last first. Only successful runs count."""
    ended = [run for run in runs if run.summary and run.summary.status == 0]
    ended.sort(key=lambda run: (run.command, run.started))
    found = [
        _trend(tuple(group)[-MOST_RUNS:], costs)
        for _, group in groupby(ended, key=lambda run: run.command)
    ]
    return tuple(sorted(found, key=lambda trend: -trend.runs[-1].started))


def _trend(runs: tuple[Run, ...], costs: Mapping[int, StepCosts]) -> Trend:
    changes = (_change(old, new, costs) for old, new in pairwise(runs))
    return Trend(
        command=runs[0].command,
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
        commit=_summary(new).commit or "",
        factor=factor,
        step=step,
        step_before_s=before[step],
        step_after_s=after[step],
    )


def _summary(run: Run) -> RunSummary:
    assert run.summary is not None  # only ended runs have a trend
    return run.summary


# -- terminal ------------------------------------------------------------------------------------


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
    longest = max(_summary(run).wall_s for run in trend.runs)
    for run in trend.runs:
        number, when, commit, _, *figures = _cells(run)
        bar = "█" * max(1, round(_BAR * _summary(run).wall_s / (longest or 1.0)))
        table.add(number, when[_YEAR:], commit[:_SHORT], *figures, Text(bar, style="bar"))
    return table


def _cells(run: Run) -> tuple[str, ...]:
    summary = _summary(run)
    return (
        str(run.id),
        datetime.fromtimestamp(run.started).strftime("%Y-%m-%d %H:%M"),
        (summary.commit or "")[:_COMMIT],
        str(summary.steps),
        duration(summary.cpu_s),
        size(summary.peak_bytes),
        _cached(summary),
        duration(summary.wall_s),
    )


def _cached(summary: RunSummary) -> str:
    if not summary.cache_hits:
        return ""
    return f"{summary.cache_hits / (summary.cache_hits + summary.steps):.0%}"


def change_text(change: TrendChange) -> str:
    more = "more" if change.factor > 1 else "less"
    share = abs(change.factor - 1)
    at = f" at commit {change.commit[:_COMMIT]}" if change.commit else ""
    step = f"{change.step}: {duration(change.step_before_s)} -> {duration(change.step_after_s)}"
    return (
        f"run {change.run}{at}: the same steps took {share:.0%} {more} CPU time than in run "
        f"{change.before}, most of all {step}"
    )


# -- page ----------------------------------------------------------------------------------------

_POLICY = "default-src 'none'; style-src 'unsafe-inline'"
_STYLE = """
:root { color-scheme: light dark; --ink: #1c1d1f; --soft: #5d6168; --line: #dcdcd6;
  --ground: #f7f7f4; --wall: #0b6e4f; --cpu: #2f6fb0; --peak: #9a5b00; --warn: #8a3b00; }
@media (prefers-color-scheme: dark) { :root { --ink: #e8e8e4; --soft: #a3a8b0; --line: #343940;
  --ground: #15171a; --wall: #55c79a; --cpu: #6fb1ef; --peak: #e5b454; --warn: #ffb07a; } }
body { margin: 0 auto; max-width: 64rem; padding: 1.5rem 1rem 4rem;
  font: 16px/1.5 system-ui, sans-serif; background: var(--ground); color: var(--ink); }
h1 { font-size: 1.4rem; } h2 { font-size: 1.05rem; margin: 2rem 0 0; overflow-wrap: anywhere; }
.where { color: var(--soft); margin: 0 0 .8rem; overflow-wrap: anywhere; }
.change { color: var(--warn); overflow-wrap: anywhere; }
.charts { display: grid; grid-template-columns: repeat(auto-fit, minmax(15rem, 1fr)); gap: 1rem; }
figure { margin: 0; } figcaption { color: var(--soft); font-size: .9rem; }
svg { width: 100%; height: 7rem; display: block; border-bottom: 1px solid var(--line); }
.scroll { overflow-x: auto; margin-top: 1rem; }
table { border-collapse: collapse; font-size: .9rem; white-space: nowrap; }
th, td { text-align: left; padding: .2rem 1rem .2rem 0; border-bottom: 1px solid var(--line); }
th { font-weight: normal; color: var(--soft); } .number { text-align: right; }
"""


def trends_html(found: Sequence[Trend]) -> str:
    """Return a page that has no script and fetches nothing."""
    body = "\n".join(map(_section, found)) or "<p>No successful run here yet.</p>"
    return "\n".join(
        (
            "<!doctype html>",
            '<html lang="en"><head><meta charset="utf-8">',
            '<meta name="generator" content="stoker">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">',
            f"<title>Builds over time</title><style>{_STYLE}</style></head>",
            f"<body><h1>Builds over time</h1>{body}</body></html>\n",
        )
    )


def _section(trend: Trend) -> str:
    lines = [f'<p class="change">{_text(change_text(one))}</p>' for one in trend.changes]
    summaries = [(run.id, _summary(run)) for run in trend.runs]
    charts = (
        _bars("time", "wall", [(run, s.wall_s, duration(s.wall_s)) for run, s in summaries]),
        _bars("CPU time", "cpu", [(run, s.cpu_s, duration(s.cpu_s)) for run, s in summaries]),
        _bars("peak", "peak", [(run, s.peak_bytes, size(s.peak_bytes)) for run, s in summaries]),
    )
    names = ("run", "when", "commit", "steps", "CPU", "peak", "cached", "took")
    mark = dict.fromkeys(("steps", "CPU", "peak", "cached", "took"), ' class="number"')
    head = "".join(f"<th{mark.get(name, '')}>{name}</th>" for name in names)
    rows = "".join(f"<tr>{_row(run, names, mark)}</tr>" for run in reversed(trend.runs))
    return (
        f'<h2>{_text(trend.command)}</h2><p class="where">{_text(trend.directory)}</p>'
        f'{"".join(lines)}<div class="charts">{"".join(charts)}</div>'
        f'<div class="scroll"><table><tr>{head}</tr>{rows}</table></div>'
    )


def _row(run: Run, names: Sequence[str], mark: Mapping[str, str]) -> str:
    cells = zip(names, _cells(run), strict=True)
    return "".join(f"<td{mark.get(name, '')}>{_text(cell)}</td>" for name, cell in cells)


def _bars(title: str, colour: str, rows: Sequence[tuple[int, float, str]]) -> str:
    """Return one chart: a bar for each run, whose title names it and its amount."""
    most = max((amount for _, amount, _ in rows), default=0) or 1
    step = 100 / max(len(rows), 8)
    bars = "".join(
        f'<rect x="{step * at:.2f}" width="{step * 0.8:.2f}" y="{100 - 100 * amount / most:.2f}" '
        f'height="{100 * amount / most:.2f}" fill="var(--{colour})">'
        f"<title>run {run}: {_text(told)}</title></rect>"
        for at, (run, amount, told) in enumerate(rows)
    )
    return (
        f'<figure><svg viewBox="0 0 100 100" preserveAspectRatio="none" role="img" '
        f'aria-label="{title} of each run">{bars}</svg>'
        f"<figcaption>{title}, last: {_text(rows[-1][2])}</figcaption></figure>"
    )


def _text(text: str) -> str:
    return escape(xml_text(text))

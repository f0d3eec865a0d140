"""The web page of `stoker history --page`: for each command a card with its last figures, charts
of its runs, what changed, and a table. It has the style of the report and no script.
"""

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import NamedTuple

from stoker.model.html import html_text, page_without_scripts
from stoker.model.runs import Run
from stoker.model.value import counted, duration, size
from stoker.outside.streams import xml_text
from stoker.report.page import page_style
from stoker.report.trends import COLUMNS, Trend, cached_share, cells, change_text, summary_of_ended

_NUMBERS = COLUMNS[3:]
_WIDTH, _HEIGHT, _LEFT, _FOOT, _HEAD = 360, 170, 52, 20, 8  # of a chart
_LINES = 3  # of the scale, at most, above the one of zero


class _Figure(NamedTuple):
    """``steps`` are the distances that lines of the scale may have, ``units`` the
    units that these are told in, largest first.
    """

    title: str
    amount: Callable[[Run], float]
    text: Callable[[float], str]
    steps: Sequence[float]
    units: dict[float, str]


def _decimal(unit: float) -> list[float]:
    return [unit * 10**power * digit for power in range(3) for digit in (1, 2, 5)]


_TIMES = (1, 2, 5, 10, 15, 30)  # of seconds and of minutes
_SECONDS = [*_TIMES, *(60 * step for step in _TIMES), *_decimal(3600)]
_UNITS_S: dict[float, str] = {3600: "h", 60: "min", 1: "s"}
_BYTES = [step for power in range(5) for step in _decimal(1024**power)]
_UNITS_B: dict[float, str] = {1024**4: "TiB", 1024**3: "GiB", 1024**2: "MiB", 1024: "KiB", 1: "B"}
_FIGURES = (
    _Figure("time", lambda run: summary_of_ended(run).wall_s, duration, _SECONDS, _UNITS_S),
    _Figure("CPU time", lambda run: summary_of_ended(run).cpu_s, duration, _SECONDS, _UNITS_S),
    _Figure(
        "peak",
        lambda run: summary_of_ended(run).peak_bytes,
        lambda n: size(round(n)),
        _BYTES,
        _UNITS_B,
    ),
    _Figure(
        "found in the cache",
        lambda run: cached_share(summary_of_ended(run)),
        lambda share: f"{share:.0%}",
        (0.5,),
        {0.01: "%"},
    ),
)


def trends_html(found: Sequence[Trend]) -> str:
    runs = sum(len(trend.runs) for trend in found)
    about = f"{counted(runs, 'successful run')} of {counted(len(found), 'command')}"
    style = page_style("trends.css")
    body = "\n".join(map(_card, found)) or '<p class="notice">No successful run here yet.</p>'
    header = f'<header><h1>Builds over time</h1><p class="muted">{about}</p></header>'
    return page_without_scripts("Builds over time", style, (header, f"<main>{body}</main>"))


def _card(trend: Trend) -> str:
    shown = [figure for figure in _FIGURES if any(figure.amount(run) for run in trend.runs)]
    notices = (f'<p class="notice warn">{_text(change_text(one))}</p>' for one in trend.changes)
    marks = {change.run: "more" if change.factor > 1 else "less" for change in trend.changes}
    charts = "".join(_chart(figure, trend.runs, marks) for figure in shown)
    columns = "charts four" if len(shown) == len(_FIGURES) else "charts"
    return (
        f'<section class="card"><h2>{_text(trend.command)}</h2>'
        f'<p class="muted">{_text(trend.directory)}</p>'
        f'<div class="tiles">{"".join(_tile(figure, trend.runs) for figure in shown)}</div>'
        f'{"".join(notices)}<div class="{columns}">{charts}</div>'
        f"{_table(trend.runs)}</section>"
    )


def _tile(figure: _Figure, runs: Sequence[Run]) -> str:
    """Return the figure of the last run, beside that of the run before."""
    last = figure.text(figure.amount(runs[-1]))
    note = f"run {runs[-1].id}"
    for before, _ in [*pairwise(runs)][-1:]:
        note += f"; before: {figure.text(figure.amount(before))}"
    return (
        f'<div class="tile"><div class="name">{figure.title}</div>'
        f'<div class="value">{_text(last)}</div><div class="note">{_text(note)}</div></div>'
    )


def _chart(figure: _Figure, runs: Sequence[Run], marks: dict[int, str]) -> str:
    """Return a bar for each run above a scale. A run that changed has a colour of its own."""
    amounts = [figure.amount(run) for run in runs]
    step = scale(max(amounts), figure.steps)
    unit = next(unit for unit in figure.units if unit <= step)
    top = step * max(1, -(-max(amounts) // step))
    high, wide = _HEIGHT - _FOOT - _HEAD, (_WIDTH - _LEFT) / max(len(runs), 6)

    def height(amount: float) -> float:
        return high * amount / top

    parts = []
    for number in range(round(top / step) + 1):
        y = _HEIGHT - _FOOT - height(number * step)
        label = f"{number * step / unit:g} {figure.units[unit]}"
        parts.append(f'<line x1="{_LEFT}" x2="{_WIDTH}" y1="{y:.1f}" y2="{y:.1f}"/>')
        parts.append(f'<text x="{_LEFT - 6}" y="{y + 3.5:.1f}" text-anchor="end">{label}</text>')
    every = -(-len(runs) // 10)  # as many numbers as there is room for
    for at, (run, amount) in enumerate(zip(runs, amounts, strict=True)):
        x, bar, tall = _LEFT + wide * at, min(wide * 0.72, 26), height(amount)
        x += (wide - bar) / 2
        kinds = " ".join(filter(None, (marks.get(run.id), "last" if run is runs[-1] else None)))
        told = _text(f"run {run.id}, {cells(run)[1]}: {figure.text(amount)}")
        parts.append(
            f'<rect class="{kinds}" x="{x:.1f}" y="{_HEIGHT - _FOOT - tall:.1f}" rx="2" '
            f'width="{bar:.1f}" height="{max(tall, 1):.1f}"><title>{told}</title></rect>'
        )
        if (len(runs) - 1 - at) % every == 0:
            middle = f'x="{x + bar / 2:.1f}" y="{_HEIGHT - 6}"'
            parts.append(f'<text {middle} text-anchor="middle">{run.id}</text>')
    return (
        f'<figure><figcaption>{figure.title}</figcaption><svg viewBox="0 0 {_WIDTH} {_HEIGHT}" '
        f'role="img" aria-label="{figure.title} of each run">{"".join(parts)}</svg></figure>'
    )


def scale(most: float, steps: Sequence[float]) -> float:
    """Return the smallest distance of lines so that no more than `_LINES` reach ``most``."""
    return next((step for step in steps if step * _LINES >= most), steps[-1])


def _table(runs: Sequence[Run]) -> str:
    marks = [' class="num"' if name in _NUMBERS else "" for name in COLUMNS]
    head = "".join(f"<th{mark}>{name}</th>" for mark, name in zip(marks, COLUMNS, strict=True))
    rows = "".join(
        "<tr>"
        + "".join(f"<td{m}>{_text(cell)}</td>" for m, cell in zip(marks, cells(run), strict=True))
        + "</tr>"
        for run in reversed(runs)
    )
    return f'<div class="scroll"><table><tr>{head}</tr>{rows}</table></div>'


def _text(text: str) -> str:
    return html_text(xml_text(text))

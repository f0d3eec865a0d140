"""A build graph as an HTML page: the drawing and its tables, without scripts and requests."""

from collections.abc import Iterator, Sequence

from stoker.model.html import html_text
from stoker.model.value import duration
from stoker.outside.streams import xml_text
from stoker.report.graphs.build_graph import BuildGraph
from stoker.report.graphs.drawing import graph_svg
from stoker.report.graphs.terminal_page import (
    graph_headline,
    impact_text,
    ready_text,
    sources,
    target_figures,
)

_NO_SCRIPTS = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"
_PAGE_STYLE = """
:root { --page: #f7f7f5; --card: #fff; --line: #e4e4df; --text: #24292e; --muted: #5d666d;
  --mark: #fdeecf; --accent: #3f6fb5; }
@media (prefers-color-scheme: dark) { :root { --page: #15181b; --card: #1c2024; --line: #2c3237;
  --text: #dfe3e6; --muted: #98a2a9; --mark: #4a3b16; --accent: #7ea9e1; } }
* { box-sizing: border-box; } body { margin: 0 auto; max-width: 1240px; padding: 24px;
  font: 15px/1.5 system-ui, sans-serif; color: var(--text); background: var(--page);
  font-variant-numeric: tabular-nums; }
h1 { font-size: 1.5rem; font-weight: 600; margin: 0; overflow-wrap: anywhere; }
h2 { font-size: 1.05rem; font-weight: 600; margin: 0 0 8px; } p { margin: 0 0 14px; }
p, .name { color: var(--muted); } :is(h2, p)::first-letter { text-transform: uppercase; }
.tiles { display: grid; grid-template-columns: repeat(auto-fit, minmax(150px, 1fr)); gap: 14px; }
.tile, section { background: var(--card); border: 1px solid var(--line); border-radius: 10px; }
.tile { padding: 12px 16px; } .name { font-size: .82rem; } .value { font-size: 1.5rem; }
section { padding: 18px 20px; margin-top: 18px; } section svg { background: none; }
.scroll { overflow: auto; max-height: 80vh; } table { border-collapse: collapse; width: 100%; }
th, td { text-align: left; padding: 4px 14px 4px 0; vertical-align: top;
  border-bottom: 1px solid var(--line); }
th { font-weight: 600; color: var(--muted); position: sticky; top: 0; background: var(--card); }
.number { text-align: right; white-space: nowrap; } td:last-child { overflow-wrap: anywhere; }
tr:target { background: var(--mark); } a:focus-visible .box { stroke: var(--accent); }
"""
_NUMBERS = ("steps", "time", "peak", "compiles that wait for it", "done at the earliest")


def graph_html(graph: BuildGraph) -> str:
    """Return the drawing with its tables. The page has no script and fetches nothing."""
    title = html_text(xml_text(graph_headline(graph)))
    targets = [
        (each.name, each.kind.value, *target_figures(each), ", ".join(each.needs))
        for each in graph.targets
    ]
    blockers = [(b.target, str(b.compiles), duration(b.wall_s)) for b in graph.blockers]
    path = [(duration(step.wall_s), step.target, step.output) for step in graph.path]
    waits = ("target", "compiles that wait for it", "done at the earliest")
    columns = ("target", "kind", "steps", "time", "peak", "needs")
    figures = {"steps": str(graph.steps), "targets": str(len(graph.targets))}
    if graph.timed:
        figures["work"] = duration(graph.wall_s)
    if graph.path:
        figures["longest chain"] = duration(graph.path_s)
    if graph.compiles:
        figures["compiles that can start at once"] = f"{graph.ready} of {graph.compiles}"
    tiles = (
        f'<div class="tile"><div class="name">{name}</div><div class="value">{value}</div></div>'
        for name, value in figures.items()
    )
    body = [
        f"<h1>{html_text(xml_text(graph.folder))}</h1><p>{html_text(sources(graph))}</p>",
        f'<div class="tiles">{"".join(tiles)}</div>',
        *_impact_section(graph),
        *_section("Drawing", f'<div class="scroll">{graph_svg(graph)}</div>'),
    ]
    if blockers:
        table = _table(waits, blockers)
        body += _section("What blocks the start", f"<p>{ready_text(graph)}.</p>{table}")
    if path:
        body += _section("Critical path", _table(("time", "target", "step"), path))
    body += _section("Targets", _table(columns, targets, ids=True))
    return "\n".join(
        (
            "<!doctype html>",
            '<html lang="en"><head><meta charset="utf-8">',
            '<meta name="generator" content="stoker">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            '<meta name="color-scheme" content="light dark"><link rel="icon" href="data:,">',
            f'<meta http-equiv="Content-Security-Policy" content="{_NO_SCRIPTS}">',
            f"<title>{title}</title><style>{_PAGE_STYLE}</style></head><body>",
            *body,
            "</body></html>\n",
        )
    )


def _impact_section(graph: BuildGraph) -> Iterator[str]:
    if graph.impact:
        rows = [
            ("" if step.wall_s is None else duration(step.wall_s), step.target, step.output)
            for step in graph.impact.steps
        ]
        title = html_text(xml_text(impact_text(graph.impact)))
        yield from _section(title, _table(("time", "target", "step"), rows))


def _section(title: str, content: str) -> tuple[str, ...]:
    return "<section>", f"<h2>{title}</h2>", content, "</section>"


def _table(names: Sequence[str], rows: Sequence[Sequence[str]], *, ids: bool = False) -> str:
    """``ids``: rows can be linked to from the drawing."""
    marks = [' class="number"' if name in _NUMBERS else "" for name in names]
    head = "".join(f"<th{mark}>{html_text(n)}</th>" for mark, n in zip(marks, names, strict=True))
    lines = []
    for number, row in enumerate(rows):
        cells = "".join(
            f"<td{mark}>{html_text(xml_text(cell))}</td>"
            for mark, cell in zip(marks, row, strict=True)
        )
        lines.append(f'<tr id="target-{number}">{cells}</tr>' if ids else f"<tr>{cells}</tr>")
    return f'<div class="scroll"><table><tr>{head}</tr>{"".join(lines)}</table></div>'

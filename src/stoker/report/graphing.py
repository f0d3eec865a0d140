"""`stoker graph`: a build folder, what was measured of its steps, and its graph."""

import re
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from html import escape
from itertools import pairwise
from pathlib import Path
from posixpath import normpath
from xml.etree import ElementTree as Xml

from msgspec.structs import replace

from stoker.govern.build_folder import find_build, timings_of
from stoker.model.errors import UsageError
from stoker.model.value import duration, size
from stoker.outside.streams import xml_text
from stoker.outside.terminal import Group, Indented, Listing, Page, Text
from stoker.report.graph import (
    BuildGraph,
    GraphTarget,
    GraphTargetKind,
    Impact,
    NeededSteps,
    Owners,
    find_impact,
    make_build_graph,
)
from stoker.source.cmake import read_targets
from stoker.source.ninja import read_discovered, read_graph

Say = Callable[[str], None]

_SOURCE = re.compile(r"^CMAKE_HOME_DIRECTORY:\w+=(.*)$", re.MULTILINE)
_MOST_SHOWN = 5  # files with the same name in an error


def graph_of(place: Path, *, impact: str | None = None, say: Say) -> BuildGraph:
    """Return the graph of a build, and what a change to the file ``impact`` rebuilds.

    ``place`` is a build folder, or a source tree that was built; then ``say`` is told which build
    folder is used.
    """
    folder = find_build(place)
    if folder != place.absolute():
        say(f"the build folder is {folder}")
    steps = NeededSteps(str(folder), read_graph(folder))
    if not steps.real:
        raise UsageError(f"{folder / 'build.ninja'} has no steps")
    reply = read_targets(folder)
    owners, timings = Owners(steps, reply), timings_of(folder)
    graph = make_build_graph(steps, owners, timings, folder=str(folder), has_reply=bool(reply))
    if impact is None:
        return graph
    discovered = read_discovered(folder)
    file = _file(impact, folder, steps.files(discovered))
    return replace(graph, impact=find_impact(steps, owners, timings, file, discovered))


def _file(word: str, folder: Path, known: "set[str]") -> str:
    """Return the absolute path of a file: from here, from the build folder or the source tree, or
    the end of the path of a single file of the build.
    """
    bases = (Path.cwd(), folder, _source(folder))
    paths = [normpath(base / word) for base in bases if base]
    paths += [str(Path(path).resolve()) for path in paths]
    for path in paths:
        if path in known:
            return path
    ending = sorted(path for path in known if path.endswith(f"/{word}"))
    if len(ending) == 1:
        return ending[0]
    if ending:
        shown = ending[:_MOST_SHOWN]
        raise UsageError(f"{len(ending)} files of the build are called {word}", hints=shown)
    existing = next((path for path in paths if Path(path).exists()), None)
    if existing is None:
        raise UsageError(f"there is no file {word}, and the build does not use one")
    return existing


def _source(folder: Path) -> Path | None:
    with suppress(OSError):
        found = _SOURCE.search((folder / "CMakeCache.txt").read_text(errors="replace"))
        return Path(found[1]) if found else None
    return None


# -- graph -----------------------------------------------------------------------------------------
# A build graph as a terminal page, as an SVG drawing and as an HTML page without scripts.
#
# The drawing is our own: targets are in columns by the longest chain before them, and each column
# is ordered by the rows of the targets that its own are linked to. Graphviz would draw it too,
# but is a system package that most machines lack, and the picture must not depend on what is
# installed.


_FEW = 15  # targets, blockers or steps that a page shows
_SWEEPS = 4  # passes over the columns; more change little
_LARGEST_INDENT = 3  # rows above a column
_WIDTH, _HEIGHT, _GAP_X, _GAP_Y, _MARGIN = 216, 46, 70, 16, 16
_LEGEND = 34  # height of the line above the drawing
_LETTERS = 28  # of a name that fit in a box
_COLOURS = {
    GraphTargetKind.GENERATES: "#d9a441",
    GraphTargetKind.STATIC: "#5b8bc9",
    GraphTargetKind.SHARED: "#6aa867",
    GraphTargetKind.MODULE: "#4fa3a5",
    GraphTargetKind.OBJECTS: "#7d94b8",
    GraphTargetKind.EXECUTABLE: "#9b7fc4",
    GraphTargetKind.COMMANDS: "#c58460",
    GraphTargetKind.OTHER: "#a3aaaf",
}
_STYLE = """
svg { font: 12px system-ui, sans-serif; background: #fff; }
.box { fill: #fff; stroke: #b6bcc1; } .name { font-weight: 600; fill: #24292e; }
.figures, .legend { fill: #5d666d; font-size: 11px; } .link { fill: none; stroke: #b6bcc1; }
.path { stroke: #b9423c; stroke-width: 2; } .hit .box { fill: #fdeecf; }
@media (prefers-color-scheme: dark) {
  svg { background: #15181b; } .box { fill: #1c2024; stroke: #4a5259; } .name { fill: #dfe3e6; }
  .figures, .legend { fill: #98a2a9; } .link { stroke: #4a5259; } .path { stroke: #e07f78; }
  .hit .box { fill: #4a3b16; } }
"""
_POLICY = "default-src 'none'; style-src 'unsafe-inline'"
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


# -- terminal ------------------------------------------------------------------------------------


def graph_page(graph: BuildGraph, *, everything: bool = False) -> Page:
    """Return the summary of a graph; ``everything``: all targets and steps, and what each needs."""
    parts: list[Page] = [Text(headline(graph), style="bold"), Text(sources(graph))]
    if graph.impact:
        return Group(*parts, Text(), *_impact(graph.impact, everything))
    return Group(*parts, Text(), *_targets(graph, everything), Text(), *_starts(graph, everything))


def headline(graph: BuildGraph) -> str:
    work = f", {duration(graph.wall_s)} of work" if graph.timed else ""
    chain = f", longest chain {duration(graph.path_s)}" if graph.path else ""
    return f"{graph.folder}: {graph.steps} steps in {len(graph.targets)} targets{work}{chain}"


def sources(graph: BuildGraph) -> str:
    """Return where the names and the times come from."""
    names = "CMake's file API" if graph.has_reply else "build.ninja"
    missing = graph.steps - graph.timed
    times = "the time of every step is known"
    if missing:
        times = f"the time of {missing} steps is unknown because they were never built here"
    return f"targets from {names}; {times}"


def _targets(graph: BuildGraph, everything: bool) -> list[Page]:
    names = ("target", "kind", ">steps", ">time", ">peak", *(["needs"] if everything else []))
    table = Listing(*names, title="Targets")
    largest = graph.targets if everything else _largest(graph.targets)
    for target in largest:
        needs = [", ".join(target.needs)] if everything else []
        table.add(target.name, target.kind.value, *_figures(target), *needs)
    rest = len(graph.targets) - len(largest)
    more = [Text(f"and {rest} more: --targets shows them")] if rest else []
    return [table, *more]


def _largest(targets: Sequence[GraphTarget]) -> list[GraphTarget]:
    return sorted(targets, key=lambda each: (-each.wall_s, -each.steps))[:_FEW]


def _figures(target: GraphTarget) -> tuple[str, str, str]:
    time = duration(target.wall_s) if target.timed else ""
    return str(target.steps), time, size(target.peak_bytes) if target.peak_bytes is not None else ""


def _starts(graph: BuildGraph, everything: bool) -> list[Page]:
    lines: list[Page] = [Text("What blocks the start", style="bold")]
    lines.append(Indented(_ready_text(graph), 2))
    blockers = graph.blockers if everything else graph.blockers[:_FEW]
    table = Listing("target", ">compiles that wait for it", ">done at the earliest", indent=2)
    for blocker in blockers:
        after = f"after {duration(blocker.wall_s)}" if graph.timed else ""
        table.add(blocker.target, str(blocker.compiles), after)
    lines += [table] if blockers else []
    if graph.path:
        lines += [Text(), Text("Critical path", style="bold")]
        steps = Listing("step", ">time", "target", indent=2)
        for step in graph.path:
            steps.add(step.output, duration(step.wall_s), step.target)
        lines.append(steps)
    return lines


def _ready_text(graph: BuildGraph) -> str:
    return f"{graph.ready} of {graph.compiles} compiles can start at once"


def _impact(impact: Impact, everything: bool) -> list[Page]:
    lines: list[Page] = [Indented(impact_text(impact), 0)]
    if not impact.steps:
        return lines
    by_target = Listing("target", ">steps", ">time", indent=2)
    for name, steps in _by_target(impact).items():
        by_target.add(name, str(len(steps)), duration(sum(seconds or 0 for seconds in steps)))
    table = Listing("step", ">time", "target", indent=2)
    shown = impact.steps if everything else impact.steps[:_FEW]
    for step in shown:
        time = "" if step.wall_s is None else duration(step.wall_s)
        table.add(step.output, time, step.target)
    rest = len(impact.steps) - len(shown)
    more = [Text(f"  and {rest} more: --targets shows them")] if rest else []
    return [*lines, by_target, Text(), table, *more]


def impact_text(impact: Impact) -> str:
    """Return "a change to a.h rebuilds 12 steps in 3 targets: 40 s of work, at least 9 s"."""
    first = "CMake runs again first, and may rebuild more; then " if impact.configures else ""
    count = len(impact.steps)
    if not count:
        return f"{first}a change to {impact.file} rebuilds nothing"
    targets = len(_by_target(impact))
    unknown = sum(step.wall_s is None for step in impact.steps)
    missing = f" ({unknown} steps were never measured)" if unknown else ""
    return (
        f"{first}a change to {impact.file} rebuilds {count} steps in {targets} targets: "
        f"{duration(impact.wall_s)} of work, longest chain {duration(impact.path_s)}"
        f"{missing}"
    )


def _by_target(impact: Impact) -> dict[str, list[float | None]]:
    found: dict[str, list[float | None]] = defaultdict(list)
    for step in impact.steps:
        found[step.target].append(step.wall_s)
    return found


# -- drawing -------------------------------------------------------------------------------------


def places(targets: Sequence[GraphTarget]) -> dict[str, tuple[int, float]]:
    """Return column and row of each target. ``targets`` are in the order of the build."""
    column: dict[str, int] = {}
    for target in targets:
        column[target.name] = 1 + max((column[need] for need in target.needs), default=-1)
    columns: dict[int, list[str]] = defaultdict(list)
    for name, number in column.items():
        columns[number].append(name)
    users: dict[str, list[str]] = {target.name: [] for target in targets}
    for target in targets:
        for need in target.needs:
            users[need].append(target.name)
    needs = {target.name: target.needs for target in targets}
    for sweep in range(_SWEEPS):
        forward = sweep % 2 == 0
        for number in sorted(columns, reverse=not forward):
            _order(columns[number], needs if forward else users, _rows(columns))
    rows = _rows(columns)
    return {name: (column[name], rows[name]) for name in column}


def _rows(columns: Mapping[int, Sequence[str]]) -> dict[str, float]:
    """Return the row of each target. Shorter columns are centred, but begin near the top, because
    that is what a page shows first.
    """
    most = max(map(len, columns.values()), default=0)
    return {
        name: row + min(_LARGEST_INDENT, (most - len(names)) / 2)
        for names in columns.values()
        for row, name in enumerate(names)
    }


def _order(
    names: list[str], linked: Mapping[str, Sequence[str]], rows: Mapping[str, float]
) -> None:
    """Sort a column by the mean row of the targets that each is linked to."""

    def mean(name: str) -> float:
        near = linked[name]
        return sum(rows[each] for each in near) / len(near) if near else rows[name]

    names.sort(key=mean)


def graph_svg(graph: BuildGraph) -> str:
    """Return a drawing that is complete in itself."""
    return Xml.tostring(_drawing(graph), encoding="unicode")


def _drawing(graph: BuildGraph) -> Xml.Element:
    where = {name: _corner(place) for name, place in places(graph.targets).items()}
    legend = sum(_legend_width(name) for name, _ in _legend_entries(graph))
    width = _MARGIN + max(legend, max((x for x, _ in where.values()), default=0) + _WIDTH)
    height = max((y for _, y in where.values()), default=0) + _HEIGHT + _MARGIN
    root = Xml.Element(
        "svg",
        xmlns="http://www.w3.org/2000/svg",
        viewBox=f"0 0 {width} {height}",
        width=str(width),
        height=str(height),
        role="img",
    )
    Xml.SubElement(root, "title").text = xml_text(headline(graph))
    Xml.SubElement(root, "style").text = _STYLE
    _legend(root, graph)
    chain = list(dict.fromkeys(step.target for step in graph.path))
    links = set(pairwise(chain))
    for target in graph.targets:
        for need in target.needs:
            _link(root, where[need], where[target.name], on_path=(need, target.name) in links)
    hit = set(_by_target(graph.impact)) if graph.impact else set()
    longest = max((target.wall_s for target in graph.targets), default=0.0)
    for number, target in enumerate(graph.targets):
        classes = ["target", *(["hit"] if target.name in hit else [])]
        group = Xml.SubElement(root, "a", {"href": f"#target-{number}", "class": " ".join(classes)})
        _box(group, target, where[target.name], chain, longest)
    return root


def _corner(place: tuple[int, float]) -> tuple[float, float]:
    column, row = place
    return _MARGIN + column * (_WIDTH + _GAP_X), _LEGEND + _MARGIN + row * (_HEIGHT + _GAP_Y)


def _legend(root: Xml.Element, graph: BuildGraph) -> None:
    """Name the colours of the kinds, of the critical path and of what a change rebuilds."""
    x = _MARGIN
    for name, marks in _legend_entries(graph):
        group = Xml.SubElement(root, "g", {"class": marks.pop("group", "")})
        box = {"x": str(x), "y": "14", "width": "10", "height": "10"}
        Xml.SubElement(group, "rect", box | marks)
        text = Xml.SubElement(root, "text", {"x": str(x + 15), "y": "23", "class": "legend"})
        text.text = name
        x += _legend_width(name)


def _legend_width(name: str) -> int:
    return 30 + 7 * len(name)


def _legend_entries(graph: BuildGraph) -> Iterator[tuple[str, dict[str, str]]]:
    """Yield the name of each colour, and the attributes of its box."""
    for kind in GraphTargetKind:
        if any(target.kind is kind for target in graph.targets):
            yield kind.value, {"fill": _COLOURS[kind]}
    if graph.path:
        yield "critical path", {"class": "box path"}
    if graph.impact:
        yield "rebuilt", {"class": "box", "group": "hit"}


def _link(
    root: Xml.Element, start: tuple[float, float], end: tuple[float, float], *, on_path: bool
) -> None:
    x1, y1 = start[0] + _WIDTH, start[1] + _HEIGHT / 2
    x2, y2 = end[0], end[1] + _HEIGHT / 2
    bend = max(_GAP_X * 0.6, (x2 - x1) / 2)
    Xml.SubElement(
        root,
        "path",
        {
            "d": f"M{x1:g},{y1:g} C{x1 + bend:g},{y1:g} {x2 - bend:g},{y2:g} {x2:g},{y2:g}",
            "class": "link path" if on_path else "link",
        },
    )


def _box(
    group: Xml.Element,
    target: GraphTarget,
    corner: tuple[float, float],
    chain: Sequence[str],
    longest: float,
) -> None:
    x, y = corner
    steps, time, peak = _figures(target)
    count = "1 step" if target.steps == 1 else f"{steps} steps"
    figures = " · ".join(filter(None, (count, time, peak)))
    Xml.SubElement(group, "title").text = xml_text(
        f"{target.name} ({target.kind.value}): {figures}"
    )
    shape = {"x": f"{x:g}", "y": f"{y:g}", "width": str(_WIDTH), "height": str(_HEIGHT), "rx": "5"}
    Xml.SubElement(group, "rect", shape | {"class": "box path" if target.name in chain else "box"})
    side = {"x": f"{x:g}", "y": f"{y:g}", "width": "6", "height": str(_HEIGHT), "rx": "3"}
    Xml.SubElement(group, "rect", side | {"fill": _COLOURS[target.kind]})
    share = target.wall_s / longest if longest else 0.0
    bar = {"x": f"{x + 14:g}", "y": f"{y + _HEIGHT - 7:g}", "height": "3"}
    Xml.SubElement(
        group,
        "rect",
        bar | {"width": f"{share * (_WIDTH - 24):.1f}", "fill": _COLOURS[target.kind]},
    )
    for text, below, kind in ((_short(target.name), 18, "name"), (figures, 33, "figures")):
        place = {"x": f"{x + 14:g}", "y": f"{y + below:g}", "class": kind}
        Xml.SubElement(group, "text", place).text = xml_text(text)


def _short(name: str) -> str:
    """Leave out the middle of a long name: the ends tell targets apart."""
    if len(name) <= _LETTERS:
        return name
    half = (_LETTERS - 1) // 2
    return f"{name[:half]}…{name[-half:]}"


# -- page ----------------------------------------------------------------------------------------


def graph_html(graph: BuildGraph) -> str:
    """Return the drawing with its tables. The page has no script and fetches nothing."""
    title = escape(xml_text(headline(graph)))
    targets = [
        (each.name, each.kind.value, *_figures(each), ", ".join(each.needs))
        for each in graph.targets
    ]
    blockers = [(b.target, str(b.compiles), duration(b.wall_s)) for b in graph.blockers]
    path = [(duration(step.wall_s), step.target, step.output) for step in graph.path]
    waits = ("target", "compiles that wait for it", "done at the earliest")
    columns = ("target", "kind", "steps", "time", "peak", "needs")
    return "\n".join(
        (
            "<!doctype html>",
            '<html lang="en"><head><meta charset="utf-8">',
            '<meta name="generator" content="stoker">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">',
            f"<title>{title}</title><style>{_PAGE_STYLE}</style></head><body>",
            f"<h1>{escape(xml_text(graph.folder))}</h1><p>{escape(sources(graph))}</p>",
            _tiles(graph),
            *_impact_section(graph),
            *_section("Drawing", f'<div class="scroll">{graph_svg(graph)}</div>'),
            *(
                _section(
                    "What blocks the start",
                    f"<p>{_ready_text(graph)}.</p>{_table(waits, blockers)}",
                )
                if blockers
                else ()
            ),
            *(_section("Critical path", _table(("time", "target", "step"), path)) if path else ()),
            *_section("Targets", _table(columns, targets, ids=True)),
            "</body></html>\n",
        )
    )


def _tiles(graph: BuildGraph) -> str:
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
    return f'<div class="tiles">{"".join(tiles)}</div>'


def _impact_section(graph: BuildGraph) -> Iterator[str]:
    if graph.impact:
        rows = [
            ("" if step.wall_s is None else duration(step.wall_s), step.target, step.output)
            for step in graph.impact.steps
        ]
        title = escape(xml_text(impact_text(graph.impact)))
        yield from _section(title, _table(("time", "target", "step"), rows))


def _section(title: str, content: str) -> tuple[str, ...]:
    return "<section>", f"<h2>{title}</h2>", content, "</section>"


_NUMBERS = ("steps", "time", "peak", "compiles that wait for it", "done at the earliest")


def _table(names: Sequence[str], rows: Sequence[Sequence[str]], *, ids: bool = False) -> str:
    """``ids``: rows can be linked to from the drawing."""
    marks = [' class="number"' if name in _NUMBERS else "" for name in names]
    head = "".join(f"<th{mark}>{escape(n)}</th>" for mark, n in zip(marks, names, strict=True))
    lines = []
    for number, row in enumerate(rows):
        cells = "".join(
            f"<td{mark}>{escape(xml_text(cell))}</td>"
            for mark, cell in zip(marks, row, strict=True)
        )
        lines.append(f'<tr id="target-{number}">{cells}</tr>' if ids else f"<tr>{cells}</tr>")
    return f'<div class="scroll"><table><tr>{head}</tr>{"".join(lines)}</table></div>'

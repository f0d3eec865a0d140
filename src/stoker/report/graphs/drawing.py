"""A build graph as an SVG drawing.

The drawing is our own: targets are in columns by the longest chain before them, and each column is
ordered by the rows of the targets that its own are linked to. Graphviz would draw it too, but is a
system package that most machines lack, and the picture must not depend on what is installed.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from xml.etree import ElementTree as Xml

from stoker.model.value import counted
from stoker.outside.streams import xml_text
from stoker.report.graphs.build_graph import BuildGraph, GraphTarget, GraphTargetKind
from stoker.report.graphs.terminal_page import graph_headline, steps_by_target, target_figures

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


def grid_places(targets: Sequence[GraphTarget]) -> dict[str, tuple[int, float]]:
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
        linked: Mapping[str, Sequence[str]] = needs if forward else users
        for number in sorted(columns, reverse=not forward):
            rows = _rows(columns)
            # Sort a column by the mean row of the targets that each is linked to.
            means = {
                name: sum(rows[near] for near in linked[name]) / len(linked[name])
                if linked[name]
                else rows[name]
                for name in columns[number]
            }
            columns[number].sort(key=means.__getitem__)
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


def graph_svg(graph: BuildGraph) -> str:
    """Return a drawing that is complete in itself."""
    where = {
        name: (_MARGIN + column * (_WIDTH + _GAP_X), _LEGEND + _MARGIN + row * (_HEIGHT + _GAP_Y))
        for name, (column, row) in grid_places(graph.targets).items()
    }
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
    Xml.SubElement(root, "title").text = xml_text(graph_headline(graph))
    Xml.SubElement(root, "style").text = _STYLE
    _legend(root, graph)
    chain = list(dict.fromkeys(step.target for step in graph.path))
    links = set(pairwise(chain))
    for target in graph.targets:
        for need in target.needs:
            _link(root, where[need], where[target.name], on_path=(need, target.name) in links)
    hit = set(steps_by_target(graph.impact)) if graph.impact else set()
    longest = max((target.wall_s for target in graph.targets), default=0.0)
    for number, target in enumerate(graph.targets):
        classes = ["target", *(["hit"] if target.name in hit else [])]
        group = Xml.SubElement(root, "a", {"href": f"#target-{number}", "class": " ".join(classes)})
        _box(group, target, where[target.name], chain, longest)
    return Xml.tostring(root, encoding="unicode")


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
    _, time, peak = target_figures(target)
    figures = " · ".join(filter(None, (counted(target.steps, "step"), time, peak)))
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

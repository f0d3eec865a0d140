"""A build graph as a terminal page."""

from collections import defaultdict

from stoker.model.value import counted, duration, size
from stoker.outside.terminal import Group, Indented, Listing, Page, Text
from stoker.report.graphs.build_graph import BuildGraph, GraphTarget, Impact

_FEW = 15  # targets, blockers or steps that a page shows


def graph_page(graph: BuildGraph, *, everything: bool = False) -> Page:
    """Return the summary of a graph; ``everything``: all targets and steps, and what each needs."""
    parts: list[Page] = [Text(graph_headline(graph), style="bold"), Text(sources(graph))]
    if graph.impact:
        return Group(*parts, Text(), *_impact(graph.impact, everything))
    names = ("target", "kind", ">steps", ">time", ">peak", *(["needs"] if everything else []))
    table = Listing(*names, title="Targets")
    largest = (
        graph.targets
        if everything
        else sorted(graph.targets, key=lambda each: (-each.wall_s, -each.steps))[:_FEW]
    )
    for target in largest:
        needs = [", ".join(target.needs)] if everything else []
        table.add(target.name, target.kind.value, *target_figures(target), *needs)
    rest = len(graph.targets) - len(largest)
    more = [Text(f"and {rest} more: --targets shows them")] if rest else []
    return Group(*parts, Text(), table, *more, Text(), *_starts(graph, everything))


def graph_headline(graph: BuildGraph) -> str:
    work = f", {duration(graph.wall_s)} of work" if graph.timed else ""
    chain = f", longest chain {duration(graph.path_s)}" if graph.path else ""
    held = f"{counted(graph.steps, 'step')} in {counted(len(graph.targets), 'target')}"
    return f"{graph.folder}: {held}{work}{chain}"


def sources(graph: BuildGraph) -> str:
    """Return where the names and the times come from."""
    names = "CMake's file API" if graph.has_reply else "build.ninja"
    missing = graph.steps - graph.timed
    times = "the time of every step is known"
    if missing:
        were = "it was" if missing == 1 else "they were"
        times = f"the time of {counted(missing, 'step')} is unknown because {were} never built here"
    return f"targets from {names}; {times}"


def target_figures(target: GraphTarget) -> tuple[str, str, str]:
    time = duration(target.wall_s) if target.timed else ""
    return str(target.steps), time, size(target.peak_bytes) if target.peak_bytes is not None else ""


def _starts(graph: BuildGraph, everything: bool) -> list[Page]:
    lines: list[Page] = [Text("What blocks the start", style="bold")]
    lines.append(Indented(ready_text(graph), 2))
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


def ready_text(graph: BuildGraph) -> str:
    return f"{graph.ready} of {graph.compiles} compiles can start at once"


def _impact(impact: Impact, everything: bool) -> list[Page]:
    lines: list[Page] = [Indented(impact_text(impact), 0)]
    if not impact.steps:
        return lines
    by_target = Listing("target", ">steps", ">time", indent=2)
    for name, steps in steps_by_target(impact).items():
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
    held = f"{counted(count, 'step')} in {counted(len(steps_by_target(impact)), 'target')}"
    unknown = sum(step.wall_s is None for step in impact.steps)
    missing = f" ({counted(unknown, 'step')} never measured)" if unknown else ""
    return (
        f"{first}a change to {impact.file} rebuilds {held}: "
        f"{duration(impact.wall_s)} of work, longest chain {duration(impact.path_s)}"
        f"{missing}"
    )


def steps_by_target(impact: Impact) -> dict[str, list[float | None]]:
    found: dict[str, list[float | None]] = defaultdict(list)
    for step in impact.steps:
        found[step.target].append(step.wall_s)
    return found

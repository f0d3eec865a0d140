"""The graph of a build folder by targets: what each needs, what blocks it, what a change rebuilds.
Pure.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence

from stoker.govern.policy.critical_path import earliest_ends, longest_chain
from stoker.model.govern import Timing
from stoker.report.graphs.build_graph import (
    Blocker,
    BuildGraph,
    GraphTarget,
    Impact,
    ImpactStep,
    PathStep,
)
from stoker.report.graphs.owners import LINK_RULE, Owners
from stoker.report.graphs.steps import PHONY, NeededSteps


def make_build_graph(
    steps: NeededSteps,
    owners: Owners,
    timings: Mapping[str, Timing],
    *,
    folder: str,
    has_reply: bool,
) -> BuildGraph:
    """``timings`` are by output, as the build statement names it."""
    times = _times(steps, timings)
    ends = _earliest_ends(steps, times)
    ready, blockers = _blockers(steps, owners, ends)
    return BuildGraph(
        folder=folder,
        has_reply=has_reply,
        targets=_targets(steps, owners, times),
        steps=len(steps.real),
        timed=sum(times[index] is not None for index in steps.real),
        wall_s=sum(map(_seconds, times)),
        compiles=sum(steps.compiles),
        ready=ready,
        blockers=blockers,
        path=tuple(
            PathStep(
                output=steps.edges[index].outputs[0],
                target=owners.names[index],
                wall_s=time.seconds,
            )
            for index in longest_chain(dict(enumerate(steps.before)), dict(enumerate(ends)))
            if (time := times[index])
        ),
    )


def find_impact(
    steps: NeededSteps,
    owners: Owners,
    timings: Mapping[str, Timing],
    file: str,
    discovered: Mapping[str, Iterable[str]],
) -> Impact:
    """``file`` is an absolute path; ``discovered`` are the files that compilers have read."""
    rebuilt = steps.rebuilt(file, discovered)
    times = _times(steps, timings)
    alone: list[Timing | None] = [None] * len(steps)
    for index in rebuilt:
        alone[index] = times[index]
    return Impact(
        file=file,
        configures=steps.configures(file),
        steps=tuple(
            ImpactStep(
                output=steps.edges[index].outputs[0],
                target=owners.names[index],
                wall_s=time.seconds if (time := times[index]) else None,
            )
            for index in rebuilt
        ),
        wall_s=sum(map(_seconds, alone)),
        path_s=max(_earliest_ends(steps, alone), default=0.0),
    )


def _times(steps: NeededSteps, timings: Mapping[str, Timing]) -> list[Timing | None]:
    found = ((timings.get(output) for output in edge.outputs) for edge in steps.edges)
    times = [next((time for time in each if time), None) for each in found]
    return [None if edge.rule == PHONY else t for edge, t in zip(steps.edges, times, strict=True)]


def _seconds(time: Timing | None) -> float:
    return time.seconds if time else 0.0


def _earliest_ends(steps: NeededSteps, times: Sequence[Timing | None]) -> list[float]:
    """Return when each step can have ended, with unlimited CPUs."""
    ends = earliest_ends(dict(enumerate(steps.before)), lambda index: _seconds(times[index]))
    return [ends[index] for index in range(len(steps))]


def _blockers(
    steps: NeededSteps, owners: Owners, ends: Sequence[float]
) -> tuple[int, tuple[Blocker, ...]]:
    """Return how many compiles can start at once, and the targets that others wait for."""
    bits = {name: 1 << place for place, name in enumerate(dict.fromkeys(owners.names))}
    above: list[int] = []  # for each step, the targets of all steps before it, as bits
    blocked: Counter[str] = Counter()
    ready = 0
    for index, needs in enumerate(steps.before):
        mask = 0
        for need in needs:
            mask |= above[need]
            if steps.edges[need].rule != PHONY:
                mask |= bits[owners.names[need]]
        above.append(mask)
        if steps.compiles[index]:
            ready += not mask
            mask &= ~bits[owners.names[index]]
            blocked.update(name for name, bit in bits.items() if mask & bit)
    seconds: dict[str, float] = defaultdict(float)
    for index in steps.real:
        if steps.precedes_compile[index]:
            name = owners.names[index]
            seconds[name] = max(seconds[name], ends[index])
    return ready, tuple(
        Blocker(target=name, compiles=count, wall_s=seconds[name])
        for name, count in blocked.most_common()
    )


def _targets(
    steps: NeededSteps, owners: Owners, times: Sequence[Timing | None]
) -> tuple[GraphTarget, ...]:
    """Return the targets, each after those that it needs."""
    members: dict[str, list[int]] = defaultdict(list)
    for index in steps.real:
        members[owners.names[index]].append(index)
    place = {name: indexes[-1] for name, indexes in members.items()}
    order = sorted(members, key=place.__getitem__)
    direct = _direct_needs(steps, owners, place)
    reach: dict[str, set[str]] = {}  # all that a target needs, directly or not
    found = []
    for name in order:
        reach[name] = direct[name].union(*(reach[need] for need in direct[name]))
        indirect = set().union(*(reach[need] for need in direct[name]))
        known = [time for index in members[name] if (time := times[index])]
        made = [index for index in members[name] if LINK_RULE.search(steps.edges[index].rule)]
        target = GraphTarget(
            name=name,
            kind=owners.kinds[name],
            steps=len(members[name]),
            timed=len(known),
            wall_s=sum(time.seconds for time in known),
            peak_bytes=max((time.peak for time in known if time.peak is not None), default=None),
            needs=tuple(sorted(direct[name] - indirect, key=place.__getitem__)),
            outputs=tuple(steps.edges[index].outputs[0] for index in made),
        )
        found.append(target)
    return tuple(found)


def _direct_needs(
    steps: NeededSteps, owners: Owners, place: Mapping[str, int]
) -> dict[str, set[str]]:
    """Return the targets that the steps of each target need. ``place`` is the last step of each
    target: one that ends later is left out, so that there are no cycles.
    """
    passed_on: list[set[str]] = []  # the targets that a step stands for
    found: dict[str, set[str]] = {name: set() for name in place}
    for index, edge in enumerate(steps.edges):
        needs = set().union(*(passed_on[need] for need in steps.before[index]))
        name = owners.names[index]
        if edge.rule == PHONY:
            passed_on.append(needs)
        else:
            found[name] |= {need for need in needs if place[need] < place[name]}
            passed_on.append({name})
    return found

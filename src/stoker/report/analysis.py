"""A run and its attempts, analysed: lanes, waits, lower bounds, critical path.

Pure: rows of the history, the record of a build and the dependency graph are passed in.
"""

import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from heapq import heappop, heappush
from itertools import pairwise
from statistics import median

from msgspec.structs import asdict, replace

from stoker.govern.policy.bounds import at_best, cpu_bound, memory_bound
from stoker.model.govern import Basis, Role, Step, StepRecord
from stoker.model.runs import LOST, Attempt, Outcome, Run
from stoker.model.value import Value
from stoker.report.dependencies import Dependencies
from stoker.report.graphs.owners import OBJECT_FOLDER
from stoker.report.reported import Accuracy, AttemptSpan, CpuTime, LowerBound, RunAnalysis, Total

_PROBE = re.compile(r"/CMakeScratch/|(?:^|/)cmTC_")  # test programs of CMake


class RecordedRun(Value, frozen=True, kw_only=True):
    """What a build's own record knows of a run. CPUs and limit count if the run has no summary."""

    cpus: int | None = None
    limit: int | None = None


def analyse(
    run: Run,
    attempts: Sequence[Attempt],
    recorded: RecordedRun,
    dependencies: Dependencies,
) -> RunAnalysis:
    """Return the analysis of a run. ``attempts`` are in the order in which they started."""
    summary = run.summary
    cpus = summary.cpus if summary else recorded.cpus
    limit = (summary.limit_bytes if summary else recorded.limit) or None
    lanes = lanes_of([(each.started, each.started + each.record.wall_s) for each in attempts])
    spans = tuple(
        AttemptSpan(**asdict(attempt), target=target_of(attempt.record.step), lane=lane)
        for attempt, lane in zip(attempts, lanes, strict=True)
    )
    completed = [span.record for span in spans if span.completed]
    wall = summary.wall_s if summary else max((span.ended for span in spans), default=0.0)
    path, path_s = critical_spans(spans, dependencies, run.directory)
    outcomes = [span.outcome for span in spans]
    peak = max((span.record.peak_bytes for span in spans), default=0)
    return RunAnalysis(
        id=run.id,
        command=run.command,
        directory=run.directory,
        began=run.started,
        complete=summary is not None,
        timed=summary is not None or len(attempts) < 2 or any(each.started for each in attempts),
        status=summary.status if summary else None,
        wall_s=wall,
        cpu_s=summary.cpu_s if summary else sum(span.record.cpu_s for span in spans),
        cpus=cpus,
        limit=limit,
        peak=summary.peak_bytes if summary else peak,
        steps=len(completed),
        failed=outcomes.count(Outcome.FAILED),
        lost=sum(map(outcomes.count, LOST)),
        oom_kills=summary.oom_kills if summary else outcomes.count(Outcome.OOM),
        pauses=summary.pauses
        if summary
        else sum(len(span.explanation.pauses) for span in spans if span.explanation),
        policy=summary.policy if summary else "",
        cache_hits=summary.cache_hits if summary else None,
        written_bytes=summary.written_bytes if summary else None,
        spans=spans,
        bounds=lower_bounds(completed, path_s, wall=wall, cpus=cpus, limit=limit)
        if summary and summary.status == 0
        else (),
        cpu_time=cpu_time(spans, wall=wall, cpus=cpus) if cpus else None,
        path=path,
        path_s=path_s,
        has_graph=bool(dependencies),
        targets=totals(spans, lambda span: span.target),
        roles=totals(spans, lambda span: span.step.role.value),
        accuracy=_accuracy(spans),
    )


def lanes_of(intervals: Sequence[tuple[float, float]]) -> list[int]:
    """Return the lowest lane that is free at the start of each interval; starts do not fall."""
    free: list[int] = []
    busy: list[tuple[float, int]] = []
    lanes: list[int] = []
    for start, end in intervals:
        while busy and busy[0][0] <= start:
            heappush(free, heappop(busy)[1])
        lane = heappop(free) if free else len(busy)
        heappush(busy, (end, lane))
        lanes.append(lane)
    return lanes


def target_of(step: Step) -> str:
    """Return the target that a step belongs to: CMake's, else the folder of its source."""
    if _PROBE.search(f"{step.directory}/{step.output}"):
        return "CMake probes"
    if found := OBJECT_FOLDER.search(step.output):
        return found[1]
    if step.role in (Role.LINK, Role.ARCHIVE):
        return step.output.rpartition("/")[2]
    return step.folder or step.output or step.compiler


def levels(spans: Iterable[AttemptSpan]) -> list[tuple[float, float | None, int, int]]:
    """Return stretches of time in order: start, end, CPUs that steps hold, steps that wait."""
    changes: dict[float, list[int]] = defaultdict(lambda: [0, 0])
    for span in spans:
        slots = span.step.targets_at_once
        changes[span.started][0] += slots
        changes[span.ended][0] -= slots
        if span.asked is not None:
            changes[min(span.asked, span.started)][1] += 1
            changes[span.started][1] -= 1
    levels: list[tuple[float, float | None, int, int]] = []
    slots = waiting = 0
    times = sorted(changes)
    for at, until in (*pairwise(times), *((time, None) for time in times[-1:])):
        slots += changes[at][0]
        waiting += changes[at][1]
        levels.append((at, until, slots, waiting))
    return levels


def lower_bounds(
    steps: Sequence[StepRecord], path_s: float, *, wall: float, cpus: int | None, limit: int | None
) -> tuple[LowerBound, ...]:
    """Return each bound that can be computed from what is known, largest first."""
    alone = [at_best(step) for step in steps]
    seconds = {"critical path": path_s}
    if cpus:
        seconds["CPU"] = cpu_bound(alone, cpus)
    if limit:
        seconds["memory"] = memory_bound(alone, limit)
    bounds = (
        LowerBound(name=name, seconds=bound, share=bound / wall if wall else 0.0)
        for name, bound in seconds.items()
    )
    return tuple(sorted(bounds, key=lambda bound: -bound.seconds))


def cpu_time(spans: Sequence[AttemptSpan], *, wall: float, cpus: int) -> CpuTime:
    held = taken = 0.0
    for at, until, slots, waiting in levels(spans):
        seconds = max(0.0, min(until or at, wall) - at)
        taken += seconds * min(cpus, slots)
        held += seconds * max(0, cpus - slots) * (waiting > 0)
    computing = sum(span.record.cpu_s for span in spans if span.completed)
    repeated = sum(span.record.cpu_s for span in spans if not span.completed)
    # Compilers that use more threads than they were given slots compute more than they hold.
    stalled = max(0.0, taken - computing - repeated)
    known = any(span.explanation for span in spans)
    idle = max(0.0, cpus * wall - computing - repeated - stalled - held)
    return CpuTime(
        computing=computing,
        repeated=repeated,
        stalled=stalled,
        held=held if known else None,
        idle=idle,
    )


def critical_spans(
    spans: Sequence[AttemptSpan], dependencies: Dependencies, root: str
) -> tuple[tuple[int, ...], float]:
    """Return the spans of the longest chain of dependent steps, and the seconds that the chain
    takes when each step has a CPU of its own.
    """
    latest = {_name(root, i, span): i for i, span in enumerate(spans) if span.completed}
    seconds = {name: _alone(spans[index]) for name, index in latest.items()}
    chain = tuple(latest[name] for name in dependencies.longest_chain(seconds))
    longest = max(latest.values(), key=lambda index: _alone(spans[index]), default=None)
    alone = () if longest is None else (longest,)
    # A step outside the graph may be longer than every chain in it.
    path = max(chain, alone, key=lambda each: sum(_alone(spans[index]) for index in each))
    return path, sum(_alone(spans[index]) for index in path)


def _name(root: str, index: int, span: AttemptSpan) -> str:
    """Return the path of its output; custom commands have none, and get a name of their own."""
    return span.step.output_path(root) if span.step.output else f"{span.step.title} ({index})"


def _alone(span: AttemptSpan) -> float:
    return at_best(span.record).wall_s


def records(
    spans: Sequence[AttemptSpan], dependencies: Dependencies, root: str
) -> tuple[StepRecord, ...]:
    """Return the completed steps with what they need, for a simulation. Names are unique."""
    completed = {_name(root, i, s): s.record for i, s in enumerate(spans) if s.completed}
    needs = dependencies.needs(completed)
    return tuple(
        replace(
            record,
            step=replace(record.step, output=name),
            needs=tuple(sorted(needs.get(name, ()))),
        )
        for name, record in completed.items()
    )


def memory_at(span: AttemptSpan, time: float) -> float:
    """Return the bytes that a span used at a time within it: by its profile, else its mean."""
    record = span.record
    if record.profile:
        part = int(len(record.profile) * (time - span.started) / record.wall_s)
        return record.peak_bytes * record.profile[max(0, min(part, len(record.profile) - 1))] / 100
    if record.byte_seconds is None or not record.wall_s:
        return record.peak_bytes
    return min(record.peak_bytes, record.byte_seconds / record.wall_s)


def totals(
    spans: Iterable[AttemptSpan], name_of: Callable[[AttemptSpan], str]
) -> tuple[Total, ...]:
    """Return the sums over attempts of the same name, most CPU time first."""
    groups: dict[str, list[AttemptSpan]] = defaultdict(list)
    for span in spans:
        groups[name_of(span)].append(span)
    sums = (
        Total(
            name=name,
            steps=sum(span.completed for span in group),
            seconds=sum(span.record.wall_s for span in group),
            cpu_seconds=sum(span.record.cpu_s for span in group),
            peak=max(span.record.peak_bytes for span in group),
            byte_seconds=sum(span.record.byte_seconds or 0.0 for span in group),
        )
        for name, group in groups.items()
    )
    return tuple(sorted(sums, key=lambda total: (-total.cpu_seconds, total.name)))


def _accuracy(spans: Iterable[AttemptSpan]) -> tuple[Accuracy, ...]:
    ratios: Mapping[Basis, list[float]] = {basis: [] for basis in Basis}
    for span in spans:
        known = span.explanation
        if span.outcome is Outcome.DONE and known and known.needs_bytes:
            ratios[known.basis].append(span.record.peak_bytes / known.needs_bytes)
    return tuple(
        Accuracy(
            basis=basis,
            steps=len(found),
            ratio=median(found),
            above=sum(ratio > 1 for ratio in found) / len(found),
        )
        for basis, found in ratios.items()
        if found
    )

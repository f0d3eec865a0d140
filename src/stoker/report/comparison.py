"""Two runs side by side: which steps became slower or larger, and what is known of the reason.

Pure.
"""

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence

from stoker.model.govern import Role, StepRecord
from stoker.model.value import first_of, size
from stoker.report.reported import AttemptSpan, Cause, Comparison, RunAnalysis, StepChange

_MOST_FLAGS = 6  # of a difference that are named
_NOTABLE_INPUT = 0.01  # share by which the inputs of a link must change to be named
_SAME_CPU_TIME = 0.05  # share by which CPU time may differ where only the CPUs were busier
_LONGER = 0.1  # share by which the wall time must differ then


def compare_runs(before: RunAnalysis, after: RunAnalysis) -> Comparison:
    """Match completed steps by output, else by source where that is unique in both runs."""
    old, new = _completed(before.spans), _completed(after.spans)
    pairs = _pairs(before.spans, old, after.spans, new)
    matched_old, matched_new = set(pairs.values()), set(pairs)
    changes = []
    for index, earlier in pairs.items():
        one, other = before.spans[earlier].record, after.spans[index].record
        change = StepChange(
            before=earlier,
            after=index,
            cpu_s=other.cpu_s - one.cpu_s,
            seconds=other.wall_s - one.wall_s,
            peak=other.peak_bytes - one.peak_bytes,
            why=tuple(_reasons(one, other)),
        )
        changes.append(change)
    return Comparison(
        changes=tuple(sorted(changes, key=lambda change: -abs(change.cpu_s))),
        causes=_causes(changes),
        added=tuple(index for index in new if index not in matched_new),
        removed=tuple(index for index in old if index not in matched_old),
    )


def _causes(changes: Sequence[StepChange]) -> tuple[Cause, ...]:
    """Return the differences with the changes of all steps that have them, largest first."""
    groups: dict[str, list[StepChange]] = defaultdict(list)
    for change in changes:
        for text in change.why:
            groups[text].append(change)
    causes = (
        Cause(
            text=text,
            steps=len(group),
            cpu_s=sum(change.cpu_s for change in group),
            peak=max((change.peak for change in group), key=abs),
        )
        for text, group in groups.items()
    )
    return tuple(sorted(causes, key=lambda cause: -abs(cause.cpu_s)))


def _completed(spans: Sequence[AttemptSpan]) -> list[int]:
    """Return the last completed attempt of each step."""
    last = {_by_output(span): index for index, span in enumerate(spans) if span.completed}
    return sorted(last.values())


def _by_output(span: AttemptSpan) -> tuple[Role, str]:
    return span.step.role, span.step.output or span.step.title


def _by_source(span: AttemptSpan) -> tuple[Role, str]:
    return span.step.role, span.step.title


def _pairs(
    before: Sequence[AttemptSpan],
    old: Sequence[int],
    after: Sequence[AttemptSpan],
    new: Sequence[int],
) -> dict[int, int]:
    pairs: dict[int, int] = {}
    for name_of in (_by_output, _by_source):
        matched = set(pairs.values())
        free_old = [index for index in old if index not in matched]
        free_new = [index for index in new if index not in pairs]
        counts = Counter(name_of(before[index]) for index in free_old)
        twice = Counter(name_of(after[index]) for index in free_new)
        places = {name_of(before[index]): index for index in free_old}
        for index in free_new:
            name = name_of(after[index])
            if counts[name] == twice[name] == 1:
                pairs[index] = places[name]
    return pairs


def _reasons(one: StepRecord, other: StepRecord) -> Iterator[str]:
    before, after = one.step, other.step
    if before.compiler != after.compiler:
        yield f"compiler: {before.compiler} before, {after.compiler} now"
    yield from _differences("GPU targets", before.archs, after.archs)
    yield from _differences("flags", before.flags, after.flags)
    if before.threads != after.threads:
        yield f"nvcc threads: {before.threads} before, {after.threads} now"
    if abs(after.input_bytes - before.input_bytes) > _NOTABLE_INPUT * before.input_bytes:
        yield f"inputs: {size(before.input_bytes)} before, {size(after.input_bytes)} now"
    if before.key == after.key:
        if abs(other.cpu_s - one.cpu_s) > _SAME_CPU_TIME * one.cpu_s:
            yield "same command: its source, a header or the speed of the machine changed"
        elif abs(other.wall_s - one.wall_s) > _LONGER * one.wall_s:
            yield "same command and CPU time: the CPUs or disks were shared differently"


def _differences(what: str, before: Sequence[str], after: Sequence[str]) -> Iterator[str]:
    added = [word for word in dict.fromkeys(after) if word not in before]
    removed = [word for word in dict.fromkeys(before) if word not in after]
    for name, words in (("added", added), ("removed", removed)):
        if words:
            yield f"{what} {name}: {first_of(words, _MOST_FLAGS, ' ')}"

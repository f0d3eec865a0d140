"""Two runs side by side: which steps became slower or larger, and what is known of the reason.

Pure. What the compilers of both runs read is passed in, where it was recorded.
"""

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from heapq import nlargest

from stoker.model.govern import Role, StepRecord
from stoker.model.runs import Includes, short_path
from stoker.model.value import Value, counted, first_of, size
from stoker.report.values import AttemptSpan, Cause, Comparison, RunAnalysis, StepChange

_MOST_FLAGS, _MOST_HEADERS = 6, 4  # of a difference that are named
_MOST_CAUSES = 100  # headers that differ for the same steps are one cause
_NOTABLE_INPUT = 0.01  # share by which the inputs of a link must change to be named
_SAME_CPU_TIME = 0.05  # share by which CPU time may differ where only the CPUs were busier
_LONGER = 0.1  # share by which the wall time must differ then


def compare_runs(
    before: RunAnalysis,
    after: RunAnalysis,
    read_before: Includes | None = None,
    read_after: Includes | None = None,
) -> Comparison:
    """Match completed steps by output, else by source where that is unique in both runs."""
    old, new = _completed(before.spans), _completed(after.spans)
    pairs = _pairs(before.spans, old, after.spans, new)
    matched_old, matched_new = set(pairs.values()), set(pairs)
    files = _Files(before, after, read_before or Includes(), read_after or Includes())
    read = {
        index: files.difference(before.spans[pairs[index]], after.spans[index]) for index in pairs
    }
    changes = []
    for index, earlier in pairs.items():
        one, other = before.spans[earlier].record, after.spans[index].record
        files_read = read[index]
        change = StepChange(
            before=earlier,
            after=index,
            cpu_s=other.cpu_s - one.cpu_s,
            seconds=other.wall_s - one.wall_s,
            peak=other.peak_bytes - one.peak_bytes,
            why=tuple(_reasons(one, other, files_read)),
            headers=tuple(files_read.texts()) if files_read else (),
        )
        changes.append(change)
    return Comparison(
        changes=tuple(sorted(changes, key=lambda change: -abs(change.cpu_s))),
        causes=_causes(changes, read),
        added=tuple(index for index in new if index not in matched_new),
        removed=tuple(index for index in old if index not in matched_old),
    )


def _causes(
    changes: Sequence[StepChange], read: Mapping[int, "_FileChanges | None"]
) -> tuple[Cause, ...]:
    """Return the differences with the changes of all steps that have them, largest first."""
    groups: dict[str, list[StepChange]] = defaultdict(list)
    for change in changes:
        for text in change.why:
            groups[text].append(change)
    by_index = {change.after: change for change in changes}
    for text, steps in _header_groups(read, {n: change.cpu_s for n, change in by_index.items()}):
        groups[text] = [by_index[index] for index in steps]
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


def _reasons(one: StepRecord, other: StepRecord, read: "_FileChanges | None") -> Iterator[str]:
    before, after = one.step, other.step
    if before.compiler != after.compiler:
        yield f"compiler: {before.compiler} before, {after.compiler} now"
    yield from _differences("GPU targets", before.archs, after.archs)
    yield from _differences("flags", before.flags, after.flags)
    if before.threads != after.threads:
        yield f"nvcc threads: {before.threads} before, {after.threads} now"
    if abs(after.input_bytes - before.input_bytes) > _NOTABLE_INPUT * before.input_bytes:
        yield f"inputs: {size(before.input_bytes)} before, {size(after.input_bytes)} now"
    if read and read.source:
        yield "the source file changed"
    if before.key == after.key and not (read and read.any):
        same = "" if read is None else ", source and headers"
        same_cpu = abs(other.cpu_s - one.cpu_s) <= _SAME_CPU_TIME * one.cpu_s
        if not same_cpu and same:
            yield f"same command{same}: the machine was slower, faster or shared differently"
        elif not same_cpu:
            yield "same command: its source, a header or the speed of the machine changed"
        elif abs(other.wall_s - one.wall_s) > _LONGER * one.wall_s:
            yield f"same command{same} and CPU time: the CPUs or disks were shared differently"


def _differences(what: str, before: Sequence[str], after: Sequence[str]) -> Iterator[str]:
    added = [word for word in dict.fromkeys(after) if word not in before]
    removed = [word for word in dict.fromkeys(before) if word not in after]
    for name, words in (("added", added), ("removed", removed)):
        if words:
            yield f"{what} {name}: {first_of(words, _MOST_FLAGS, ' ')}"


def _named_headers(paths: Sequence[str]) -> str:
    """Name headers as sources do: of `/usr/include/c++/12/vector`, what follows `include/`."""
    first = [path.rpartition("/include/")[2] for path in paths[:_MOST_HEADERS]]
    return first_of([*first, *paths[_MOST_HEADERS:]], _MOST_HEADERS, " ")


class _FileChanges(Value, frozen=True, kw_only=True):
    """What differs between the files that a step read in two runs. Headers are in the order in
    which the compiler read them.
    """

    source: bool  # whether its text differs
    headers: int  # that the later run has
    added: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    changed: tuple[str, ...] = ()

    @property
    def any(self) -> bool:
        return bool(self.source or self.added or self.removed or self.changed)

    def texts(self) -> Iterator[str]:
        """Yield what is shown for the step itself."""
        if self.added:
            new = f"{len(self.added)} of them new: {_named_headers(self.added)}"
            yield f"includes {counted(self.headers, 'header')}, {new}"
        if self.removed:
            gone = f"{counted(len(self.removed), 'header')}: {_named_headers(self.removed)}"
            yield f"no longer includes {gone}"
        if self.changed:
            yield f"{counted(len(self.changed), 'header')} changed: {_named_headers(self.changed)}"


class _Files:
    """The files that the compilers of two runs read."""

    def __init__(
        self,
        before: RunAnalysis,
        after: RunAnalysis,
        read_before: Includes,
        read_after: Includes,
    ):
        self._before, self._after = read_before, read_after
        self._roots = before.directory, after.directory
        old = dict(zip(read_before.files, read_before.digests, strict=False))
        new = zip(read_after.files, read_after.digests, strict=False)
        self._changed = {
            name for name, digest in new if digest and old.get(name, digest) not in (digest, b"")
        }

    def difference(self, one: AttemptSpan, other: AttemptSpan) -> _FileChanges | None:
        """Return the difference for a step of both runs; ``None`` if one of them has no list."""
        old = _read_by(one, self._before, self._roots[0])
        new = _read_by(other, self._after, self._roots[1])
        if not (old and new):
            return None
        known, still = set(old), set(new)
        return _FileChanges(
            source=new[0] in self._changed and old[0] == new[0],
            headers=len(new) - 1,
            added=tuple(name for name in new[1:] if name not in known),
            removed=tuple(name for name in old[1:] if name not in still),
            changed=tuple(name for name in new[1:] if name in self._changed and name in known),
        )


def _read_by(span: AttemptSpan, includes: Includes, root: str) -> list[str]:
    """Return the source of a step and its headers: compilers name the source first."""
    places = includes.steps.get(short_path(span.step.output_path(root), root), ())
    return [includes.files[place] for place in places if place < len(includes.files)]


def _header_groups(
    read: Mapping[int, _FileChanges | None], cpu_s: Mapping[int, float]
) -> Iterator[tuple[str, tuple[int, ...]]]:
    """Yield the headers that differ for the same steps, and those steps: only the groups with the
    largest changes of CPU time, because a new compiler changes thousands of headers.
    """
    steps: dict[tuple[str, str], list[int]] = defaultdict(list)
    for index, files in read.items():
        for kind in ("added", "removed", "changed") if files else ():
            for name in getattr(files, kind):
                steps[kind, name].append(index)
    groups: dict[tuple[str, tuple[int, ...]], list[str]] = defaultdict(list)
    for (kind, name), found in steps.items():
        groups[kind, tuple(found)].append(name)
    largest = nlargest(
        _MOST_CAUSES, groups, key=lambda group: abs(sum(map(cpu_s.__getitem__, group[1])))
    )
    for kind, indices in largest:
        yield f"headers {kind}: {_named_headers(groups[kind, indices])}", indices

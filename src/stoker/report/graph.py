"""The targets of a build folder, what each of them needs, and what a change rebuilds."""

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from enum import StrEnum
from functools import cached_property
from graphlib import CycleError, TopologicalSorter
from posixpath import basename, join, normpath

from stoker.model.govern import Timing
from stoker.model.value import Value
from stoker.source.cmake import CMakeTarget
from stoker.source.ninja import Edge, Graph


class GraphTargetKind(StrEnum):
    GENERATES = "code generation"
    STATIC = "static library"
    SHARED = "shared library"
    MODULE = "module"
    OBJECTS = "object library"
    EXECUTABLE = "executable"
    COMMANDS = "commands"  # custom commands that no compile depends on
    OTHER = "other"


class GraphTarget(Value, frozen=True, kw_only=True):
    """All steps of one target. ``needs`` leaves out what another target in it needs anyway.

    ``wall_s`` is the sum over the ``timed`` steps, ``peak_bytes`` the largest step.
    """

    name: str
    kind: GraphTargetKind
    steps: int
    timed: int
    wall_s: float
    peak_bytes: int | None
    needs: tuple[str, ...]
    outputs: tuple[str, ...] = ()  # libraries and programs


class Blocker(Value, frozen=True, kw_only=True):
    """A target that must end before compiles of other targets can start.

    ``wall_s`` is the earliest time at which it can have ended, with unlimited CPUs.
    """

    target: str
    compiles: int
    wall_s: float


class PathStep(Value, frozen=True, kw_only=True):
    """A step of the critical path."""

    output: str
    target: str
    wall_s: float


class ImpactStep(Value, frozen=True, kw_only=True):
    output: str
    target: str
    wall_s: float | None  # None: it was never measured


class Impact(Value, frozen=True, kw_only=True):
    """What a change to ``file`` rebuilds, in the order of the build.

    A generator that writes the same content again saves the steps after it, which cannot be known
    before it runs. ``configures``: CMake runs again first, and may change more.
    """

    file: str
    configures: bool
    steps: tuple[ImpactStep, ...]
    wall_s: float  # sum over the steps
    path_s: float  # longest chain of dependent steps


class BuildGraph(Value, frozen=True, kw_only=True):
    """``targets`` are in the order of the build. ``ready`` compiles can start at once."""

    folder: str
    has_reply: bool  # CMake's file API names the targets; else they come from build.ninja
    targets: tuple[GraphTarget, ...]
    steps: int
    timed: int
    wall_s: float
    compiles: int
    ready: int
    blockers: tuple[Blocker, ...]
    path: tuple[PathStep, ...]  # critical path, first step first
    impact: Impact | None = None

    @property
    def path_s(self) -> float:
        return sum(step.wall_s for step in self.path)


# -- build graph -----------------------------------------------------------------------------------
# The graph of a build folder by targets: what each needs, what blocks it, what a change rebuilds.
#
# Pure. Targets are those of CMake; a step of another build tool belongs to the library or program
# that it becomes part of. Only what a call of ninja without arguments makes is looked at.


_PHONY = "phony"
_CUSTOM = "CUSTOM_COMMAND"
_CONFIGURES = "RERUN_CMAKE"
_COMPILES = re.compile(r"compil", re.IGNORECASE)
_OBJECT_FOLDER = re.compile(r"(?:^|/)CMakeFiles/([^/]+)\.dir/")
_CUSTOM_TARGET = re.compile(r"(?:^|/)CMakeFiles/([^/]+?)(?:\.util)?$")
_LINK_RULE = re.compile(r"_([A-Z]+(?:_LIBRARY)?)_LINKER__(.+)_[A-Za-z]*$")
_ENCODED = re.compile(r"\.([0-9a-fA-F]{2})")  # how CMake writes a special character in a rule
_RULE = ".rule"  # ends a source that stands for a custom command in CMake's answer
_KINDS = {
    "STATIC_LIBRARY": GraphTargetKind.STATIC,
    "SHARED_LIBRARY": GraphTargetKind.SHARED,
    "MODULE_LIBRARY": GraphTargetKind.MODULE,
    "OBJECT_LIBRARY": GraphTargetKind.OBJECTS,
    "EXECUTABLE": GraphTargetKind.EXECUTABLE,
    "UTILITY": GraphTargetKind.COMMANDS,
}


class NeededSteps:
    """The build statements that the default targets need, each after those that it needs.

    ``before[i]`` are the steps that step ``i`` needs or comes after. A graph with a cycle, which
    ninja refuses, has no steps.
    """

    def __init__(self, folder: str, graph: Graph):
        self._folder = folder
        below = _below(graph)
        try:
            order = list(TopologicalSorter(below).static_order())
        except CycleError:
            order = []
        place = {index: position for position, index in enumerate(order)}
        self.edges = [graph.edges[index] for index in order]
        self.before = [sorted(place[need] for need in below[index]) for index in order]
        self._configuring = [edge for edge in graph.edges if edge.rule == _CONFIGURES]

    def __len__(self) -> int:
        return len(self.edges)

    @cached_property
    def after(self) -> list[list[int]]:
        """The steps that come directly after each step."""
        found: list[list[int]] = [[] for _ in self.edges]
        for index, needs in enumerate(self.before):
            for need in needs:
                found[need].append(index)
        return found

    @cached_property
    def needed(self) -> list[frozenset[str]]:
        """The files that each step names as its inputs."""
        return [frozenset(edge.needs) for edge in self.edges]

    @cached_property
    def real(self) -> list[int]:
        """The steps that run a command."""
        return [index for index, edge in enumerate(self.edges) if edge.rule != _PHONY]

    @cached_property
    def compiles(self) -> list[bool]:
        return [_COMPILES.search(edge.rule) is not None for edge in self.edges]

    @cached_property
    def precedes_compile(self) -> list[bool]:
        """Whether a compile must wait for each step."""
        found = [False] * len(self)
        for index in reversed(range(len(self))):
            found[index] = any(self.compiles[a] or found[a] for a in self.after[index])
        return found

    def configures(self, file: str) -> bool:
        """Return whether CMake runs again after a change to the file with this absolute path."""
        return any(file == self._path(need) for edge in self._configuring for need in edge.needs)

    def files(self, discovered: Mapping[str, Iterable[str]]) -> set[str]:
        """Return the absolute paths of all files that the build reads or makes."""
        edges = (*self.edges, *self._configuring)
        named = {name for edge in edges for name in (*edge.outputs, *edge.needs)}
        named.update(*discovered.values())
        return set(map(self._path, named))

    def rebuilt(self, file: str, discovered: Mapping[str, Iterable[str]]) -> list[int]:
        """Return the steps that run again after a change to the file with this absolute path."""
        made = {self._path(output) for edge in self.edges for output in edge.outputs}
        names = {name for edge in self.edges for name in edge.needs}
        names.update(*discovered.values())
        # Compilers report millions of headers; all but the changed files are left out early.
        paths = {name: path for name in names if (path := self._path(name)) in made or path == file}
        readers: dict[str, set[int]] = defaultdict(set)
        for index, edge in enumerate(self.edges):
            reads = [edge.needs, *(discovered.get(output, ()) for output in edge.outputs)]
            for name in paths.keys() & set().union(*reads):
                readers[paths[name]].add(index)
        found: set[int] = set()
        changed = [file]
        while changed:
            for index in readers.get(changed.pop(), set()) - found:
                found.add(index)
                changed += map(self._path, self.edges[index].outputs)
        return [index for index in self.real if index in found]

    def _path(self, name: str) -> str:
        return normpath(join(self._folder, name))


def _below(graph: Graph) -> dict[int, set[int]]:
    """Return, for each statement that the default targets need, the statements that it needs."""
    maker = {output: index for index, edge in enumerate(graph.edges) for output in edge.outputs}
    wanted = graph.defaults or tuple(maker)
    waiting = [maker[name] for name in wanted if name in maker]
    below: dict[int, set[int]] = {}
    while waiting:
        index = waiting.pop()
        if index not in below:
            edge = graph.edges[index]
            below[index] = {maker[n] for n in (*edge.needs, *edge.after) if n in maker} - {index}
            waiting += below[index]
    return below


class Owners:
    """The target of each step (``names``), and the kind of each target (``kinds``).

    Code generation has targets of its own: the custom target that runs it, else one beside the
    target that its output becomes part of. ``reply`` is CMake's answer; without one, targets are
    found from the names of rules and folders.
    """

    def __init__(self, steps: NeededSteps, reply: Sequence[CMakeTarget]):
        self._steps = steps
        self._made_by = {file.path: target for target in reply for file in target.artifacts}
        self._commands = dict(_commands(reply))
        self.kinds = {
            target.name: _KINDS.get(target.type, GraphTargetKind.OTHER) for target in reply
        }
        self.names = [""] * len(steps)
        for index in reversed(range(len(steps))):
            self.names[index], kind = self._owner(index)
            if steps.edges[index].rule != _PHONY:
                self.kinds.setdefault(self.names[index], kind)
                if kind is GraphTargetKind.GENERATES:
                    self.kinds[self.names[index]] = kind

    def _owner(self, index: int) -> tuple[str, GraphTargetKind]:
        edge = self._steps.edges[index]
        if edge.rule == _CUSTOM:
            generates = self._steps.precedes_compile[index]
            kind = GraphTargetKind.GENERATES if generates else GraphTargetKind.COMMANDS
            return self._command(index), kind
        return self._linked(edge) or (self._part_of(index), GraphTargetKind.OTHER)

    def _linked(self, edge: Edge) -> tuple[str, GraphTargetKind] | None:
        for output in edge.outputs:
            if target := self._made_by.get(output):
                return target.name, _KINDS.get(target.type, GraphTargetKind.OTHER)
        if found := _LINK_RULE.search(edge.rule):
            name = _ENCODED.sub(lambda code: chr(int(code[1], 16)), found[2])
            return name, _KINDS.get(found[1], GraphTargetKind.OTHER)
        return None

    def _command(self, index: int) -> str:
        edges = self._steps.edges
        aliases = [a for a in self._steps.after[index] if edges[a].rule == _PHONY]
        for near in (index, *aliases):
            for output in edges[near].outputs:
                if found := _CUSTOM_TARGET.search(output):
                    return found[1]
        names = map(basename, edges[index].outputs)
        known = next((self._commands[name] for name in names if name in self._commands), None)
        if known and self.kinds.get(known) in (GraphTargetKind.COMMANDS, GraphTargetKind.GENERATES):
            return known
        return f"{known or self._part_of(index)}: generated code"

    def _part_of(self, index: int) -> str:
        """Return CMake's target of an object, else the target that the output becomes part of."""
        edge, edges = self._steps.edges[index], self._steps.edges
        if found := _OBJECT_FOLDER.search(edge.outputs[0]):
            return found[1]
        for user in self._users(index):
            is_last = edges[user].rule == _PHONY and not self._steps.after[user]  # such as `all`
            if edges[user].rule != _CUSTOM and not is_last:
                return self.names[user]
        return basename(edge.outputs[0])

    def _users(self, index: int) -> list[int]:
        """Return the steps that use the output: those that name it first, aliases last. Generated
        headers are only named by what comes after them.
        """
        edges, outputs = self._steps.edges, set(self._steps.edges[index].outputs)
        users = self._steps.after[index]
        if edges[index].rule not in (_CUSTOM, _PHONY):
            users = [user for user in users if not outputs.isdisjoint(self._steps.needed[user])]
        return sorted(users, key=lambda user: edges[user].rule == _PHONY)


def _commands(reply: Sequence[CMakeTarget]) -> Iterator[tuple[str, str]]:
    """Yield the output of each custom command with its target; custom targets come last."""
    for target in sorted(reply, key=lambda target: target.type == "UTILITY"):
        for source in target.sources:
            if source.path.endswith(_RULE):
                yield basename(source.path.removesuffix(_RULE)), target.name


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
        path=_critical_path(steps, owners, times, ends),
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
    return [None if edge.rule == _PHONY else t for edge, t in zip(steps.edges, times, strict=True)]


def _seconds(time: Timing | None) -> float:
    return time.seconds if time else 0.0


def _earliest_ends(steps: NeededSteps, times: Sequence[Timing | None]) -> list[float]:
    """Return when each step can have ended, with unlimited CPUs."""
    ends: list[float] = []
    for needs, time in zip(steps.before, times, strict=True):
        ends.append(max((ends[need] for need in needs), default=0.0) + _seconds(time))
    return ends


def _critical_path(
    steps: NeededSteps, owners: Owners, times: Sequence[Timing | None], ends: Sequence[float]
) -> tuple[PathStep, ...]:
    path: list[PathStep] = []
    index = max(range(len(steps)), key=ends.__getitem__, default=None)
    while index is not None:
        if time := times[index]:
            output, target = steps.edges[index].outputs[0], owners.names[index]
            path.append(PathStep(output=output, target=target, wall_s=time.seconds))
        index = max(steps.before[index], key=ends.__getitem__, default=None)
    return tuple(reversed(path))


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
            if steps.edges[need].rule != _PHONY:
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
        needs = sorted(direct[name] - indirect, key=place.__getitem__)
        found.append(_target(steps, name, owners.kinds[name], members[name], times, needs))
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
        if edge.rule == _PHONY:
            passed_on.append(needs)
        else:
            found[name] |= {need for need in needs if place[need] < place[name]}
            passed_on.append({name})
    return found


def _target(
    steps: NeededSteps,
    name: str,
    kind: GraphTargetKind,
    members: Sequence[int],
    times: Sequence[Timing | None],
    needs: Sequence[str],
) -> GraphTarget:
    known = [time for index in members if (time := times[index])]
    made = [index for index in members if _LINK_RULE.search(steps.edges[index].rule)]
    return GraphTarget(
        name=name,
        kind=kind,
        steps=len(members),
        timed=len(known),
        wall_s=sum(time.seconds for time in known),
        peak_bytes=max((time.peak for time in known if time.peak is not None), default=None),
        needs=tuple(needs),
        outputs=tuple(steps.edges[index].outputs[0] for index in made),
    )

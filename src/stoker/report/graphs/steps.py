"""The steps that the default targets of a build folder need, in the order of the build. Pure.

Only what a call of ninja without arguments makes is looked at.
"""

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping
from functools import cached_property
from posixpath import join, normpath

from stoker.govern.policy.critical_path import in_order
from stoker.source.ninja import Graph

PHONY = "phony"
_CONFIGURES = "RERUN_CMAKE"
_COMPILES = re.compile(r"compil", re.IGNORECASE)


class NeededSteps:
    """The build statements that the default targets need, each after those that it needs.

    ``before[i]`` are the steps that step ``i`` needs or comes after. A graph with a cycle, which
    ninja refuses, has no steps.
    """

    def __init__(self, folder: str, graph: Graph):
        self._folder = folder
        below = _below(graph)
        order = in_order(below)
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
        return [index for index, edge in enumerate(self.edges) if edge.rule != PHONY]

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

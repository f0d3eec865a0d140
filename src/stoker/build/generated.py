"""Finds the sources that the build tool generates before it compiles. Pure."""

from collections.abc import Sequence
from graphlib import CycleError, TopologicalSorter

from stoker.source.ninja import Edge

_GENERATES = "CUSTOM_COMMAND"
_BUILDS = ("_COMPILER__", "_LINKER__")
_SOURCES = (".c", ".cc", ".cpp", ".cxx", ".cu", ".h", ".hh", ".hpp", ".hxx", ".inc", ".inl")


def generated_sources(edges: Sequence[Edge], target: str) -> tuple[str, ...]:
    """Return one output of each command that makes sources for ``target`` by scripts alone.

    A generator that must itself be compiled is left to the compile stage. A graph with a cycle has
    no answer; ninja reports it.
    """
    below = _edges_below(edges, target)
    compiled: set[int] = set()  # edges that compile, and those that depend on them
    found = []
    try:
        for index in TopologicalSorter(below).static_order():
            edge = edges[index]
            if any(word in edge.rule for word in _BUILDS) or compiled.intersection(below[index]):
                compiled.add(index)
            elif edge.rule == _GENERATES and edge.outputs[0].endswith(_SOURCES):
                found.append(edge.outputs[0])
    except CycleError:
        return ()
    return tuple(found)


def _edges_below(edges: Sequence[Edge], target: str) -> dict[int, list[int]]:
    """Return, for each edge that the target needs, the edges that this edge needs."""
    maker = {output: index for index, edge in enumerate(edges) for output in edge.outputs}
    below: dict[int, list[int]] = {}
    waiting = [maker[target]] if target in maker else []
    while waiting:
        index = waiting.pop()
        if index not in below:
            needs = (*edges[index].needs, *edges[index].after)
            below[index] = [maker[need] for need in needs if need in maker]
            waiting += below[index]
    return below

"""The critical path of a graph of steps: the longest chain of steps that need one another. Pure.

A graph has the steps that each step needs. Steps that need each other in a circle, which ninja
refuses, count as none.
"""

from collections.abc import Callable, Collection, Hashable, Mapping
from graphlib import CycleError, TopologicalSorter
from typing import TypeVar

Node = TypeVar("Node", bound=Hashable)


def in_order(needs: Mapping[Node, Collection[Node]]) -> list[Node]:
    """Return the steps, each after those that it needs; none if there is a circle."""
    try:
        return list(TopologicalSorter(needs).static_order())
    except CycleError:
        return []


def earliest_ends(
    needs: Mapping[Node, Collection[Node]], seconds: Callable[[Node], float]
) -> dict[Node, float]:
    """Return the seconds from the start of the build to the end of each step, if no step waits for
    a CPU or for memory.
    """
    ends: dict[Node, float] = {}
    for node in in_order(needs):
        ends[node] = seconds(node) + max((ends[need] for need in needs.get(node, ())), default=0.0)
    return ends


def paths_left(
    needs: Mapping[Node, Collection[Node]], seconds: Callable[[Node], float]
) -> dict[Node, float]:
    """Return the seconds from the start of each step to the end of the build, if no step waits."""
    users: dict[Node, list[Node]] = {node: [] for node in needs}
    for node, needed in needs.items():
        for need in needed:
            users[need].append(node)
    return earliest_ends(users, seconds)


def longest_chain(
    needs: Mapping[Node, Collection[Node]], ends: Mapping[Node, float]
) -> tuple[Node, ...]:
    """Return the critical path, first step first. ``ends`` are the earliest ends of the steps."""
    chain: list[Node] = []
    step = max(ends, key=ends.__getitem__, default=None)
    while step is not None:
        chain.append(step)
        step = max(needs.get(step, ()), key=ends.__getitem__, default=None)
    return tuple(reversed(chain))

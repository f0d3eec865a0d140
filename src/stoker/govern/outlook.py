"""What is left of a build: how many steps, and for how long. Knows nothing of memory.

A step is left when what it makes is missing or older than what it is made from. Headers are not
looked at (ninja keeps those in a log of its own), so there can be more to do than expected.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping

from stoker.source.ninja import Edge, Graph

# Rules of CMake and of torch's cpp_extension whose commands stand behind the launcher.
_ASKS = re.compile(r"compil|link", re.IGNORECASE)
_NEVER_ASKS = re.compile(r"STATIC_LIBRARY|^CUSTOM_COMMAND")

Age = Callable[[str], float | None]  # when a file was changed; ``None`` where there is none


class Outlook:
    """Told what a run is to make and what is finished, it tells how long the rest will take."""

    def __init__(self) -> None:
        self._began: float | None = None  # when the first step asked
        self._left: dict[str, float | None] = {}  # seconds of each, where known
        self._finished = 0
        self._worked = 0.0

    def asked(self, now: float) -> None:
        if self._began is None:
            self._began = now

    def expect(self, steps: Mapping[str, float | None]) -> None:
        self._left.update(steps)

    def finished(self, output: str, seconds: float) -> None:
        self._left.pop(output, None)
        self._finished += 1
        self._worked += seconds

    @property
    def steps(self) -> int:
        return len(self._left)

    def seconds(self, now: float, ages: Iterable[float]) -> float | None:
        """Until the end, if as much goes on at once as until now; ``ages`` of those that run."""
        elapsed = now - (self._began or 0.0)
        if not self._left or not self._finished or elapsed <= 0:
            return None
        running = sum(ages)
        usual = self._worked / self._finished
        work = sum(usual if known is None else known for known in self._left.values())
        at_once = (self._worked + running) / elapsed
        return max(0.0, work - running) / at_once if at_once else None


def steps_left(
    graph: Graph, durations: Mapping[str, float], targets: Iterable[str], age: Age
) -> dict[str, float | None]:
    """Steps that will ask, by their output, with the seconds they took last time."""
    maker = {output: edge for edge in graph.edges for output in edge.outputs}
    stale: set[str] = set()
    left: dict[str, float | None] = {}
    for edge in _in_order(maker, tuple(targets) or graph.defaults or tuple(maker)):
        if _is_stale(edge, maker, stale, age):
            stale.update(edge.outputs)
            if _ASKS.search(edge.rule) and not _NEVER_ASKS.search(edge.rule):
                left[edge.outputs[0]] = durations.get(edge.outputs[0])
    return left


def _is_stale(edge: Edge, maker: Mapping[str, Edge], stale: set[str], age: Age) -> bool:
    if any(need in stale for need in edge.needs):
        return True
    if edge.rule == "phony":
        return False
    made = [age(output) for output in edge.outputs]
    needed = [age(need) for need in edge.needs if need not in maker or maker[need].rule != "phony"]
    oldest = min((time for time in made if time is not None), default=None)
    if oldest is None or None in made:
        return True
    return any(time is not None and time > oldest for time in needed)


def _in_order(maker: Mapping[str, Edge], targets: Iterable[str]) -> Iterator[Edge]:
    """Every edge that the targets need, after all that it needs itself; a cycle is cut."""
    seen: set[int] = set()
    stack = [(maker[target], False) for target in targets if target in maker]
    while stack:
        edge, ready = stack.pop()
        if ready:
            yield edge
        elif id(edge) not in seen:
            seen.add(id(edge))
            stack.append((edge, True))
            needs = (*edge.needs, *edge.after)
            stack.extend((maker[need], False) for need in needs if need in maker)

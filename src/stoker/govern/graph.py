"""How long the build still goes on after a step at least: the longest path behind it.

A graph is read once for each build folder, aside, because a large one takes a second; until then
every path is 0.
"""

from collections import Counter
from pathlib import Path
from threading import Thread

from stoker.source.ninja import Edge, read_durations, read_edges

_UNKNOWN = 1.0  # seconds of a step that was never made: then the number of steps counts


class Graphs:
    def __init__(self) -> None:
        self._paths: dict[str, dict[str, float]] = {}

    def path(self, folder: str, output: str) -> float:
        """Seconds from the start of the step that makes ``output`` to the end of the build."""
        if folder not in self._paths:
            self._paths[folder] = {}
            Thread(target=self._load, args=(folder,), daemon=True).start()
        return self._paths[folder].get(output, 0.0)

    def _load(self, folder: str) -> None:
        self._paths[folder] = longest_paths(read_edges(Path(folder)), read_durations(Path(folder)))


def longest_paths(edges: tuple[Edge, ...], durations: dict[str, float]) -> dict[str, float]:
    """For each output, the seconds along the longest chain of steps from it to the end."""
    maker = {output: index for index, edge in enumerate(edges) for output in edge.outputs}
    needs = [{maker[need] for need in edge.needs if need in maker} for edge in edges]
    users = Counter(need for each in needs for need in each)
    longest = [0.0] * len(edges)
    ready = [index for index in range(len(edges)) if not users[index]]
    while ready:  # from the end of the build backwards; what lies on a cycle stays 0
        index = ready.pop()
        longest[index] += _seconds(edges[index], durations)
        for need in needs[index]:
            longest[need] = max(longest[need], longest[index])
            users[need] -= 1
            if not users[need]:
                ready.append(need)
    return {output: longest[index] for output, index in maker.items()}


def _seconds(edge: Edge, durations: dict[str, float]) -> float:
    if edge.rule == "phony":
        return 0.0
    return max((durations.get(output, _UNKNOWN) for output in edge.outputs), default=_UNKNOWN)

"""How long the build still goes on after a step at least: the longest path behind it.

A graph is read once for each build folder, aside, because a large one takes a second; until then
every path is 0.
"""

from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from threading import Thread

from stoker.govern.command_line import build_folder
from stoker.govern.outlook import steps_left
from stoker.source.ninja import Edge, read_durations, read_graph

_UNKNOWN = 1.0  # seconds of a step that was never made: then the number of steps counts
_WITH_A_VALUE = ("-C", "-f", "-j", "-k", "-l", "-d", "-t", "-w")  # ninja's options


class Graphs:
    """Of each build folder of each run. ``durations``: seconds that steps were seen to run, by
    build folder and output; those of ninja's log include the time they waited for their permit.
    """

    def __init__(self, durations: Mapping[str, Mapping[str, float]]) -> None:
        self._durations = durations
        self._paths: dict[tuple[int, str], dict[str, float]] = {}
        self._left: list[tuple[int, dict[str, float | None]]] = []

    def path(self, run: int, folder: str, output: str, asker: int | None) -> float:
        """Seconds from the start of the step that makes ``output`` to the end of the build.

        What a custom command makes is not known (``""``), but is often needed by many, so it counts
        as the first step of the longest path. ``asker`` is the process that asks: a ninja above it
        knows what is to be made.
        """
        key = run, folder
        if key not in self._paths:
            self._paths[key] = {}
            targets = ninja_targets(asker) if asker else ()
            loading = key, targets, dict(self._durations.get(build_folder(folder), {}))
            Thread(target=self._load, args=loading, daemon=True).start()
        return self._paths[key].get(output, 0.0)

    def forget(self, run: int) -> None:
        self._paths = {key: paths for key, paths in self._paths.items() if key[0] != run}

    def news(self) -> Iterator[tuple[int, dict[str, float | None]]]:
        """Runs, and what is left to do in their folders that were read since."""
        while self._left:
            yield self._left.pop()

    def _load(
        self, key: tuple[int, str], targets: tuple[str, ...], known: Mapping[str, float]
    ) -> None:
        folder = Path(key[1])
        graph, durations = read_graph(folder), {**read_durations(folder), **known}
        paths = longest_paths(graph.edges, durations)
        self._paths[key] = {"": max(paths.values(), default=0.0), **paths}
        ages = _Ages(folder)
        self._left.append((key[0], steps_left(graph, durations, targets, ages.of)))


class _Ages:
    """When files of a folder were changed, each asked once."""

    def __init__(self, folder: Path):
        self._folder = folder
        self._known: dict[str, float | None] = {}

    def of(self, path: str) -> float | None:
        if path not in self._known:
            try:
                self._known[path] = (self._folder / path).stat().st_mtime
            except (OSError, ValueError):
                self._known[path] = None
        return self._known[path]


def ninja_targets(pid: int) -> tuple[str, ...]:
    """What the ninja above a process was told to make; nothing where there is none, or no /proc."""
    while pid > 1:
        try:
            words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")[:-1]
            status = Path(f"/proc/{pid}/stat").read_text(errors="replace")
        except OSError:
            return ()
        if words and words[0].rpartition(b"/")[2] == b"ninja":
            return tuple(_targets([word.decode(errors="surrogateescape") for word in words[1:]]))
        pid = int(status.rpartition(")")[2].split()[1])
    return ()


def _targets(words: list[str]) -> Iterator[str]:
    skip = False
    for word in words:
        if skip or word.startswith("-"):
            skip = not skip and word in _WITH_A_VALUE
        else:
            yield word


def longest_paths(edges: tuple[Edge, ...], durations: dict[str, float]) -> dict[str, float]:
    """For each output, the seconds along the longest chain of steps from it to the end."""
    maker = {output: index for index, edge in enumerate(edges) for output in edge.outputs}
    needs = [{maker[n] for n in (*edge.needs, *edge.after) if n in maker} for edge in edges]
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

"""What ninja's graph says about a build: critical paths, which steps are left, and how much time.

A graph is read in a thread, because a large one takes a second: when a build folder is first met,
and again when a step was not expected and build.ninja was written or another ninja runs. Until then
every path is 0 and the time left is unknown.

A step is left if its output is missing or older than its inputs. Headers are not looked at (ninja
keeps them in a log of its own), so there can be more to do than expected. A step that never asks,
because a cache has its result, is done when its output appears.
"""

import os
import re
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from threading import Thread
from typing import NamedTuple

from stoker.govern.command_line import build_folder, role_of_source
from stoker.govern.policy.critical_path import in_order, paths_left
from stoker.knowledge.steps import known_step, usual_seconds
from stoker.model.govern import Role
from stoker.source.ninja import Edge, Graph, read_durations, read_graph

_UNKNOWN = 1.0  # seconds assumed for a step without a duration, so that the number of steps counts
_MEASURED, _KNOWN = "measured", "known"  # kinds of expected durations; other kinds are roles
# Seconds of expected work that count as if they had passed as expected, so that few steps which end
# sooner or later do not change the expectation of all others. What is usual for a role is only a
# relative figure.
_TRUST = {_MEASURED: 60.0, _KNOWN: 10.0}
_WITH_A_VALUE = ("-C", "-f", "-j", "-k", "-l", "-d", "-t", "-w")  # ninja's options
# Rules of CMake and of torch's cpp_extension; GN and files written by hand have other names.
_COMPILES = re.compile("compil", re.IGNORECASE)
_ASKS = re.compile("compil|link", re.IGNORECASE)
_NEVER_ASKS = re.compile(r"STATIC_LIBRARY|^CUSTOM_COMMAND")
_OBJECTS = (".o", ".obj")
_ENOUGH = 8  # finished steps that are a rough guess for steps that never ran before
_ENOUGH_SHARE = 1 / 3  # of the steps that are left, in a small build

_LOOKS = 200  # files of a folder that are asked about for one overview, in less than a millisecond

Age = Callable[[str], float | None]  # when a file was changed; ``None`` if it does not exist
Size = Callable[[str], int]  # of a file; 0 if it does not exist


class Expected(NamedTuple):
    """How long a step is expected to take. Steps of one kind deviate by about the same factor."""

    seconds: float
    kind: str  # measured before, known of the project, or the role of a step of which nothing is


class _Folder:
    """What is known of a build folder in one run."""

    def __init__(self) -> None:
        self.paths: dict[str, float] = {}
        self.expected = {""}  # outputs of steps that will ask, and those that have surprised
        self.reading: _Reading | None = None  # the latest one; it may not have ended yet
        # Outputs that are left, their paths, and when they were changed before the graph was read.
        self.missing: deque[tuple[str, str, float | None]] = deque()


class Graphs:
    """The graphs of all build folders of all runs.

    ``durations`` are the seconds that steps took, by build folder and output. They come before
    those of ninja's log, which include the time that a step waited for its permit.
    """

    def __init__(self, durations: Mapping[str, Mapping[str, float]]) -> None:
        self._durations = durations
        self._folders: dict[tuple[int, str], _Folder] = {}  # by run and path
        self._left: list[tuple[int, dict[str, Expected]]] = []

    def path(self, run: int, folder: str, output: str, asker: int | None) -> float:
        """Return the seconds from the start of the step that makes ``output`` to the end of the
        build.

        The output of a custom command is not known (``""``). Many steps may need it, so it gets the
        longest path. ``asker`` is the process that asks; a ninja above it knows the targets. One
        build may run several ninjas in one folder, each with its own targets.
        """
        known = self._folders.setdefault((run, folder), _Folder())
        read = known.reading
        if read is None or output not in known.expected:
            known.expected.add(output)
            written = _Files(Path(folder)).age("build.ninja")
            if read is None or output in known.paths or written != read.written:
                reading = _Reading(written, find_ninja(asker) if asker else None)
                if reading != read:
                    known.reading = reading
                    seen = dict(self._durations.get(build_folder(folder), {}))
                    load = partial(self._load, run, folder, reading, seen)
                    Thread(target=load, daemon=True).start()
        return known.paths.get(output, 0.0)

    def forget(self, run: int) -> None:
        """Drop the graphs of a run that has ended."""
        for key in [key for key in self._folders if key[0] == run]:
            del self._folders[key]

    def news(self) -> Iterator[tuple[int, dict[str, Expected]]]:
        """Yield run and remaining steps of each folder that was read since the last call."""
        while self._left:
            yield self._left.pop()

    def made(self, run: int) -> Iterator[str]:
        """Yield outputs that were left and have been made since. A few files are looked at in each
        call, and all of them in turn.
        """
        for (number, _), known in self._folders.items():
            if number != run:
                continue
            missing = known.missing  # a graph that is read again brings another list
            for _ in range(min(_LOOKS, len(missing))):
                output, path, before = missing.popleft()
                if _is_made(path, before):
                    yield output
                else:
                    missing.append((output, path, before))

    def _load(self, run: int, folder: str, reading: "_Reading", seen: Mapping[str, float]) -> None:
        place = Path(folder)
        graph, durations = read_graph(place), {**read_durations(place), **seen}
        files = _Files(place)
        paths = longest_paths(graph.edges, durations, files.size)
        left = steps_left(graph, durations, reading.targets, files.age, files.size)
        known = self._folders.get((run, folder))
        if known and known.reading is reading:  # else the run has ended, or it is read again
            known.expected.update(left)
            known.paths = {"": max(paths.values(), default=0.0), **paths}
            known.missing = deque(
                (output, os.path.join(folder, output), files.age(output))  # noqa: PTH118
                for output in left
            )
            self._left.append((run, left))


class TimeLeft(NamedTuple):
    """Seconds until the end; ``at_least`` if steps run that should have ended."""

    seconds: float
    at_least: bool


class WorkLeft:
    """Tracks the steps that a run still has to make, and estimates how long they will take."""

    def __init__(self) -> None:
        self._began: float | None = None  # when the first step asked
        self._left: dict[str, Expected] = {}
        self._made: dict[str, Expected] = {}  # steps whose output is there, but which never ended
        # Of the steps that are left, by kind: summed up here, since a build may have 20,000.
        self._seconds_left: defaultdict[str, float] = defaultdict(float)
        self._steps_left: Counter[str] = Counter()
        self.is_known = False  # whether a graph has said which steps there are
        self._finished = 0
        self._worked = 0.0
        self._expected = defaultdict(float, _TRUST)  # seconds of the steps that have ended, by kind
        self._taken = defaultdict(float, _TRUST)

    def asked(self, now: float) -> None:
        if self._began is None:
            self._began = now

    def expect(self, steps: Mapping[str, Expected]) -> None:
        self._left.update(steps)
        self.is_known = self.is_known or bool(steps)
        self._seconds_left.clear()
        self._steps_left = Counter(each.kind for each in self._left.values())
        for each in self._left.values():
            self._seconds_left[each.kind] += each.seconds

    def made(self, outputs: Iterable[str]) -> None:
        """Take in outputs that are there: those of a cache, or of a step that will end soon."""
        for output in outputs:
            if expected := self._take(output):
                self._made[output] = expected

    def finished(self, output: str, seconds: float) -> None:
        self._finished += 1
        self._worked += seconds
        made = self._made.pop(output, None)
        if expected := self._take(output) or made:
            self._expected[expected.kind] += expected.seconds
            self._taken[expected.kind] += seconds

    def _take(self, output: str) -> Expected | None:
        if expected := self._left.pop(output, None):
            self._seconds_left[expected.kind] -= expected.seconds
            self._steps_left[expected.kind] -= 1
        return expected

    @property
    def found(self) -> int:
        """The steps that are done but never ran under the governor."""
        return len(self._made)

    @property
    def steps(self) -> int:
        return len(self._left)

    @property
    def work(self) -> float:
        """The seconds of all steps that are left, if they deviate from what is expected as the
        steps of their kind have done.
        """
        pace = {kind: self._taken[kind] / expected for kind, expected in self._expected.items()}
        return sum(
            max(0.0, self._seconds_left[kind]) * pace.get(kind, 1.0)
            for kind, count in self._steps_left.items()
            if count
        )

    def time(self, now: float, ages: Iterable[float]) -> TimeLeft | None:
        """Return the time until the end at the present parallelism; ``ages`` are those of the
        running steps.

        ``None`` if nothing can be said: before a few steps have ended, if most were never measured
        here or elsewhere, and when all that is left is running and should have ended.
        """
        elapsed = now - (self._began or 0.0)
        unknown = sum(count for kind, count in self._steps_left.items() if kind not in _TRUST)
        if not self._left or elapsed <= 0:
            return None
        if unknown > len(self._left) / 2 and self._finished < min(
            _ENOUGH, _ENOUGH_SHARE * len(self._left)
        ):
            return None
        ages, work = tuple(ages), self.work
        at_once = (self._worked + sum(ages)) / elapsed
        # Steps that take longer than expected do not shorten those that have not started.
        not_started = work * max(0, len(self._left) - len(ages)) / len(self._left)
        rest = max(work - sum(ages), not_started)
        if not at_once or not rest:
            return None
        return TimeLeft(rest / at_once, at_least=sum(ages) > work - not_started)


class _Files:
    """When the files of a folder were changed, and their sizes; each file is asked about once."""

    def __init__(self, folder: Path):
        self._folder = folder
        self._known: dict[str, os.stat_result | None] = {}

    def age(self, path: str) -> float | None:
        found = self._stat(path)
        return found.st_mtime if found else None

    def size(self, path: str) -> int:
        found = self._stat(path)
        return found.st_size if found else 0

    def _stat(self, path: str) -> os.stat_result | None:
        if path not in self._known:
            try:
                # pathlib takes five times as long, and a build may have 20,000 outputs
                self._known[path] = os.stat(os.path.join(self._folder, path))  # noqa: PTH116, PTH118
            except (OSError, ValueError):
                self._known[path] = None
        return self._known[path]


def _is_made(path: str, before: float | None) -> bool:
    """Return whether a file is there that was not, or has changed."""
    if before is None:  # a missing file is the usual case, in which os.stat makes an exception
        return "\0" not in path and os.access(path, os.F_OK)
    try:
        return os.stat(path).st_mtime != before  # noqa: PTH116 - as above
    except OSError:
        return False


class Ninja(NamedTuple):
    """A running ninja and the targets of its command line."""

    pid: int
    targets: tuple[str, ...]


class _Reading(NamedTuple):
    """What a graph was read from: when build.ninja was written, and the ninja that had asked."""

    written: float | None  # None: there was none
    ninja: Ninja | None

    @property
    def targets(self) -> tuple[str, ...]:
        return self.ninja.targets if self.ninja else ()


def find_ninja(pid: int) -> Ninja | None:
    """Return the ninja above a process; ``None`` if there is no ninja or no /proc."""
    while pid > 1:
        try:
            words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")[:-1]
            status = Path(f"/proc/{pid}/stat").read_text(errors="replace")
        except OSError:
            return None
        if words and words[0].rpartition(b"/")[2] == b"ninja":
            arguments = (word.decode(errors="surrogateescape") for word in words[1:])
            return Ninja(pid, tuple(_targets(arguments)))
        pid = int(status.rpartition(")")[2].split()[1])
    return None


def _targets(words: Iterable[str]) -> Iterator[str]:
    skip = False
    for word in words:
        if skip or word.startswith("-"):
            skip = not skip and word in _WITH_A_VALUE
        else:
            yield word


def longest_paths(
    edges: Sequence[Edge], durations: Mapping[str, float], size: Size = lambda _: 0
) -> dict[str, float]:
    """Return the critical-path seconds from the start of each output's step to the end. A compile
    that never ran counts with what such sources usually take.
    """

    def seconds(index: int) -> float:
        edge = edges[index]
        return 0.0 if edge.rule == "phony" else _expected(edge, durations, size).seconds

    maker = _makers(edges)
    longest = paths_left(_needs(edges, maker), seconds)
    return {output: longest.get(index, 0.0) for output, index in maker.items()}


def steps_left(
    graph: Graph,
    durations: Mapping[str, float],
    targets: Iterable[str],
    age: Age,
    size: Size = lambda _: 0,
) -> dict[str, Expected]:
    """Return the outputs of the steps that will ask, with the seconds they are expected to take."""
    edges, maker = graph.edges, _makers(graph.edges)
    needs = _needs(edges, maker)
    order = in_order(needs)
    wanted = tuple(targets) or graph.defaults or tuple(maker)
    needed = {maker[target] for target in wanted if target in maker}
    for index in reversed(order):
        if index in needed:
            needed |= needs[index]
    stale: set[str] = set()
    left: dict[str, Expected] = {}
    for edge in (edges[index] for index in order if index in needed):
        if _is_stale(edge, edges, maker, stale, age):
            stale.update(edge.outputs)
            asks = _ASKS.search(edge.rule) or compiled_role(edge) is not Role.OTHER
            if asks and not _NEVER_ASKS.search(edge.rule):  # the launcher runs its command
                left[edge.outputs[0]] = _expected(edge, durations, size)
    return left


def compiled_role(edge: Edge) -> Role:
    """Return what an edge compiles, whatever its rule is called."""
    makes_object = any(output.endswith(_OBJECTS) for output in edge.outputs)
    if not edge.needs or not (makes_object or _COMPILES.search(edge.rule)):
        return Role.OTHER
    return role_of_source(edge.needs[0])


def _makers(edges: Sequence[Edge]) -> dict[str, int]:
    """Return the index of the edge that makes each output."""
    return {output: index for index, edge in enumerate(edges) for output in edge.outputs}


def _needs(edges: Sequence[Edge], maker: Mapping[str, int]) -> dict[int, set[int]]:
    """Return for each edge the indexes of the edges that it needs or comes after."""
    return {
        index: {maker[n] for n in (*edge.needs, *edge.after) if n in maker}
        for index, edge in enumerate(edges)
    }


def _expected(edge: Edge, durations: Mapping[str, float], size: Size) -> Expected:
    if known := [durations[output] for output in edge.outputs if output in durations]:
        return Expected(max(known), _MEASURED)
    role = compiled_role(edge)
    if role is Role.OTHER:
        return Expected(_UNKNOWN, role)
    source = edge.needs[0]
    kind = _KNOWN if known_step(role, source) else role
    return Expected(usual_seconds(role, source, size(source)), kind)


def _is_stale(
    edge: Edge, edges: Sequence[Edge], maker: Mapping[str, int], stale: set[str], age: Age
) -> bool:
    if any(need in stale for need in edge.needs):
        return True
    if edge.rule == "phony":
        return False
    made = [age(output) for output in edge.outputs]
    files = (need for need in edge.needs if need not in maker or edges[maker[need]].rule != "phony")
    needed = [age(need) for need in files]
    oldest = min((time for time in made if time is not None), default=None)
    if oldest is None or None in made:
        return True
    return any(time is not None and time > oldest for time in needed)

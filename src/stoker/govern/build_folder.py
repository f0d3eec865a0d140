"""What a build folder tells about its steps: dependencies, included headers, and what they took."""

import hashlib
import os
import re
import stat
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from posixpath import join, normpath, splitext

from stoker.govern.command_line import build_folder
from stoker.govern.history import History
from stoker.model.errors import StorageError, UsageError
from stoker.model.govern import Role, Step, Timing
from stoker.model.runs import Includes, short_path
from stoker.outside.folders import work_folders
from stoker.source.ninja import Edge, read_discovered, read_durations

# -- dependencies ----------------------------------------------------------------------------------
# Which measured step needs which, from the build statements of ninja. Pure.
#
# Every file is named by its absolute path. Statements that were not measured, such as phony
# targets and stamps, take no time and pass their own needs on.


class Dependencies:
    """``edges``: the build statements of each build folder, by its absolute path.

    Statements that depend on each other in a circle, which ninja refuses, count as none.
    """

    def __init__(self, edges: Mapping[str, Iterable[Edge]]):
        self._maker: dict[str, str] = {}  # the first output of the statement that makes a file
        self._needs: dict[str, list[str]] = {}
        for folder, statements in edges.items():
            for edge in statements:
                self._add(folder, edge)
        for name, needs in self._needs.items():
            self._needs[name] = list({self._maker[n]: None for n in needs if n in self._maker})
        try:
            self._order = tuple(TopologicalSorter(self._needs).static_order())
        except CycleError:
            self._maker, self._needs, self._order = {}, {}, ()

    def __bool__(self) -> bool:
        return bool(self._order)

    def _add(self, folder: str, edge: Edge) -> None:
        first, *others = (normpath(join(folder, output)) for output in edge.outputs)
        self._needs[first] = [normpath(join(folder, n)) for n in (*edge.needs, *edge.after)]
        for output in (first, *others):
            self._maker[output] = first

    def longest_chain(self, seconds: Mapping[str, float]) -> tuple[str, ...]:
        """Return the outputs of the chain of dependent steps that takes longest, first step first.

        ``seconds`` has the measured duration of each output. Only measured outputs are returned.
        """
        names, durations = self._by_maker(seconds)
        total: dict[str, float] = {}
        before: dict[str, str | None] = {}
        for name in self._order:
            before[name] = max(self._needs.get(name, ()), key=total.__getitem__, default=None)
            last = before[name]
            total[name] = durations.get(name, 0.0) + (total[last] if last else 0.0)
        chain: list[str] = []
        step = max(total, key=total.__getitem__, default=None)
        while step is not None:
            if step in names:
                chain.append(names[step])
            step = before[step]
        return tuple(reversed(chain))

    def needs(self, measured: Iterable[str]) -> dict[str, frozenset[str]]:
        """Return the measured outputs that each measured output needs, directly or through
        statements that were not measured.
        """
        names, _ = self._by_maker(dict.fromkeys(measured, 0.0))
        passed_on: dict[str, frozenset[str]] = {}
        found: dict[str, frozenset[str]] = {}
        for name in self._order:
            needs = frozenset().union(*(passed_on[need] for need in self._needs.get(name, ())))
            passed_on[name] = frozenset((names[name],)) if name in names else needs
            if name in names:
                found[names[name]] = needs
        return found

    def _by_maker(self, seconds: Mapping[str, float]) -> tuple[dict[str, str], dict[str, float]]:
        """Return the measured output and its duration for each statement that has one."""
        names = {self._maker[name]: name for name in seconds if name in self._maker}
        return names, {maker: seconds[name] for maker, name in names.items()}


# -- includes --------------------------------------------------------------------------------------
# The files that the compilers of a run read: the source of each step and its headers.
#
# Compilers report them to the build tool: ninja keeps them in its log of dependencies, and make
# reads the files that `-MD` writes beside the objects. They are read at the end of a run, because
# ninja writes its log when a step ends. A step for which neither exists has no list.


_DIGEST = 8  # bytes: enough to notice a change
_COMBINE = (Role.LINK, Role.ARCHIVE)  # they read objects, which say nothing that sources do not
_LARGEST = 64 << 20  # bytes of a file that is read
_TIMEOUT_S = 10.0  # seconds: the end of the run waits
_PATH = re.compile(r"(?:\\[ #]|[^\s\\]|\\(?=[^\s]))+")
_ESCAPED = re.compile(r"\\([ #])|\$(\$)")


def read_includes(directory: str, steps: Iterable[Step], *, began: float) -> Includes:
    """Return what the steps of a run read, with a digest of each file as it is now.

    ``directory`` is that of the run, and ``began`` the time since the epoch when it began: older
    dependency files belong to another run.
    """
    lists = dict(_lists(directory, steps, began))
    files = dict.fromkeys(path for paths in lists.values() for path in paths)
    places = {path: place for place, path in enumerate(files)}
    deadline = time.monotonic() + _TIMEOUT_S
    return Includes(
        files=tuple(short_path(path, directory) for path in places),
        digests=tuple(_digest(path, deadline) for path in places),
        steps={
            short_path(output, directory): tuple(places[path] for path in paths)
            for output, paths in lists.items()
        },
    )


def _lists(directory: str, steps: Iterable[Step], began: float) -> Iterator[tuple[str, list[str]]]:
    """Yield the output of each step and the files that it read, as absolute paths."""
    by_folder: dict[str, set[str]] = defaultdict(set)
    for step in steps:
        if step.output and step.role not in _COMBINE:
            by_folder[normpath(join(directory, step.directory))].add(step.output)
    for folder, outputs in by_folder.items():
        known = read_discovered(Path(folder), outputs)
        for output in sorted(outputs):
            path = normpath(join(folder, output))
            found = known.get(output) or _from_file(path, began)
            if found:
                yield path, [normpath(join(folder, name)) for name in found]


def _from_file(output: str, began: float) -> list[str]:
    """Return the paths in the dependency file of an output; none if there is no fresh one."""
    for name in (f"{output}.d", f"{splitext(output)[0]}.d"):
        path = Path(name)
        try:
            fresh = path.stat().st_mtime >= began - 1  # of a coarse clock
            if fresh and _is_small_file(path):
                return parse_dependency_file(path.read_text(errors="surrogateescape"))
        except OSError:
            continue
    return []


def parse_dependency_file(text: str) -> list[str]:
    """Return the paths of the first rule: `-MP` adds a rule without paths for each header."""
    rule, _, _ = text.replace("\\\n", " ").lstrip().partition("\n")
    paths = _PATH.findall(rule.partition(": ")[2])
    return [_ESCAPED.sub(lambda found: found[1] or found[2], path) for path in paths]


def _digest(path: str, deadline: float) -> bytes:
    """Return a digest of a file; empty if it cannot be read, or not in time."""
    try:
        if time.monotonic() > deadline or not _is_small_file(Path(path)):
            return b""
        return hashlib.blake2b(Path(path).read_bytes(), digest_size=_DIGEST).digest()
    except (OSError, ValueError):
        return b""


def _is_small_file(path: Path) -> bool:
    status = path.stat()
    return stat.S_ISREG(status.st_mode) and status.st_size <= _LARGEST


# -- timings ---------------------------------------------------------------------------------------
# What the steps of a build folder took, and which folder is meant.


def find_build(place: Path) -> Path:
    """Return the build folder itself, or the one that was used last for a source tree."""
    if not place.is_dir():
        raise UsageError(f"there is no folder {place}")
    tree = place.resolve()
    candidates = [place.absolute(), tree / "build", *(f / "build" for f in work_folders(tree))]
    built = [folder for folder in candidates if (folder / "build.ninja").is_file()]
    if not built:
        raise UsageError(
            f"there is no build.ninja in {place}, and stoker has not built this tree",
            hints=[
                "name a folder that ninja builds in, or a tree that `stoker build` has built",
                f"`cmake -G Ninja -S {place} -B build` makes one for a CMake project",
            ],
        )
    if built[0] == candidates[0]:
        return built[0]
    return max(built, key=lambda folder: (folder / "build.ninja").stat().st_mtime)


def timings_of(folder: Path) -> dict[str, Timing]:
    """Return what the steps took, by output. The history comes before ninja's log, whose times
    include the time that a step waited for its permit.
    """
    found = {name: Timing(seconds=seconds) for name, seconds in read_durations(folder).items()}
    name = build_folder(str(folder))
    with suppress(StorageError), History() as history:
        for record in history.recent():
            if record.step.directory == name and record.step.output:
                timing = Timing(seconds=record.wall_s, peak=record.peak_bytes)
                found[_relative(record.step.output, folder)] = timing
    return found


def _relative(output: str, folder: Path) -> str:
    return os.path.relpath(output, folder) if output.startswith("/") else normpath(output)

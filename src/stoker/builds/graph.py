"""What the graph of a configured build says: its generated sources, the share of each job, and the
targets of its device compiles.

The same graph and the same figures always give the same shares. A split that differs between jobs
costs time only: the last job compiles what it does not find. The commands come from ninja itself,
which writes out every rule; ``stoker.plan.compiled`` judges them. A device compile inside a script,
as old FindCUDA and FindHIP write them, shows only when it runs: then the governor checks it.
"""

import hashlib
import os
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from graphlib import CycleError, TopologicalSorter
from heapq import heapify, heapreplace
from pathlib import Path
from typing import Any

import msgspec

from stoker.govern.command_line import compiler_words, step_of
from stoker.govern.graph import compiled_role
from stoker.knowledge.steps import prior_of, usual_seconds
from stoker.model.errors import StorageError, TargetsError, UsageError
from stoker.model.govern import Role, Step, Timing
from stoker.model.plan import PlannedTargets
from stoker.model.value import UNDECODABLE, Value, json_bytes, whole_number
from stoker.outside import process
from stoker.outside.files import sha256_of
from stoker.plan.compiled import DeviceCompile, device_compile, difference, unserved, where_from
from stoker.source.ninja import Edge

_GENERATES = "CUSTOM_COMMAND"
_BUILDS = ("_COMPILER__", "_LINKER__")
_SOURCES = (".c", ".cc", ".cpp", ".cxx", ".cu", ".h", ".hh", ".hpp", ".hxx", ".inc", ".inl")


# Files and folders that git, editors and Python keep in a tree.
_LEFT_OUT = (".git", "__pycache__")
_LEFT_OUT_ENDS = (".egg-info", ".pyc", ".swp", "~")
# Memory that usual runners have for each CPU: a step with more keeps others from running.
_MEMORY_PER_CPU = 4 * 1024**3
_MOST_DIGITS = 4
_UNKNOWN_PEAK = 1024**3  # bytes; of a step whose last duration is known, but not its memory
_DEVICE = re.compile(r"nvcc|hipcc|--offload-arch|\.cu\b|\.hip\b|-x ?cu|-x ?hip")
_TIMEOUT_S = 120.0
# Messages of CMake and of setup.py about the back end, not paths that contain such a word.
_TELLING = re.compile(
    r"^(?:--|\[)(?!.*written to:).*(?:back ?end|cuda|hip|rocm|gpu|sycl)|^\w+=[01]$", re.IGNORECASE
)
_MOST_LINES = 4


def generated_sources(edges: Sequence[Edge], target: str) -> tuple[str, ...]:
    """Return one output of each command that makes sources for ``target`` by scripts alone.

    A generator that must itself be compiled is left to the compile stage. A graph with a cycle has
    no answer; ninja reports it.
    """
    below = edges_below(edges, target)
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


def edges_below(edges: Sequence[Edge], target: str) -> dict[int, list[int]]:
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


# -- inputs ----------------------------------------------------------------------------------------
# Digests of the inputs of a stage.


def digest(value: Any) -> str:
    """Return the digest of a value that can be written as JSON."""
    return hashlib.sha256(json_bytes(value, "deterministic")).hexdigest()


def file_digest(path: Path) -> str:
    """Return the digest of a file's content, or an empty text if it cannot be read."""
    try:
        return sha256_of(path)
    except StorageError:
        return ""


def installed_files(build: Path) -> Iterator[Path]:
    """Yield the files that CMake's install step wrote, which may lie in the source tree."""
    for manifest in sorted(build.glob("install_manifest*.txt")):
        yield from map(Path, manifest.read_text(errors="surrogateescape").splitlines())


def tree_state(
    root: Path, *, names: tuple[str, ...] = ("",), without: Collection[Path] = ()
) -> str:
    """Return a digest of the paths, sizes and times of files whose names end with ``names``."""
    state = hashlib.sha256()
    for line in file_lines(root, names, {os.fspath(path) for path in without}):
        state.update(os.fsencode(line))
    return state.hexdigest()


def file_lines(
    root: Path, names: tuple[str, ...] = ("",), without: Collection[str] = ()
) -> Iterator[str]:
    """Yield a line for each file; a file that vanishes during the walk is left out."""
    for folder, subfolders, files in os.walk(root):
        subfolders[:] = sorted(
            name
            for name in subfolders
            if _counts(name) and os.path.join(folder, name) not in without  # noqa: PTH118
        )
        place = os.path.relpath(folder, root)
        for name in sorted(files):
            path = os.path.join(folder, name)  # noqa: PTH118
            if not _counts(name) or not name.endswith(names) or path in without:
                continue
            with suppress(FileNotFoundError):  # an editor or the build itself may delete it
                status = os.lstat(path)
                yield f"{place}/{name}\0{status.st_size}\0{status.st_mtime_ns}\0{status.st_mode}\n"


def _counts(name: str) -> bool:
    return name not in _LEFT_OUT and not name.endswith(_LEFT_OUT_ENDS)


# -- shards ----------------------------------------------------------------------------------------


class Shard(Value, frozen=True, kw_only=True):
    """One of several jobs that compile a build together; ``number`` counts from 1."""

    number: int
    of: int

    def __str__(self) -> str:
        return f"{self.number}/{self.of}"


class Piece(Value, frozen=True, kw_only=True):
    """A compile step that is to be assigned: what it makes, and what it costs a runner."""

    output: str
    cost: float


def parse_shard(text: str) -> Shard:
    """Return the shard that ``3/8`` names."""
    number, of = (whole_number(word, _MOST_DIGITS) for word in text.partition("/")[::2])
    if not number or not of or number > of:
        raise UsageError(f"--shard {text}: not a shard", hints=["--shard 3/8 is the third of 8"])
    return Shard(number=number, of=of)


def compile_pieces(
    edges: Sequence[Edge], wanted: Sequence[int], known: Mapping[str, Timing]
) -> tuple[Piece, ...]:
    """Return the compile steps among the wanted edges. ``known`` is what steps took, by output; a
    step that never ran counts with what such sources usually take.
    """
    return tuple(
        Piece(output=edges[index].outputs[0], cost=_cost(edges[index], known))
        for index in sorted(wanted)
        if compiled_role(edges[index]) is not Role.OTHER
    )


def _cost(edge: Edge, known: Mapping[str, Timing]) -> float:
    """Return the CPU seconds of a runner that a step takes, by its time and its memory."""
    if timing := known.get(edge.outputs[0]):
        return cost(timing.seconds, timing.peak or _UNKNOWN_PEAK)
    role, source = compiled_role(edge), edge.needs[0]
    return cost(usual_seconds(role, source), prior_of(Step(key="", role=role, source=source)).peak)


def cost(seconds: float, peak: float) -> float:
    return seconds * max(1.0, peak / _MEMORY_PER_CPU)


def split(pieces: Sequence[Piece], shards: int) -> tuple[tuple[str, ...], ...]:
    """Return the outputs of each shard. The most expensive step goes to the shard with the least
    work so far, then the next one: at most a third above the optimum (Graham 1969).
    """
    loads = [(0.0, number) for number in range(shards)]
    heapify(loads)
    shares: list[list[str]] = [[] for _ in range(shards)]
    for piece in sorted(pieces, key=lambda piece: (-piece.cost, piece.output)):
        load, number = loads[0]
        shares[number].append(piece.output)
        heapreplace(loads, (load + piece.cost, number))
    return tuple(map(tuple, shares))


# -- targets ---------------------------------------------------------------------------------------


class _Entry(Value, frozen=True, kw_only=True):
    directory: str
    command: str
    file: str


class NinjaCommands(Value, frozen=True, kw_only=True):
    """The device compiles of a build folder. ``hidden``: some are inside scripts."""

    compiles: tuple[DeviceCompile, ...] = ()
    others: int = 0  # commands that compile no device code
    hidden: bool = False


def ninja_commands(folder: Path, root: Path, env: Mapping[str, str]) -> NinjaCommands | None:
    """Return what ninja would run in a folder; None if it cannot say."""
    told = process.run(
        ["ninja", "-C", str(folder), "-t", "compdb"], timeout=_TIMEOUT_S, env=dict(env)
    )
    try:
        entries = msgspec.json.decode(told.stdout[told.stdout.index("[") :], type=list[_Entry])
    except UNDECODABLE:
        return None
    possible = [e for e in entries if _DEVICE.search(e.command) or _DEVICE.search(e.file)]
    found = [device_compile(_step(entry, root)) for entry in possible]
    compiles = tuple(compiled for compiled in found if compiled)
    hidden = any(".cmake" in entry.command for entry in possible)
    return NinjaCommands(compiles=compiles, others=len(entries) - len(compiles), hidden=hidden)


def _step(entry: _Entry, root: Path) -> Step:
    return step_of(compiler_words(entry.command), entry.directory, str(root))


def check_configured(planned: PlannedTargets, found: NinjaCommands, log: str) -> None:
    """Raise TargetsError if the commands differ from the plan, before any of them runs."""
    for compiled in found.compiles:
        if differs := difference(planned, compiled):
            flags = f" ({' '.join(compiled.flags)})" if compiled.flags else ""
            raise TargetsError(f"{compiled.source}: {differs}{flags}", hints=where_from(planned))
    if found.compiles:
        if missing := unserved(planned, found.compiles):
            raise TargetsError(
                f"no command compiles for {', '.join(missing)}, which the plan states",
                hints=where_from(planned),
            )
    elif planned.compiles and not found.hidden:
        raise configured_without(planned, log, f"none of {found.others} commands")


def configured_without(planned: PlannedTargets, log: str, what: str) -> TargetsError:
    """Return the error of a build that would compile no device code, with what its log says."""
    lines = [line.strip() for line in log.splitlines() if _TELLING.search(line)]
    said = [f"the build says: {line}" for line in dict.fromkeys(lines)][:_MOST_LINES]
    return TargetsError(
        f"configured without {planned.backend}: {what} compiles device code",
        hints=[*said, *where_from(planned)],
    )


def compiled_below(folder: Path, root: Path, env: Mapping[str, str]) -> tuple[DeviceCompile, ...]:
    """Return the device compiles of every build.ninja below a folder."""
    graphs: Iterable[Path] = sorted(folder.rglob("build.ninja"))[:20]
    listed: Sequence[NinjaCommands | None] = [
        ninja_commands(graph.parent, root, env) for graph in graphs
    ]
    return tuple(compiled for each in listed if each for compiled in each.compiles)

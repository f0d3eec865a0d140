"""Finds the sources that the build tool generates before it compiles. Pure."""

import hashlib
import os
from collections.abc import Collection, Iterator, Sequence
from contextlib import suppress
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from typing import Any

import msgspec

from stoker.model.errors import StorageError
from stoker.outside.files import sha256_of
from stoker.source.ninja import Edge

_GENERATES = "CUSTOM_COMMAND"
_BUILDS = ("_COMPILER__", "_LINKER__")
_SOURCES = (".c", ".cc", ".cpp", ".cxx", ".cu", ".h", ".hh", ".hpp", ".hxx", ".inc", ".inl")


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


# Files and folders that git, editors and Python keep in a tree.
_LEFT_OUT = (".git", "__pycache__")
_LEFT_OUT_ENDS = (".egg-info", ".pyc", ".swp", "~")


def digest(value: Any) -> str:
    """Return the digest of a value that can be written as JSON."""
    return hashlib.sha256(msgspec.json.encode(value, order="deterministic")).hexdigest()


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

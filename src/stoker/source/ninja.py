"""Finds a build folder, and reads ninja's own files in it: build statements, and what targets need.

Reads build.ninja, .ninja_log, .ninja_deps and what `ninja -t compdb` prints. Rules are not read,
nor variables of a single edge: CMake and torch's cpp_extension write paths out, or behind a
variable of the whole file.
"""

import re
import struct
from collections.abc import Mapping, Sequence
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import msgspec

from stoker.model.errors import UsageError
from stoker.model.value import Value, prepared, whole_number
from stoker.outside.folders import work_folders

# A path as it stands in a build line: a dollar sign escapes the character after it.
_PATH = re.compile(r"(?:[^\s:|$]|\$[\s:|$]|\$\{?\w+\}?)+")
_ESCAPED = re.compile(r"\$(.)")
_VARIABLE = re.compile(r"^(\w+) = (.*)$", re.MULTILINE)
_SET = re.compile(r"(?<!\$)\$\{(\w+)\}")
_INCLUDE = re.compile(r"^include (.*)$", re.MULTILINE)
_MOST_FILES = 4096  # that one build.ninja may include
_LOG_FIELDS = 5
_DEPS_START = re.compile(rb"# ninjadeps\n[\x03\x04]\0\0\0")  # with its version
_DEPS_HEADER = 3  # numbers before the files of a record: the output, and its time in two parts
_LARGEST, _LARGEST_PER_BYTE = 16 << 20, 8  # characters that variables may add
_GENERATES = "CUSTOM_COMMAND"
_BUILDS = ("_COMPILER__", "_LINKER__")
_SOURCES = (".c", ".cc", ".cpp", ".cxx", ".cu", ".h", ".hh", ".hpp", ".hxx", ".inc", ".inl")


class CompileCommand(Value, frozen=True, kw_only=True):
    """An entry of a compilation database, which has the command as a text or as words."""

    directory: str
    file: str = ""
    command: str = ""
    arguments: tuple[str, ...] = ()


def compile_commands(text: str) -> tuple[CompileCommand, ...]:
    """Return the entries of a compilation database, such as the one that `ninja -t compdb` prints
    after its warnings. Raise one of the ``UNDECODABLE`` errors if there is none.
    """
    return msgspec.json.decode(text[text.index("[") :], type=prepared(tuple[CompileCommand, ...]))


class Edge(Value, frozen=True, kw_only=True):
    """One build statement. A change of its ``needs`` makes it run again; its ``after`` files only
    have to exist first.
    """

    outputs: tuple[str, ...]
    rule: str
    needs: tuple[str, ...]
    after: tuple[str, ...] = ()


class Graph(Value, frozen=True, kw_only=True):
    """The build statements of a folder. ``defaults`` are the targets of a call without targets;
    empty means all.
    """

    edges: tuple[Edge, ...] = ()
    defaults: tuple[str, ...] = ()


def read_graph(folder: Path) -> Graph:
    """Return the graph, with the files that build.ninja includes; empty if it cannot be read."""
    reader = _GraphReader(folder)
    reader.read("build.ninja", {})
    return Graph(edges=tuple(reader.edges), defaults=tuple(reader.defaults))


class _GraphReader:
    """Collects the statements of a ninja file and of those that it includes, each file once."""

    def __init__(self, folder: Path):
        self._folder = folder
        self._seen: set[str] = set()
        self._room = _LARGEST  # characters that variables may still add
        self.edges: list[Edge] = []
        self.defaults: list[str] = []

    def read(self, name: str, outer: Mapping[str, str]) -> None:
        """Read a file, in which the variables of ``outer`` are known as well."""
        text = self._text(name)
        variables = {**outer, **dict(_VARIABLE.findall(text))}
        for line in self._expanded(text, variables).splitlines():
            if line.startswith("build "):
                self.edges += filter(None, [_edge(line[6:])])
            elif line.startswith("default "):
                self.defaults += _paths(line[8:], 0)[0]
            elif line.startswith("subninja "):
                self.read(_paths(line[9:], 0)[0][0], variables)

    def _text(self, name: str) -> str:
        """Return the content of a file with its includes in their places, which have its scope."""
        if name in self._seen or len(self._seen) >= _MOST_FILES:
            return ""
        self._seen.add(name)
        try:
            text = (self._folder / name).read_text(encoding="utf-8", errors="surrogateescape")
        except (OSError, ValueError):
            return ""
        self._room += _LARGEST_PER_BYTE * len(text)
        text = text.replace("$\n", " ")
        return _INCLUDE.sub(lambda found: self._text(_paths(found[1], 0)[0][0]), text)

    def _expanded(self, text: str, variables: Mapping[str, str]) -> str:
        """Return the text with variables replaced; empty if the result would fill the memory."""
        self._room -= sum(len(variables.get(name, "")) for name in _SET.findall(text))
        if self._room <= 0:
            return ""
        return _SET.sub(lambda found: variables.get(found[1], ""), text)


def read_edges(folder: Path) -> tuple[Edge, ...]:
    return read_graph(folder).edges


def _edge(statement: str) -> Edge | None:
    outputs, position = _paths(statement, 0)
    if statement[position : position + 1] != ":":
        return None
    inputs, _, after = statement[position + 1 :].partition("||")
    rule, *needs = _paths(inputs, 0)[0]
    return Edge(
        outputs=tuple(outputs),
        rule=rule,
        needs=tuple(needs),
        after=tuple(_paths(after, 0)[0]) if after.strip() else (),
    )


def _paths(statement: str, position: int) -> tuple[list[str], int]:
    """Return the paths up to the colon or the end; ``|`` only separates kinds of paths."""
    found: list[str] = []
    while position < len(statement) and statement[position] != ":":
        if path := _PATH.match(statement, position):
            found.append(_ESCAPED.sub(r"\1", path[0]))
            position = path.end()
        else:
            position += 1
    return found or [""], position


def read_durations(folder: Path) -> dict[str, float]:
    """Return the seconds that each output took when it was last built."""
    try:
        text = (folder / ".ninja_log").read_text(encoding="utf-8", errors="surrogateescape")
    except OSError:
        return {}
    durations: dict[str, float] = {}
    for line in text.splitlines():
        fields = line.split("\t")
        if len(fields) == _LOG_FIELDS:
            start, end = whole_number(fields[0]), whole_number(fields[1])
            if start is not None and end is not None:
                durations[fields[3]] = max(0, end - start) / 1000
    return durations


def read_discovered(folder: Path) -> dict[str, tuple[str, ...]]:
    """Return the files that compilers reported to have read, by output: mostly headers.

    ``ninja -t deps`` prints the same, but writes to the folder. A record that a killed ninja left
    incomplete ends the list, as it does for ninja.
    """
    try:
        content = (folder / ".ninja_deps").read_bytes()
    except OSError:
        return {}
    start = _DEPS_START.match(content)
    paths: list[str] = []
    found: dict[int, tuple[int, ...]] = {}
    position = start.end() if start else len(content)
    while position + 4 <= len(content):
        (size,) = struct.unpack_from("<I", content, position)
        record = content[position + 4 : position + 4 + (size & 0x7FFFFFFF)]
        position += 4 + (size & 0x7FFFFFFF)
        if position > len(content) or len(record) % 4 or len(record) < 4:
            break
        if size >> 31:
            numbers = struct.unpack(f"<{len(record) // 4}I", record)
            found[numbers[0]] = numbers[_DEPS_HEADER:]
        else:  # a path, filled up with zeros, and a check of its number
            name = record[:-4].rstrip(b"\0")
            paths.append(name.decode(errors="surrogateescape"))
    known = len(paths)
    return {
        paths[output]: tuple(paths[n] for n in numbers if n < known)
        for output, numbers in found.items()
        if output < known
    }


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

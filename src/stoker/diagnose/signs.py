"""The values of the parameters in fixes: facts about the machine, and the command that failed.

docs/how-to/add-a-cause.md lists the names. Pure: the machine and the log are handed in.
"""

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from itertools import islice

from stoker.diagnose.steps import Steps
from stoker.diagnose.values import Line, paragraphs
from stoker.knowledge.failures import Failure, Sign, any_of, failures, literals
from stoker.knowledge.hardware import cuda_releases
from stoker.model.machine import CudaToolkit, Machine, Toolbox
from stoker.model.value import Value

_MEMORY_OF_A_JOB = 4 * 1024**3  # enough for most compiles of PyTorch and its extensions


# What a log shows of the command that was run, most specific first, and that command.
_COMMANDS = (
    (
        re.compile(
            r"(?:Failed building wheel for|Failed to build) `?(?P<package>[A-Za-z0-9][\w.-]{0,60})"
        ),
        "pip install --no-build-isolation -v {package}",
    ),
    (re.compile(r"\bpip3? (?:install|wheel) "), "pip install --no-build-isolation -v ."),
    (re.compile(r"\bsetup\.py (?:bdist_wheel|develop|install)\b"), "python setup.py bdist_wheel"),
    (re.compile(r"^ninja: (?:build stopped|fatal|error)"), "ninja -C build"),
    (re.compile(r"^(?:g|mingw32-)?make(?:\[\d+\])?: \*\*\* "), "make"),
    (re.compile(r"-- Configuring incomplete"), "cmake -B build"),
)


def command_in(lines: Iterable[Line]) -> dict[str, str]:
    """Return the parameter ``command`` if the log shows how the build was started."""
    best = len(_COMMANDS)
    found: dict[str, str] = {}
    for line in lines:
        for rank, (pattern, command) in enumerate(_COMMANDS[:best]):
            if match := pattern.search(line.text):
                best, found = rank, {"command": command.format(**match.groupdict())}
                break
    return found


def parameters(machine: Machine, toolbox: Toolbox, command: str) -> Mapping[str, str]:
    return dict(_known(machine, toolbox, command))


def _known(machine: Machine, toolbox: Toolbox, command: str) -> Iterator[tuple[str, str]]:
    if command:
        yield "command", command
    jobs = machine.memory.limit.limit // _MEMORY_OF_A_JOB
    yield "jobs", str(max(1, min(machine.cpu.usable, jobs)))
    disks = [disk for disk in machine.disks if not disk.in_memory]
    if disks:
        yield "folder", f"{max(disks, key=lambda disk: disk.free).path.rstrip('/')}/stoker-tmp"
    for toolkit in toolbox.cuda[:1]:
        yield from _of_toolkit(toolkit, machine)


def _of_toolkit(toolkit: CudaToolkit, machine: Machine) -> Iterator[tuple[str, str]]:
    yield "cuda_home", toolkit.home
    if release := cuda_releases().get(toolkit.version or ""):
        yield "gcc", str(release.gcc_max)
    present = sorted({gpu.capability for gpu in machine.gpus if gpu.capability})
    if archs := [arch for arch in present if arch in toolkit.archs] or toolkit.archs[-1:]:
        yield "arch_list", ";".join(archs)


# -- signs -----------------------------------------------------------------------------------------
# Finds the signs of causes in a log. It does not rank them.


_MOST_HITS = 1000  # of one sign that are looked into
_MOST_PARAGRAPHS = 1000  # of CMake's messages: each is put together many times
_Hits = Mapping[str, Mapping[int, re.Match[str]]]  # by pattern, then by line

# A message continues in the next line: clang does so after `error:`, CMake and nvcc near column 78.
_WRAPS = range(55, 86)  # characters of a line that may have been wrapped
_CONTINUES = re.compile(r"\s{1,24}(?!\d{1,6} \|)[\w'\"`(/<]").match  # and quotes no source


class Match(Value, frozen=True, kw_only=True):
    """A sign that was found: where, with which other lines, and the groups of its match."""

    cause: Failure
    sign: Sign
    line: int
    with_lines: tuple[int, ...]
    groups: dict[str, str]


def find_matches(lines: Sequence[Line], steps: Steps) -> list[Match]:
    """Yield every place where a sign has all that it requires."""
    hits = _hits(lines)
    anywhere = _Anywhere(lines)
    return [
        match
        for cause in failures().values()
        for sign in cause.sign
        if hits.get(sign.match) and _is_possible(sign, anywhere)
        for line, found in hits[sign.match].items()
        if (match := _match(cause, sign, line, found, lines, steps, anywhere))
    ]


class _Anywhere:
    """The first place of a pattern in the whole log, searched once."""

    def __init__(self, lines: Sequence[Line]):
        self._lines = lines
        self._found: dict[str, int | None] = {}

    def first(self, pattern: str) -> int | None:
        if pattern not in self._found:
            self._found[pattern] = _first(pattern, self._lines, range(len(self._lines)))
        return self._found[pattern]

    def has(self, pattern: str) -> bool:
        return self.first(pattern) is not None


def _hits(lines: Sequence[Line]) -> _Hits:
    """Yield what each sign's pattern finds; a pattern is tried only where one of its literals
    occurs.
    """
    literal, patterns = _table()
    hits: dict[str, dict[int, re.Match[str]]] = defaultdict(dict)
    for index, text, end in _texts(lines):
        candidates = {one for there in literal.finditer(text) for one in patterns[there[1]]}
        for pattern in candidates:
            here = hits[pattern.pattern]
            found = pattern.search(text) if len(here) < _MOST_HITS else None
            if found and found.start() <= end:
                here.setdefault(index, found)
    return hits


def _texts(lines: Sequence[Line]) -> Iterator[tuple[int, str, int]]:
    """Yield every line, and again with the next lines if a tool wrapped its message."""
    for index, line in enumerate(lines):
        yield index, line.text, len(line.text)
        if _may_wrap(line.text) and index + 1 < len(lines):
            rest = lines[index + 1].text
            if _CONTINUES(rest):
                yield index, f"{line.text} {rest.lstrip()}", len(line.text)
    for paragraph in islice(paragraphs(lines), _MOST_PARAGRAPHS):
        for begin in paragraph[:-1]:
            whole = " ".join(lines[i].text.strip() for i in range(begin, paragraph.stop))
            yield begin, whole, len(lines[begin].text.strip())


def _may_wrap(text: str) -> bool:
    return text.endswith("error:") or (len(text) in _WRAPS and text[-1] not in ".:;)]}>|^~")


@cache
def _table() -> tuple[re.Pattern[str], Mapping[str, frozenset[re.Pattern[str]]]]:
    """Return a pattern that finds the longest literal at a place, and the signs that use it or a
    prefix of it.
    """
    owners: dict[str, set[re.Pattern[str]]] = defaultdict(set)
    for cause in failures().values():
        for sign in cause.sign:
            for literal in literals(sign.match):
                owners[literal].add(re.compile(sign.match))
    patterns = {
        literal: frozenset(
            pattern for word in owners if literal.startswith(word) for pattern in owners[word]
        )
        for literal in owners
    }
    return re.compile(f"(?=({any_of(owners)}))"), patterns


def _is_possible(sign: Sign, anywhere: _Anywhere) -> bool:
    if sign.project and not anywhere.has(re.escape(sign.project)):
        return False
    return all(map(anywhere.has, sign.anywhere)) and not any(map(anywhere.has, sign.excludes))


def _match(
    cause: Failure,
    sign: Sign,
    line: int,
    found: re.Match[str],
    lines: Sequence[Line],
    steps: Steps,
    anywhere: _Anywhere,
) -> Match | None:
    beside = [_first(pattern, lines, steps.near(line)) for pattern in sign.needs]
    beside += [anywhere.first(pattern) for pattern in sign.anywhere]
    if None in beside:
        return None
    if found.end() > len(lines[line].text):
        beside.insert(0, line + 1)
    return Match(
        cause=cause,
        sign=sign,
        line=line,
        with_lines=tuple(index for index in beside if index is not None),
        groups={name: text for name, text in found.groupdict().items() if text},
    )


def _first(pattern: str, lines: Sequence[Line], where: range) -> int | None:
    search = re.compile(pattern).search
    return next((index for index in where if search(lines[index].text)), None)

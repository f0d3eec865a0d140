"""Reads what a build left in the room: commands, variables, options and its own words. Pure."""

import re
from collections.abc import Callable, Iterable, Iterator

import msgspec
from msgspec.structs import replace

from stoker.ask.room import Left, Question
from stoker.ask.values import Asked, AskedOption, AskedVariable, AskedWord, Walls
from stoker.govern.command_line import compiler_words, step_of
from stoker.knowledge.steps import known_step
from stoker.model.govern import Role, Step
from stoker.model.secrets import hide, redact
from stoker.model.value import UNDECODABLE, Value, prepared
from stoker.model.variant import Backend, GpuTarget
from stoker.plan.compiled import device_compile, kernels
from stoker.plan.tree_recipe import names_targets
from stoker.source.ninja import compile_commands

_HOST = (Role.C, Role.CXX, Role.FORTRAN)
_FOR_A_CPU = re.compile(r"-m(?:arch|cpu)=.*|-xHost|-mavx\S*|-mf16c|-mfma|-mbmi2")
_ENTRY = re.compile(r"^(?P<name>[^\s:#/=][^:=]*):(?P<type>[A-Z]+)=(?P<value>.*)$")
_UNUSED = re.compile(
    r"Manually-specified variables were not used by the project:\n\n(?P<names>(?:    \S+\n)+)"
)
_NO_CHOICE = ("INTERNAL", "STATIC", "FILEPATH", "PATH", "UNINITIALIZED")
_OF_CMAKE = ("CMAKE_", "FETCHCONTENT_", "CPACK_", "CTEST_")
_LINKER_FLAGS = re.compile(r"_LINKER_FLAGS|_FLAGS_(?:DEBUG|RELEASE|MINSIZEREL|RELWITHDEBINFO)$")
_ONLY_NVCC = re.compile(r"-arch=(?:sm|compute)_\d|-gencode|--generate-code")
_EXCEPTION = re.compile(r"(?:\w+\.)*\w+(?:Error|Exception|Exit)\b(?!\()|error: ")
_OFFLINE = re.compile(
    r"(?:could not|couldn't|unable to|failed to|failed:) (?:clone|download|resolve|fetch|access)"
    r"|build step for \S+ failed"
    r"|error: downloading|name resolution|name or service not known|network is unreachable"
    r"|urlopen error|connection (?:refused|error|timed out)|max retries exceeded",
    re.IGNORECASE,
)
_LIBRARIES = ("torch/utils/", "scikit_build_core/", "skbuild/")
_MOST_WORDS = 1200  # characters of a refusal
_MOST_HELP = 200  # of the help text of an option


class _Note(Value, frozen=True, kw_only=True):
    note: str
    name: str = ""
    where: str = ""
    value: str | None = None
    default: str | None = None
    words: tuple[str, ...] = ()
    folder: str = ""
    by: str = ""


def answer(
    question: Question,
    left: Left,
    variant: str,
    walls: Walls,
    with_torch: Callable[[Step], bool] = lambda _: False,
) -> Asked:
    """Return what the build said. ``with_torch`` tells whether the source of a compile includes all
    of PyTorch's headers.
    """
    notes = list(_notes(left.notes))
    tree = question.tree
    steps = list(_steps(notes, left, tree))
    compiled = [(step, device_compile(step)) for step in steps]
    device = [found for _, found in compiled if found]
    host = [step for step, found in compiled if step.role in _HOST and not found]
    measured = [(step, known_step(step.role, step.source)) for step, found in compiled if found]
    known = [row for _, row in measured if row]
    failed = left.status != 0 and not left.ended_for
    said = _last_words(left.output) if failed else ""
    offline = walls is Walls.CLOSED and not steps and bool(_OFFLINE.search(said))
    return Asked(
        variant=variant,
        way=question.words[0],
        walls=walls,
        wall_s=round(left.seconds, 2),
        backend=device[0].backend if device else Backend.CPU,
        cubins=ordered(arch for found in device for arch in found.cubins),
        ptx=ordered(arch for found in device for arch in found.ptx),
        kernels=kernels(steps),
        compiles=tuple({found.flags: found for found in reversed(device)}.values())[::-1],
        device_compiles=len(device),
        host_compiles=len(host),
        device_with_torch=sum(with_torch(step) for step, row in measured if not row),
        host_with_torch=sum(map(with_torch, host)),
        known_kernels=len(known),
        known_kernels_s=sum(row.seconds for row in known),
        longest_known_s=max((row.seconds for row in known), default=0.0),
        one_at_a_time=_is_serial(notes, left),
        cpu_flags=tuple(sorted({f for s in host for f in s.flags if _FOR_A_CPU.fullmatch(f)})),
        variables=_variables(notes),
        words=_words(notes, "word"),
        looks_at_gpu=_words(notes, "gpu"),
        options=tuple(_options(left.files)),
        unused=tuple(_unused(left.output)),
        skipped=tuple(dict.fromkeys(redact(" ".join(n.words)) for n in _of(notes, "skipped"))),
        refusal="" if steps or offline else said,
        offline=said if offline else "",
        stopped=said if steps else "",
        ended_for=left.ended_for,
        pretended=_pretended(question),
    )


def _notes(text: str) -> Iterator[_Note]:
    for line in text.splitlines():
        try:
            yield msgspec.json.decode(line, type=prepared(_Note))
        except UNDECODABLE:
            continue  # a line that was cut off when the room ended


def _of(notes: Iterable[_Note], kind: str) -> Iterator[_Note]:
    return (note for note in notes if note.note == kind)


def _steps(notes: list[_Note], left: Left, tree: str) -> Iterator[Step]:
    """Yield each compile once: those that were started, and those that CMake or ninja list."""
    seen: set[tuple[str, str]] = set()
    # Two extensions of setuptools may compile a source differently into the same object.
    for words, folder in dict.fromkeys(_started(notes)):
        step = _compile(words, folder, tree)
        if step:
            seen.add((step.source, step.output))
            yield step
    for words, folder in _listed(left.files):
        step = _compile(words, folder, tree)
        if step and (step.source, step.output) not in seen:
            seen.add((step.source, step.output))
            yield step


def _compile(words: tuple[str, ...], folder: str, tree: str) -> Step | None:
    step = _by_nvcc(step_of(words, folder, tree))
    return None if step.role in (Role.OTHER, Role.LINK, Role.ARCHIVE) else step


def _is_serial(notes: list[_Note], left: Left) -> bool:
    """Tell whether a Python started all compilers. That of setuptools waits for each."""
    by = {note.by for note in _of(notes, "compile")}
    return (
        bool(by) and all(name.startswith("python") for name in by) and not any(_listed(left.files))
    )


def _by_nvcc(step: Step) -> Step:
    """Return the step as nvcc does it, if a launcher hides nvcc: only nvcc takes its flags."""
    if step.role is Role.CXX and any(map(_ONLY_NVCC.match, step.flags)):
        return replace(step, role=Role.CUDA, compiler="nvcc", flags=(*step.flags, "-xcu"))
    return step


def _started(notes: list[_Note]) -> Iterator[tuple[tuple[str, ...], str]]:
    return ((note.words, note.folder) for note in _of(notes, "compile"))


def _listed(files: dict[str, str]) -> Iterator[tuple[tuple[str, ...], str]]:
    """Yield the commands of ninja, or else those of CMake, for each build folder."""
    folders: dict[str, str] = {}
    for path in sorted(files):  # compdb.json comes after compile_commands.json, and wins
        folder, _, name = path.rpartition("/")
        if name in ("compile_commands.json", "compdb.json") and files[path].strip():
            text = files[path]
            # Without a generator that lists everything, the commands of CMake are enough.
            if name == "compile_commands.json" or "[" in text:
                folders[folder] = text
    for text in folders.values():
        try:
            entries = compile_commands(text)
        except UNDECODABLE:
            continue
        for entry in entries:
            yield entry.arguments or compiler_words(entry.command), entry.directory


def ordered(archs: Iterable[str]) -> tuple[str, ...]:
    """Return each target once, the oldest first."""
    return tuple(sorted(set(archs), key=lambda arch: GpuTarget(arch=arch).sort_key))


def _variables(notes: list[_Note]) -> tuple[AskedVariable, ...]:
    """Return each variable once, with the first place that reads it."""
    found: dict[str, AskedVariable] = {}
    for note in _of(notes, "variable"):
        of_library = note.where.startswith(_LIBRARIES)
        if of_library and note.value is None and not names_targets(note.name):
            continue
        value = None if note.value is None else hide(note.name, note.value)
        found.setdefault(
            note.name,
            AskedVariable(name=note.name, where=note.where, value=value, default=note.default),
        )
    return tuple(found[name] for name in sorted(found))


def _words(notes: list[_Note], kind: str) -> tuple[AskedWord, ...]:
    found = {note.name: AskedWord(name=note.name, where=note.where) for note in _of(notes, kind)}
    return tuple(found[name] for name in sorted(found))


def _options(files: dict[str, str]) -> Iterator[AskedOption]:
    """Yield the entries of CMake's caches that a user can choose."""
    for path in sorted(files):
        if not path.endswith("/CMakeCache.txt"):
            continue
        entries: dict[str, tuple[str, str, str]] = {}
        choices: dict[str, tuple[str, ...]] = {}
        about = ""
        for line in files[path].splitlines():
            if line.startswith("//"):
                about = f"{about} {line[2:].strip()}".strip()[:_MOST_HELP]
            elif found := _ENTRY.match(line):
                name, kind, value = found["name"], found["type"], found["value"]
                if name.endswith("-STRINGS"):
                    choices[name.removesuffix("-STRINGS")] = tuple(value.split(";"))
                entries[name] = kind, value, about
                about = ""
            else:
                about = ""
        for name, (kind, value, text) in entries.items():
            if kind in _NO_CHOICE or name.startswith(_OF_CMAKE) or _LINKER_FLAGS.search(name):
                continue
            yield AskedOption(
                name=name, value=value, type=kind, help=text, choices=choices.get(name, ())
            )


def _unused(output: str) -> Iterator[str]:
    for block in _UNUSED.finditer(output):
        yield from block["names"].split()


def _last_words(output: str) -> str:
    """Return the project's own words about why it ends: the first error of CMake, or the last
    exception of Python.
    """
    text = output.strip()
    if found := re.search(r"^CMake Error", text, re.MULTILINE):
        return _shortened(text[found.start() :].split("\n\n\n")[0])
    lines = text.splitlines()
    ends = [number for number, line in enumerate(lines) if _EXCEPTION.match(line)]
    return _shortened("\n".join(lines[ends[-1] :] if ends else lines[-3:]))


def _shortened(text: str) -> str:
    # The text may be anything, so that no pattern may see all of it.
    lines = (line.rstrip() for line in text[: 4 * _MOST_WORDS].split("\n"))
    text = redact("\n".join(lines).strip())
    return text if len(text) <= _MOST_WORDS else text[:_MOST_WORDS] + " ..."


def _pretended(question: Question) -> str:
    shown = question.pretended or {}
    if not shown.get("cuda"):
        return "a machine without a GPU"
    gpu = shown["name"] if shown.get("visible") else "no GPU"
    return f"{gpu}, PyTorch with CUDA {shown['cuda']}"

"""Checks the CPU level of a wheel, by compilers' notes in its libraries and by the code itself.

objdump disassembles a small library completely, a large one in evenly spaced samples, until the
time limit. Functions may use more instructions if their name or that of their source file says that
they are for certain CPUs. A symbol table names source files for local functions only.
"""

import platform
import re
import shutil
import tempfile
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import NamedTuple

from stoker.knowledge.cpus import InstructionSet, beyond, cpu_family, names_a_cpu, operand_pattern
from stoker.model.artifact import ElfKind, LibraryFacts
from stoker.model.errors import ArtifactError
from stoker.model.finding import Finding, error, note, warning
from stoker.model.value import cut_off, first_of, size
from stoker.outside import process
from stoker.wheel.elf.elf import SYMBOL_TABLE, Elf, Table
from stoker.wheel.elf.tables import symbol_tables
from stoker.wheel.reader import open_file
from stoker.wheel.verify.tested import CodeSample, Use, WheelUnderTest
from stoker.wheel.zip import Wheel

_FILE, _FUNCTION_TYPE = 4, 2  # types of symbols

_TIMEOUT_S = 60.0
_STRETCH = 256 << 10  # bytes of code that objdump is asked for at a time
_MOST_STRETCHES = 12  # of one library
_MOST_USES = 50  # reported for one library
_EXECUTABLE = 4  # flag of a section

_FUNCTION = re.compile(r"^([0-9a-f]+) <(.+)>:$")
_OPTIONS = ("--disassemble", "--no-show-raw-insn")
_MIDDLE = re.compile(r"\+0x[0-9a-f]+$")  # after a name: the sample starts inside a function

_LONGEST = 90  # of a function's name in a finding


class LocalFunctions:
    """Source files and names of functions, by address."""

    def __init__(self, found: Mapping[int, tuple[str, str]]):
        self._found = found
        self._counts = Counter(found.values())

    def file(self, address: int) -> str:
        return self._found.get(address, ("", ""))[0]

    def has_copies(self, address: int) -> bool:
        """Return whether the same function of the same file exists more than once."""
        return address in self._found and self._counts[self._found[address]] > 1


def read_local_functions(file: Elf) -> LocalFunctions:
    """Return none for a file without symbols, of 32 bits, or with malformed symbols."""
    found = {}
    with suppress(ArtifactError):
        for table, rows in symbol_tables(file, SYMBOL_TABLE) if file.is_64_bit else ():
            if table.link >= len(file.sections):
                continue
            names, source = file.sections[table.link], ""
            content = file.reader.read(names.offset, names.file_size)
            strings = Table(file.reader, "<", names.offset, content)
            for row in islice(rows, table.info):  # local symbols come first
                if row.type == _FILE:
                    source = strings.string(row.name)
                elif row.type == _FUNCTION_TYPE and source:
                    found[row.address] = (source, strings.string(row.name))
    return LocalFunctions(found)


class _Stretch(NamedTuple):
    """A range of code addresses."""

    start: int
    end: int

    @property
    def options(self) -> tuple[str, str]:
        return f"--start-address={self.start:#x}", f"--stop-address={self.end:#x}"


def read_code(
    wheel: Wheel, libraries: Iterable[LibraryFacts], sets: Sequence[InstructionSet]
) -> tuple[CodeSample, ...]:
    """Return a sample of each library that is reached within the time limit.

    Libraries come before programs, and large files before small ones.
    """
    deadline = time.monotonic() + _TIMEOUT_S
    samples = []
    with tempfile.TemporaryDirectory(prefix="stoker-verify-") as folder:
        for library in sorted(
            libraries, key=lambda one: (one.kind is ElfKind.PROGRAM, -one.size_bytes)
        ):
            if time.monotonic() > deadline:
                break
            samples.append(_sample(wheel, library, sets, Path(folder) / "library", deadline))
    return tuple(samples)


def _sample(
    wheel: Wheel,
    library: LibraryFacts,
    sets: Sequence[InstructionSet],
    copy: Path,
    deadline: float,
) -> CodeSample:
    objdump = _objdump(library.machine)
    if objdump is None:
        return CodeSample(path=library.path, problem=f"no objdump for {library.machine} was found")
    with copy.open("wb") as stream:
        stream.writelines(wheel.stream(library.path))
    with open_file(copy, library.path) as reader:
        file = Elf(reader)
        parts = [
            _Stretch(section.address, section.address + section.size)
            for section in file.sections
            if section.flags & _EXECUTABLE and section.file_size
        ]
        symbols = read_local_functions(file)
    functions = read = 0
    uses: list[Use] = []
    for stretch in _stretches(parts):
        left = deadline - time.monotonic()
        if left <= 0:
            break
        command: list[str | Path] = [objdump, *_OPTIONS, *stretch.options, copy]
        outcome = process.run(command, timeout=left)
        if not outcome.ok:
            break
        count, found = look_through(outcome.stdout, sets, symbols)
        functions += count
        read += stretch.end - stretch.start
        uses += found
    return CodeSample(
        path=library.path,
        functions=functions,
        read=read,
        size=sum(part.end - part.start for part in parts),
        uses=tuple(uses[:_MOST_USES]),
        named=not library.stripped,
    )


def _objdump(machine: str) -> str | None:
    """Return the cross objdump for the machine, or the system's objdump on that machine."""
    if found := shutil.which(f"{machine}-linux-gnu-objdump"):
        return found
    return shutil.which("objdump") if platform.machine() == machine else None


def _stretches(parts: Iterable[_Stretch]) -> list[_Stretch]:
    """Cut the code into pieces; return all of them, or some at even distances."""
    pieces = [
        _Stretch(start, min(start + _STRETCH, part.end))
        for part in parts
        for start in range(part.start, part.end, _STRETCH)
    ]
    if len(pieces) <= _MOST_STRETCHES:
        return pieces
    step = len(pieces) / _MOST_STRETCHES
    return [pieces[int(step * (index + 0.5))] for index in range(_MOST_STRETCHES)]


def look_through(
    text: str, sets: Sequence[InstructionSet], symbols: LocalFunctions
) -> tuple[int, list[Use]]:
    """Return the number of functions in objdump's output, and the first use of each set in each.

    Lines before the first function name are ignored: a sample may start in the middle of an
    instruction, which then decodes as another one.
    """
    patterns = [(row.name, found) for row in sets if (found := operand_pattern(row))]
    functions: dict[int, dict[str, Use]] = {}
    for address, function, line in _instructions(text):
        uses = functions.setdefault(address, {})
        for name, pattern in patterns:
            if name not in uses and pattern.search(line):
                uses[name] = Use(
                    function=function,
                    file=symbols.file(address),
                    copies=symbols.has_copies(address),
                    instruction_set=name,
                    line=line,
                )
    return len(functions), [use for uses in functions.values() for use in uses.values()]


def _instructions(text: str) -> Iterator[tuple[int, str, str]]:
    """Yield the address and name of the function with each instruction."""
    function = None
    for line in text.splitlines():
        if match := _FUNCTION.match(line):
            function = None if _MIDDLE.search(match[2]) else (int(match[1], 16), match[2])
        elif function and ":\t" in line:
            yield *function, " ".join(line.partition(":\t")[2].split())


def cpu_level(wheel: WheelUnderTest) -> Iterator[Finding]:
    """Check the CPU level by compilers' notes in the libraries and by the code itself."""
    cpu = wheel.expected.cpu if wheel.expected else None
    if cpu is None:
        if wheel.expected:  # without a plan, one note says that nothing was compared
            title = "the CPU level of the code was not checked"
            yield note("cpu-level-unchecked", title, ["the variant names none"])
        return
    family = cpu_family(cpu)
    other = [one.path for one in wheel.libraries if one.machine != family]
    if other:
        yield error("wrong-cpu-family", f"it is not for {family}, the family of {cpu}", other)
    notes = {row.note for row in beyond(cpu) if row.note}
    marked = [
        f"{library.path} is marked as needing {word}"
        for library in wheel.libraries
        for word in library.isa
        if word in notes
    ]
    if marked:
        yield error("cpu-level-marked", f"the loader refuses it on a machine with {cpu}", marked)
    yield from _by_samples(wheel, cpu)
    yield from _unread(wheel)


def _by_samples(wheel: WheelUnderTest, cpu: str) -> Iterator[Finding]:
    for named, name, title, say in (
        (True, "cpu-level", f"code that runs on every CPU needs more than {cpu}", error),
        (
            False,
            "cpu-level-unnamed",
            f"some code needs more than {cpu}; without symbols, a run-time choice is not visible",
            warning,
        ),
    ):
        found = [sample for sample in wheel.samples if sample.named is named]
        lines = [
            f"{sample.path}: {use.instruction_set} in {cut_off(use.function, _LONGEST)}: {use.line}"
            for sample in found
            for use in sample.uses
            if not (use.copies or names_a_cpu(use.function) or names_a_cpu(use.file))
        ]
        if lines:
            yield say(name, title, lines)


def _unread(wheel: WheelUnderTest) -> Iterator[Finding]:
    seen = {sample.path for sample in wheel.samples}
    lines = [f"{sample.path}: {sample.problem}" for sample in wheel.samples if sample.problem]
    partly = [one for one in wheel.samples if not one.problem and one.read < one.size]
    lines += [f"{one.path}: {size(one.read)} of {size(one.size)}, in samples" for one in partly]
    unseen = [library.path for library in wheel.libraries if library.path not in seen]
    if unseen:
        lines.append(f"not read: {first_of(unseen, 3)}")
    if lines:
        title = "the CPU level was checked for a part of the machine code only"
        yield note("cpu-level-sampled", title, lines)

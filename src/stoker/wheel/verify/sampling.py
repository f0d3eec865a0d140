"""Finds instructions in the machine code of a wheel that not every CPU supports, with objdump.

A small library is read completely, a large one in evenly spaced samples, until the time limit.
``cpu_level`` decides which functions may use these instructions.
"""

import platform
import re
import shutil
import tempfile
import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from stoker.knowledge.cpus import InstructionSet, operand_pattern
from stoker.model.artifact import ElfKind, LibraryFacts
from stoker.outside import process
from stoker.wheel.elf import Elf
from stoker.wheel.engine import Wheel
from stoker.wheel.reader import open_file
from stoker.wheel.verify.local_functions import LocalFunctions, read_local_functions
from stoker.wheel.verify.tested import CodeSample, Use

_TIMEOUT_S = 60.0
_STRETCH = 256 << 10  # bytes of code that objdump is asked for at a time
_MOST_STRETCHES = 12  # of one library
_MOST_USES = 50  # reported for one library
_EXECUTABLE = 4  # flag of a section

_FUNCTION = re.compile(r"^([0-9a-f]+) <(.+)>:$")
_OPTIONS = ("--disassemble", "--no-show-raw-insn")
_MIDDLE = re.compile(r"\+0x[0-9a-f]+$")  # after a name: the sample starts inside a function


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
        parts, symbols = _code(file), read_local_functions(file)
    seen = _Reading(objdump, copy, sets)
    for stretch in _stretches(parts):
        left = deadline - time.monotonic()
        if left <= 0 or not seen.read_on(stretch, symbols, left):
            break
    return CodeSample(
        path=library.path,
        functions=seen.functions,
        read=seen.read,
        size=sum(part.end - part.start for part in parts),
        uses=tuple(seen.uses[:_MOST_USES]),
        named=not library.stripped,
    )


class _Reading:
    """Totals over the samples of a library."""

    def __init__(self, objdump: str, library: Path, sets: Sequence[InstructionSet]):
        self._objdump, self._library, self._sets = objdump, library, sets
        self.functions = self.read = 0
        self.uses: list[Use] = []

    def read_on(self, stretch: _Stretch, symbols: LocalFunctions, timeout: float) -> bool:
        command: list[str | Path] = [self._objdump, *_OPTIONS, *stretch.options, self._library]
        outcome = process.run(command, timeout=timeout)
        if outcome.ok:
            functions, uses = look_through(outcome.stdout, self._sets, symbols)
            self.functions += functions
            self.read += stretch.end - stretch.start
            self.uses += uses
        return outcome.ok


def _objdump(machine: str) -> str | None:
    """Return the cross objdump for the machine, or the system's objdump on that machine."""
    if found := shutil.which(f"{machine}-linux-gnu-objdump"):
        return found
    return shutil.which("objdump") if platform.machine() == machine else None


def _code(file: Elf) -> list[_Stretch]:
    return [
        _Stretch(section.address, section.address + section.size)
        for section in file.sections
        if section.flags & _EXECUTABLE and section.file_size
    ]


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

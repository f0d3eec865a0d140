"""Reads the machine code of a wheel for instructions that not every CPU has, by objdump.

All of a small library is read, of a large one stretches from its start to its end; when the time
is up, the rest is left. Which code may use what is for others to judge.
"""

import platform
import re
import shutil
import tempfile
import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from stoker.artifact.elf import Elf
from stoker.artifact.engine import Wheel
from stoker.artifact.reader import open_file
from stoker.deliver.verify.case import CodeSample, Use
from stoker.knowledge.instruction_sets import InstructionSet, operand_pattern
from stoker.model.artifact import LibraryFacts
from stoker.outside import process

_SECONDS = 60.0
_STRETCH = 256 << 10  # bytes of code that objdump is asked for at a time
_MOST_STRETCHES = 12  # of one library
_MOST_USES = 50  # of one library that are worth telling
_EXECUTABLE = 4  # flag of a section

_FUNCTION = re.compile(r"^[0-9a-f]+ <(.+)>:$")
_MIDDLE = re.compile(r"\+0x[0-9a-f]+$")  # after a name: the stretch starts within a function


class _Stretch(NamedTuple):
    start: int
    end: int


def read_code(
    wheel: Wheel, libraries: Iterable[LibraryFacts], sets: Sequence[InstructionSet]
) -> tuple[CodeSample, ...]:
    """Samples of the largest first; what the time did not suffice for is not among them."""
    deadline = time.monotonic() + _SECONDS
    samples = []
    with tempfile.TemporaryDirectory(prefix="stoker-verify-") as folder:
        for library in sorted(libraries, key=lambda library: -library.size):
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
        return CodeSample(path=library.path, problem=f"no objdump reads code of {library.machine}")
    with copy.open("wb") as stream:
        stream.writelines(wheel.stream(library.path))
    with open_file(copy, library.path) as reader:
        parts = _code(Elf(reader))
    seen = _Seen()
    for stretch in _stretches(parts):
        left = deadline - time.monotonic()
        if left <= 0 or not seen.look(_command(objdump, copy, stretch), stretch, sets, left):
            break
    return CodeSample(
        path=library.path,
        functions=seen.functions,
        read=seen.read,
        size=sum(part.end - part.start for part in parts),
        uses=tuple(seen.uses[:_MOST_USES]),
        named=not library.stripped,
    )


class _Seen:
    """What adds up over the stretches of a library."""

    def __init__(self) -> None:
        self.functions = self.read = 0
        self.uses: list[Use] = []

    def look(
        self,
        command: list[str | Path],
        stretch: _Stretch,
        sets: Sequence[InstructionSet],
        timeout: float,
    ) -> bool:
        outcome = process.run(command, timeout=timeout)
        if outcome.ok:
            functions, uses = look_through(outcome.stdout, sets)
            self.functions += functions
            self.read += stretch.end - stretch.start
            self.uses += uses
        return outcome.ok


def _objdump(machine: str) -> str | None:
    """The cross tools' own, or that of the system, which reads at least its own machine."""
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
    """Everything, cut up; of many pieces some, at even distances."""
    pieces = [
        _Stretch(start, min(start + _STRETCH, part.end))
        for part in parts
        for start in range(part.start, part.end, _STRETCH)
    ]
    if len(pieces) <= _MOST_STRETCHES:
        return pieces
    step = len(pieces) / _MOST_STRETCHES
    return [pieces[int(step * (index + 0.5))] for index in range(_MOST_STRETCHES)]


def _command(objdump: str, library: Path, stretch: _Stretch) -> list[str | Path]:
    return [
        objdump,
        "--disassemble",
        "--no-show-raw-insn",
        f"--start-address={stretch.start:#x}",
        f"--stop-address={stretch.end:#x}",
        library,
    ]


def look_through(text: str, sets: Sequence[InstructionSet]) -> tuple[int, list[Use]]:
    """How many functions objdump printed, and for each the first use of each set.

    Up to the first name nothing counts: where instructions differ in length, bytes from the middle
    of one read as another.
    """
    patterns = [(row.name, found) for row in sets if (found := operand_pattern(row))]
    functions: dict[str, dict[str, Use]] = {}
    for function, line in _instructions(text):
        uses = functions.setdefault(function, {})
        for name, pattern in patterns:
            if name not in uses and pattern.search(line):
                uses[name] = Use(function=function, instruction_set=name, line=line)
    return len(functions), [use for uses in functions.values() for use in uses.values()]


def _instructions(text: str) -> Iterator[tuple[str, str]]:
    function = None
    for line in text.splitlines():
        if match := _FUNCTION.match(line):
            function = None if _MIDDLE.search(match[1]) else match[1]
        elif function and ":\t" in line:
            yield function, " ".join(line.partition(":\t")[2].split())

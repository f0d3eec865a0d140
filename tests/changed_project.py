"""A project of all kinds of change in tests/changes.py, and its objects by plain compiles."""

import re
import subprocess
from pathlib import Path
from typing import NamedTuple

from change import NVCC, Change, inside
from changes import CHANGES

LISTS = {"-MD": "-MD -MF list.d", "-MMD": "-MMD -MF list.d", "none": ""}
STATES = (0, 2)

_OWN = {"clang": "-fno-integrated-as"}  # what a compiler needs to start the assembler
_TEMPORARY = re.compile(rb"tmpxft_[0-9a-f]{8}_[0-9a-f]{8}")  # nvcc names a symbol after it


class Cell(NamedTuple):
    change: str
    list: str

    @property
    def output(self) -> str:
        return f"{self.change}{self.list}.o"

    @property
    def what(self) -> Change:
        return CHANGES[self.change]


References = dict[int, dict[Cell, bytes]]  # by state


class Project:
    """The compiles of some cells, each in a folder of its own."""

    def __init__(self, folder: Path, compiler: str, cells: list[Cell]):
        self.folder, self.cells = folder, cells
        self.compiler = compiler
        self._suffix = "cu" if compiler in NVCC else "c"
        for cell in cells:
            self._place(cell).mkdir(parents=True)
        (folder / "stoker.toml").touch()

    def _place(self, cell: Cell) -> Path:
        return self.folder / f"{cell.change}{cell.list}"

    def prepare(self, state: int) -> list[str]:
        """Write the files of a state; return the command that compiles them all."""
        lines = []
        for cell in self.cells:
            place = self._place(cell)
            cell.what.prepare(place, state, self._suffix)
            (place / cell.output).unlink(missing_ok=True)
            compile_it = inside(cell.what.compile.replace("a.X", f"a.{self._suffix}"), place)
            lines.append(
                f"( cd {place} && OUT={cell.output} LIST='{LISTS[cell.list]}' && {compile_it} ) &"
            )
        own = _OWN.get(self.compiler, "")
        begin = [f"CC='{self.compiler}' OWN='{own}' STATE={state}"]
        (self.folder / "compile.sh").write_text("\n".join([*begin, *lines, "wait", ""]))
        return ["sh", "compile.sh"]

    def objects(self) -> dict[Cell, bytes]:
        """Return what was compiled; a compile that failed has nothing. Objects of nvcc name a
        temporary file, which sccache calls otherwise: they are compared without local symbols.
        """
        found = {}
        for cell in self.cells:
            path = self._place(cell) / cell.output
            if path.exists() and self.compiler in NVCC:
                subprocess.run(["strip", "--strip-unneeded", path], check=True)
            if path.exists():
                found[cell] = _TEMPORARY.sub(b"", path.read_bytes())
        return found

    def references(self) -> References:
        """Compile plainly. A cell that cannot be compiled, or that changes nothing, is an error."""
        found = {}
        for state in STATES:
            subprocess.run(self.prepare(state), cwd=self.folder, check=True)
            found[state] = self.objects()
        for cell in self.cells:
            first, second = (objects.get(cell) for objects in found.values())
            if first is None or second is None or (first == second and not cell.what.timed):
                raise AssertionError(
                    f"{cell} cannot be compiled by {self.compiler}, or changes nothing"
                )
        return found

"""One change between two compiles, for tests/changes.py; see there."""

import os
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

HOST = ("gcc", "clang")
NVCC = ("nvcc",)
COMPILERS = (*HOST, *NVCC)
OLD = 978_307_200.0  # the time of every file, as tar, rsync -t and cp -p set it


# A clang that knows #embed and reads options from a file beside it.
NEW_CLANG = next((f"clang-{n}" for n in range(19, 24) if shutil.which(f"clang-{n}")), None)
COMPILE = "$CC $LIST -c a.X -o $OUT"
SAID = "int said = SAID;\n"
HEADER = "#define SAID %\n"
INCLUDE = f"#include <said.h>\n{SAID}"
WITH_SCRIPT = 'PATH="$PWD/bin:$PATH" ' + COMPILE


def script(program: str, option: str) -> str:
    """Return a script that starts a program with one more option."""
    return f'#!/bin/sh\nexec {shutil.which(program) or program} {option} "$@"\n'


ASSEMBLER = {
    "a.X": "int said(void) { return 1; }\n",
    "bin/as": script("as", "--generate-missing-build-notes=$(test % = 0 && echo no || echo yes)"),
}


def assembler_at(path: str) -> dict[str, str]:
    """Return a source, and an assembler in a place of its own."""
    return {"a.X": ASSEMBLER["a.X"], path: ASSEMBLER["bin/as"]}


def told(*command: str, **more: str) -> str:
    """Return what a compiler says; nothing if it is missing."""
    path = shutil.which(command[0])
    if path is None:
        return ""
    told = subprocess.run(
        [path, *command[1:]], env=os.environ | more, capture_output=True, text=True, check=False
    )
    return told.stdout + told.stderr


class Change(NamedTuple):
    """``only`` are the files of one state. ``timed``: the object holds the time of its compile."""

    files: Mapping[str, str]
    compile: str = COMPILE
    compilers: tuple[str, ...] = COMPILERS
    only: tuple[int, str] | None = None  # a state, and a file that the other one lacks
    link: tuple[str, str] | None = None  # a symbolic link, and what it leads to
    timed: bool = False

    def prepare(self, folder: Path, state: int, suffix: str) -> None:
        """Write the files of a state, and remove those of the other one."""
        for name, text in self.files.items():
            path = folder / inside(name, folder).replace("%", str(state)).replace(
                "a.X", f"a.{suffix}"
            )
            path.parent.mkdir(parents=True, exist_ok=True)
            new = path.with_name(f"{path.name}.new")
            new.write_text(text.replace("%", str(state)))
            new.chmod(0o755 if text.startswith("#!") else 0o644)
            os.utime(new, (OLD, OLD))
            new.replace(path)
        if self.only and self.only[0] != state:
            (folder / inside(self.only[1], folder)).unlink()
        if self.link:
            name, target = (part.replace("%", str(state)) for part in self.link)
            (folder / name).unlink(missing_ok=True)
            (folder / name).symlink_to(target)


def inside(text: str, folder: Path) -> str:
    """Return a text with the path of sources that are in no project, each folder's own."""
    return text.replace("OUTSIDE", f"../../{folder.name}-outside")

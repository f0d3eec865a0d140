"""Memory cgroups with a real limit, each created for one test."""

import os
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Protocol

import pytest

from stoker.machine.cgroups import groups
from stoker.machine.file_tree import FileTree
from stoker.machine.memory_group import INTERFACES


class MemoryGroup:
    """A memory cgroup. ``enter`` is the command prefix that runs a command inside it."""

    def __init__(self, folder: Path, version: int):
        self.folder = folder
        self.version = version
        self.enter = ["sh", "-c", f'echo $$ > "{folder}/cgroup.procs"; exec "$@"', "enter"]

    def set_limit(self, size: int) -> None:
        (self.folder / INTERFACES[self.version].limits[0]).write_text(str(size))

    def usage(self) -> int:
        return int((self.folder / INTERFACES[self.version].usage).read_text())

    def remove(self) -> None:
        """Remove the group; it is busy for a moment after its last process exits."""
        for _ in range(200):
            with suppress(OSError):
                self.folder.rmdir()
                return
            time.sleep(0.05)
        self.folder.rmdir()


class MakeGroup(Protocol):
    def __call__(self, name: str, inside: MemoryGroup | None = None) -> MemoryGroup: ...


@pytest.fixture
def make_group() -> Iterator[MakeGroup]:
    """Create groups in the outermost visible memory cgroup; remove them in reverse order."""
    if os.geteuid() != 0:
        pytest.skip("only root makes control groups")
    if not (found := groups(FileTree(), "memory")):
        pytest.skip("this machine has no memory cgroups in sight")
    outermost, version = Path(found[-1].folder), found[-1].version
    if not os.access(outermost, os.W_OK):
        pytest.skip(f"{outermost} is mounted read-only")
    if version == 2 and "memory" not in (outermost / "cgroup.subtree_control").read_text():
        pytest.skip("cgroup v2 does not hand its memory controller on to new groups here")
    made: list[MemoryGroup] = []

    def make(name: str, inside: MemoryGroup | None = None) -> MemoryGroup:
        parent = inside.folder if inside else outermost
        if inside and version == 2:
            (parent / "cgroup.subtree_control").write_text("+memory")
        folder = parent / f"stoker-test-{os.getpid()}-{name}"
        folder.mkdir()
        made.append(MemoryGroup(folder, version))
        return made[-1]

    yield make
    for group in reversed(made):
        group.remove()

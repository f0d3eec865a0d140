"""Limits that the kernel really sets: a Python in a control group of its own reads the machine."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Protocol

import msgspec
import pytest

from stoker.machine.cgroup import groups
from stoker.machine.file_tree import FileTree
from stoker.machine.memory_group import INTERFACES
from stoker.model.machine import LimitKind, Machine

MB = 1 << 20
GB = 1 << 30

READ_MACHINE = """
import msgspec
from stoker.machine.snapshot import read_machine
print(msgspec.json.encode(read_machine()).decode())
"""
FOLLOW = """
import sys
from stoker.machine.meter import Meter
with Meter() as meter:
    for line in sys.stdin:
        reading = meter.reading()
        print(reading.limit.limit, reading.oom_kills, flush=True)
"""
FILL_CACHE = """
import os, sys
from stoker.machine.meter import Meter
name = sys.argv[1]
with open(name, "wb") as file:
    for _ in range(64):
        file.write(os.urandom(1 << 20))
    os.fsync(file.fileno())
for _ in range(3):  # read again and again: the cache becomes active
    with open(name, "rb") as file:
        while file.read(1 << 20):
            pass
with Meter() as meter:
    print(meter.reading().limit.used)
"""
FILL_MEMORY = """
blocks = []
while True:
    blocks.append(b"x" * (1 << 20))
"""


class RealGroup:
    """A memory cgroup made for one test."""

    def __init__(self, folder: Path, version: int):
        self.folder = folder
        self.version = version

    def set_limit(self, size: int) -> None:
        (self.folder / INTERFACES[self.version].limits[0]).write_text(str(size))

    def usage(self) -> int:
        return int((self.folder / INTERFACES[self.version].usage).read_text())

    def start(self, program: str, *arguments: str) -> subprocess.Popen[str]:
        enter = (
            f"import os; open({str(self.folder / 'cgroup.procs')!r}, 'w').write(str(os.getpid()))"
        )
        return subprocess.Popen(
            [sys.executable, "-c", f"{enter}\n{program}", *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def run(self, program: str, *arguments: str) -> str:
        with self.start(program, *arguments) as process:
            out, _ = process.communicate(timeout=60)
        assert process.returncode == 0
        return out


class MakeGroup(Protocol):
    def __call__(self, name: str, inside: RealGroup | None = None) -> RealGroup: ...


@pytest.fixture
def make_group() -> Iterator[MakeGroup]:
    """Makes groups in the outermost memory group in sight, and removes them, the last first."""
    if os.geteuid() != 0:
        pytest.skip("only root makes control groups")
    if not (found := groups(FileTree(), "memory")):
        pytest.skip("this machine has no memory cgroups in sight")
    outermost, version = Path(found[-1].folder), found[-1].version
    if not os.access(outermost, os.W_OK):
        pytest.skip(f"{outermost} is mounted read-only")
    if version == 2 and "memory" not in (outermost / "cgroup.subtree_control").read_text():
        pytest.skip("cgroup v2 does not hand its memory controller on to new groups here")
    made: list[Path] = []

    def make(name: str, inside: RealGroup | None = None) -> RealGroup:
        parent = inside.folder if inside else outermost
        if inside and version == 2:
            (parent / "cgroup.subtree_control").write_text("+memory")
        folder = parent / f"stoker-test-{os.getpid()}-{name}"
        folder.mkdir()
        made.append(folder)
        return RealGroup(folder, version)

    yield make
    for folder in reversed(made):
        _remove(folder)


def _remove(folder: Path) -> None:
    """A group whose last process has just ended is busy for a moment."""
    for _ in range(100):
        with suppress(OSError):
            folder.rmdir()
            return
        time.sleep(0.05)
    folder.rmdir()


def test_a_process_sees_the_limit_of_its_group(make_group: MakeGroup) -> None:
    group = make_group("limited")
    group.set_limit(2 * GB)
    machine = msgspec.json.decode(group.run(READ_MACHINE), type=Machine)
    limit = machine.memory.limit
    assert limit.limit == 2 * GB
    assert limit.where == str(group.folder)
    assert limit.kind is (LimitKind.CGROUP_V1 if group.version == 1 else LimitKind.CGROUP_V2)
    assert 0 < limit.used < 2 * GB
    assert machine.notes == ()


def test_a_group_round_it_binds_if_its_limit_is_smaller(make_group: MakeGroup) -> None:
    outer = make_group("outer")
    inner = make_group("inner", inside=outer)
    outer.set_limit(GB)
    inner.set_limit(2 * GB)
    limit = msgspec.json.decode(inner.run(READ_MACHINE), type=Machine).memory.limit
    assert (limit.limit, limit.where) == (GB, str(outer.folder))


def test_a_meter_follows_limits_and_counts_kills(make_group: MakeGroup) -> None:
    group = make_group("metered")
    group.set_limit(2 * GB)
    with group.start(FOLLOW) as meter:

        def reading() -> list[int]:
            assert meter.stdin is not None
            assert meter.stdout is not None
            print(file=meter.stdin, flush=True)
            return [int(word) for word in meter.stdout.readline().split()]

        assert reading() == [2 * GB, 0]
        group.set_limit(100 * MB)
        assert reading() == [100 * MB, 0]
        with group.start(FILL_MEMORY) as victim:
            assert victim.wait(timeout=60) == -signal.SIGKILL
        # The kernel kills the largest, so the meter has outlived it.
        assert reading() == [100 * MB, 1]
        meter.communicate(timeout=60)


def test_cache_that_can_be_dropped_is_not_used_memory(
    make_group: MakeGroup, tmp_path: Path
) -> None:
    group = make_group("cached")
    group.set_limit(GB)
    used = int(group.run(FILL_CACHE, str(tmp_path / "cached")))
    if group.usage() < 60 * MB:
        pytest.skip("the file system of the temporary folder keeps no cache")
    assert used < 40 * MB

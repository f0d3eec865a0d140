"""Limits that the kernel really sets: a Python in a control group of its own reads the machine."""

import signal
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from memory_groups import MakeGroup, MemoryGroup
from stoker.model.machine import LimitKind, Machine

MB = 1 << 20
GB = 1 << 30

READ_MACHINE = """
import msgspec
from stoker.machine.system import read_machine
print(msgspec.json.encode(read_machine()).decode())
"""
FOLLOW = """
import os, sys
from stoker.machine.counters import KillCounter
from stoker.machine.memory import Meter
kills = KillCounter(os.getpid())
with Meter() as meter:
    for line in sys.stdin:
        print(meter.reading().limit.limit, kills.read(), flush=True)
"""
FILL_CACHE = """
import os, sys
from stoker.machine.memory import Meter
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


def start(group: MemoryGroup, program: str, *arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [*group.enter, sys.executable, "-c", program, *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


def run(group: MemoryGroup, program: str, *arguments: str) -> str:
    with start(group, program, *arguments) as process:
        out, _ = process.communicate(timeout=60)
    assert process.returncode == 0
    return out


def test_a_process_sees_the_limit_of_its_group(make_group: MakeGroup) -> None:
    group = make_group("limited")
    group.set_limit(2 * GB)
    machine = msgspec.json.decode(run(group, READ_MACHINE), type=Machine)
    limit = machine.memory.limit
    assert limit.limit == 2 * GB
    assert limit.where == str(group.folder)
    assert limit.kind is (LimitKind.CGROUP_V1 if group.version == 1 else LimitKind.CGROUP_V2)
    assert 0 < limit.used < 2 * GB
    assert machine.notes == ()


def test_the_limit_of_a_parent_group_binds_if_it_is_smaller(make_group: MakeGroup) -> None:
    outer = make_group("outer")
    inner = make_group("inner", inside=outer)
    outer.set_limit(GB)
    inner.set_limit(2 * GB)
    limit = msgspec.json.decode(run(inner, READ_MACHINE), type=Machine).memory.limit
    assert (limit.limit, limit.where) == (GB, str(outer.folder))


def test_limits_are_followed_and_kills_counted(make_group: MakeGroup) -> None:
    group = make_group("metered")
    group.set_limit(2 * GB)
    with start(group, FOLLOW) as meter:

        def reading() -> list[int]:
            assert meter.stdin is not None
            assert meter.stdout is not None
            print(file=meter.stdin, flush=True)
            return [int(word) for word in meter.stdout.readline().split()]

        assert reading() == [2 * GB, 0]
        group.set_limit(100 * MB)
        assert reading() == [100 * MB, 0]
        with start(group, FILL_MEMORY) as victim:
            assert victim.wait(timeout=60) == -signal.SIGKILL
        # The kernel kills the largest, so the meter has outlived it.
        assert reading() == [100 * MB, 1]
        meter.communicate(timeout=60)


def test_cache_that_can_be_dropped_is_not_used_memory(
    make_group: MakeGroup, tmp_path: Path
) -> None:
    group = make_group("cached")
    group.set_limit(GB)
    used = int(run(group, FILL_CACHE, str(tmp_path / "cached")))
    if group.usage() < 60 * MB:
        pytest.skip("the file system of the temporary folder keeps no cache")
    assert used < 40 * MB

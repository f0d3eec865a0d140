"""Which counter of kills is read, in recorded trees. Real kills: test_real_cgroup.py."""

from collections.abc import Callable, Mapping
from contextlib import closing

import pytest

from stoker.machine.counters import KillCounter
from stoker.machine.file_tree import FileTree

Record = Callable[[Mapping[str, str]], FileTree]

V1 = {
    "/proc/42/cgroup": "4:memory:/job/step\n0::/\n",
    "/proc/self/cgroup": "4:memory:/job\n0::/\n",
    "/proc/self/mountinfo": "37 33 0:34 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n",
    "/sys/fs/cgroup/memory/job/memory.oom_control": "under_oom 0\noom_kill 7\n",
    "/sys/fs/cgroup/memory/job/step/memory.oom_control": "under_oom 0\noom_kill 3\n",
}
V2 = {
    "/proc/42/cgroup": "0::/job/step\n",
    "/proc/self/cgroup": "0::/job\n",
    "/proc/self/mountinfo": "30 23 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n",
    "/sys/fs/cgroup/job/memory.events": "max 7\noom 4\noom_kill 7\noom_group_kill 0\n",
    "/sys/fs/cgroup/job/step/memory.events": "max 7\noom 4\noom_kill 3\noom_group_kill 0\n",
}


def count(tree: FileTree, process: int | None = 42) -> int | None:
    with closing(KillCounter(process, tree)) as counter:
        return counter.read()


@pytest.mark.parametrize("host", [V1, V2], ids=["v1", "v2"])
def test_the_group_that_the_process_is_in_counts(record: Record, host: dict[str, str]) -> None:
    tree = record(host)
    assert count(tree) == 3
    assert tree.notes == ()


def test_it_keeps_counting(record: Record) -> None:
    tree = record(V1)
    with closing(KillCounter(42, tree)) as counter:
        assert counter.read() == 3
        file = tree.path("/sys/fs/cgroup/memory/job/step/memory.oom_control")
        file.write_text("under_oom 1\noom_kill 4\n")
        assert counter.read() == 4


@pytest.mark.parametrize("process", [None, 0, 43])
def test_a_process_that_is_not_known_has_no_counter(record: Record, process: int | None) -> None:
    assert count(record(V2), process) is None


@pytest.mark.parametrize("text", ["", "under_oom 0\n", "oom_kill many\n", "oom_kill -1\n"])
def test_a_file_without_the_counter(record: Record, text: str) -> None:
    assert count(record(V2 | {"/sys/fs/cgroup/job/step/memory.events": text})) is None


def test_no_control_groups(record: Record) -> None:
    assert count(record({"/proc/42/cgroup": ""})) is None

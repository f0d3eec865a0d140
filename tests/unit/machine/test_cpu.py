import os
from collections.abc import Callable, Mapping

import pytest

from stoker.machine.cpu import parse_model, read_cpu, read_quota
from stoker.machine.file_tree import FileTree

Record = Callable[[Mapping[str, str]], FileTree]

V1 = {
    "/proc/self/cgroup": "2:cpu,cpuacct:/a/b\n",
    "/proc/self/mountinfo": "1 2 0:3 / /cg/cpu rw - cgroup cgroup rw,cpu,cpuacct\n",
}
V2 = {
    "/proc/self/cgroup": "0::/a/b\n",
    "/proc/self/mountinfo": "1 2 0:3 / /cg rw - cgroup2 cgroup2 rw\n",
}


def test_this_machine() -> None:
    cpu = read_cpu(FileTree())
    assert cpu.online == os.cpu_count()
    assert 1 <= cpu.usable <= cpu.affinity <= cpu.online
    assert cpu.model
    assert cpu.microarchitecture
    assert list(cpu.features) == sorted(cpu.features)


def test_affinity_is_respected() -> None:
    allowed = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(allowed)})
    try:
        assert read_cpu(FileTree()).affinity == 1
    finally:
        os.sched_setaffinity(0, allowed)


def test_the_smallest_quota_of_all_groups(record: Record) -> None:
    tree = record(V2 | {"/cg/a/cpu.max": "150000 100000\n", "/cg/a/b/cpu.max": "800000 100000\n"})
    assert read_quota(tree) == 1.5
    tree = record(
        V1
        | {
            "/cg/cpu/a/cpu.cfs_quota_us": "-1\n",
            "/cg/cpu/a/cpu.cfs_period_us": "100000\n",
            "/cg/cpu/a/b/cpu.cfs_quota_us": "50000\n",
            "/cg/cpu/a/b/cpu.cfs_period_us": "100000\n",
        }
    )
    assert read_quota(tree) == 0.5
    assert tree.notes == ()


def test_no_quota(record: Record) -> None:
    assert read_quota(record({})) is None
    assert read_quota(record(V2 | {"/cg/a/cpu.max": "max 100000\n"})) is None


@pytest.mark.parametrize("garbage", ["", "1", "x y", "0 100000", "100000 0", "1 2 3"])
def test_a_quota_that_makes_no_sense_is_noted(record: Record, garbage: str) -> None:
    tree = record(V2 | {"/cg/a/cpu.max": "200000 100000\n", "/cg/a/b/cpu.max": garbage})
    assert read_quota(tree) == 2.0
    assert tree.notes == (f"/cg/a/b/cpu.max holds no quota: {garbage!r}",)


def test_a_quota_without_its_period_is_noted(record: Record) -> None:
    tree = record(V1 | {"/cg/cpu/a/b/cpu.cfs_quota_us": "50000\n"})
    assert read_quota(tree) is None
    assert len(tree.notes) == 1


@pytest.mark.parametrize(
    ("cpuinfo", "model"),
    [
        ("processor\t: 0\nmodel name\t: AMD Ryzen 9 9950X\n\n", "AMD Ryzen 9 9950X"),
        ("processor\t: 0\ncpu\t\t: POWER9, altivec supported\n", "POWER9, altivec supported"),
        ("processor\t: 0\nCPU implementer\t: 0x41\n", None),
        ("", None),
    ],
)
def test_the_name_in_cpuinfo(cpuinfo: str, model: str | None) -> None:
    assert parse_model(cpuinfo) == model

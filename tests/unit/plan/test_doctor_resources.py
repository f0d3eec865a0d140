"""Memory, disk space, and programs that would kill the build."""

import re
import shlex

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stoker.model.finding import Finding, Severity
from stoker.model.machine import Memory
from stoker.model.plan import Quantity
from stoker.plan.doctor import examine
from stoker.plan.planning import make_plan
from subjects import (
    GIB,
    cmake_tree,
    disk,
    doctor,
    linux,
    memory,
    named,
    names,
    plan_of,
    pytorch_tree,
    subject,
    toolbox,
    toolkit,
    unknown_estimate,
)


def cuda_findings(memory: Memory) -> tuple[Finding, ...]:
    """Of a PyTorch build whose largest step needs 6.6 GB."""
    return doctor(
        "cu124-sm90",
        tree=pytorch_tree(),
        machine=linux(memory=memory),
        toolbox=toolbox(cuda=(toolkit("12.4"),)),
    )


def test_memory_short_of_the_largest_step() -> None:
    findings = cuda_findings(memory(2 * GIB))
    finding = named(findings, "memory-short")
    assert finding.severity is Severity.ERROR
    assert "2.0 GiB of memory" in finding.title
    assert "6.1 GiB" in finding.title
    assert "cgroup v2 (/sys/fs/cgroup/build)" in finding.evidence
    assert finding.fix[0].startswith("fallocate -l 5G")
    assert "memory" not in names(findings)


def test_swap_that_is_there_counts() -> None:
    findings = cuda_findings(memory(4 * GIB, swap_total=8 * GIB, swap_free=8 * GIB))
    assert "memory-short" not in names(findings)
    assert named(findings, "memory-busy").severity is Severity.WARNING


def test_memory_that_others_use() -> None:
    finding = named(cuda_findings(memory(32 * GIB, used=30 * GIB)), "memory-busy")
    assert finding.severity is Severity.WARNING
    assert finding.title.startswith("2.0 GiB of memory free")


def test_enough_memory() -> None:
    finding = named(cuda_findings(memory(32 * GIB)), "memory")
    assert finding.severity is Severity.OK
    assert finding.title == "32.0 GiB of memory"


def test_an_unknown_need_is_not_a_shortage() -> None:
    findings = doctor("cpu", tree=cmake_tree(), machine=linux(memory=memory(GIB // 4)))
    assert named(findings, "memory").severity is Severity.OK


@given(st.integers(1, 64 * GIB), st.integers(1, 64 * GIB), st.integers(0, 8 * GIB))
def test_the_swap_that_is_advised_is_enough(limit: int, largest: int, swap: int) -> None:
    about = subject(machine=linux(memory=memory(limit, swap_total=swap, swap_free=swap)))
    estimate = unknown_estimate(largest_step_bytes=Quantity(amount=largest, basis="measured"))
    findings = examine(about, make_plan(about, estimate))
    assert ("memory-short" in names(findings)) == (limit + swap < largest)
    if "memory-short" in names(findings):
        found = re.search(r"-l (\d+)G", named(findings, "memory-short").fix[0])
        assert found
        assert limit + int(found[1]) * GIB >= largest


def test_a_group_that_dies_as_one() -> None:
    finding = named(cuda_findings(memory(kills_group=True)), "oom-kills-group")
    assert finding.severity is Severity.WARNING
    assert finding.fix == ("echo 0 > /sys/fs/cgroup/build/memory.oom.group",)
    assert "oom-kills-group" not in names(cuda_findings(memory()))


def test_a_group_with_an_odd_name_can_still_be_pasted() -> None:
    """systemd writes dashes of unit names as \\x2d."""
    whole = memory(kills_group=True)
    where = r"/sys/fs/cgroup/user.slice/app-my\x2dterminal.scope"
    limit = type(whole.limit)(
        kind=whole.limit.kind, where=where, limit=GIB, used=0, kills_group=True
    )
    odd = Memory(total=GIB, available=GIB, swap_total=0, swap_free=0, limit=limit)
    (fix,) = named(doctor("cpu", machine=linux(memory=odd)), "oom-kills-group").fix
    assert shlex.split(fix)[-1] == f"{where}/memory.oom.group"


def test_systemd_oomd() -> None:
    finding = named(doctor("cpu", machine=linux(oomd=True)), "oomd-active")
    assert finding.severity is Severity.WARNING
    assert finding.fix[0].startswith("systemd-run --user --scope")
    assert "oomd-active" not in names(doctor("cpu"))


@pytest.mark.parametrize(("free", "enough"), [(GIB // 2, False), (2 * GIB, True)])
def test_too_little_disk(free: int, enough: bool) -> None:
    findings = doctor("cpu", tree=cmake_tree(), machine=linux(disks=(disk(free),)))
    assert ("disk-short" not in names(findings, Severity.ERROR)) == enough
    assert ("disk" in names(findings, Severity.OK)) == enough


def test_the_disk_of_a_known_build() -> None:
    about = subject(machine=linux(disks=(disk(10 * GIB),)))
    need = Quantity(amount=40 * GIB, basis="the last build here")
    findings = examine(about, make_plan(about, unknown_estimate(disk_bytes=need)))
    finding = named(findings, "disk-short")
    assert "at least 40.0 GiB needed" in finding.title
    assert finding.evidence == "the last build here"


def test_each_disk_is_looked_at_and_memory_is_no_disk() -> None:
    disks = (
        disk(1, path="/tmp", filesystem="tmpfs", in_memory=True),
        disk(50 * GIB, path="/src"),
        disk(GIB // 2, path="/home"),
    )
    findings = doctor("cpu", machine=linux(disks=disks))
    assert "/home" in named(findings, "disk-short").title
    assert named(findings, "disk").evidence == "/src (ext4)"


def test_what_could_not_be_read_is_said() -> None:
    machine = linux(notes=("memory.max: permission denied",))
    box = toolbox(notes=("nvcc did not answer in time",))
    about = subject(machine=machine, toolbox=box)
    findings = examine(about, plan_of(about))
    said = [finding.title for finding in findings if finding.name == "unreadable"]
    assert said == ["memory.max: permission denied", "nvcc did not answer in time"]

"""The CPUs: what they are, and how many of them this process may use."""

import os
import platform
import re

from stoker.machine.cgroups import ControlGroup, groups
from stoker.machine.file_tree import FileTree
from stoker.model.machine import Cpu, usable_cpus
from stoker.model.value import whole_number

# x86 and some Arm kernels; MIPS; POWER; RISC-V. Most Arm kernels give numbers only.
MODEL_KEYS = ("model name", "cpu model", "cpu", "uarch")


def read_cpu(tree: FileTree) -> Cpu:
    import archspec.cpu

    host = archspec.cpu.host()
    return Cpu(
        model=_read_model(tree) or f"{host.vendor} {host.name}",
        family=host.family.name,
        microarchitecture=host.name,
        features=tuple(sorted(host.features)),
        online=os.cpu_count() or 1,
        affinity=_read_affinity(),
        quota=read_quota(tree),
    )


def read_usable(tree: FileTree) -> int:
    """Return how many compiles can really run at once, without asking what the CPUs are."""
    return usable_cpus(_read_affinity(), read_quota(tree))


def _read_affinity() -> int:
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _read_model(tree: FileTree) -> str | None:
    if platform.system() == "Darwin":
        from stoker.machine.macos import macos_cpu_model

        return macos_cpu_model() or None
    return parse_model(tree.text("/proc/cpuinfo") or "")


def parse_model(cpuinfo: str) -> str | None:
    values = dict(re.findall(r"^([^:\n]*?)[ \t]*: ?(.+)$", cpuinfo, re.MULTILINE))
    return next((values[key].strip() for key in MODEL_KEYS if key in values), None)


def read_quota(tree: FileTree) -> float | None:
    """Return the smallest CPU quota of this process's groups, as a number of CPUs."""
    quotas = (_group_quota(tree, group) for group in groups(tree, "cpu"))
    return min((quota for quota in quotas if quota is not None), default=None)


def _group_quota(tree: FileTree, group: ControlGroup) -> float | None:
    if group.version == 2:
        name = f"{group.folder}/cpu.max"
        text = tree.text(name)
    else:
        name = f"{group.folder}/cpu.cfs_quota_us"
        time, period = tree.text(name), tree.text(f"{group.folder}/cpu.cfs_period_us")
        text = None if time is None else f"{time} {period}"
    if text is None or text.split()[:1] in (["max"], ["-1"]):
        return None
    quota = parse_quota(text)
    if quota is None:
        tree.note(f"{name} holds no quota: {text.strip()[:40]!r}")
    return quota


def parse_quota(text: str) -> float | None:
    """Return the quota from ``<time> <period>``, both in microseconds."""
    match [whole_number(word) for word in text.split()]:
        case [int(time), int(period)] if time and period:
            return time / period
    return None

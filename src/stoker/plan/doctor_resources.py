"""Checks memory and disk, and what would kill the build when memory runs out. Pure."""

import shlex
from collections.abc import Iterator

from stoker.model.finding import Finding, error, ok, warning
from stoker.model.value import size
from stoker.plan.planning import PlannedBuild

_GIB = 1024**3
_ENOUGH_DISK = 1_000_000_000  # less than this is too little even for a small project


def check_memory(planned: PlannedBuild) -> Iterator[Finding]:
    memory, largest = (
        planned.subject.machine.memory,
        planned.plan.estimate.largest_step_bytes.amount,
    )
    limit = memory.limit
    evidence = f"{limit.kind} ({limit.where}), {size(limit.free)} of it free"
    if largest and limit.limit + memory.swap_free < largest:
        short = max(1, round((largest - limit.limit) / _GIB + 0.5))
        yield error(
            "memory-short",
            f"{size(limit.limit)} of memory, but the largest step needs {size(largest)}",
            evidence=f"{evidence}; {planned.plan.estimate.largest_step_bytes.basis}",
            fix=_swap_advice(short),
        )
    elif largest and limit.free < largest:
        yield warning(
            "memory-busy",
            f"{size(limit.free)} of memory free, but the largest step needs {size(largest)}",
            evidence=evidence,
        )
    else:
        yield ok("memory", f"{size(limit.limit)} of memory", evidence)
    if limit.kills_group:
        yield warning(
            "oom-kills-group",
            "at the memory limit the kernel kills every process of the group, not one compile",
            evidence=f"memory.oom.group is 1 at or above {limit.where}",
            fix=(f"echo 0 > {shlex.quote(limit.where + '/memory.oom.group')}",),
        )
    if planned.subject.machine.oomd:
        yield warning(
            "oomd-active",
            "systemd-oomd kills a whole session when memory stays short",
            fix=("systemd-run --user --scope -p ManagedOOMPreference=omit stoker run -- ...",),
        )


def _swap_advice(gib: int) -> tuple[str, ...]:
    return (
        f"fallocate -l {gib}G /swapfile && chmod 600 /swapfile",
        "mkswap /swapfile",
        "swapon /swapfile",
    )


def check_disk(planned: PlannedBuild) -> Iterator[Finding]:
    need = max(planned.plan.estimate.disk_bytes.amount or 0, _ENOUGH_DISK)
    for disk in planned.subject.machine.disks:
        if disk.in_memory:
            continue
        if disk.free < need:
            yield error(
                "disk-short",
                f"{size(disk.free)} free at {disk.path}, at least {size(need)} needed",
                evidence=planned.plan.estimate.disk_bytes.basis,
            )
        else:
            yield ok("disk", f"{size(disk.free)} free", f"{disk.path} ({disk.filesystem})")


def check_unread(planned: PlannedBuild) -> Iterator[Finding]:
    for note in (*planned.subject.machine.notes, *planned.subject.toolbox.notes):
        yield warning("unreadable", note)

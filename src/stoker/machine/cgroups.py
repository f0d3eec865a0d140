"""Control groups: where this process is, memory limits and usage, and counters of the kernel."""

import os
import re
import resource
from collections.abc import Callable, Iterator, Mapping
from math import inf
from pathlib import Path, PurePosixPath
from typing import Literal

from stoker.machine.file_tree import FileTree, Mount, OpenFile, content, parse_mounts
from stoker.model.machine import LimitKind, MemoryLimit, Pressure
from stoker.model.value import Value, whole_number

# -- cgroup ----------------------------------------------------------------------------------------
# Finds the control groups that a process is in, from its own up to the outermost in sight.
#
# It knows how to get from /proc/PID/cgroup to folders; their readers know what the files say.


UNIFIED = ""  # how /proc/PID/cgroup names the controllers of version 2


class ControlGroup(Value, frozen=True, kw_only=True):
    version: int
    folder: str


def groups(
    tree: FileTree, controller: str, process: int | Literal["self"] = "self"
) -> tuple[ControlGroup, ...]:
    """Return the visible groups whose limits apply to a process, its own first.

    On a hybrid host a controller is on version 1 or on version 2, never on both; a process has a
    line for each, so version 1 is asked first and must name the controller.
    """
    membership = parse_membership(tree.text(f"/proc/{process}/cgroup") or "")
    mounts = parse_mounts(tree.text("/proc/self/mountinfo") or "")
    version_1 = [mount for mount in mounts if _carries(mount, controller)]
    if controller in membership and version_1:
        return _chain(tree, 1, membership[controller], version_1)
    version_2 = [mount for mount in mounts if mount.filesystem == "cgroup2"]
    if UNIFIED in membership and version_2:
        return _chain(tree, 2, membership[UNIFIED], version_2)
    return ()


def parse_membership(text: str) -> dict[str, str]:
    """Return controller to path within its hierarchy, from ``number:controllers:path`` lines."""
    membership: dict[str, str] = {}
    for line in text.split("\n"):
        number, *rest = line.split(":", 2)
        if number.isdigit() and len(rest) == 2 and rest[1].startswith("/"):
            membership.update(dict.fromkeys(rest[0].split(","), rest[1]))
    return membership


def _carries(mount: Mount, controller: str) -> bool:
    return mount.filesystem == "cgroup" and controller in mount.options


def _chain(
    tree: FileTree, version: int, path: str, mounts: list[Mount]
) -> tuple[ControlGroup, ...]:
    """Return the groups from ours upward. Of several mounts, use the one that shows our
    own group.
    """
    showing = (mount for mount in mounts if tree.exists(_folder(path, mount)))
    mount = next(showing, mounts[0])
    own = PurePosixPath(_folder(path, mount))
    return tuple(
        ControlGroup(version=version, folder=str(folder))
        for folder in (own, *own.parents)
        if folder.is_relative_to(mount.point) and tree.exists(str(folder))
    )


def _folder(path: str, mount: Mount) -> str:
    """Return the folder at which a mount shows a group, or the mount itself if that is unknown.

    A container sees a part of the hierarchy: without a cgroup namespace of its own the path still
    starts with the part's name, which the mount gives as its root. ``..`` stands for groups outside
    our namespace, whose names are hidden.
    """
    if ".." in path.split("/"):
        return mount.point
    inside = PurePosixPath(path)
    if inside.is_relative_to(mount.root):
        inside = inside.relative_to(mount.root)
    return str(PurePosixPath(mount.point) / str(inside).lstrip("/"))


# -- memory group ----------------------------------------------------------------------------------
# One memory cgroup of version 1 or 2: its limit, what is used of it, and how it fares.
#
# The groups around it and the machine's own memory are read elsewhere.


NO_LIMIT = (1 << 63) - 1  # version 1 writes this, rounded down to whole pages; version 2 "max"
STALL = re.compile(r"^(some|full) avg10=(\d{1,3}\.\d{1,9}) ", re.MULTILINE | re.ASCII)

Opener = Callable[[str], OpenFile | None]


class Interface(Value, frozen=True, kw_only=True):
    """What one version calls its files and counters.

    ``droppable`` is the cache that the kernel drops before it kills anything. Active file pages
    belong to it as much as inactive ones: a build reads its headers and objects more than once, so
    most of its cache is active; and MemAvailable, which is read where no group binds, counts both
    lists and the slab that can be reclaimed. Files in tmpfs are in neither list: they stay used.
    So do files that processes have mapped, such as compilers and precompiled headers: they would be
    read again and again. ``mapped`` includes mapped files in tmpfs, which are part of ``shmem``.
    """

    kind: LimitKind
    limits: tuple[str, ...]
    usage: str
    events: str
    droppable: tuple[str, ...]
    mapped: str
    shmem: str
    inherited: str | None  # the counter that includes the limits of groups that are not visible


INTERFACES = {
    1: Interface(
        kind=LimitKind.CGROUP_V1,
        limits=("memory.limit_in_bytes",),
        usage="memory.usage_in_bytes",
        events="memory.oom_control",
        droppable=("total_inactive_file", "total_active_file"),
        mapped="total_mapped_file",
        shmem="total_shmem",
        inherited="hierarchical_memory_limit",
    ),
    2: Interface(
        kind=LimitKind.CGROUP_V2,
        # Above memory.high nothing is killed, but all tasks are throttled so much that a build
        # makes no progress: the smaller of the two limits binds.
        limits=("memory.max", "memory.high"),
        usage="memory.current",
        events="memory.events",
        droppable=("inactive_file", "active_file", "slab_reclaimable"),
        mapped="file_mapped",
        shmem="shmem",
        inherited=None,
    ),
}
# The only ones that are read: a file has fifty of them, and is read many times a second.
COUNTERS = sorted(
    {
        name
        for interface in INTERFACES.values()
        for name in (
            *interface.droppable,
            interface.mapped,
            interface.shmem,
            interface.inherited,
            "oom_kill",
        )
        if name
    }
)
_COUNTER = re.compile(rf"^({'|'.join(COUNTERS)}) (\d{{1,20}})$", re.MULTILINE | re.ASCII)


class MemoryGroup:
    """A group's files, opened once."""

    def __init__(self, group: ControlGroup, opener: Opener):
        self._interface = INTERFACES[group.version]
        self._folder = group.folder
        limits = [opener(f"{group.folder}/{name}") for name in self._interface.limits]
        self._limits = [file for file in limits if file is not None]
        self._usage = opener(f"{group.folder}/{self._interface.usage}")
        self._counters = opener(f"{group.folder}/memory.stat")
        self._pressure = opener(f"{group.folder}/memory.pressure")
        whole = opener(f"{group.folder}/memory.oom.group")
        self.dies_as_one = whole is not None and whole.number() == 1

    def read(self, machine: MemoryLimit) -> MemoryLimit:
        """Return the group's limit, or the machine's if the group has no lower one."""
        limit = min(map(_read_limit, self._limits), default=NO_LIMIT)
        if limit >= machine.limit and self._interface.inherited is None:
            return machine  # without the cost of reading the counters
        counters = parse_counters(content(self._counters))
        limit = min(limit, counters.get(self._interface.inherited or "", NO_LIMIT))
        if limit >= machine.limit:
            return machine
        usage = self._usage.number() if self._usage else None
        # A limit applies even if its usage cannot be read; the machine's usage is a safe guess.
        used = min(machine.used, limit) if usage is None else max(0, usage - self._free(counters))
        return MemoryLimit(kind=self._interface.kind, where=self._folder, limit=limit, used=used)

    def _free(self, counters: Mapping[str, int]) -> int:
        """Return the memory that is in use and that the kernel can drop at no cost."""
        droppable = sum(counters.get(name, 0) for name in self._interface.droppable)
        mapped, shmem = self._interface.mapped, self._interface.shmem
        return max(0, droppable - max(0, counters.get(mapped, 0) - counters.get(shmem, 0)))

    def pressure(self) -> Pressure | None:
        return parse_pressure(content(self._pressure))


def parse_counters(text: str) -> dict[str, int]:
    """Return the counters that we use from lines of a name and a number, as in memory.stat."""
    return {name: int(digits) for name, digits in _COUNTER.findall(text)}


def parse_pressure(text: str) -> Pressure | None:
    shares = {kind: float(share) for kind, share in STALL.findall(text)}
    if shares.keys() != {"some", "full"}:
        return None
    return Pressure(some=shares["some"], full=shares["full"])


def _read_limit(file: OpenFile) -> int:
    text = content(file).strip()
    if text == "max":
        return NO_LIMIT
    limit = whole_number(text)
    if limit is None:
        limit = file.number()  # also notes what is wrong
    return NO_LIMIT if limit is None else limit


# -- counters --------------------------------------------------------------------------------------
# What the kernel counts: processes, those killed for lack of memory, and bytes written.


_IO_COUNTER = re.compile(r"^(\w+): (\d{1,20})$", re.MULTILINE | re.ASCII)


class KillCounter:
    """Counts the processes that the kernel killed for lack of memory in a process's own cgroup.

    Version 1 of cgroups counts a kill only in the victim's group, version 2 also in all groups
    above it, so the victim's own group is right for both. The file is opened once: a process that
    moves to another group is not followed.
    """

    def __init__(self, process: int | None, tree: FileTree | None = None):
        """Prepare the counter. ``process`` is None if it is unknown; the counter then
        reads None.
        """
        tree = tree or FileTree()
        found = groups(tree, "memory", process) if process else ()
        files = [f"{group.folder}/{INTERFACES[group.version].events}" for group in found[:1]]
        self._file = tree.open(files[0]) if files else None

    def read(self) -> int | None:
        """Return the number of kills, or None if no such counter can be read."""
        return parse_counters(content(self._file)).get("oom_kill")

    def close(self) -> None:
        if self._file:
            self._file.close()


def processes_allowed(tree: FileTree) -> float:
    """Return how many processes we may start. Containers often limit them."""
    return min(_processes_left(tree), default=inf)


def _processes_left(tree: FileTree) -> Iterator[int]:
    most, _ = resource.getrlimit(resource.RLIMIT_NPROC)
    if most != resource.RLIM_INFINITY and os.geteuid():  # root has no such limit
        yield most
    for group in groups(tree, "pids"):
        names = (f"{group.folder}/pids.{name}" for name in ("max", "current"))
        match [whole_number((tree.text(name) or "").strip()) for name in names]:
            case [int(most), int(now)]:  # "max" is no number
                yield max(0, most - now)


def read_written() -> int | None:
    """Return the bytes that this process and its finished children wrote to disks, if known.

    The kernel counts a page when it becomes dirty. Files in memory do not count, nor do files that
    were deleted before they were written out. Daemons, for which no parent waits, are not included.
    """
    try:
        return parse_written(Path("/proc/self/io").read_text("ascii"))
    except (OSError, UnicodeDecodeError):
        return None


def written_since(before: int | None) -> int | None:
    """Return the bytes written since an earlier count. A process that deletes what others wrote
    lowers the count.
    """
    now = read_written()
    return None if before is None or now is None else max(0, now - before)


def parse_written(text: str) -> int | None:
    counters = {name: int(digits) for name, digits in _IO_COUNTER.findall(text)}
    if "write_bytes" not in counters:
        return None
    return max(0, counters["write_bytes"] - counters.get("cancelled_write_bytes", 0))

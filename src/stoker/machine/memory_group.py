"""One memory cgroup of version 1 or 2: its limit, what is used of it, and how it fares.

The groups around it and the machine's own memory are read elsewhere.
"""

import re
from collections.abc import Callable, Mapping

from stoker.machine.cgroups import ControlGroup
from stoker.machine.file_tree import OpenFile, content_of
from stoker.model.machine import LimitKind, MemoryLimit, Pressure
from stoker.model.value import Value, whole_number

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
        counters = parse_counters(content_of(self._counters))
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
        return parse_pressure(content_of(self._pressure))


def parse_counters(text: str) -> dict[str, int]:
    """Return the counters that we use from lines of a name and a number, as in memory.stat."""
    return {name: int(digits) for name, digits in _COUNTER.findall(text)}


def parse_pressure(text: str) -> Pressure | None:
    shares = {kind: float(share) for kind, share in STALL.findall(text)}
    if shares.keys() != {"some", "full"}:
        return None
    return Pressure(some=shares["some"], full=shares["full"])


def _read_limit(file: OpenFile) -> int:
    text = content_of(file).strip()
    if text == "max":
        return NO_LIMIT
    limit = whole_number(text)
    if limit is None:
        limit = file.number()  # also notes what is wrong
    return NO_LIMIT if limit is None else limit

"""What the kernel counts: processes, those killed for lack of memory, and bytes written."""

import os
import re
import resource
from collections.abc import Iterator
from math import inf
from pathlib import Path

from stoker.machine.cgroups import groups
from stoker.machine.file_tree import FileTree, content_of
from stoker.machine.memory_group import INTERFACES, parse_counters
from stoker.model.value import whole_number

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
        return parse_counters(content_of(self._file)).get("oom_kill")

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
        return parse_written(Path("/proc/self/io").read_text("utf-8"))
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

"""Memory of this machine, and how much of the limit that binds is used now.

The machine's own memory and swap come from /proc/meminfo or, where there is none, from its
stand-ins. The meter is opened once; each reading is then a handful of ``pread`` calls. A limit that
is changed, set or lifted while the meter is open is seen by the next reading; that the process was
moved to another group is not: open a new meter. It decides nothing, and does not know what is being
built.
"""

import os
import platform
import re
from contextlib import ExitStack

from msgspec.structs import replace

from stoker.machine.cgroups import groups
from stoker.machine.file_tree import FileTree, OpenFile, content_of
from stoker.machine.memory_group import MemoryGroup, parse_pressure
from stoker.model.machine import MEMINFO, Memory
from stoker.model.value import whole_number

LINE = re.compile(
    r"^(MemTotal|MemAvailable|Mapped|Shmem|SwapTotal|SwapFree): +(\d+) kB$",
    re.MULTILINE | re.ASCII,
)


def parse_meminfo(text: str) -> Memory | None:
    """Return the memory of the machine; ``None`` if either of the two required numbers is
    missing. Mapped files, such as programs, do not count as available: they would be read again.
    """
    sizes = {name: (whole_number(digits) or 0) * 1024 for name, digits in LINE.findall(text)}
    if "MemTotal" not in sizes or "MemAvailable" not in sizes:
        return None
    mapped = max(0, sizes.get("Mapped", 0) - sizes.get("Shmem", 0))
    return Memory.without_groups(
        total=sizes["MemTotal"],
        available=max(0, min(sizes["MemAvailable"], sizes["MemTotal"]) - mapped),
        swap_total=sizes.get("SwapTotal", 0),
        swap_free=sizes.get("SwapFree", 0),
    )


def ask_c_library() -> Memory:
    """Return a coarser reading: reclaimable cache does not count as available, and swap is
    unknown.
    """
    page = os.sysconf("SC_PAGE_SIZE")
    total = os.sysconf("SC_PHYS_PAGES") * page
    free_pages = "SC_AVPHYS_PAGES"  # not on macOS
    free = os.sysconf(free_pages) * page if free_pages in os.sysconf_names else total
    return Memory.without_groups(total=total, available=free)


class Meter:
    """Reads memory usage repeatedly; close it or use it in a ``with`` block."""

    def __init__(self, tree: FileTree | None = None):
        self._tree = tree or FileTree()
        self._closing = ExitStack()
        self._meminfo = self._open(MEMINFO)
        self._pressure = self._open("/proc/pressure/memory")
        # The outermost first: of equal limits it has more users, so it is reached first.
        outward = groups(self._tree, "memory")
        self._groups = [MemoryGroup(group, self._open) for group in reversed(outward)]

    def reading(self) -> Memory:
        machine = self._read_machine()
        limits = [machine.limit, *(group.read(machine.limit) for group in self._groups)]
        binding = min(range(len(limits)), key=lambda index: limits[index].limit)
        # Groups of version 1 have no pressure; then that of the whole machine counts.
        own = self._groups[binding - 1].pressure() if binding else None
        return replace(
            machine,
            limit=replace(
                limits[binding],
                kills_group=any(group.dies_as_one for group in self._groups[max(0, binding - 1) :]),
            ),
            available=min(limit.free for limit in limits),
            pressure=own or parse_pressure(content_of(self._pressure)),
        )

    def close(self) -> None:
        self._closing.close()

    def __enter__(self) -> "Meter":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _open(self, name: str) -> OpenFile | None:
        file = self._tree.open(name)
        if file is not None:
            self._closing.callback(file.close)
        return file

    def _read_machine(self) -> Memory:
        if platform.system() == "Darwin":
            from stoker.machine.macos import macos_memory

            return macos_memory() or ask_c_library()
        memory = parse_meminfo(content_of(self._meminfo))
        if memory is None:
            self._tree.note(f"{MEMINFO} does not say how much memory is available")
        return memory or ask_c_library()


def read_memory(tree: FileTree) -> Memory:
    """Read the meter once."""
    with Meter(tree) as meter:
        return meter.reading()

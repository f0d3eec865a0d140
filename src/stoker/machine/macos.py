"""Reads on macOS, from its own programs, what other modules read from /proc on Linux."""

import re

from stoker.machine.file_tree import Mount
from stoker.model.errors import MissingError
from stoker.model.machine import Memory
from stoker.outside import process

_TIMEOUT_S = 5.0
# The pages that macOS hands out without swapping anything out.
FREE_PAGES = ("Pages free", "Pages inactive", "Pages speculative", "Pages purgeable")
UNITS = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}


def macos_answer(*command: str) -> str:
    """Return the output of a program; empty if it is missing or does not answer."""
    try:
        return process.run(command, timeout=_TIMEOUT_S).stdout.strip()
    except MissingError:
        return ""


def macos_cpu_model() -> str:
    return macos_answer("sysctl", "-n", "machdep.cpu.brand_string")


def macos_memory() -> Memory | None:
    return parse_memory(
        macos_answer("sysctl", "-n", "hw.memsize"),
        macos_answer("vm_stat"),
        macos_answer("sysctl", "-n", "vm.swapusage"),
    )


def parse_memory(size: str, statistics: str, swap: str) -> Memory | None:
    page = re.search(r"page size of (\d{1,9}) bytes", statistics, re.ASCII)
    pages = re.findall(r"^(Pages \w+): +(\d{1,18})\.", statistics, re.MULTILINE | re.ASCII)
    if not re.fullmatch(r"\d{1,18}", size, re.ASCII) or page is None:
        return None
    free = sum(int(count) for name, count in pages if name in FREE_PAGES) * int(page[1])
    return Memory.without_groups(
        total=int(size),
        available=min(free, int(size)),
        swap_total=_swap("total", swap),
        swap_free=_swap("free", swap),
    )


def _swap(name: str, text: str) -> int:
    found = re.search(rf"{name} = (\d{{1,9}}(?:\.\d+)?)([KMGT])", text, re.ASCII)
    return int(float(found[1]) * UNITS[found[2]]) if found else 0


def parse_macos_mounts(text: str) -> tuple[Mount, ...]:
    """Return the mounts from lines like ``/dev/disk3s1 on /System/Volumes/Data (apfs, local)``."""
    lines = re.findall(r"^.+? on (/.*) \((\w+)", text, re.MULTILINE)
    return tuple(
        Mount(root="/", point=point, filesystem=filesystem, options=())
        for point, filesystem in lines
    )

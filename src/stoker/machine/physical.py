"""The machine's own memory and swap, from /proc/meminfo or, where there is none, its stand-ins.

Control groups are read elsewhere.
"""

import os
import re

from stoker.model.units import whole_number
from stoker.model.value import Value

MEMINFO = "/proc/meminfo"
LINE = re.compile(
    r"^(MemTotal|MemAvailable|Mapped|Shmem|SwapTotal|SwapFree): +(\d+) kB$",
    re.MULTILINE | re.ASCII,
)


class Physical(Value, frozen=True, kw_only=True):
    total: int
    available: int
    swap_total: int = 0
    swap_free: int = 0


def parse_meminfo(text: str) -> Physical | None:
    """Return the memory of the machine; ``None`` if either of the two required numbers is
    missing. Mapped files, such as programs, do not count as available: they would be read again.
    """
    sizes = {name: (whole_number(digits) or 0) * 1024 for name, digits in LINE.findall(text)}
    if "MemTotal" not in sizes or "MemAvailable" not in sizes:
        return None
    mapped = max(0, sizes.get("Mapped", 0) - sizes.get("Shmem", 0))
    return Physical(
        total=sizes["MemTotal"],
        available=max(0, min(sizes["MemAvailable"], sizes["MemTotal"]) - mapped),
        swap_total=sizes.get("SwapTotal", 0),
        swap_free=sizes.get("SwapFree", 0),
    )


def ask_c_library() -> Physical:
    """Return a coarser reading: reclaimable cache does not count as available, and swap is
    unknown.
    """
    page = os.sysconf("SC_PAGE_SIZE")
    total = os.sysconf("SC_PHYS_PAGES") * page
    free_pages = "SC_AVPHYS_PAGES"  # not on macOS
    free = os.sysconf(free_pages) * page if free_pages in os.sysconf_names else total
    return Physical(total=total, available=free)

"""Bytes that this process, and all that it started and outlived, wrote to disks.

The kernel counts a page for whoever makes it dirty, where there is a disk behind it: files in
memory do not count. What was deleted before it was written out does not count either. A daemon that
nobody waits for is missing.
"""

import re
from pathlib import Path

_COUNTER = re.compile(r"^(\w+): (\d{1,20})$", re.MULTILINE | re.ASCII)


def read_written() -> int | None:
    """None where the system does not count it."""
    try:
        return parse_written(Path("/proc/self/io").read_text("ascii"))
    except (OSError, UnicodeDecodeError):
        return None


def parse_written(text: str) -> int | None:
    counters = {name: int(digits) for name, digits in _COUNTER.findall(text)}
    if "write_bytes" not in counters:
        return None
    return max(0, counters["write_bytes"] - counters.get("cancelled_write_bytes", 0))

"""Reads /proc/self/mountinfo. Does not look at what is mounted."""

import re
from pathlib import PurePosixPath

from stoker.model.value import Value

ESCAPE = re.compile(r"\\([0-7]{3})")


class Mount(Value, frozen=True, kw_only=True):
    """A mount. ``root`` is the part of the file system that is visible at ``point``."""

    root: str
    point: str
    filesystem: str
    options: tuple[str, ...]  # of the file system itself; for cgroup v1 its controllers

    def holds(self, path: str) -> bool:
        return PurePosixPath(path).is_relative_to(self.point)


def parse_mounts(text: str) -> tuple[Mount, ...]:
    """Return the mounts in mount order. Lines of another form are skipped."""
    mounts = (_parse_line(line) for line in text.split("\n"))
    return tuple(mount for mount in mounts if mount is not None)


def _parse_line(line: str) -> Mount | None:
    fields = line.split(" ")
    # The sixth field is followed by any number of optional ones, then a single dash.
    dash = fields.index("-", 6) if "-" in fields[6:] else len(fields)
    if len(fields) < dash + 4:
        return None
    return Mount(
        root=unescape(fields[3]),
        point=unescape(fields[4]),
        filesystem=fields[dash + 1],
        options=tuple(fields[dash + 3].split(",")),
    )


def unescape(text: str) -> str:
    r"""Return a path in which ``\040`` and similar escapes of the kernel are replaced."""
    return ESCAPE.sub(lambda match: chr(int(match[1], 8)), text)


def mount_of(path: str, mounts: tuple[Mount, ...]) -> Mount | None:
    """Return the mount that contains a resolved path: the deepest, and among equals the last."""
    holding = [mount for mount in mounts if mount.holds(path)]
    return max(reversed(holding), key=lambda mount: len(mount.point), default=None)

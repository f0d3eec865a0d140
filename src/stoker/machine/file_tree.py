"""Small files below a root, the machine's own or a recorded tree in a test, the mounts there, and
the programs of a PATH.

A file that is not there is an answer; one that is there and cannot be used becomes a note.
"""

import os
import re
from collections.abc import Iterable, Mapping
from errno import ENODEV, ENOENT, ENOTDIR, EOPNOTSUPP
from functools import lru_cache
from pathlib import Path

from stoker.model.value import Value, whole_number
from stoker.outside.looking import matching

# The kernel writes each file that is metered in one piece, and none of them is longer.
ONE_READ = 1 << 16

# A cgroup removed meanwhile answers ENODEV, a pressure file of a kernel without PSI EOPNOTSUPP.
NOT_THERE = (ENOENT, ENOTDIR, ENODEV, EOPNOTSUPP)
ESCAPE = re.compile(r"\\([0-7]{3})")


class FileTree:
    """Reads files below ``root`` and notes what could not be read, once each."""

    def __init__(self, root: Path = Path("/")):
        self.root = root
        self._notes: dict[str, None] = {}

    @property
    def notes(self) -> tuple[str, ...]:
        return tuple(self._notes)

    def note(self, text: str) -> None:
        self._notes[text] = None

    def path(self, name: str) -> Path:
        return self.root / name.lstrip("/")

    def exists(self, name: str) -> bool:
        try:
            return self.path(name).exists()
        except (OSError, ValueError):  # a folder closed to us, or a NUL in the name
            return False

    def matching(self, pattern: str) -> list[Path]:
        """Return the paths that match, those with greater numbers in their names first."""
        return newest_first(matching(self.root, pattern.lstrip("/")))

    def text(self, name: str) -> str | None:
        """Return the content; ``None`` if there is no such file, or if a note says why it is
        unreadable.
        """
        try:
            return self.path(name).read_bytes().decode(errors="replace")
        except (OSError, ValueError) as error:
            self.unreadable(name, error)
            return None

    def open(self, name: str) -> "OpenFile | None":
        """Open a file that is read repeatedly; the caller closes it."""
        try:
            return OpenFile(self, name)
        except (OSError, ValueError) as error:
            self.unreadable(name, error)
            return None

    def unreadable(self, name: str, error: OSError | ValueError) -> None:
        if getattr(error, "errno", None) not in NOT_THERE:
            self.note(f"cannot read {name}: {getattr(error, 'strerror', None) or error}")


class OpenFile:
    """A file of the kernel that is opened once and read from its start any number of times."""

    def __init__(self, tree: FileTree, name: str):
        self.name = name
        self._tree = tree
        self._descriptor = os.open(tree.path(name), os.O_RDONLY)

    def text(self) -> str | None:
        try:
            return os.pread(self._descriptor, ONE_READ, 0).decode(errors="replace")
        except OSError as error:
            self._tree.unreadable(self.name, error)
            return None

    def number(self) -> int | None:
        """Return the one whole number in the file; note any other content."""
        text = self.text()
        if text is None:
            return None
        number = whole_number(text.strip())
        if number is None:
            self._tree.note(f"{self.name} holds no number: {text.strip()[:40]!r}")
        return number

    def close(self) -> None:
        os.close(self._descriptor)


def newest_first(paths: Iterable[Path]) -> list[Path]:
    """Sort by the numbers in the paths, so that cuda-12.10 comes before cuda-12.9."""

    def key(path: Path) -> list[tuple[int, str]]:
        pieces = re.findall(r"\d{1,18}|\D+", str(path), re.ASCII)
        return [(int(piece), "") if piece.isdecimal() else (-1, piece) for piece in pieces]

    return sorted(paths, key=key, reverse=True)


def content_of(file: OpenFile | None) -> str:
    """Return the current content of a file; empty if it does not exist."""
    return (file.text() if file else None) or ""


class Mount(Value, frozen=True, kw_only=True):
    """A mount. ``root`` is the part of the file system that is visible at ``point``."""

    root: str
    point: str
    filesystem: str
    options: tuple[str, ...]  # of the file system itself; for cgroup v1 its controllers

    def holds(self, path: str) -> bool:
        """Return whether an absolute path without ``..`` lies in it."""
        return path == self.point or path.startswith(f"{self.point.rstrip('/')}/")


@lru_cache(maxsize=2)  # a run looks for several controllers and disks in the same text
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


def programs_on_path(pattern: str, environment: Mapping[str, str]) -> set[str]:
    """Return the names of all programs on the PATH that a pattern for files matches."""
    folders = filter(None, environment.get("PATH", "").split(":"))
    return {path.name for folder in folders for path in matching(Path(folder), pattern)}


def installed_gccs(environment: Mapping[str, str]) -> tuple[int, ...]:
    """Return the major versions of g++ that are installed beside the default one, as g++-N."""
    endings = (name[4:] for name in programs_on_path("g++-[0-9]*", environment))
    return tuple(sorted(int(ending) for ending in endings if ending.isdecimal()))

"""The files of one source tree: walking them, reading them as text, noting what could not be read.

Does not interpret the files.
"""

import os
import stat
from collections.abc import Iterator
from pathlib import Path

# What a tree carries of others, what was built in it, and what its tests feed on.
_SKIPPED = {
    "3rdparty",
    "__pycache__",
    "build",
    "node_modules",
    "test_data",
    "testdata",
    "third-party",
    "third_party",
    "thirdparty",
    "vendor",
}
_MADE_HERE = {"CMakeCache.txt", "pyvenv.cfg"}  # a build folder or environment of any name
_MOST_FILES = 200_000
_MOST_BYTES = 8 << 20
_MOST_NOTES = 1000


class TreeFiles:
    """Reads files below ``root`` and notes what could not be read, and why."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._notes: dict[str, None] = {}

    @property
    def notes(self) -> list[str]:
        return list(self._notes)

    def walk(self) -> Iterator[str]:
        """Yield the tree's own files relative to it, folder by folder, sorted by name."""
        seen = 0
        for folder, subfolders, names in os.walk(self.root):
            relative = os.path.relpath(folder, self.root)
            if relative != "." and not _MADE_HERE.isdisjoint(names):
                subfolders.clear()
                continue
            subfolders[:] = sorted(
                name
                for name in subfolders
                if name not in _SKIPPED and not name.startswith(".") and _is_text(name)
            )
            for name in sorted(filter(_is_text, names)):
                yield name if relative == "." else f"{relative}/{name}"
            seen += len(names)
            if seen > _MOST_FILES:
                self.note(f"more than {_MOST_FILES:,} files: those after {relative} were not read")
                return

    def is_file(self, relative: str) -> bool:
        try:
            return (self.root / relative).is_file()
        except (OSError, ValueError):  # such as a name that is too long
            return False

    def is_filled(self, relative: str) -> bool:
        """Return whether there is such a folder and it is not empty."""
        try:
            return any((self.root / relative).iterdir())
        except (OSError, ValueError):  # a null byte in the name is a wrong value
            return False

    def text(self, relative: str) -> str | None:
        """Return the content of a file; ``None`` if it is missing or unreadable."""
        path = self.root / relative
        try:
            status = path.stat()
            # Opening a pipe would wait for ever, reading a device might.
            if not stat.S_ISREG(status.st_mode):
                return None
            if status.st_size > _MOST_BYTES:
                self.note(f"{relative}: not read, {status.st_size:,} bytes are too many")
                return None
            return self._decoded(relative, path.read_bytes())
        except (FileNotFoundError, NotADirectoryError, ValueError):
            return None
        except OSError as error:
            self.note(f"{relative}: cannot be read: {error.strerror}")
            return None

    def note(self, what: str) -> None:
        if len(self._notes) < _MOST_NOTES:
            self._notes[what] = None

    def _decoded(self, relative: str, content: bytes) -> str:
        try:
            return content.decode("utf-8-sig")
        except UnicodeDecodeError as error:
            line = content.count(b"\n", 0, error.start) + 1
            self.note(f"{relative}:{line}: not UTF-8; bytes that cannot be decoded were replaced")
            return content.decode("utf-8-sig", errors="replace")


def _is_text(name: str) -> bool:
    """Return whether a name is valid text: other names could not be stored in a record."""
    return name.isascii() or not any("\ud800" <= character <= "\udfff" for character in name)

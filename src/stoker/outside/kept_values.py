"""Keeps answers that took time: what builds said when they were asked, what wheels contain."""

import hashlib
import os
from pathlib import Path
from typing import Generic, TypeVar

import msgspec

from stoker.outside import folders
from stoker.outside.deleting import remove_file
from stoker.outside.files import read_json, write_whole

T = TypeVar("T")
_LEFT_OUT = {".git", "__pycache__"}


def root() -> Path:
    """Return the folder that has a folder for each kind."""
    return folders.cache() / "answers"


class KeptValues(Generic[T]):
    """The newest values of one kind, each a JSON file that only the user can read. The name of a
    value says what it depends on: when that changes, nothing is found under the new name.
    """

    def __init__(self, folder: str, kind: type[T], *, most: int):
        self._folder = folder
        self._kind = kind
        self._most = most

    def recall(self, name: str) -> T | None:
        return read_json(self._file(name), self._kind)

    def keep(self, name: str, value: T) -> None:
        """Keep a value, and forget those that were kept first if there are too many."""
        file = self._file(name)
        file.parent.mkdir(parents=True, exist_ok=True)
        write_whole(file, msgspec.json.encode(value), private=True)
        by_age = sorted(file.parent.glob("*.json"), key=lambda path: -time_of(path))
        for path in by_age[self._most :]:
            remove_file(path)

    def _file(self, name: str) -> Path:
        return root() / self._folder / f"{name}.json"


def name_of(*parts: object) -> str:
    """Return a name for a value that depends on these parts."""
    return hashlib.sha256(msgspec.json.encode(parts)).hexdigest()[:32]


def time_of(path: str | Path) -> int:
    """Return when a file was changed, in nanoseconds; 0 for one that is missing."""
    try:
        return Path(path).stat().st_mtime_ns
    except OSError:
        return 0


def tree_digest(tree: Path) -> str:
    """Return a value that changes with any file of a tree: names, sizes, times."""
    digest = hashlib.sha256()
    for folder, names, files in os.walk(tree):
        names[:] = sorted(name for name in names if name not in _LEFT_OUT)
        for name in sorted(files):
            path = os.path.join(folder, name)  # noqa: PTH118
            try:
                found = os.lstat(path)
            except OSError:
                continue
            digest.update(os.fsencode(f"{path}\0{found.st_size}\0{found.st_mtime_ns}\0"))
    return digest.hexdigest()

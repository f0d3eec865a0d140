"""Digests of what goes into a stage."""

import hashlib
import os
from collections.abc import Collection, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec

# What git, editors and Python keep in a tree.
_LEFT_OUT = (".git", "__pycache__")
_LEFT_OUT_ENDS = (".egg-info", ".pyc", ".swp", "~")


def digest(value: Any) -> str:
    """Of anything that can be written as JSON."""
    return hashlib.sha256(msgspec.json.encode(value, order="deterministic")).hexdigest()


def file_digest(path: Path) -> str:
    """Nothing where there is no such file."""
    try:
        with path.open("rb") as stream:
            return hashlib.file_digest(stream, "sha256").hexdigest()
    except OSError:
        return ""


def tree_state(
    root: Path, *, names: tuple[str, ...] = ("",), without: Collection[Path] = ()
) -> str:
    """Of all files whose name ends with one of ``names``: where they are, sizes and times."""
    state = hashlib.sha256()
    for line in file_lines(root, names, {os.fspath(path) for path in without}):
        state.update(os.fsencode(line))
    return state.hexdigest()


def file_lines(
    root: Path, names: tuple[str, ...] = ("",), without: Collection[str] = ()
) -> Iterator[str]:
    """Yield a line for each file; one that vanishes while the tree is walked has none."""
    for folder, subfolders, files in os.walk(root):
        subfolders[:] = sorted(
            name
            for name in subfolders
            if _counts(name) and os.path.join(folder, name) not in without  # noqa: PTH118
        )
        place = os.path.relpath(folder, root)
        for name in sorted(files):
            if not _counts(name) or not name.endswith(names):
                continue
            with suppress(FileNotFoundError):  # an editor or the build itself may be at work
                status = os.lstat(os.path.join(folder, name))  # noqa: PTH118
                yield f"{place}/{name}\0{status.st_size}\0{status.st_mtime_ns}\0{status.st_mode}\n"


def _counts(name: str) -> bool:
    return name not in _LEFT_OUT and not name.endswith(_LEFT_OUT_ENDS)

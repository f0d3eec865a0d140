"""Digests of the inputs of a stage."""

import hashlib
import os
from collections.abc import Collection, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from stoker.model.errors import StorageError
from stoker.model.value import json_bytes
from stoker.outside.files import sha256_of

# Files and folders that git, editors and Python keep in a tree.
_LEFT_OUT = (".git", "__pycache__")
_LEFT_OUT_ENDS = (".egg-info", ".pyc", ".swp", "~")


def digest(value: Any) -> str:
    """Return the digest of a value that can be written as JSON."""
    return hashlib.sha256(json_bytes(value, "deterministic")).hexdigest()


def file_digest(path: Path) -> str:
    """Return the digest of a file's content, or an empty text if it cannot be read."""
    try:
        return sha256_of(path)
    except StorageError:
        return ""


def installed_files(build: Path) -> Iterator[Path]:
    """Yield the files that CMake's install step wrote, which may lie in the source tree."""
    for manifest in sorted(build.glob("install_manifest*.txt")):
        yield from map(Path, manifest.read_text(errors="surrogateescape").splitlines())


def tree_state(
    root: Path, *, names: tuple[str, ...] = ("",), without: Collection[Path] = ()
) -> str:
    """Return a digest of the paths, sizes and times of files whose names end with ``names``."""
    state = hashlib.sha256()
    for line in file_lines(root, names, {os.fspath(path) for path in without}):
        state.update(os.fsencode(line))
    return state.hexdigest()


def file_lines(
    root: Path, names: tuple[str, ...] = ("",), without: Collection[str] = ()
) -> Iterator[str]:
    """Yield a line for each file; a file that vanishes during the walk is left out."""
    for folder, subfolders, files in os.walk(root):
        subfolders[:] = sorted(
            name
            for name in subfolders
            if _counts(name) and os.path.join(folder, name) not in without  # noqa: PTH118
        )
        place = os.path.relpath(folder, root)
        for name in sorted(files):
            path = os.path.join(folder, name)  # noqa: PTH118
            if not _counts(name) or not name.endswith(names) or path in without:
                continue
            with suppress(FileNotFoundError):  # an editor or the build itself may delete it
                status = os.lstat(path)
                yield f"{place}/{name}\0{status.st_size}\0{status.st_mtime_ns}\0{status.st_mode}\n"


def _counts(name: str) -> bool:
    return name not in _LEFT_OUT and not name.endswith(_LEFT_OUT_ENDS)

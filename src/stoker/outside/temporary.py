"""Temporary folders that are deleted with their process, or by the next one if it is killed."""

import glob
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from stoker.model.errors import StokerError
from stoker.outside import locks
from stoker.outside.files import remove_tree
from stoker.outside.folders import unwritable


@contextmanager
def folder_of_process(parent: Path, prefix: str) -> Iterator[Path]:
    """Create and yield a new folder in ``parent``, and delete the folders of killed processes."""
    sweep(parent, prefix)
    path = parent / f"{prefix}{os.getpid()}-{os.urandom(4).hex()}"
    # The lock is created first and deleted last: a folder without a held lock is a leftover.
    with locks.held(_lock_of(path)):
        try:
            try:
                path.mkdir(mode=0o700)
            except OSError as error:
                raise unwritable(parent, error, doing="write in") from error
            yield path
        finally:
            _remove(path)


def sweep(parent: Path, prefix: str) -> None:
    """Delete the folders that killed processes left in ``parent``."""
    found = parent.glob(f"{glob.escape(prefix)}*")
    for path in {path.with_suffix("") if path.suffix == ".lock" else path for path in found}:
        # Deleted while its lock is held, so that no process that starts to use it is disturbed.
        with suppress(OSError, StokerError):
            if _is_mine(path) and _is_mine(_lock_of(path)):
                with locks.held(_lock_of(path)):
                    _remove(path)


def _is_mine(path: Path) -> bool:
    """Return whether the folder belongs to this user: other users' folders must not be deleted."""
    return not os.path.lexists(path) or path.lstat().st_uid == os.geteuid()


def _remove(path: Path) -> None:
    """Remove a folder. Ignore files that cannot be removed, so that they do not hide the result."""
    remove_tree(path)
    with suppress(OSError):
        _lock_of(path).unlink()


def _lock_of(path: Path) -> Path:
    return path.with_name(f"{path.name}.lock")

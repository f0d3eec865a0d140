"""Makes a folder under a temporary name, and deletes what killed processes left.

It stands beside the folder it will become, and holds a lock that dies with its makers. So a
leftover is known by its name and its free lock, at once and on any file system.
"""

import fcntl
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from stoker.model.value import Value
from stoker.outside import files
from stoker.outside.deleting import remove_tree

_WORK = ".work"
_LOCK = "lock"
_YOUNG = 60  # seconds in which a maker has surely put its lock in place, or renamed the folder


class Making(Value, frozen=True, kw_only=True):
    """A folder that is being made. ``home`` is the folder to fill; ``work`` inside it is deleted at
    the end.
    """

    home: Path
    work: Path
    lock: int  # a file descriptor, for programs that write here and may outlive us


@contextmanager
def making(path: Path) -> Iterator[Making]:
    """Yield a folder that becomes ``path`` if the block succeeds, and is deleted if it fails."""
    with files.folder_made_whole(path) as home:
        work = home / _WORK
        work.mkdir()
        with (work / "new").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            (work / "new").rename(work / _LOCK)  # where it is never seen free while we live
            yield Making(home=home, work=work, lock=lock.fileno())


def sweep_leftovers(folder: Path, name: str | None = None) -> list[Path]:
    """Delete what killed processes left of ``name``, or of any; return those being made."""
    asides = files.leftovers(folder, name)
    busy = [aside for aside in asides if _is_being_made(aside)]
    for aside in asides:
        if aside not in busy:
            remove_tree(aside)
    return busy


def _is_being_made(aside: Path) -> bool:
    try:
        with (aside / _WORK / _LOCK).open("r+") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except FileNotFoundError:
        with suppress(FileNotFoundError):
            return time.time() - aside.stat().st_mtime < _YOUNG
    except OSError:  # held, or another user's
        return True
    return False

"""Stops a build before the disk that it writes to is full.

A disk that is full to the last byte breaks the records that a build needs to resume.
"""

import signal
from pathlib import Path

from stoker.model.value import size
from stoker.outside import files

_LEAST_FREE = 256 << 20  # bytes of disk that the end of a build needs for logs, records and links
_LEAST_FREE_SHARE = 100  # of a small disk, a hundredth is enough
_GRACE_S = 20.0  # seconds in which a command that was told to end does so by itself


def least_free(*, total: int, free: int) -> int:
    """Return the bytes that must stay free on a disk; with less, the build stops."""
    return min(_LEAST_FREE, total // _LEAST_FREE_SHARE, free // 2)


class DiskGuard:
    """Watches the file system of a folder. ``shortage`` is the message once it has run short.

    ``growth`` is how many bytes the file system may take; without it, all but a reserve.
    """

    def __init__(self, folder: Path, growth: int | None = None):
        self.shortage: str | None = None
        self._folder = folder
        self._found = 0.0
        # A folder that does not exist yet will be on the file system of its parent.
        self._seen = next(path for path in (folder, *folder.parents) if path.exists())
        total, free = files.room_on_disk(self._seen)
        self._least = least_free(total=total, free=free)
        if growth is not None:
            self._least = max(self._least, free - growth)

    def check(self, now: float) -> signal.Signals | None:
        """Return the signal to send to the command now, if any."""
        if self.shortage is not None:
            return signal.SIGKILL if now - self._found > _GRACE_S else None
        try:
            _, free = files.room_on_disk(self._seen)
        except OSError:
            return None  # the folder is gone, and the command will report that itself
        if free >= self._least:
            return None
        self._found = now
        self.shortage = (
            f"the build was stopped: {self._folder} has room for {size(free)} more, "
            f"and {size(self._least)} must stay free"
        )
        return signal.SIGTERM

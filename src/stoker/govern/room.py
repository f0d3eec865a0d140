"""Room on the disk that a build fills: watched, and the build stopped while there is some left.

A disk that is full to the last byte breaks the records by which a build goes on.
"""

import signal
from pathlib import Path

from stoker.model.units import size
from stoker.outside import files
from stoker.plan.scratch import least_free

_MERCY = 20.0  # seconds in which a command ends by itself when it is told to


class Room:
    """``shortage`` says what was found, in words, once it was.

    ``growth``: bytes by which the file system may fill up, where that is not all that it has.
    """

    def __init__(self, folder: Path, growth: int | None = None):
        self.shortage: str | None = None
        self._folder = folder
        self._found = 0.0
        # It may be made later, and then lies where the folder round it does.
        self._seen = next(path for path in (folder, *folder.parents) if path.exists())
        total, free = files.room_on_disk(self._seen)
        self._least = least_free(total=total, free=free)
        if growth is not None:
            self._least = max(self._least, free - growth)

    def look(self, now: float) -> signal.Signals | None:
        """The signal that the command must be sent now, if any."""
        if self.shortage is not None:
            return signal.SIGKILL if now - self._found > _MERCY else None
        try:
            _, free = files.room_on_disk(self._seen)
        except OSError:
            return None  # the folder is gone, which is for others to say
        if free >= self._least:
            return None
        self._found = now
        self.shortage = (
            f"the build was stopped: {self._folder} has room for {size(free)} more, "
            f"and {size(self._least)} must stay free"
        )
        return signal.SIGTERM

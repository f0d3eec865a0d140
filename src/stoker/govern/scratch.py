"""The folder of a run's temporary files: in memory or on disk, gone when the run is.

Each step has a folder of its own in what the link ``path`` leads to; the launcher follows the link
once, so that a step stays where it began when the link is switched.
"""

import os
import stat
from contextlib import AbstractContextManager, ExitStack, suppress
from pathlib import Path

from stoker.model.errors import StorageError
from stoker.model.machine import Scratch
from stoker.model.value import size
from stoker.outside import files
from stoker.outside.files import folder_of_process, sweep
from stoker.outside.folders import private_folder

_PREFIX = "run-"


class ScratchFolder:
    """Creates the folder for temporary files of a run, and removes it when the ``with``
    block ends.
    """

    def __init__(self, scratch: Scratch):
        self.path = Path(scratch.disk)
        self._scratch = scratch
        self._stack = ExitStack()
        self._disk = self.path
        self._ram: Path | None = None
        self._in_ram = False
        self._failed = False  # whether the last switch failed, because the disk was full

    def __enter__(self) -> "ScratchFolder":
        try:
            self._make()
        except (OSError, StorageError):
            # A launcher that can make no folder there leaves TMPDIR as it is.
            self._stack.close()
            self.path, self._ram = Path(self._scratch.disk), None
        return self

    def _make(self) -> None:
        for place in self._scratch.places:
            _sweep(_base(Path(place)))
        self._disk = self._stack.enter_context(folder_of_run(Path(self._scratch.disk)))
        if self._scratch.ram:
            self._ram = self._stack.enter_context(folder_of_run(Path(self._scratch.ram)))
        (self._disk / "steps").mkdir()
        self.path = self._disk / "now"
        self._switch(to_ram=self._ram is not None)

    def __exit__(self, *_: object) -> None:
        with suppress(OSError):  # an empty folder is deleted sooner
            (self._disk / "now").unlink(missing_ok=True)
            (self._disk / "steps").rmdir()
        self._stack.close()

    def look(self) -> str | None:
        """Send new steps to disk while memory holds more than its share; return a message when that
        begins.

        A switch that fails, on a full disk, leaves everything as it is and is tried again.
        """
        if self._ram is None:
            return None
        used = files.size_on_disk(self._ram)
        to_ram = used <= (self._scratch.most if self._in_ram else self._scratch.most // 2)
        if to_ram == self._in_ram:
            return None
        said_before = self._failed
        try:
            self._switch(to_ram=to_ram)
            self._failed = False
            what = "those of new steps go to disk"
        except OSError as error:
            self._failed = True
            what = f"those of new steps cannot go to disk: {error.strerror}"
        if to_ram or (self._failed and said_before):
            return None
        return f"temporary files take {size(used)} of memory: {what}"

    def _switch(self, *, to_ram: bool) -> None:
        goal = self._ram if to_ram and self._ram else self._disk / "steps"
        aside = self.path.with_name("next")
        aside.unlink(missing_ok=True)
        aside.symlink_to(goal)
        aside.replace(self.path)
        self._in_ram = to_ram


def folder_of_run(parent: Path) -> AbstractContextManager[Path]:
    """Create a folder that is removed with its run; if that is killed, by the next run."""
    return folder_of_process(private_folder(_base(parent)), _PREFIX)


def _base(parent: Path) -> Path:
    return parent / f"stoker-{os.getuid()}-steps"


def _sweep(base: Path) -> None:
    """Remove what killed runs left, in a folder of our own."""
    try:
        found = base.lstat()
    except OSError:
        return
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid():
        return
    sweep(base, _PREFIX)

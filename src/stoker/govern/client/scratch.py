"""The disk space of a run: where its temporary files are, and when a full disk stops it.

Files in memory count towards every memory limit of the build, but not towards any step, so the
governor sees them as the memory of other processes. They get a small share, if there is plenty.
The folder is gone when the run is. Each step has a folder of its own in what the link ``path``
leads to; the launcher follows the link once, so that a step stays where it began when the link is
switched.

A disk that is full to the last byte breaks the records that a build needs to resume.
"""

import os
import signal
import stat
from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager, ExitStack, suppress
from pathlib import Path

from stoker.model.errors import StorageError, UsageError
from stoker.model.machine import Disk, Scratch, Tmp
from stoker.model.value import size
from stoker.outside import files
from stoker.outside.deleting import remove_empty, remove_file
from stoker.outside.files import folder_of_process, sweep
from stoker.outside.folders import private_folder

_SHARE = 10  # temporary files may fill a tenth of memory
_TREE_SHARE = 2  # a build tree may fill half of the free memory
_LEAST = 256 << 20  # bytes; a smaller place fills up immediately
_LEAST_FOR_A_CPU = 64 << 20  # bytes; the assembler's input for a large C++ file
_NO_TREE = "leave out --build-in-ram"
_PREFIX = "run-"
_LEAST_FREE = 256 << 20  # bytes of disk that the end of a build needs for logs, records and links
_LEAST_FREE_SHARE = 100  # of a small disk, a hundredth is enough
_GRACE_S = 20.0  # seconds in which a command that was told to end does so by itself


def choose_scratch(
    wish: Tmp, places: Sequence[Disk], *, named: bool, memory: int, cpus: int
) -> Scratch:
    """Choose among ``places``, of which the first is the default or was ``named`` by the user."""
    usual, paths = places[0], tuple(place.path for place in places)
    on_disk = [place for place in places if not place.in_memory]
    disk = usual if named or not on_disk else on_disk[0]
    ram = _largest_in_memory(places)
    most = min(memory // _SHARE, ram.free // 2) if ram else 0
    plenty = most >= max(_LEAST, cpus * _LEAST_FOR_A_CPU)
    if wish is Tmp.RAM and not most:
        raise UsageError("there is no file system in memory here", hints=["leave out --tmp ram"])
    if ram is None or wish is Tmp.DISK or (wish is Tmp.AUTO and (named or not plenty)):
        return Scratch(disk=disk.path, places=paths)
    return Scratch(disk=disk.path, ram=ram.path, most=most, places=paths)


def room_for_tree(expected: float | None, places: Iterable[Disk], *, free: int) -> tuple[str, int]:
    """Return the place in memory for a build tree and its maximum size, given ``free`` memory.

    Raises UsageError if the ``expected`` size leaves too little memory for the build itself.
    """
    ram = _largest_in_memory(places)
    if ram is None:
        raise UsageError("there is no file system in memory here", hints=[_NO_TREE])
    most = min(free // _TREE_SHARE, ram.free)
    if expected is not None and expected > most:
        raise UsageError(
            f"the build tree takes about {size(expected)}, and memory has {size(most)} for it",
            hints=[_NO_TREE],
        )
    return ram.path, most


def _largest_in_memory(places: Iterable[Disk]) -> Disk | None:
    in_memory = (place for place in places if place.in_memory)
    return max(in_memory, key=lambda place: place.free, default=None)


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
            remove_file(self._disk / "now")
            remove_empty(self._disk / "steps")
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
        remove_file(aside)
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

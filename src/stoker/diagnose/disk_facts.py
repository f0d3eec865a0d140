"""Facts of file systems: which is full, where there is room, and what could be removed.

Each is read when a fix needs it. A fact that is not known has no value, and a fix that needs it is
not offered.
"""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from stoker.diagnose.about import About, Facts
from stoker.diagnose.lines import compiled
from stoker.diagnose.sieve import Line
from stoker.model.value import Value, size

if TYPE_CHECKING:  # read only for a fix that needs it
    from stoker.machine.file_tree import Mount

FACTS = Facts()

_NEARLY_FULL = 0.01  # of a file system
_FEW = 2 * 1024**3  # bytes that are not few, even on a large one
_SMALL = 64 * 1024**2  # bytes: less than this is little on any file system
_OF_SYSTEM = ("/run", "/proc", "/sys", "/dev", "/etc", "/boot", "/usr", "/nix", "/snap")
_FOR_FILES = ("ext4", "xfs", "btrfs", "zfs")
# What a log says could not be written in the folder for temporary files.
_IN_TMP = r"/tmp/\S{0,200}.{0,80}(?:No space left|Errno 28|os error 28)|writing file"
_PROGRESS = r"\[ {0,2}(\d{1,3})%\]|\[(\d{1,6})/(\d{1,6})\]"


@FACTS.text("machine.shortage", "that a file system is full, and how much is free of how much")
def _full(about: About) -> str | None:
    disk = _full_disk(about)
    if disk is None:
        return None
    if not disk.has_files:
        return f"{disk.where} is full (it can hold no more files)"
    # What a compiler could not write completely is deleted by now.
    how = "is full" if disk.free < disk.total / 2 else "is too small"
    return f"{disk.where} {how} ({size(disk.free)} of {size(disk.total)} free)"


@FACTS.text("machine.full_is_temporary", "the folder for temporary files, if only that is full")
def _full_is_temporary(about: About) -> str | None:
    disk = _full_disk(about)
    build = _disk(Path(about.run.folder)) if about.run.folder else None
    temporary = about.here.environment.get("TMPDIR", "/tmp")
    held = _disk(Path(temporary))
    is_only = (
        disk
        and held
        and disk.device == held.device
        and (build is None or build.device != disk.device)
    )
    return temporary if is_only else None


@FACTS.text("machine.room", "a folder on the file system with most room")
def _room(about: About) -> str | None:
    full = _full_disk(about) or (_disk(Path("/tmp")) if about.first(_IN_TMP, "/tmp/") else None)
    home = about.here.environment.get("HOME", "")
    mounts = [mount.point for mount in _mounts() if mount.filesystem in _FOR_FILES]
    mounted = [point for point in mounts if not point.startswith(_OF_SYSTEM)]
    places = [about.run.folder, "/var/tmp", home, "/tmp", *mounted]
    disks = [
        (disk.free, path)
        for path in places
        if path and os.access(path, os.W_OK | os.X_OK)
        if (disk := _disk(Path(path))) and (not full or disk.device != full.device)
    ]
    found = max(disks, default=None)
    return f"{found[1].rstrip('/')}/stoker-tmp" if found and found[0] > _SMALL else None


@FACTS.text("machine.missing_temporary", "the folder that TMPDIR names, if it does not exist")
def _missing_temporary(about: About) -> str | None:
    folder = about.here.environment.get("TMPDIR", "")
    return folder if folder and not Path(folder).exists() else None


@FACTS.text(
    "machine.noexec", "the folder for temporary files or of the run, if it forbids programs"
)
def _noexec(about: About) -> str | None:
    places = (about.run.folder, about.here.environment.get("TMPDIR", "/tmp"))
    there = (place for place in places if place and Path(place).is_dir())
    return next((place for place in there if os.statvfs(place).f_flag & os.ST_NOEXEC), None)


@FACTS.text("run.missing", "about how much space the rest of the build needs")
def _missing(about: About) -> str | None:
    """Estimate it by what the build folder holds after the part that is done."""
    folder, done = about.run.folder, _share_done(about.lines)
    if not folder or not done:
        return None
    from stoker.outside.files import size_on_disk

    rest = size_on_disk(Path(folder)) * (1 - done) / done
    return size(rest) if rest > 1024 else None


@FACTS.text(
    "machine.frees", "what could be removed from the full file system, with sizes and commands"
)
def _frees(about: About) -> str | None:
    from stoker.outside.files import size_on_disk

    full, home = _full_disk(about), Path(about.here.environment.get("HOME", "/"))
    if full is None:
        return None
    known = {
        home / ".cache/pip": "pip cache purge",
        home / ".cache/uv": "uv cache clean",
        home / ".cache/ccache": "ccache --clear",
        home / ".ccache": "ccache --clear",
        home / ".cache/stoker": "stoker clean --all",
        Path("/var/cache/apt/archives"): "apt-get clean",
    }
    there = [(path, command) for path, command in known.items() if path.is_dir()]
    on_it = [
        (path, command)
        for path, command in there
        if (disk := _disk(path)) and disk.device == full.device
    ]
    sizes = sorted(((size_on_disk(path), path, command) for path, command in on_it), reverse=True)
    worth = [f"`{command}` frees {size(much)}" for much, _, command in sizes if much > 1024**2]
    return ", ".join(worth) or None


class _Disk(Value, frozen=True, kw_only=True):
    """A file system; ``has_files`` is false where it can hold no more files, whatever is free."""

    where: str
    device: int  # the same for all mounts of a file system
    free: int
    total: int
    has_files: bool = True

    @property
    def is_full(self) -> bool:
        """Whether so little is free that a build may have failed; compilers remove what they could
        not write completely.
        """
        few = self.free < _SMALL or self.free < min(_NEARLY_FULL * self.total, _FEW)
        return few or not self.has_files


def _full_disk(about: About) -> _Disk | None:
    """Return the file system that is full: of the files that the log names, of the build folder or
    of the folder for temporary files.
    """
    named = [word for group in ("path", "file") for word in about.groups.get(group, ())]
    base = about.run.folder or "."
    places = [str(Path(base, word)) for word in named]
    places += [about.run.folder, about.here.environment.get("TMPDIR", "/tmp")]
    disks = [disk for place in places if place and (disk := _disk(Path(place)))]
    return next((disk for disk in disks if disk.is_full), None)


def _disk(path: Path) -> _Disk | None:
    from stoker.machine.disks import find_mount

    try:
        existing, mount = find_mount(path, _mounts())
        state = os.statvfs(existing)
    except (OSError, RuntimeError):  # RuntimeError: links in a circle
        return None
    return _Disk(
        where=mount.point if mount else str(existing),
        device=existing.stat().st_dev,
        free=state.f_bavail * state.f_frsize,
        total=state.f_blocks * state.f_frsize,
        has_files=state.f_files == 0 or state.f_favail > 0,
    )


def _mounts() -> "tuple[Mount, ...]":
    from stoker.machine.disks import read_mounts
    from stoker.machine.file_tree import FileTree

    return read_mounts(FileTree())


def _share_done(lines: Sequence[Line]) -> float | None:
    for line in reversed(lines):
        if match := compiled(_PROGRESS).search(line.text):
            percent, step, total = match.groups()
            share = int(percent) / 100 if percent else int(step) / max(1, int(total))
            return share if 0 < share < 1 else None
    return None

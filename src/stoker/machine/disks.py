"""The file systems under the folders that a build writes to. Knows nothing of builds."""

import os
import platform
import shutil
import tempfile
from collections.abc import Iterable
from pathlib import Path

from stoker.machine import macos
from stoker.machine.file_tree import FileTree
from stoker.machine.mounts import Mount, mount_of, parse_mounts
from stoker.model.machine import Disk
from stoker.outside import folders

IN_MEMORY = ("tmpfs", "ramfs")


def default_paths() -> tuple[Path, ...]:
    """Where a build may write: here, temporary files, stoker's cache, and memory where shared."""
    shared = Path("/dev/shm")
    paths = (Path(), _temporary(), folders.cache())
    return (*paths, shared) if shared.is_dir() else paths


def _temporary() -> Path:
    try:
        return Path(tempfile.gettempdir())
    except FileNotFoundError:  # nothing can be written to on this machine
        return Path("/tmp")


def read_temporary() -> tuple[Disk, ...]:
    """Where temporary files can go, each place by itself: the usual one first, which may lie in
    memory, then others in memory and on disk.
    """
    paths = (_temporary(), Path("/dev/shm"), Path("/var/tmp"), folders.cache())
    usable = [path for path in paths if path == paths[-1] or os.access(path, os.W_OK | os.X_OK)]
    return tuple(disk for path in usable for disk in read_disks(FileTree(), [path]))


def read_disks(tree: FileTree, paths: Iterable[Path]) -> tuple[Disk, ...]:
    """One for each mount, under the first of the paths on it. A path need not exist yet."""
    mounts = _read_mounts(tree)
    disks: dict[object, Disk] = {}
    for path in paths:
        try:
            existing = _nearest_existing(path)
            mount = mount_of(str(existing), mounts)
            disks.setdefault(mount or existing.stat().st_dev, _read_disk(path, existing, mount))
        except (OSError, RuntimeError) as error:  # RuntimeError: links in a circle
            tree.note(f"cannot tell which disk holds {path}: {error}")
    return tuple(disks.values())


def _read_mounts(tree: FileTree) -> tuple[Mount, ...]:
    if platform.system() == "Darwin":
        return macos.parse_mounts(macos.answer("mount"))
    return parse_mounts(tree.text("/proc/self/mountinfo") or "")


def _nearest_existing(path: Path) -> Path:
    resolved = path.resolve()
    # Unlike Path.exists, os.access takes a folder that is closed to us for one that is not there.
    return next(folder for folder in (resolved, *resolved.parents) if os.access(folder, os.F_OK))


def _read_disk(path: Path, existing: Path, mount: Mount | None) -> Disk:
    usage = shutil.disk_usage(existing)
    filesystem = mount.filesystem if mount else "unknown"
    return Disk(
        path=str(path.absolute()),
        filesystem=filesystem,
        total=usage.total,
        free=usage.free,
        in_memory=filesystem in IN_MEMORY,
    )

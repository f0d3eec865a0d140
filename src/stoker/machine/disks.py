"""The file systems under the folders that a build writes to. Independent of builds."""

import os
import platform
from collections.abc import Iterable
from pathlib import Path

from stoker.machine.file_tree import FileTree, Mount, mount_of, parse_mounts
from stoker.model.machine import Disk
from stoker.outside import files, folders
from stoker.outside.looking import is_folder

IN_MEMORY = ("tmpfs", "ramfs")


def default_paths() -> tuple[Path, ...]:
    """Return the folders a build may write to: the current one, temporary ones, the cache and
    shared memory.
    """
    shared = Path("/dev/shm")
    paths = (Path(), _temporary(), folders.cache())
    return (*paths, shared) if shared.is_dir() else paths


def _temporary() -> Path:
    """Return the folder that Python's tempfile takes. That one finds out by writing a file, and
    takes a while to import.
    """
    named = (os.environ.get(name) for name in ("TMPDIR", "TEMP", "TMP"))
    for path in (*filter(None, named), "/tmp", "/var/tmp", "/usr/tmp"):
        if is_folder(path) and os.access(path, os.W_OK | os.X_OK):
            return Path(path).absolute()
    return Path("/tmp")  # nothing can be written to on this machine


def read_temporary() -> tuple[Disk, ...]:
    """Return each place for temporary files: the default one first, which may be in memory, then
    others in memory and on disk.
    """
    paths = (_temporary(), Path("/dev/shm"), Path("/var/tmp"), folders.cache())
    usable = [path for path in paths if path == paths[-1] or os.access(path, os.W_OK | os.X_OK)]
    tree = FileTree()
    mounts = read_mounts(tree)
    return tuple(disk for path in usable for disk in _read_disks(tree, mounts, [path]))


def read_disks(tree: FileTree, paths: Iterable[Path]) -> tuple[Disk, ...]:
    """Return one disk for each mount, under the first of the paths on it. A path need not exist."""
    return _read_disks(tree, read_mounts(tree), paths)


def _read_disks(
    tree: FileTree, mounts: tuple[Mount, ...], paths: Iterable[Path]
) -> tuple[Disk, ...]:
    disks: dict[object, Disk] = {}
    for path in paths:
        try:
            existing, mount = find_mount(path, mounts)
            disks.setdefault(mount or existing.stat().st_dev, _read_disk(path, existing, mount))
        except (OSError, RuntimeError) as error:  # RuntimeError: links in a circle
            tree.note(f"cannot tell which disk holds {path}: {error}")
    return tuple(disks.values())


def find_mount(path: Path, mounts: tuple[Mount, ...]) -> tuple[Path, Mount | None]:
    """Return the path itself or the nearest folder above it that exists, and the mount it is in."""
    resolved = path.resolve()
    # Unlike Path.exists, os.access treats a folder without permission as missing.
    existing = next(
        folder for folder in (resolved, *resolved.parents) if os.access(folder, os.F_OK)
    )
    return existing, mount_of(str(existing), mounts)


def read_mounts(tree: FileTree) -> tuple[Mount, ...]:
    if platform.system() == "Darwin":
        from stoker.machine.macos import macos_answer, parse_macos_mounts

        return parse_macos_mounts(macos_answer("mount"))
    return parse_mounts(tree.text("/proc/self/mountinfo") or "")


def _read_disk(path: Path, existing: Path, mount: Mount | None) -> Disk:
    total, free = files.room_on_disk(existing)
    filesystem = mount.filesystem if mount else "unknown"
    return Disk(
        path=str(path.absolute()),
        filesystem=filesystem,
        total=total,
        free=free,
        in_memory=filesystem in IN_MEMORY,
    )

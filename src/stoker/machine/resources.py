"""CPUs and disks that this process may use."""

import os
import platform
import re
from collections.abc import Iterable
from pathlib import Path

from stoker.machine import memory
from stoker.machine.cgroups import ControlGroup, groups
from stoker.machine.file_tree import FileTree, Mount, mount_of, parse_mounts
from stoker.model.machine import Cpu, Disk, usable_cpus
from stoker.model.value import whole_number
from stoker.outside import files, folders

# -- cpu -------------------------------------------------------------------------------------------
# The CPUs: what they are, and how many of them this process may use.


# x86 and some Arm kernels; MIPS; POWER; RISC-V. Most Arm kernels give numbers only.
MODEL_KEYS = ("model name", "cpu model", "cpu", "uarch")


def read_cpu(tree: FileTree) -> Cpu:
    import archspec.cpu

    host = archspec.cpu.host()
    return Cpu(
        model=_read_model(tree) or f"{host.vendor} {host.name}",
        family=host.family.name,
        microarchitecture=host.name,
        features=tuple(sorted(host.features)),
        online=os.cpu_count() or 1,
        affinity=_read_affinity(),
        quota=read_quota(tree),
    )


def read_usable(tree: FileTree) -> int:
    """Return how many compiles can really run at once, without asking what the CPUs are."""
    return usable_cpus(_read_affinity(), read_quota(tree))


def _read_affinity() -> int:
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _read_model(tree: FileTree) -> str | None:
    if platform.system() == "Darwin":
        return memory.macos_cpu_model() or None
    return parse_model(tree.text("/proc/cpuinfo") or "")


def parse_model(cpuinfo: str) -> str | None:
    values = dict(re.findall(r"^([^:\n]*?)[ \t]*: ?(.+)$", cpuinfo, re.MULTILINE))
    return next((values[key].strip() for key in MODEL_KEYS if key in values), None)


def read_quota(tree: FileTree) -> float | None:
    """Return the smallest CPU quota of this process's groups, as a number of CPUs."""
    quotas = (_group_quota(tree, group) for group in groups(tree, "cpu"))
    return min((quota for quota in quotas if quota is not None), default=None)


def _group_quota(tree: FileTree, group: ControlGroup) -> float | None:
    if group.version == 2:
        name = f"{group.folder}/cpu.max"
        text = tree.text(name)
    else:
        name = f"{group.folder}/cpu.cfs_quota_us"
        time, period = tree.text(name), tree.text(f"{group.folder}/cpu.cfs_period_us")
        text = None if time is None else f"{time} {period}"
    if text is None or text.split()[:1] in (["max"], ["-1"]):
        return None
    quota = parse_quota(text)
    if quota is None:
        tree.note(f"{name} holds no quota: {text.strip()[:40]!r}")
    return quota


def parse_quota(text: str) -> float | None:
    """Return the quota from ``<time> <period>``, both in microseconds."""
    match [whole_number(word) for word in text.split()]:
        case [int(time), int(period)] if time and period:
            return time / period
    return None


# -- disks -----------------------------------------------------------------------------------------
# The file systems under the folders that a build writes to. Independent of builds.


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
        if Path(path).is_dir() and os.access(path, os.W_OK | os.X_OK):
            return Path(path).absolute()
    return Path("/tmp")  # nothing can be written to on this machine


def read_temporary() -> tuple[Disk, ...]:
    """Return each place for temporary files: the default one first, which may be in memory, then
    others in memory and on disk.
    """
    paths = (_temporary(), Path("/dev/shm"), Path("/var/tmp"), folders.cache())
    usable = [path for path in paths if path == paths[-1] or os.access(path, os.W_OK | os.X_OK)]
    tree = FileTree()
    mounts = _read_mounts(tree)
    return tuple(disk for path in usable for disk in _read_disks(tree, mounts, [path]))


def read_disks(tree: FileTree, paths: Iterable[Path]) -> tuple[Disk, ...]:
    """Return one disk for each mount, under the first of the paths on it. A path need not exist."""
    return _read_disks(tree, _read_mounts(tree), paths)


def _read_disks(
    tree: FileTree, mounts: tuple[Mount, ...], paths: Iterable[Path]
) -> tuple[Disk, ...]:
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
        return memory.parse_macos_mounts(memory.macos_answer("mount"))
    return parse_mounts(tree.text("/proc/self/mountinfo") or "")


def _nearest_existing(path: Path) -> Path:
    resolved = path.resolve()
    # Unlike Path.exists, os.access treats a folder without permission as missing.
    return next(folder for folder in (resolved, *resolved.parents) if os.access(folder, os.F_OK))


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

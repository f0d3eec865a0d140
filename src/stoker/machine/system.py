"""This machine in one value: system, CPUs, disks and GPUs."""

import os
import platform
import re
import shlex
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from stoker.machine import memory
from stoker.machine.cgroups import Group, groups
from stoker.machine.file_tree import FileTree, Mount, mount_of, parse_mounts
from stoker.machine.memory import read_memory
from stoker.model.errors import MissingError
from stoker.model.machine import Cpu, Disk, Gpu, Machine, OperatingSystem, usable_cpus
from stoker.model.value import whole_number
from stoker.outside import files, folders, process

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


def _group_quota(tree: FileTree, group: Group) -> float | None:
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


# -- gpus ------------------------------------------------------------------------------------------
# NVIDIA GPUs, read from the driver's own library. Without a driver there are no GPUs.


def read_gpus(note: Callable[[str], None]) -> tuple[Gpu, ...]:
    import pynvml

    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError_LibraryNotFound:
        return ()
    except pynvml.NVMLError as error:
        note(f"the NVIDIA driver does not answer: {error}")
        return ()
    try:
        driver = pynvml.nvmlSystemGetDriverVersion()
        gpus = [_read_gpu(index, driver, note) for index in range(pynvml.nvmlDeviceGetCount())]
    except pynvml.NVMLError as error:
        note(f"the NVIDIA driver does not list its GPUs: {error}")
        return ()
    finally:
        pynvml.nvmlShutdown()
    return tuple(gpu for gpu in gpus if gpu is not None)


def _read_gpu(index: int, driver: str, note: Callable[[str], None]) -> Gpu | None:
    """Return a GPU, or ``None`` if it has dropped off the bus: the other GPUs still work."""
    import pynvml

    try:
        handle = pynvml.nvmlDeviceGetHandleByIndex(index)
        major, minor = pynvml.nvmlDeviceGetCudaComputeCapability(handle)
        name = pynvml.nvmlDeviceGetName(handle)
    except pynvml.NVMLError as error:
        note(f"GPU {index} does not answer: {error}")
        return None
    return Gpu(
        index=index,
        name=name,
        capability=f"{major}.{minor}",
        memory=_read_memory(handle),
        driver=driver,
    )


def _read_memory(handle: object) -> int:
    """Return the memory of a GPU; 0 if it shares the machine's memory and reports no size."""
    import pynvml

    try:
        return int(pynvml.nvmlDeviceGetMemoryInfo(handle).total)
    except pynvml.NVMLError:
        return 0


# -- system ----------------------------------------------------------------------------------------
# The operating system, its C library, and whether we are in a container.


# What tells a container by a file, by a variable, or by the name of the first process's cgroup.
CONTAINER_FILES = {
    "/run/.containerenv": "podman",
    "/.dockerenv": "docker",
    "/.singularity.d": "apptainer",
}
CONTAINER_VARIABLES = {
    "KUBERNETES_SERVICE_HOST": "kubernetes",
    "APPTAINER_CONTAINER": "apptainer",
    "SINGULARITY_CONTAINER": "apptainer",
}
CONTAINER_GROUPS = {
    "kubepods": "kubernetes",
    "libpod": "podman",
    "docker": "docker",
    "containerd": "containerd",
    "lxc": "lxc",
}


def read_system(tree: FileTree, environment: Mapping[str, str]) -> OperatingSystem:
    if platform.system() == "Darwin":
        version = platform.mac_ver()[0]
        return OperatingSystem(
            system="macos",
            id="macos",
            version=version,
            pretty=f"macOS {version}",
            kernel=platform.release(),
        )
    release = parse_os_release(_os_release_text(tree))
    name = release.get("NAME", "Linux")
    return OperatingSystem(
        system="linux",
        id=release.get("ID", "linux"),
        version=release.get("VERSION_ID", ""),
        pretty=release.get("PRETTY_NAME", name),
        kernel=platform.release(),
        like=tuple(release.get("ID_LIKE", "").split()),
        libc=read_libc(tree),
        container=read_container(tree, environment),
    )


def _os_release_text(tree: FileTree) -> str:
    return tree.text("/etc/os-release") or tree.text("/usr/lib/os-release") or ""


def parse_os_release(text: str) -> dict[str, str]:
    """Return names to values, which are quoted as in a shell. Lines of another form are skipped."""
    values: dict[str, str] = {}
    for name, quoted in re.findall(r"^([A-Z_][A-Z0-9_]*)=(.*)$", text, re.MULTILINE | re.ASCII):
        try:
            values[name] = "".join(shlex.split(quoted))
        except ValueError:  # a quote that is never closed
            continue
    return values


def read_libc(tree: FileTree) -> str | None:
    """Return the C library that this process runs on, such as ``glibc 2.36`` or ``musl 1.2.4``."""
    try:
        if version := os.confstr("CS_GNU_LIBC_VERSION"):
            return version
    except (ValueError, OSError):  # musl does not know the name
        pass
    return read_musl(tree)


def read_musl(tree: FileTree) -> str | None:
    """Return musl's version, which its loader prints when it is run without arguments."""
    for loader in sorted(tree.path("/lib").glob("ld-musl-*.so.1")):
        try:
            printed = process.run([loader], timeout=5.0).stderr
        except MissingError:
            continue
        if found := re.search(r"^Version (\S+)", printed, re.MULTILINE):
            return f"musl {found[1]}"
    return None


def read_container(tree: FileTree, environment: Mapping[str, str]) -> str | None:
    """Return the container system around us. Pods are checked first: their containers are Docker's
    too.
    """
    for variable, kind in CONTAINER_VARIABLES.items():
        if environment.get(variable):
            return kind
    for file, kind in CONTAINER_FILES.items():
        if tree.exists(file):
            return kind
    if named := environment.get("container"):  # systemd's convention; lxc, systemd-nspawn, ...
        return named
    first = tree.text("/proc/1/cgroup") or ""
    return next((kind for word, kind in CONTAINER_GROUPS.items() if word in first), None)


def read_oomd(tree: FileTree) -> bool:
    """Return whether systemd-oomd runs. It needs cgroup v2, where a running service has a
    folder.
    """
    mounts = parse_mounts(tree.text("/proc/self/mountinfo") or "")
    return any(
        tree.exists(f"{mount.point}/system.slice/systemd-oomd.service")
        for mount in mounts
        if mount.filesystem == "cgroup2"
    )


# -- snapshot --------------------------------------------------------------------------------------
# The machine at this moment, as one value. What could not be read is in its notes.


def read_machine(paths: tuple[Path, ...] = (), *, root: Path = Path("/")) -> Machine:
    """Return the facts of this machine. ``paths`` are the folders whose disks matter; the default
    is those a build writes to.
    """
    tree = FileTree(root)
    os_facts = read_system(tree, os.environ)
    cpu = read_cpu(tree)
    memory = read_memory(tree)
    gpus = read_gpus(tree.note)
    disks = read_disks(tree, paths or default_paths())
    return Machine(
        os=os_facts,
        cpu=cpu,
        memory=memory,
        gpus=gpus,
        disks=disks,
        oomd=read_oomd(tree),
        notes=tree.notes,
    )

"""This machine in one value: system, GPUs, and all that the other modules read."""

import os
import platform
import re
import shlex
from collections.abc import Callable, Mapping
from pathlib import Path

from stoker.machine.file_tree import FileTree, parse_mounts
from stoker.model.errors import MissingError
from stoker.model.machine import Gpu, Machine, OperatingSystem

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
    from stoker.outside import process

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
    # A diagnosis needs the system and none of these.
    from stoker.machine.memory import read_memory
    from stoker.machine.resources import default_paths, read_cpu, read_disks

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

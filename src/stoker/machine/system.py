"""This machine: its operating system, C library and container, and all that the other modules read,
in one value.

What could not be read is in the notes of that value.
"""

import os
import platform
import re
import shlex
from collections.abc import Mapping
from pathlib import Path

from stoker.machine.file_tree import FileTree, parse_mounts
from stoker.model.errors import MissingError
from stoker.model.machine import Machine, OperatingSystem

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
    release = parse_os_release(
        tree.text("/etc/os-release") or tree.text("/usr/lib/os-release") or ""
    )
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


def read_machine(paths: tuple[Path, ...] = (), *, root: Path = Path("/")) -> Machine:
    """Return the facts of this machine. ``paths`` are the folders whose disks matter; the default
    is those a build writes to.
    """
    # A diagnosis needs the system and none of these.
    from stoker.machine.cpu import read_cpu
    from stoker.machine.disks import default_paths, read_disks
    from stoker.machine.gpus import read_gpus
    from stoker.machine.memory import read_memory

    tree = FileTree(root)
    os_facts = read_system(tree, os.environ)
    cpu = read_cpu(tree)
    memory = read_memory(tree)
    gpus = read_gpus(tree)
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

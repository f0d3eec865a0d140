"""Containers: the engine, its command line, and the containers that builds keep."""

import os
import re
import resource
import shutil
from collections.abc import Collection, Iterable, Sequence
from enum import StrEnum
from pathlib import Path
from typing import Any

import msgspec

from stoker.machine.file_tree import parse_mounts
from stoker.model.errors import MissingError, UsageError, unknown
from stoker.model.value import UNDECODABLE, Value
from stoker.outside import process

# -- container -------------------------------------------------------------------------------------
# A container to build in: its engine, its options, and what is found inside.


class EngineKind(StrEnum):
    PODMAN = "podman"
    DOCKER = "docker"


class ContainerEngine(Value, frozen=True, kw_only=True):
    """The program that runs containers, as its ``info`` describes it."""

    kind: EngineKind
    program: str
    runtime: str  # what it starts containers with unless told, e.g. crun
    rootless: bool = False
    gpus: bool = False  # whether it can pass NVIDIA GPUs to a container


class ContainerHost(Value, frozen=True, kw_only=True):
    """The facts of the machine and the caller that affect a container."""

    user: int
    group: int
    hybrid_cgroups: bool = False  # version 1 with a tree of version 2 beside it
    runc: bool = False  # is installed
    open_files: int | None = None  # the highest limit we may set; None if there is no limit


class Bind(Value, frozen=True, kw_only=True):
    """A folder or file of the machine that has the same path inside."""

    path: str
    writable: bool = False


class Box(Value, frozen=True, kw_only=True):
    """The requested container: from an image or from a folder that contains a root file system."""

    name: str
    image: str | None = None
    root: str | None = None
    memory: int | None = None
    ipc: str = "private"
    binds: tuple[Bind, ...] = ()


class InsidePython(Value, frozen=True, kw_only=True):
    """An interpreter of the container."""

    version: str  # 3.11
    path: str
    machine: str
    glibc: str | None = None  # None: another C library


class Contained(Value, frozen=True, kw_only=True):
    """container.json of a run folder: where the build was."""

    engine: str
    image: str
    memory: int | None
    python: str
    command: tuple[str, ...]  # that made the container


class KeptContainer(Value, frozen=True, kw_only=True):
    name: str
    engine: EngineKind
    image: str
    status: str


# -- arguments -------------------------------------------------------------------------------------
# Makes the command line of a container engine. Pure.


LABEL = "stoker"
# Stays until it is killed, and takes care of orphans, which the first process must.
_FIRST = ("sh", "-c", "while :; do sleep 3600; done")
_SHARE_IN_MEMORY = 4  # of the limit, the part that files in /tmp may take; as much in /dev/shm
_MOST_PROCESSES = 32768


def run_words(engine: ContainerEngine, host: ContainerHost, box: Box) -> tuple[str, ...]:
    """Start a container that waits to be told what to do."""
    return (
        *(engine.program, *_runtime(engine, host), "run", "--detach", "--name", box.name),
        *("--label", f"{LABEL}={box.image or box.root}", "--stop-signal", "SIGKILL"),
        # The package index and its mirrors are to be found as they are from outside.
        *("--network", "host", f"--ipc={box.ipc}"),
        # SELinux would have to relabel the user's own folders.
        *("--security-opt", "label=disable"),
        *_user(engine, host),
        *_limits(engine, host),
        *_memory(box),
        *_gpus(engine),
        *(word for bind in box.binds for word in ("--volume", _volume(bind.path, bind.writable))),
        *_root(engine, box),
        *_FIRST,
    )


def exec_words(
    engine: ContainerEngine,
    name: str,
    words: Sequence[str],
    *,
    folder: str | None = None,
    variables: Collection[str] = (),
    interactive: bool = False,
    terminal: bool = False,
) -> tuple[str, ...]:
    """Return the words to run a command inside. ``variables`` are passed with the engine's own
    values.
    """
    return (
        *(engine.program, "exec"),
        *(("--interactive",) if interactive else ()),
        *(("--tty",) if terminal else ()),
        *(("--workdir", folder) if folder else ()),
        *(word for variable in sorted(variables) for word in ("--env", variable)),
        *(name, *words),
    )


def _runtime(engine: ContainerEngine, host: ContainerHost) -> tuple[str, ...]:
    """Choose runc in a hybrid cgroup tree, which crun mistakes for version 2 and refuses."""
    if engine.kind is not EngineKind.PODMAN or not host.hybrid_cgroups or engine.runtime == "runc":
        return ()
    if not host.runc:
        raise MissingError(
            f"{engine.runtime} cannot work with a tree of control groups of both versions",
            hints=["install runc, for example: apt-get install -y runc"],
        )
    return ("--runtime", "runc")


def _user(engine: ContainerEngine, host: ContainerHost) -> tuple[str, ...]:
    """Return the options that make written files belong to the caller."""
    if engine.rootless:  # root inside is the caller outside
        return ("--userns=keep-id",) if engine.kind is EngineKind.PODMAN else ()
    return ("--user", f"{host.user}:{host.group}") if host.user else ()


def _limits(engine: ContainerEngine, host: ContainerHost) -> tuple[str, ...]:
    """Return the limits of files and processes; podman's defaults exceed what we may set."""
    if engine.kind is not EngineKind.PODMAN or host.open_files is None:
        return ()
    files, processes = host.open_files, _MOST_PROCESSES
    return ("--ulimit", f"nofile={files}:{files}", "--ulimit", f"nproc={processes}:{processes}")


def _memory(box: Box) -> tuple[str, ...]:
    """Return the options for memory without swap. Configure scripts may run programs from /tmp."""
    words = []
    size = ""
    if box.memory:
        part = box.memory // _SHARE_IN_MEMORY
        words += ["--memory", str(box.memory), "--memory-swap", str(box.memory)]
        words += ["--shm-size", str(part)] if box.ipc != "host" else []
        size = f",size={part}"
    return (*words, "--tmpfs", f"/tmp:rw,exec,nosuid,nodev,mode=1777{size}")


def _gpus(engine: ContainerEngine) -> tuple[str, ...]:
    if not engine.gpus:
        return ()
    if engine.kind is EngineKind.DOCKER:
        return ("--gpus", "all")
    return ("--device", "nvidia.com/gpu=all")


def _volume(path: str, writable: bool) -> str:
    if ":" in path:
        raise UsageError(f"{path}: a path with a colon cannot be mounted into a container")
    return f"{path}:{path}:{'rw' if writable else 'ro'}"


def _root(engine: ContainerEngine, box: Box) -> tuple[str, ...]:
    if box.root is None:
        return (box.image or "",)
    if engine.kind is not EngineKind.PODMAN:
        raise UsageError(
            f"{engine.kind} cannot run the folder {box.root}",
            hints=[
                "podman can",
                f"or make an image: tar -C {box.root} -c . | docker import - NAME",
            ],
        )
    return ("--rootfs", f"{box.root}:O")  # what is written there goes elsewhere


# -- engine ----------------------------------------------------------------------------------------
# Finds the program that runs containers, and what it and this machine support.


_TIMEOUT_S = 300.0  # seconds
_DEVICES = ("/etc/cdi", "/var/run/cdi")  # where devices for containers are described
_RAISES_LIMITS = 1 << 24  # CAP_SYS_RESOURCE


def find_engine(wanted: EngineKind | None = None) -> ContainerEngine:
    """Return podman, which needs no server, or else docker."""
    problems = []
    for kind in (wanted,) if wanted else EngineKind:
        if program := shutil.which(kind):
            format_ = "json" if kind is EngineKind.PODMAN else "{{json .}}"
            told = process.run([program, "info", "--format", format_], timeout=_TIMEOUT_S)
            if told.ok:
                return read_engine(kind, program, told.stdout, gpus=_has_gpus(kind))
            problems.append(f"{kind} does not work: {(told.stderr or told.problem or '').strip()}")
    raise MissingError(
        problems[0] if problems else f"there is no {wanted or 'podman or docker'} here",
        hints=["for example: apt-get install -y podman"] if not problems else problems[1:],
    )


def read_engine(kind: EngineKind, program: str, told: str, *, gpus: bool) -> ContainerEngine:
    """Return the engine that the output of ``info`` describes."""
    try:
        facts: dict[str, Any] = msgspec.json.decode(told, type=dict)
    except UNDECODABLE as error:
        raise MissingError(f"cannot read what `{kind} info` says: {error}") from error
    if kind is EngineKind.DOCKER:
        return ContainerEngine(
            kind=kind,
            program=program,
            runtime=str(facts.get("DefaultRuntime", "runc")),
            rootless=any("rootless" in str(o) for o in facts.get("SecurityOptions") or ()),
            gpus=gpus and "nvidia" in (facts.get("Runtimes") or {}),
        )
    host = facts.get("host") or {}
    return ContainerEngine(
        kind=kind,
        program=program,
        runtime=str((host.get("ociRuntime") or {}).get("name", "")),
        rootless=bool((host.get("security") or {}).get("rootless")),
        gpus=gpus,
    )


def read_host() -> ContainerHost:
    types = {mount.filesystem for mount in parse_mounts(_text("/proc/self/mountinfo"))}
    return ContainerHost(
        user=os.getuid(),
        group=os.getgid(),
        hybrid_cgroups={"cgroup", "cgroup2"} <= types,
        runc=shutil.which("runc") is not None,
        open_files=None if _may_raise_limits() else resource.getrlimit(resource.RLIMIT_NOFILE)[1],
    )


def _has_gpus(kind: EngineKind) -> bool:
    """Return whether the engine can pass GPUs: podman needs a CDI file, docker reports it."""
    if not Path("/dev/nvidiactl").exists():
        return False
    described = any(f for folder in _DEVICES for f in Path(folder).glob("*nvidia*"))
    return described or kind is EngineKind.DOCKER


def _may_raise_limits() -> bool:
    found = re.search(r"^CapEff:\s*([0-9a-f]+)$", _text("/proc/self/status"), re.MULTILINE)
    return found is None or bool(int(found[1], 16) & _RAISES_LIMITS)


def _text(path: str) -> str:
    """Return the content of a kernel file; empty if it does not exist."""
    return Path(path).read_text() if Path(path).exists() else ""


# -- containers ------------------------------------------------------------------------------------
# Lists, enters and removes the containers that `stoker build --container --keep` leaves.


_CONTAINER_TIMEOUT_S = 300.0
_IMAGE = {
    EngineKind.PODMAN: f'{{{{index .Labels "{LABEL}"}}}}',
    EngineKind.DOCKER: f'{{{{.Label "{LABEL}"}}}}',
}


def containers(engine: EngineKind | None) -> tuple[KeptContainer, ...]:
    """Return the containers that builds have left."""
    return _containers(find_engine(engine))


def enter(name: str, engine: EngineKind | None, *, terminal: bool) -> int:
    """Start a container if it does not run, open a shell in it, and return the shell's status."""
    found = find_engine(engine)
    _check(name, found)
    process.check([found.program, "start", name], timeout=_CONTAINER_TIMEOUT_S)
    words = exec_words(
        found, name, ("sh",), variables=("TERM",), interactive=True, terminal=terminal
    )
    return process.start(words, env=os.environ).wait()


def remove_containers(names: Iterable[str], engine: EngineKind | None) -> None:
    found = find_engine(engine)
    for name in names:
        _check(name, found)
        process.check([found.program, "rm", "--force", name], timeout=_CONTAINER_TIMEOUT_S)


def _containers(engine: ContainerEngine) -> tuple[KeptContainer, ...]:
    form = f"{{{{.Names}}}}\t{_IMAGE[engine.kind]}\t{{{{.Status}}}}"
    words = ("ps", "--all", "--filter", f"label={LABEL}", "--format", form)
    told = process.check([engine.program, *words], timeout=_CONTAINER_TIMEOUT_S)
    rows = (line.split("\t") for line in told.splitlines() if line.count("\t") == 2)
    return tuple(
        KeptContainer(name=name, engine=engine.kind, image=image, status=status)
        for name, image, status in rows
    )


def _check(name: str, engine: ContainerEngine) -> None:
    """Raise UsageError for a container that stoker did not make."""
    known = [container.name for container in _containers(engine)]
    if not known:
        raise UsageError(
            "no container is kept", hints=["`stoker build --container --keep` keeps one"]
        )
    if name not in known:
        raise unknown("container", name, known, hint="`stoker container list` lists them")


def containers_text(containers: Sequence[KeptContainer]) -> str:
    if not containers:
        return "no container is kept\n"
    width = max(len(container.name) for container in containers)
    return "".join(f"{c.name:<{width}}  {c.status:<24}  {c.image}\n" for c in containers)

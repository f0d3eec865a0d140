"""Finds the program that runs containers, and what it and this machine support."""

import os
import re
import resource
import shutil
from enum import StrEnum
from pathlib import Path
from typing import Any

import msgspec

from stoker.machine.file_tree import parse_mounts
from stoker.model.errors import MissingError
from stoker.model.value import UNDECODABLE, Value
from stoker.outside import process

_TIMEOUT_S = 300.0  # seconds
_DEVICES = ("/etc/cdi", "/var/run/cdi")  # where devices for containers are described
_RAISES_LIMITS = 1 << 24  # CAP_SYS_RESOURCE


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


def read_container_host() -> ContainerHost:
    rights = re.search(r"^CapEff:\s*([0-9a-f]+)$", _text("/proc/self/status"), re.MULTILINE)
    may_raise = rights is None or bool(int(rights[1], 16) & _RAISES_LIMITS)
    types = {mount.filesystem for mount in parse_mounts(_text("/proc/self/mountinfo"))}
    return ContainerHost(
        user=os.getuid(),
        group=os.getgid(),
        hybrid_cgroups={"cgroup", "cgroup2"} <= types,
        runc=shutil.which("runc") is not None,
        open_files=None if may_raise else resource.getrlimit(resource.RLIMIT_NOFILE)[1],
    )


def _has_gpus(kind: EngineKind) -> bool:
    """Return whether the engine can pass GPUs: podman needs a CDI file, docker reports it."""
    if not Path("/dev/nvidiactl").exists():
        return False
    described = any(f for folder in _DEVICES for f in Path(folder).glob("*nvidia*"))
    return described or kind is EngineKind.DOCKER


def _text(path: str) -> str:
    """Return the content of a kernel file; empty if it does not exist."""
    return Path(path).read_text() if Path(path).exists() else ""

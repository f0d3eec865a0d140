"""A container to build in: its engine, its options, and what is found inside."""

from enum import StrEnum

from stoker.model.value import Value


class EngineKind(StrEnum):
    PODMAN = "podman"
    DOCKER = "docker"


class Engine(Value, frozen=True, kw_only=True):
    """The program that runs containers, as its ``info`` describes it."""

    kind: EngineKind
    program: str
    runtime: str  # what it starts containers with unless told, e.g. crun
    rootless: bool = False
    gpus: bool = False  # whether it can pass NVIDIA GPUs to a container


class Host(Value, frozen=True, kw_only=True):
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

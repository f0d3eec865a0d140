"""Makes the command line of a container engine. Pure."""

from collections.abc import Collection, Sequence

from stoker.builds.containers.engine import ContainerEngine, ContainerHost, EngineKind
from stoker.model.errors import MissingError, UsageError
from stoker.model.value import Value

LABEL = "stoker"
# Stays until it is killed, and takes care of orphans, which the first process must.
_FIRST = ("sh", "-c", "while :; do sleep 3600; done")
_SHARE_IN_MEMORY = 4  # of the limit, the part that files in /tmp may take; as much in /dev/shm
_MOST_PROCESSES = 32768


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

    @property
    def place(self) -> str:
        """The image or the folder that it is made from."""
        return self.image or self.root or ""


def run_words(engine: ContainerEngine, host: ContainerHost, box: Box) -> tuple[str, ...]:
    """Start a container that waits to be told what to do."""
    return (
        *(engine.program, *_runtime(engine, host), "run", "--detach", "--name", box.name),
        *("--label", f"{LABEL}={box.place}", "--stop-signal", "SIGKILL"),
        # The package index and its mirrors are to be found as they are from outside.
        *("--network", "host", f"--ipc={box.ipc}"),
        # SELinux would have to relabel the user's own folders.
        *("--security-opt", "label=disable"),
        *_user(engine, host),
        *_limits(engine, host),
        *_memory(box),
        *_gpus(engine),
        *(word for bind in box.binds for word in ("--volume", _volume(bind))),
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


def _volume(bind: Bind) -> str:
    if ":" in bind.path:
        raise UsageError(f"{bind.path}: a path with a colon cannot be mounted into a container")
    return f"{bind.path}:{bind.path}:{'rw' if bind.writable else 'ro'}"


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

"""What a machine is: a snapshot, read once. Live readings are ``stoker.machine.memory``'s."""

from enum import StrEnum

from stoker.model.value import Value, minor_release
from stoker.model.variant import Platform

MEMINFO = "/proc/meminfo"


class OperatingSystem(Value, frozen=True, kw_only=True):
    """``id`` and ``like`` are those of os-release, for package names."""

    system: str  # linux or macos
    id: str
    version: str
    pretty: str
    kernel: str
    like: tuple[str, ...] = ()
    libc: str | None = None  # "glibc 2.36", "musl 1.2.4"
    container: str | None = None  # "podman", "docker", ... or None on a host


class Cpu(Value, frozen=True, kw_only=True):
    model: str
    family: str  # x86_64, aarch64, ppc64le, riscv64
    microarchitecture: str  # archspec's name: zen4, neoverse_v2, ...
    features: tuple[str, ...]  # archspec's feature names, sorted
    online: int
    affinity: int  # CPUs this process may run on
    quota: float | None  # CPUs' worth of time the cgroup grants

    @property
    def usable(self) -> int:
        """How many compiles can really run at once."""
        return usable_cpus(self.affinity, self.quota)


def usable_cpus(affinity: int, quota: float | None) -> int:
    return max(1, affinity if quota is None else min(affinity, int(quota)))


class LimitKind(StrEnum):
    PHYSICAL = "physical memory"
    CGROUP_V1 = "cgroup v1"
    CGROUP_V2 = "cgroup v2"
    GIVEN = "an option"


class MemoryLimit(Value, frozen=True, kw_only=True):
    """The limit that binds first, and what is used of it without cache that can be dropped."""

    kind: LimitKind
    where: str  # folder of the cgroup, or MEMINFO
    limit: int
    used: int
    kills_group: bool = False  # the kernel would kill every process of the group at once

    @property
    def free(self) -> int:
        return max(0, self.limit - self.used)


class Pressure(Value, frozen=True, kw_only=True):
    """Share of the last 10 s in which some, or all, tasks waited for memory, in percent."""

    some: float
    full: float


class Memory(Value, frozen=True, kw_only=True):
    total: int
    available: int  # can be allocated before any limit is reached
    swap_total: int
    swap_free: int
    limit: MemoryLimit
    pressure: Pressure | None = None

    @classmethod
    def without_groups(
        cls, *, total: int, available: int, swap_total: int = 0, swap_free: int = 0
    ) -> "Memory":
        """Return the memory of a machine on which no cgroup has a limit."""
        return cls(
            total=total,
            available=available,
            swap_total=swap_total,
            swap_free=swap_free,
            limit=MemoryLimit(
                kind=LimitKind.PHYSICAL, where=MEMINFO, limit=total, used=total - available
            ),
        )


class Gpu(Value, frozen=True, kw_only=True):
    index: int
    name: str
    capability: str  # of NVIDIA's "9.0"; of others the architecture: "gfx942", "pvc"
    memory: int  # 0 if it is unknown
    driver: str

    @property
    def is_nvidias(self) -> bool:
        return "." in self.capability


class Disk(Value, frozen=True, kw_only=True):
    """The file system that holds ``path``."""

    path: str
    filesystem: str
    total: int
    free: int
    in_memory: bool


class Machine(Value, frozen=True, kw_only=True):
    os: OperatingSystem
    cpu: Cpu
    memory: Memory
    gpus: tuple[Gpu, ...]
    disks: tuple[Disk, ...]
    oomd: bool = False  # systemd-oomd is watching
    notes: tuple[str, ...] = ()  # what could not be read, and why

    @property
    def platform(self) -> Platform:
        cpu = (
            "arm64"
            if (self.os.system, self.cpu.family) == ("macos", "aarch64")
            else self.cpu.family
        )
        return Platform(os=self.os.system, cpu=cpu)


class Tool(Value, frozen=True, kw_only=True):
    """A program found on this machine. ``problem`` says why it cannot be used."""

    name: str  # the role: gcc, g++, clang, cmake, ninja, ccache, mold, podman, ...
    path: str
    version: str | None = None
    problem: str | None = None


# Libraries and their headers that ATen/cuda/CUDAContext.h of PyTorch includes.
TORCH_INCLUDES = {"cublas": "cublas_v2.h", "cusolver": "cusolverDn.h", "cusparse": "cusparse.h"}


class CudaToolkit(Value, frozen=True, kw_only=True):
    """A CUDA toolkit with a compiler. ``archs`` are those nvcc itself lists, as ``9.0``;
    ``lacks`` are headers of CUDA's libraries that PyTorch's own headers include.
    """

    home: str
    nvcc: str
    version: str | None  # "13.0"
    archs: tuple[str, ...] = ()
    lacks: tuple[str, ...] = ()
    problem: str | None = None


class Library(Value, frozen=True, kw_only=True):
    """A library with its headers, or what was found of it."""

    name: str  # cudnn, nccl, magma, mkl, openblas, ...
    version: str | None = None
    header: str | None = None
    library: str | None = None

    @property
    def complete(self) -> bool:
        return self.header is not None and self.library is not None


class PythonInstallation(Value, frozen=True, kw_only=True):
    executable: str
    version: str  # "3.11.7"
    headers: str | None  # folder that holds Python.h
    packages: dict[str, str]  # installed distributions, normalised name to version
    free_threaded: bool = False

    @property
    def release(self) -> str:
        """The version as a variant names it: ``3.14t``."""
        return minor_release(self.version) + ("t" if self.free_threaded else "")


class Toolbox(Value, frozen=True, kw_only=True):
    """Everything on this machine that a build could use."""

    tools: tuple[Tool, ...]
    cuda: tuple[CudaToolkit, ...]  # the one that a build would take first
    libraries: tuple[Library, ...]
    python: PythonInstallation
    gccs: tuple[int, ...] = ()  # major versions of the programs g++-N
    notes: tuple[str, ...] = ()

    def tool(self, name: str) -> Tool | None:
        return next((tool for tool in self.tools if tool.name == name), None)

    def library(self, name: str) -> Library | None:
        return next((library for library in self.libraries if library.name == name), None)


class Tmp(StrEnum):
    """The user's choice of where temporary files go; the words of ``--tmp``."""

    AUTO = "auto"
    RAM = "ram"
    DISK = "disk"


class Scratch(Value, frozen=True, kw_only=True):
    """``most`` bytes may lie in ``ram``; beyond that, and where there is none, it is ``disk``.

    ``places`` are all that any run may have chosen: what a killed one left there is removed.
    """

    disk: str
    ram: str | None = None
    most: int = 0
    places: tuple[str, ...] = ()

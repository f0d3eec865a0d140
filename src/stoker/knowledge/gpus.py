"""GPU architectures, the cards people own, CUDA releases, and which code runs where."""

from collections.abc import Iterable
from functools import cache

from stoker.knowledge import Row, load, rows, table
from stoker.model.artifact import Compression
from stoker.model.variant import Backend, GpuTarget


class GpuModel(Row, frozen=True, kw_only=True):
    backend: Backend
    arch: str
    names: tuple[str, ...]
    exact: bool = False
    pci: tuple[str, ...] = ()  # PCI devices of Intel, as sysfs writes them
    device_ip: str | None = None  # Intel's number of the platform, as `ocloc ids` prints it


class _GpuTable(Row, frozen=True, kw_only=True):
    gpu: tuple[GpuModel, ...]
    generation: dict[str, str]
    decoration: tuple[str, ...]


_gpu_table = table("gpus", _GpuTable)


@cache
def gpus() -> dict[str, GpuModel]:
    """Return the GPUs by architecture without suffix."""
    return {row.arch: row for row in _gpu_table().gpu}


@cache
def generations() -> dict[str, tuple[GpuTarget, ...]]:
    """Return the names of GPU generations and the targets that each stands for."""
    return {
        name: tuple(map(_target, text.split(";"))) for name, text in _gpu_table().generation.items()
    }


def _target(text: str) -> GpuTarget:
    arch, _, ptx = text.partition("+")
    return GpuTarget(arch=arch, ptx=bool(ptx))


@cache
def decorations() -> frozenset[str]:
    """Return the words that makers put before and after the name of a chip."""
    return frozenset(_gpu_table().decoration)


def runs_on(target: GpuTarget, capability: str) -> str | None:
    """Return how CUDA code for ``target`` runs on a GPU: ``cubin``, ``ptx`` (compiled at load) or
    not.
    """
    gpu = GpuTarget(arch=capability)
    (major, minor), (gpu_major, gpu_minor) = target.capability, gpu.capability
    bare, exact = f"{major}.{minor}", {row.arch for row in _gpu_table().gpu if row.exact}
    if target.suffix == "a" or {bare, capability} & exact:
        fits = bare == capability
    else:
        fits = major == gpu_major and minor <= gpu_minor
    if fits:
        return "cubin"
    # PTX of an `a` target holds instructions of that one chip; of an `f` target, of its family.
    forward = target.ptx and not target.suffix and (major, minor) <= (gpu_major, gpu_minor)
    return "ptx" if forward else None


class CudaRelease(Row, frozen=True, kw_only=True):
    version: str
    archs: tuple[str, ...]
    gcc_max: int
    clang_below: int
    driver: int
    checked: bool = True


class _DeviceCode(Row, frozen=True, kw_only=True):
    driver: dict[Compression, str]


@cache
def cuda_releases() -> dict[str, CudaRelease]:
    """Return the known releases by version, oldest first."""
    return {release.version: release for release in rows("cuda", CudaRelease)()}


@cache
def cuda_archs() -> tuple[str, ...]:
    """Return every architecture that any release makes."""
    return tuple(dict.fromkeys(arch for row in cuda_releases().values() for arch in row.archs))


@cache
def _drivers() -> dict[Compression, str]:
    return load("device_code", _DeviceCode).driver


def oldest_driver(compressions: Iterable[Compression]) -> str | None:
    """Return the oldest driver that unpacks all of these; None if any driver does."""
    drivers = [_drivers()[kind] for kind in compressions if kind in _drivers()]
    return max(
        drivers, key=lambda version: [int(part) for part in version.split(".")], default=None
    )

"""GPU architectures, the cards people own, and which code runs on which."""

from functools import cache

from stoker.knowledge import Row, load
from stoker.model.variant import Backend, GpuTarget


class Gpu(Row, frozen=True, kw_only=True):
    backend: Backend
    arch: str
    names: tuple[str, ...]
    exact: bool = False


class _Table(Row, frozen=True, kw_only=True):
    gpu: tuple[Gpu, ...]
    generation: dict[str, str]
    decoration: tuple[str, ...]


@cache
def _table() -> _Table:
    return load("gpus", _Table)


@cache
def gpus() -> dict[str, Gpu]:
    """Return the GPUs by architecture without suffix."""
    return {row.arch: row for row in _table().gpu}


@cache
def generations() -> dict[str, tuple[GpuTarget, ...]]:
    """Return the names of GPU generations and the targets that each stands for."""
    return {
        name: tuple(map(_target, text.split(";"))) for name, text in _table().generation.items()
    }


def _target(text: str) -> GpuTarget:
    arch, _, ptx = text.partition("+")
    return GpuTarget(arch=arch, ptx=bool(ptx))


@cache
def decorations() -> frozenset[str]:
    """Return the words that makers put before and after the name of a chip."""
    return frozenset(_table().decoration)


def runs_on(target: GpuTarget, capability: str) -> str | None:
    """Return how CUDA code for ``target`` runs on a GPU: ``cubin``, ``ptx`` (compiled at load) or
    not.
    """
    gpu = GpuTarget(arch=capability)
    (major, minor), (gpu_major, gpu_minor) = target.capability, gpu.capability
    bare, exact = f"{major}.{minor}", {row.arch for row in _table().gpu if row.exact}
    if target.suffix == "a" or {bare, capability} & exact:
        fits = bare == capability
    else:
        fits = major == gpu_major and minor <= gpu_minor
    if fits:
        return "cubin"
    # PTX of an `a` target holds instructions of that one chip; of an `f` target, of its family.
    forward = target.ptx and not target.suffix and (major, minor) <= (gpu_major, gpu_minor)
    return "ptx" if forward else None

"""The words of variants, and the hardware that a variant runs on."""

from stoker.model.plan import Backend, Variant
from stoker.model.value import Value


class GpuEntry(Value, frozen=True, kw_only=True):
    word: str
    backend: Backend
    arch: str
    names: tuple[str, ...]
    cuda: tuple[str, ...]  # CUDA releases that make code for it


class NamedEntry(Value, frozen=True, kw_only=True):
    """A variant that stoker.toml gives a name."""

    name: str
    variant: str
    description: str
    where: str


class Catalogue(Value, frozen=True, kw_only=True):
    gpus: tuple[GpuEntry, ...]
    cpus: dict[str, str]
    blas: tuple[str, ...]
    features: dict[str, str]
    platforms: tuple[str, ...]
    named: tuple[NamedEntry, ...]


class Served(Value, frozen=True, kw_only=True):
    """GPUs that run a variant: by ``cubin``, by ``ptx`` (compiled at load) or ``native``."""

    arch: str
    names: tuple[str, ...]
    by: str


class Explained(Value, frozen=True, kw_only=True):
    name: str
    label: str
    variant: Variant
    gpus: tuple[Served, ...]
    cpu_needs: tuple[str, ...]
    cpu_dispatch: str | None

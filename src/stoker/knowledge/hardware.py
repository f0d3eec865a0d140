"""GPUs, CUDA versions, CPUs, their instruction sets, and platforms."""

import re
from collections.abc import Iterable
from functools import cache
from typing import Any

from stoker.knowledge import Row, load
from stoker.model.artifact import Compression
from stoker.model.machine import Platform
from stoker.model.plan import Backend, GpuTarget

# -- gpus ------------------------------------------------------------------------------------------
# GPU architectures, the cards people own, and which code runs on which.


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


@cache
def _gpu_table() -> _GpuTable:
    return load("gpus", _GpuTable)


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


# -- cuda ------------------------------------------------------------------------------------------
# CUDA releases: their targets, host compilers and drivers.


class CudaRelease(Row, frozen=True, kw_only=True):
    version: str
    archs: tuple[str, ...]
    gcc_max: int
    clang_below: int
    driver: int
    checked: bool = True


class _Toolkits(Row, frozen=True, kw_only=True):
    toolkit: tuple[CudaRelease, ...]


class _DeviceCode(Row, frozen=True, kw_only=True):
    driver: dict[Compression, str]


@cache
def cuda_releases() -> dict[str, CudaRelease]:
    """Return the known releases by version, oldest first."""
    return {release.version: release for release in load("cuda", _Toolkits).toolkit}


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


# -- cpus ------------------------------------------------------------------------------------------
# CPU levels and microarchitectures: their compiler flags and what must be there to run the code.
#
# The microarchitectures and their flags are archspec's; only the levels that people name by
# instruction set stand in our own table.


class CpuLevel(Row, frozen=True, kw_only=True):
    name: str
    family: str
    flags: tuple[str, ...]
    needs: tuple[str, ...]
    gcc_min: int
    clang_min: int
    serves: str
    dispatch: str | None = None
    aliases: tuple[str, ...] = ()


class _CpuTable(Row, frozen=True, kw_only=True):
    level: tuple[CpuLevel, ...]
    product: dict[str, str]


@cache
def _cpu_table() -> _CpuTable:
    return load("cpus", _CpuTable)


@cache
def cpu_levels() -> dict[str, CpuLevel]:
    return {level.name: level for level in _cpu_table().level}


def cpu_products() -> dict[str, str]:
    return _cpu_table().product


@cache
def microarchitectures() -> dict[str, Any]:
    """Return archspec's microarchitectures that are one chip, without families and levels."""
    from archspec.cpu import TARGETS

    families = {
        "x86_64": "x86_64",
        "aarch64": "aarch64",
        "ppc64le": "ppc64le",
        "riscv64": "riscv64",
    }
    return {
        name: target
        for name, target in TARGETS.items()
        if str(target.family) in families and name not in families and name not in cpu_levels()
    }


@cache
def cpu_names() -> tuple[str, ...]:
    return (*cpu_levels(), *microarchitectures())


def cpu_family(name: str) -> str:
    """Return the family of a level or microarchitecture: x86_64, aarch64, ..."""
    if level := cpu_levels().get(name):
        return level.family
    return str(microarchitectures()[name].family)


def is_apple(name: str) -> bool:
    """Tell whether a microarchitecture is one of Apple's, which only Macs have."""
    target = microarchitectures().get(name)
    return target is not None and target.vendor == "Apple"


def cpu_needs(name: str) -> frozenset[str]:
    """Return the instruction-set features that code for this level may use."""
    if level := cpu_levels().get(name):
        return frozenset(level.needs)
    return frozenset(microarchitectures()[name].features)


def cpu_offers(name: str) -> frozenset[str]:
    """Return the features of a CPU that is known only by this name. A CPU of a level also runs code
    for the earlier levels of the table.
    """
    if name not in cpu_levels():
        return cpu_needs(name)
    family = [level for level in cpu_levels().values() if level.family == cpu_family(name)]
    until = [level.name for level in family].index(name) + 1
    return frozenset(need for level in family[:until] for need in level.needs)


def cpu_flags(name: str, compiler: str, version: str) -> tuple[str, ...] | None:
    """Return flags for this version of ``gcc`` or ``clang``; ``None`` if it cannot make
    such code.
    """
    if level := cpu_levels().get(name):
        minimum = level.clang_min if compiler == "clang" else level.gcc_min
        return level.flags if int(version.split(".")[0]) >= minimum else None
    from archspec.cpu import UnsupportedMicroarchitecture

    release = ".".join(version.split(".")[:2])  # archspec's ranges end at releases, not patches
    try:
        flags = microarchitectures()[name].optimization_flags(compiler, release)
    except UnsupportedMicroarchitecture:
        return None
    return tuple(str(flags).split()) or None


def cpu_dispatch(name: str) -> str | None:
    """Return the run-time kernels of PyTorch that match this level."""
    if level := cpu_levels().get(name):
        return level.dispatch
    features = cpu_needs(name)
    if {"avx512f", "avx512bw", "avx512dq", "avx512vl"} <= features:
        return "AVX512"
    if {"avx2", "fma"} <= features:
        return "AVX2"
    return "SVE256 where the chip's vectors have 256 bits" if "sve" in features else None


# -- instruction sets ------------------------------------------------------------------------------
# Instruction sets beyond the lowest CPU of a family: how they are recognised, and which code may
# use them.


class InstructionSet(Row, frozen=True, kw_only=True):
    name: str
    family: str
    features: tuple[str, ...]
    operands: str | None = None
    note: str | None = None


class _Dispatched(Row, frozen=True, kw_only=True):
    any_case: tuple[str, ...]
    words: tuple[str, ...]
    starts: tuple[str, ...]


class _InstructionSetTable(Row, frozen=True, kw_only=True):
    set: tuple[InstructionSet, ...]
    dispatched: _Dispatched


@cache
def _instruction_set_table() -> _InstructionSetTable:
    return load("instruction_sets", _InstructionSetTable)


def beyond(cpu: str) -> tuple[InstructionSet, ...]:
    """Return the features of a CPU's family that a level or microarchitecture lacks."""
    family, has = cpu_family(cpu), cpu_needs(cpu)
    return tuple(
        row
        for row in _instruction_set_table().set
        if row.family == family and not has & set(row.features)
    )


@cache
def operand_pattern(row: InstructionSet) -> re.Pattern[str] | None:
    return re.compile(row.operands) if row.operands else None


@cache
def _dispatched() -> re.Pattern[str]:
    row = _instruction_set_table().dispatched
    anywhere, words, starts = map("|".join, (row.any_case, row.words, row.starts))
    alone = rf"(?<![A-Za-z])(?i:{words})(?![a-z])"
    return re.compile(rf"(?i:{anywhere})|{alone}|(?<![a-z])(?:{starts})")


def names_a_cpu(name: str) -> bool:
    """Return whether the name of a function or source file says that it is for certain CPUs."""
    return _dispatched().search(name) is not None


# -- platforms -------------------------------------------------------------------------------------
# The platforms that stoker can plan for.


class PlatformRow(Row, frozen=True, kw_only=True):
    os: str
    cpu: str
    aliases: tuple[str, ...] = ()
    mobile: bool = False
    backends: tuple[Backend, ...] = ()
    cmake: dict[str, str] = {}
    environment: dict[str, str] = {}

    @property
    def platform(self) -> Platform:
        return Platform(os=self.os, cpu=self.cpu)

    @property
    def families(self) -> tuple[str, ...]:
        """The CPU families, as a CPU level names them, whose code runs there."""
        if self.cpu == "universal":
            return ("aarch64", "x86_64")
        return ("aarch64",) if self.cpu == "arm64" else (self.cpu,)


class _PlatformTable(Row, frozen=True, kw_only=True):
    platform: tuple[PlatformRow, ...]


@cache
def platforms() -> dict[Platform, PlatformRow]:
    return {row.platform: row for row in load("platforms", _PlatformTable).platform}

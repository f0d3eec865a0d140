"""CPU levels, microarchitectures and instruction sets: their flags, and what code for them needs.

The microarchitectures and their flags are archspec's; cpus.toml has only the levels that people
name by instruction set.
"""

import re
from functools import cache
from typing import Any

from stoker.knowledge import Row, table
from stoker.model.value import major, minor_release


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
    model: dict[str, str]


_cpu_table = table("cpus", _CpuTable)


@cache
def cpu_levels() -> dict[str, CpuLevel]:
    return {level.name: level for level in _cpu_table().level}


def cpu_products() -> dict[str, str]:
    return _cpu_table().product


@cache
def cpu_models() -> tuple[tuple[re.Pattern[str], str], ...]:
    """Return patterns of model names, with dashes between their words, and what each model is."""
    found = _cpu_table().model.items()
    return tuple((re.compile(pattern, re.ASCII), cpu) for pattern, cpu in found)


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
        return level.flags if major(version) >= minimum else None
    from archspec.cpu import UnsupportedMicroarchitecture

    release = minor_release(version)  # archspec's ranges end at releases, not patches
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


class InstructionSet(Row, frozen=True, kw_only=True):
    """Instructions beyond the lowest CPU of a family, and how they are recognised."""

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


_instruction_set_table = table("instruction_sets", _InstructionSetTable)


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

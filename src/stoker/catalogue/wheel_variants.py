"""Wheel variants as the drafts PEP 817, 825 and 850 describe them: properties and their JSON. Pure.

An installer that knows them chooses from one shared index by itself. The drafts change, and only uv
with `--preview-features wheel-variants` reads them, with a built-in provider for NVIDIA GPUs. For
CPU levels there are providers on PyPI; they are marked as optional, so that an installer that has
not enabled them takes a wheel without such a property. The providers for AMD and Intel GPUs are not
on PyPI, where other packages could take their names, so the publisher names them.
"""

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Any

import msgspec
from packaging.utils import canonicalize_name

from stoker.catalogue.entry import named_gpus
from stoker.catalogue.values import NULL_LABEL, CodeRegions, PublishedWheel
from stoker.knowledge.cpus import cpu_family
from stoker.knowledge.gpus import gpus
from stoker.model.distribution import read_version
from stoker.model.variant import Backend

VARIANT_MEMBER = "variant.json"  # in dist-info
_SCHEMA = "https://variants-schema.wheelnext.dev/peps/850/v0.2.0.json"
_KINDS = {"sm": "real", "compute": "virtual"}
# Those that can be named without being asked: the packages exist, or their owner holds the name.
_PROVIDERS: dict[str, dict[str, Any]] = {
    "nvidia": {
        "requires": ["nvidia-variant-provider>=0.0.1,<1.0.0"],
        "plugin-api": "nvidia_variant_provider.plugin:NvidiaVariantPlugin",
    },
    "x86_64": {
        "requires": ["provider-variant-x86-64>=0.0.1,<1.0.0"],
        "plugin-api": "provider_variant_x86_64.plugin:X8664Plugin",
        "optional": True,
    },
    "aarch64": {
        "requires": ["provider-variant-aarch64>=0.0.1,<1.0.0"],
        "plugin-api": "provider_variant_aarch64.plugin:AArch64Plugin",
        "optional": True,
    },
}
NAMESPACES = ("nvidia", "amd", "intel", "x86_64", "aarch64")  # as an installer prefers them


def properties_of(
    wheel: PublishedWheel, providers: Mapping[str, str] = MappingProxyType({})
) -> tuple[str, ...] | None:
    """The properties of a wheel, none for one that runs anywhere; None: they cannot be told.

    ``providers`` are requirements of the publisher, by namespace.
    """
    device = _device_properties(wheel, providers)
    cpu = _cpu_properties(wheel)
    return None if device is None or cpu is None else (*device, *cpu)


def _device_properties(
    wheel: PublishedWheel, providers: Mapping[str, str]
) -> tuple[str, ...] | None:
    if wheel.backend is Backend.CPU:
        return ()
    if wheel.backend is Backend.ROCM and "amd" in providers:
        return tuple(f"amd :: gfx_arch :: {name}" for name in named_gpus(wheel)) or None
    if wheel.backend is Backend.XPU and "intel" in providers:
        ips = sorted({ip for name in named_gpus(wheel) if (ip := gpus()[name].device_ip)})
        return tuple(f"intel :: device_ip :: {ip}" for ip in ips) or None
    archs = [arch.partition("_") for arch in _usual(wheel.regions)]
    values = [f"{number}_{_KINDS[kind]}" for kind, _, number in archs if kind in _KINDS]
    if wheel.backend is not Backend.CUDA or not values:
        return None
    properties = [f"nvidia :: sm_arch :: {value}" for value in sorted(values)]
    if wheel.cuda:
        # A driver runs all releases of its major version of CUDA.
        oldest = f"{wheel.cuda.partition('.')[0]}.0"
        properties.append(f"nvidia :: cuda_version_lower_bound :: {oldest}")
    return tuple(properties)


def _cpu_properties(wheel: PublishedWheel) -> tuple[str, ...] | None:
    """The CPU that a wheel needs: a level, or else each of the instruction sets."""
    if not wheel.cpu_needs:
        return ()
    family = cpu_family(wheel.cpu) if wheel.cpu else None
    if family not in _PROVIDERS:
        return None
    level = (wheel.cpu or "").removeprefix("x86_64_")
    if family == "x86_64" and re.fullmatch(r"v[234]", level):
        return (f"x86_64 :: level :: {level}",)
    return tuple(f"{family} :: {need} :: on" for need in sorted(wheel.cpu_needs))


def _usual(regions: Iterable[CodeRegions]) -> list[str]:
    """The architectures that at least half of the regions hold: others serve single kernels."""
    regions = list(regions)
    counted: Counter[str] = Counter()
    for region in regions:
        for arch in region.archs:
            counted[arch] += region.count
    half = sum(region.count for region in regions) / 2
    return sorted(arch for arch, count in counted.items() if count >= half)


def label_of(variant: str, properties: tuple[str, ...]) -> str:
    return variant.replace("-", "_") if properties else NULL_LABEL


def label_in(file: str) -> str:
    """The label that ends the name of a variant wheel."""
    return file.removesuffix(".whl").rpartition("-")[2]


def variant_json(
    variants: Iterable[tuple[str, tuple[str, ...]]],
    providers: Mapping[str, str] = MappingProxyType({}),
) -> bytes:
    """The metadata of one wheel, or of all wheels of a version: label and properties of each.

    Values are sorted, as the drafts demand, so that equal wheels have equal metadata.
    """
    described: dict[str, dict[str, dict[str, list[str]]]] = {}
    for label, properties in variants:
        namespaces = described.setdefault(label, {})
        for line in sorted(properties):
            namespace, feature, value = line.split(" :: ")
            namespaces.setdefault(namespace, {}).setdefault(feature, []).append(value)
    used = {namespace for namespaces in described.values() for namespace in namespaces}
    named = [namespace for namespace in NAMESPACES if namespace in used | {"nvidia"}]
    # The package of a publisher says itself where its plugin is.
    own = {name: {"requires": [requirement]} for name, requirement in providers.items()}
    known = _PROVIDERS | own
    whole = {
        "$schema": _SCHEMA,
        "default-priorities": {"namespace": named},
        "providers": {namespace: known[namespace] for namespace in named},
        "variants": described,
    }
    return msgspec.json.encode(whole)


def variants_files(wheels: Iterable[PublishedWheel]) -> dict[str, bytes]:
    """The file that an index has beside its page for each version of a project."""
    by_name: dict[str, list[tuple[str, tuple[str, ...]]]] = {}
    providers: dict[str, dict[str, str]] = {}
    for wheel in wheels:
        project = canonicalize_name(wheel.project).replace("-", "_")
        name = f"{project}-{read_version(wheel.version)}-variants.json"
        by_name.setdefault(name, []).append((label_in(wheel.file), wheel.properties))
        providers.setdefault(name, {}).update(wheel.providers)
    return {
        name: variant_json(sorted(rows), providers[name]) for name, rows in sorted(by_name.items())
    }

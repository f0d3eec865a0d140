"""Wheel variants as the drafts PEP 817, 825 and 850 describe them: properties and their JSON. Pure.

An installer that knows them chooses from one shared index by itself. The drafts change, and only uv
with `--preview-features wheel-variants` reads them, with a built-in provider for NVIDIA GPUs. It
has none for CPU levels, so a wheel that needs more than the baseline CPU is not offered this way.
"""

from collections import Counter
from collections.abc import Iterable

import msgspec
from packaging.utils import canonicalize_name

from stoker.model.plan import Backend
from stoker.model.published import CodeRegions, PublishedWheel
from stoker.model.source import read_version

VARIANT_MEMBER = "variant.json"  # in dist-info
NULL_LABEL = "null"  # of a wheel without properties, which suits every machine
_SCHEMA = "https://variants-schema.wheelnext.dev/peps/850/v0.2.0.json"
_NAMESPACE = "nvidia"
_PROVIDER = {
    "requires": ["nvidia-variant-provider>=0.0.1,<1.0.0"],
    "plugin-api": "nvidia_variant_provider.plugin:NvidiaVariantPlugin",
}
_KINDS = {"sm": "real", "compute": "virtual"}


def properties_of(wheel: PublishedWheel) -> tuple[str, ...] | None:
    """The properties of a wheel, none for one that runs anywhere; None: they cannot be told."""
    if wheel.cpu_needs or wheel.backend not in (Backend.CUDA, Backend.CPU):
        return None
    if wheel.backend is Backend.CPU:
        return ()
    archs = [arch.partition("_") for arch in _usual(wheel.regions)]
    values = [f"{number}_{_KINDS[kind]}" for kind, _, number in archs if kind in _KINDS]
    if not values:
        return None
    properties = [f"{_NAMESPACE} :: sm_arch :: {value}" for value in values]
    if wheel.cuda:
        # A driver runs all releases of its major version of CUDA.
        oldest = f"{wheel.cuda.partition('.')[0]}.0"
        properties.append(f"{_NAMESPACE} :: cuda_version_lower_bound :: {oldest}")
    return tuple(properties)


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


def variant_json(variants: Iterable[tuple[str, tuple[str, ...]]]) -> bytes:
    """The metadata of one wheel, or of all wheels of a version: label and properties of each."""
    described: dict[str, dict[str, dict[str, list[str]]]] = {}
    for label, properties in variants:
        namespaces = described.setdefault(label, {})
        for line in properties:
            namespace, feature, value = line.split(" :: ")
            namespaces.setdefault(namespace, {}).setdefault(feature, []).append(value)
    whole = {
        "$schema": _SCHEMA,
        "default-priorities": {"namespace": [_NAMESPACE]},
        "providers": {_NAMESPACE: _PROVIDER},
        "variants": described,
    }
    return msgspec.json.encode(whole)


def variants_files(wheels: Iterable[PublishedWheel]) -> dict[str, bytes]:
    """The file that an index has beside its page for each version of a project."""
    by_name: dict[str, list[tuple[str, tuple[str, ...]]]] = {}
    for wheel in wheels:
        project = canonicalize_name(wheel.project).replace("-", "_")
        name = f"{project}-{read_version(wheel.version)}-variants.json"
        by_name.setdefault(name, []).append((label_in(wheel.file), wheel.properties))
    return {name: variant_json(sorted(rows)) for name, rows in sorted(by_name.items())}

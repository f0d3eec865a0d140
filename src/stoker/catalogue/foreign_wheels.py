"""Wheels of an index that is no catalogue, as entries. Pure: the caller reads the index.

Such an index tells what a wheel is for only by the label in its name, and by the properties of that
label in `NAME-VERSION-variants.json`.
"""

import re
from collections.abc import Iterable, Iterator

import msgspec

from stoker.catalogue.values import NO_LABEL, ArchCode, CodeRegions, PublishedWheel
from stoker.knowledge.cpus import cpu_levels, cpu_needs
from stoker.model.distribution import read_wheel_name
from stoker.model.errors import ArtifactError
from stoker.model.value import UNDECODABLE, Value, prepared
from stoker.model.variant import Backend

Properties = dict[str, dict[str, list[str]]]  # values by namespace and feature
_PARTS = 5  # of a wheel's name, without build number and label
_BACKENDS = {"nvidia": Backend.CUDA, "amd": Backend.ROCM, "intel": Backend.XPU, "xpu": Backend.XPU}
_KNOWN = re.compile(
    r"nvidia :: sm_arch :: [0-9]+[af]?_(real|virtual)"
    r"|nvidia :: cuda_version_(lower|upper)_bound :: [0-9]+(\.[0-9]+)?"
    r"|amd :: gfx_arch :: .+|(intel|xpu) :: device_ip :: .+"
    r"|x86_64 :: level :: v[1-4]|(x86_64|aarch64) :: [a-z0-9_]+ :: on"
)


class _Variants(Value, frozen=True, kw_only=True):
    variants: dict[str, Properties]


def read_variants(content: bytes, where: str) -> dict[str, Properties]:
    """Return the properties by label; anyone may have written the file."""
    try:
        return msgspec.json.decode(content, type=prepared(_Variants)).variants
    except UNDECODABLE as error:
        raise ArtifactError(f"this does not describe wheel variants: {error}", file=where) from None


def without_label(file: str) -> tuple[str, str | None]:
    """Return the name of a wheel without the label of its variant, and the label."""
    parts = file.removesuffix(".whl").split("-")
    usual = _PARTS + (len(parts) > _PARTS and parts[2][:1].isdigit())
    if len(parts) != usual + 1:
        return file, None
    return "-".join(parts[:usual]) + ".whl", parts[usual]


def foreign_entry(
    file: str, sha256: str, size: int, described: dict[str, Properties]
) -> PublishedWheel | None:
    """Return a wheel of another index as an entry; ``None`` for one whose label is not described,
    and for a file that is not a wheel.
    """
    bare, label = without_label(file)
    try:
        name, version, tags = read_wheel_name(bare)
    except ValueError:  # also InvalidWheelFilename and InvalidVersion
        return None
    if label is not None and label not in described:
        return None
    properties = described[label] if label else {}
    nvidia, x86 = properties.get("nvidia", {}), properties.get("x86_64", {})
    archs = tuple(_nvidia_archs(nvidia.get("sm_arch", [])))
    levels = [f"x86_64_{level}" for level in sorted(x86.get("level", []))]
    known = [level for level in levels if level in cpu_levels()]
    instructions = {
        name
        for family in ("x86_64", "aarch64")
        for name, values in properties.get(family, {}).items()
        if values == ["on"]
    }
    needs = cpu_needs(known[0]) if known else frozenset()
    return PublishedWheel(
        file=file,
        sha256=sha256,
        size_bytes=size,
        unpacked_bytes=0,
        metadata_sha256="",
        project=name,
        version=str(version),
        tags=tuple(sorted(map(str, tags))),
        variant=label or NO_LABEL,
        backend=next((_BACKENDS[name] for name in properties if name in _BACKENDS), Backend.CPU),
        cuda=min(nvidia.get("cuda_version_lower_bound", []), key=_release, default=None),
        regions=(CodeRegions(archs=archs, count=1),) if archs else (),
        code=tuple(ArchCode(arch=arch, size_bytes=0, count=1) for arch in archs),
        cpu=", ".join([*known[:1], *sorted(instructions)]) or None,
        cpu_needs=tuple(sorted(needs | instructions)),
        properties=tuple(
            f"{namespace} :: {feature} :: {value}"
            for namespace, features in properties.items()
            for feature, values in features.items()
            for value in values
        ),
    )


def _release(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"[0-9]{1,4}", text))


def _nvidia_archs(values: Iterable[str]) -> Iterator[str]:
    """Yield ``sm_90`` and ``compute_90`` for the values ``90_real`` and ``90_virtual``."""
    kinds = {"real": "sm", "virtual": "compute"}
    for value in values:
        number, _, kind = value.partition("_")
        if kind in kinds and re.fullmatch(r"[0-9]{1,4}[af]?", number):
            yield f"{kinds[kind]}_{number}"


def unknown_properties(wheel: PublishedWheel) -> tuple[str, ...]:
    """Return the properties whose meaning is not known here, so they cannot be checked."""
    return tuple(line for line in wheel.properties if not _KNOWN.fullmatch(line))

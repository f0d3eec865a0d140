"""Wheel variants as the drafts PEP 817, 825 and 850 describe them: properties and their JSON. Pure.

An installer that knows them chooses from one shared index by itself. The drafts change, and only uv
with `--preview-features wheel-variants` reads them, with a built-in provider for NVIDIA GPUs. For
CPU levels there are providers on PyPI; they are marked as optional, so that an installer that has
not enabled them takes a wheel without such a property. The providers for AMD and Intel GPUs are not
on PyPI, where other packages could take their names, so the publisher names them.
"""

import hashlib
import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import Annotated, Any
from urllib.parse import quote

import msgspec
from msgspec import Meta
from packaging.utils import canonicalize_name
from packaging.version import Version

from stoker.catalogue.entry import named_gpus
from stoker.catalogue.values import (
    FORMAT,
    NULL_LABEL,
    WHEEL_VARIANTS,
    CodeRegions,
    PublishedCatalogue,
    PublishedWheel,
    VariantName,
)
from stoker.knowledge.hardware import cpu_family, gpus
from stoker.model.distribution import read_version
from stoker.model.errors import ArtifactError
from stoker.model.plan import Backend
from stoker.model.value import UNDECODABLE, Value
from stoker.model.visible import html_text

VARIANT_MEMBER = "variant.json"  # in dist-info
_SCHEMA = "https://variants-schema.wheelnext.dev/peps/850/v0.2.0.json"
_KINDS = {"sm": "real", "compute": "virtual"}

Provider = dict[str, Any]
# Those that can be named without being asked: the packages exist, or their owner holds the name.
_PROVIDERS: dict[str, Provider] = {
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
    whole = {
        "$schema": _SCHEMA,
        "default-priorities": {"namespace": named},
        "providers": {namespace: _provider(namespace, providers) for namespace in named},
        "variants": described,
    }
    return msgspec.json.encode(whole)


def _provider(namespace: str, providers: Mapping[str, str]) -> Provider:
    """The provider of a namespace: the publisher's own, whose package says where its plugin is, or
    the known one.
    """
    own = providers.get(namespace)
    return {"requires": [own]} if own else _PROVIDERS[namespace]


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


# -- pages -----------------------------------------------------------------------------------------
# The files of a catalogue as values: what `pip` and `uv` read, and `catalogue.json`. Pure.
#
# Each variant has an index of its own (PEP 503 as HTML, PEP 691 as JSON beside it): in a shared
# one installers would take the greatest version label, whether it fits the machine or not.


CATALOGUE = "catalogue.json"
PEOPLE = "index.html"  # the page for people, at the root
JSON_TYPE = "application/vnd.pypi.simple.v1+json"
HTML_TYPE = "application/vnd.pypi.simple.v1+html"
_API = "1.1"  # PEP 700: sizes and versions

_HTML = """<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="pypi:repository-version" content="{api}">
<title>{title}</title>
</head>
<body>
<h1>{title}</h1>
{links}
</body>
</html>
"""


class WheelGroup(Value, frozen=True, kw_only=True, order=True):
    """The wheels that one page of an index lists. Without a project: the projects of a variant."""

    variant: VariantName
    project: Annotated[str, Meta(pattern=r"^([a-z0-9]+(-[a-z0-9]+)*)?\Z")] = ""

    @property
    def folder(self) -> str:
        return f"{self.variant}/{self.project}/" if self.project else f"{self.variant}/"


def groups_of(wheels: Iterable[PublishedWheel]) -> frozenset[WheelGroup]:
    """Return every page that lists one of the wheels."""
    return frozenset(
        group
        for wheel in wheels
        for group in (
            WheelGroup(variant=wheel.variant),
            WheelGroup(variant=wheel.variant, project=wheel.project),
        )
    )


def changed_groups(before: PublishedCatalogue, after: PublishedCatalogue) -> frozenset[WheelGroup]:
    """Return the pages that differ between two catalogues; all others keep their bytes."""
    return groups_of(set(before.wheels) ^ set(after.wheels))


def index_pages(
    catalogue: PublishedCatalogue, groups: Collection[WheelGroup]
) -> dict[str, bytes | None]:
    """Return path to content; ``None`` for a page that has nothing left to list."""
    listed: dict[WheelGroup, list[PublishedWheel]] = {group: [] for group in groups}
    for wheel in catalogue.wheels:
        for group in (
            WheelGroup(variant=wheel.variant),
            WheelGroup(variant=wheel.variant, project=wheel.project),
        ):
            if group in listed:
                listed[group].append(wheel)
    pages: dict[str, bytes | None] = {}
    for group in sorted(groups):
        beside = _beside(group, listed[group])
        pages |= {f"{group.folder}{name}": content for name, content in beside.items()}
        made = _rendered(group, listed[group], beside) if listed[group] else (None, None)
        pages[f"{group.folder}index.html"], pages[f"{group.folder}index.json"] = made
    return pages


def _beside(group: WheelGroup, wheels: list[PublishedWheel]) -> dict[str, bytes]:
    """Files that a page lists along with the wheels."""
    shared = group.variant == WHEEL_VARIANTS and group.project
    return variants_files(wheels) if shared else {}


def _rendered(
    group: WheelGroup, wheels: list[PublishedWheel], beside: dict[str, bytes]
) -> tuple[bytes, bytes]:
    if group.project:
        digests = {name: hashlib.sha256(content).hexdigest() for name, content in beside.items()}
        return _project_html(group, wheels, digests), _project_json(group, wheels, digests)
    projects = sorted({wheel.project for wheel in wheels})
    return _root_html(group, projects), _root_json(projects)


def _html(title: str, links: Iterator[str]) -> bytes:
    return _HTML.format(api=_API, title=html_text(title), links="\n".join(links)).encode()


def _root_html(group: WheelGroup, projects: list[str]) -> bytes:
    links = (f'<a href="{html_text(name)}/">{html_text(name)}</a><br>' for name in projects)
    return _html(f"Simple index of {group.variant}", links)


def _root_json(projects: list[str]) -> bytes:
    named = [{"name": name} for name in projects]
    return msgspec.json.encode({"meta": {"api-version": _API}, "projects": named})


def _project_html(group: WheelGroup, wheels: list[PublishedWheel], beside: dict[str, str]) -> bytes:
    links = [_link(wheel) for wheel in wheels]
    links += [
        f'<a href="{html_text(quote(name))}#sha256={digest}">{html_text(name)}</a><br>'
        for name, digest in beside.items()
    ]
    return _html(f"{group.project} for {group.variant}", iter(links))


def _link(wheel: PublishedWheel) -> str:
    digest = f"sha256={wheel.metadata_sha256}"
    attributes = {
        "href": f"{_relative(wheel)}#sha256={wheel.sha256}",
        "data-core-metadata": digest,
        "data-dist-info-metadata": digest,  # pip before 23.3 knows only this name
    }
    if wheel.requires_python:
        attributes["data-requires-python"] = wheel.requires_python
    words = " ".join(f'{name}="{html_text(value)}"' for name, value in attributes.items())
    return f"<a {words}>{html_text(wheel.file)}</a><br>"


def _project_json(group: WheelGroup, wheels: list[PublishedWheel], beside: dict[str, str]) -> bytes:
    versions = sorted({read_version(wheel.version) for wheel in wheels})
    page = {
        "meta": {"api-version": _API},
        "name": group.project,
        "versions": [str(version) for version in versions],
        "files": [
            *(_file(wheel) for wheel in wheels),
            *(
                {"filename": name, "url": quote(name), "hashes": {"sha256": digest}}
                for name, digest in beside.items()
            ),
        ],
    }
    return msgspec.json.encode(page)


def _file(wheel: PublishedWheel) -> dict[str, object]:
    metadata = {"sha256": wheel.metadata_sha256}
    described: dict[str, object] = {
        "filename": wheel.file,
        "url": _relative(wheel),
        "hashes": {"sha256": wheel.sha256},
        "size": wheel.size_bytes,
        "core-metadata": metadata,
        "dist-info-metadata": metadata,
    }
    if wheel.requires_python:
        described["requires-python"] = wheel.requires_python
    if wheel.published:
        described["upload-time"] = wheel.published
    return described


def _relative(wheel: PublishedWheel) -> str:
    """Return the link from a project's page to the wheel, valid wherever the catalogue is
    served.
    """
    return f"../../{quote(wheel.path)}"


# -- catalogue.json --------------------------------------------------------------------------------


def with_wheels(
    catalogue: PublishedCatalogue, wheels: Iterable[PublishedWheel]
) -> PublishedCatalogue:
    """Return the catalogue with wheels added; one of the same variant and name is replaced."""
    by_key = {wheel.key: wheel for wheel in (*catalogue.wheels, *wheels)}
    return PublishedCatalogue(wheels=tuple(sorted(by_key.values(), key=_order)))


def without_wheels(
    catalogue: PublishedCatalogue, keys: Collection[tuple[str, str]]
) -> PublishedCatalogue:
    kept = (wheel for wheel in catalogue.wheels if wheel.key not in keys)
    return PublishedCatalogue(wheels=tuple(kept))


def _order(wheel: PublishedWheel) -> tuple[str, str, Version, str]:
    return wheel.variant, wheel.project, read_version(wheel.version), wheel.file


def encoded(catalogue: PublishedCatalogue) -> bytes:
    """Return the catalogue with one line for each wheel, so that diffs are readable."""
    lines = b",\n".join(msgspec.json.encode(wheel) for wheel in catalogue.wheels)
    return b'{"format": %d, "wheels": [\n%b\n]}\n' % (catalogue.format, lines)


class _Format(Value, frozen=True, kw_only=True):
    format: int


def decoded(content: bytes, where: str) -> PublishedCatalogue:
    """Read `catalogue.json`, which anyone may have written."""
    try:
        if msgspec.json.decode(content, type=_Format).format > FORMAT:
            hints = ["a newer release of stoker reads it"]
            raise ArtifactError("the catalogue has a newer format", file=where, hints=hints)
        catalogue = msgspec.json.decode(content, type=PublishedCatalogue)
        for wheel in catalogue.wheels:
            read_version(wheel.version)
    except UNDECODABLE as error:
        raise ArtifactError(f"this is not a catalogue of stoker: {error}", file=where) from None
    return catalogue

"""The page of a catalogue for people: one file that needs no network, made from its wheels.

The data is embedded as JSON and shown as text only, so names in wheels cannot become markup; the
security policy of the page allows its own script and style and nothing else.
"""

import re
from functools import cache
from importlib.resources import files
from typing import Any

import msgspec

from stoker.catalogue.ranking import device_fit
from stoker.catalogue.values import Fit, PublishedCatalogue, PublishedWheel
from stoker.knowledge.cpus import cpu_levels, cpu_offers
from stoker.knowledge.gpus import gpus
from stoker.model.distribution import read_tags
from stoker.model.html import allowed, filled_page, html_text, json_in_page
from stoker.model.variant import Backend

_FAMILY = re.compile(r"_(x86_64|aarch64|arm64|ppc64le|riscv64)$")
_PYTHON = re.compile(r"cp(3)([0-9]{1,3})")


def people_page(catalogue: PublishedCatalogue) -> bytes:
    template = files(__package__).joinpath("page.html").read_text("utf-8")
    script = re.findall(r"<script>(.*?)</script>", template, re.DOTALL)
    style = re.findall(r"<style>(.*?)</style>", template, re.DOTALL)
    sources = f"script-src {allowed(script)}; style-src {allowed(style)}"
    policy = f"default-src 'none'; base-uri 'none'; form-action 'none'; {sources}"
    catalogue = catalogue.own
    page = filled_page(
        template,
        policy=html_text(policy),
        variants="\n".join(
            f'<li><a href="{html_text(name)}/">{html_text(name)}</a></li>'
            for name in catalogue.variants
        ),
        data=json_in_page(msgspec.json.encode(_data(catalogue)).decode()),
    )
    return page.encode()


def _data(catalogue: PublishedCatalogue) -> dict[str, Any]:
    """Return the data with short names, because the file is downloaded with every visit."""
    archs = {gpu.arch: gpu.names for gpu in gpus().values() if gpu.backend is Backend.CUDA}
    families = {family for wheel in catalogue.wheels for family in _families(wheel.tags)}
    return {
        "gpus": [{"arch": arch, "names": names} for arch, names in archs.items()],
        "cpus": [
            {
                "name": level.name,
                "family": level.family,
                "serves": level.serves,
                "has": sorted(cpu_offers(level.name)),
            }
            for level in cpu_levels().values()
            if level.family in families
        ],
        "wheels": [_row(wheel, tuple(archs)) for wheel in catalogue.wheels],
    }


def _row(wheel: PublishedWheel, archs: tuple[str, ...]) -> dict[str, Any]:
    return {
        "variant": wheel.variant,
        "project": wheel.project,
        "version": wheel.version,
        "file": wheel.file,
        "path": wheel.path,
        "sha256": wheel.sha256,
        "size": wheel.size_bytes,
        "unpacked": wheel.unpacked_bytes,
        "backend": wheel.backend,
        "cuda": wheel.cuda,
        "cpu": wheel.cpu,
        "needs": wheel.cpu_needs,
        "families": _families(wheel.tags),
        "pythons": _pythons(wheel),
        "blas": wheel.blas,
        "built": wheel.built[:10],
        "verified": wheel.verified,
        "code": [[code.arch, code.size_bytes] for code in wheel.code],
        "runs": _runs(wheel, archs),
        # Without markers, which repeat the platform in every line.
        "requires": [
            line.partition(";")[0].strip() for line in wheel.requires if "extra ==" not in line
        ],
    }


def _runs(wheel: PublishedWheel, archs: tuple[str, ...]) -> dict[str, tuple[str, str]]:
    """Return the GPUs that run it, and how and by which code."""
    if wheel.backend is not Backend.CUDA:
        return {}
    found = {arch: device_fit(wheel.regions, arch) for arch in archs}
    return {arch: (fit, by) for arch, (fit, by, _) in found.items() if fit is not Fit.NONE}


@cache
def _families(tags: tuple[str, ...]) -> tuple[str, ...]:
    """Return the CPU families of tags; empty means any."""
    found = (_FAMILY.search(tag.platform) for tag in read_tags(tags))
    return tuple(sorted({one[1].replace("arm64", "aarch64") for one in found if one}))


def _pythons(wheel: PublishedWheel) -> list[str]:
    found = (_PYTHON.fullmatch(tag.interpreter) for tag in read_tags(wheel.tags))
    return sorted({f"{one[1]}.{one[2]}" for one in found if one}, key=lambda v: int(v[2:]))

"""The pages of a catalogue: an index of each group of wheels as HTML and JSON, and one for people.

Pure: every page follows from the list of wheels.
"""

import hashlib
from collections.abc import Collection, Iterable
from typing import Annotated
from urllib.parse import quote

import msgspec
from msgspec import Meta

from stoker.catalogue.values import WHEEL_VARIANTS, PublishedCatalogue, PublishedWheel, VariantName
from stoker.catalogue.wheel_variants import variants_files
from stoker.model.distribution import read_version
from stoker.model.html import html_text
from stoker.model.value import Value

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
    return frozenset(group for wheel in wheels for group in _groups(wheel))


def _groups(wheel: PublishedWheel) -> tuple[WheelGroup, WheelGroup]:
    variant = WheelGroup(variant=wheel.variant)
    return variant, WheelGroup(variant=wheel.variant, project=wheel.project)


def changed_groups(before: PublishedCatalogue, after: PublishedCatalogue) -> frozenset[WheelGroup]:
    """Return the pages that differ between two catalogues; all others keep their bytes."""
    return groups_of(set(before.wheels) ^ set(after.wheels))


def index_pages(
    catalogue: PublishedCatalogue, groups: Collection[WheelGroup]
) -> dict[str, bytes | None]:
    """Return path to content; ``None`` for a page that has nothing left to list."""
    listed: dict[WheelGroup, list[PublishedWheel]] = {group: [] for group in groups}
    for wheel in catalogue.wheels:
        for group in _groups(wheel):
            if group in listed:
                listed[group].append(wheel)
    pages: dict[str, bytes | None] = {}
    for group in sorted(groups):
        shared = group.variant == WHEEL_VARIANTS and group.project
        beside = variants_files(listed[group]) if shared else {}
        pages |= {f"{group.folder}{name}": content for name, content in beside.items()}
        made = _rendered(group, listed[group], beside) if listed[group] else (None, None)
        pages[f"{group.folder}index.html"], pages[f"{group.folder}index.json"] = made
    return pages


def _rendered(
    group: WheelGroup, wheels: list[PublishedWheel], beside: dict[str, bytes]
) -> tuple[bytes, bytes]:
    if group.project:
        digests = {name: hashlib.sha256(content).hexdigest() for name, content in beside.items()}
        links = [_link(wheel) for wheel in wheels]
        links += [
            f'<a href="{html_text(quote(name))}#sha256={digest}">{html_text(name)}</a><br>'
            for name, digest in digests.items()
        ]
        page = _html(f"{group.project} for {group.variant}", links)
        return page, _project_json(group, wheels, digests)
    projects = sorted({wheel.project for wheel in wheels})
    links = [f'<a href="{html_text(name)}/">{html_text(name)}</a><br>' for name in projects]
    named = [{"name": name} for name in projects]
    listed = msgspec.json.encode({"meta": {"api-version": _API}, "projects": named})
    return _html(f"Simple index of {group.variant}", links), listed


def _html(title: str, links: Iterable[str]) -> bytes:
    return _HTML.format(api=_API, title=html_text(title), links="\n".join(links)).encode()


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

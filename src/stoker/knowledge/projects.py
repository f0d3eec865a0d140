"""Facts about single projects: variables of extensions, architectures that a build adds, images."""

from collections.abc import Iterable
from functools import cache

from stoker.knowledge import Row, load
from stoker.knowledge.sonames import unversioned


class ProjectRow(Row, frozen=True, kw_only=True):
    name: str
    environment: dict[str, str]


class _Projects(Row, frozen=True, kw_only=True):
    project: tuple[ProjectRow, ...]


class _Added(Row, frozen=True, kw_only=True):
    project: str
    asked: str
    extra: tuple[str, ...]


class _Linked(Row, frozen=True, kw_only=True):
    project: str
    library: str


class _Architectures(Row, frozen=True, kw_only=True):
    added: tuple[_Added, ...]
    linked: tuple[_Linked, ...]


class ImageRow(Row, frozen=True, kw_only=True):
    """``{version}`` in a name is the version of CUDA or ROCm. No project means every project."""

    machine: str
    backend: str
    name: str
    project: str | None = None


class _Images(Row, frozen=True, kw_only=True):
    image: tuple[ImageRow, ...]


@cache
def projects() -> dict[str, ProjectRow]:
    """Return the extensions that need variables of their own, by name with underscores."""
    return {row.name: row for row in load("projects", _Projects).project}


@cache
def _architectures() -> _Architectures:
    return load("extra_architectures", _Architectures)


@cache
def _images() -> _Images:
    return load("builder_images", _Images)


def added(project: str, asked: Iterable[str]) -> frozenset[str]:
    """Return the architectures, such as ``9.0a``, that a project builds besides ``asked``."""
    wanted = set(asked)
    rows = (row for row in _architectures().added if row.project == project)
    return frozenset(arch for row in rows if row.asked in wanted for arch in row.extra)


def holds_foreign_code(project: str, library: str) -> bool:
    """Tell whether a library holds device code that the project's build did not compile."""
    name = unversioned(library)
    return any(row.project == project and row.library == name for row in _architectures().linked)


def builder_image(project: str, machine: str, backend: str, version: str | None) -> str | None:
    """Return the image to build in; None if none is known, or if it needs a missing version."""
    for row in _images().image:
        if row.project in (project, None) and (row.machine, row.backend) == (machine, backend):
            if "{version}" in row.name and not version:
                return None
            return row.name.replace("{version}", version or "")
    return None

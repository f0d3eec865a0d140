"""Facts about single projects: recipes, who reads variables for them, images to build in, where
they publish wheels beside the package indexes, and kernels that they compile while they run.
"""

from collections.abc import Iterable
from functools import cache

from stoker.knowledge import Row, rows, table
from stoker.knowledge.sonames import unversioned
from stoker.model.recipe import ProjectRecipe
from stoker.model.variant import Backend
from stoker.model.wheel_source import WheelSource


class _Linked(Row, frozen=True, kw_only=True):
    project: str
    library: str


class _ExtraArchitectures(Row, frozen=True, kw_only=True):
    """``added`` are by project and by the architecture that is asked for."""

    added: dict[str, dict[str, tuple[str, ...]]]
    linked: tuple[_Linked, ...]


class ImageRow(Row, frozen=True, kw_only=True):
    """``{version}`` in a name is the version of CUDA or ROCm. No project means every project."""

    machine: str
    backend: str
    name: str
    project: str | None = None


@cache
def projects() -> dict[str, ProjectRecipe]:
    """Return the recipes that are shipped, by name."""
    return {row.name: row for row in rows("projects", ProjectRecipe)()}


class _Reader(Row, frozen=True, kw_only=True):
    """A library or tool that reads variables in place of the project itself. ``prefixes`` are
    beginnings of names. ``always`` means that every build uses it.
    """

    name: str
    variables: tuple[str, ...] = ()
    prefixes: tuple[str, ...] = ()
    cmake: tuple[str, ...] = ()  # variables of CMake
    cmake_prefixes: tuple[str, ...] = ()
    always: bool = False


_readers = rows("readers", _Reader)


def reader_of(name: str, readers: Iterable[str], *, environment: bool) -> str | None:
    """Return which of the readers of a build reads a variable, if one is known to."""
    used = set(readers)
    for row in _readers():
        if row.name in used or row.always:
            names = row.variables if environment else row.cmake
            beginnings = row.prefixes if environment else row.cmake_prefixes
            if name in names or name.startswith(beginnings):
                return row.name
    return None


_extra = table("extra_architectures", _ExtraArchitectures)
_images = rows("builder_images", ImageRow)


def added(project: str, asked: Iterable[str]) -> frozenset[str]:
    """Return the architectures, such as ``9.0a``, that a project builds besides ``asked``."""
    recipe = next((row for row in projects().values() if project in row.packages), None)
    known = recipe.backends.get(Backend.CUDA) if recipe else None
    adds = known.adds if known else {}
    seen = _extra().added.get(project, {})
    return frozenset(
        extra for arch in asked for extra in (*adds.get(arch, ()), *seen.get(arch, ()))
    )


def holds_foreign_code(project: str, library: str) -> bool:
    """Tell whether a library holds device code that the project's build did not compile."""
    name = unversioned(library)
    return any(row.project == project and row.library == name for row in _extra().linked)


def builder_image(project: str, machine: str, backend: str, version: str | None) -> str | None:
    """Return the image to build in; None if none is known, or if it needs a missing version."""
    for row in _images():
        if row.project in (project, None) and (row.machine, row.backend) == (machine, backend):
            if "{version}" in row.name and not version:
                return None
            return row.name.replace("{version}", version or "")
    return None


wheel_sources = rows("wheel_sources", WheelSource)


class KernelCache(Row, frozen=True, kw_only=True):
    """The cache of one project. ``program`` fills it, or ``refusal`` says why none can."""

    project: str
    folder: str
    moved_by: str
    program: str = ""
    environment: dict[str, str] = {}
    refusal: str = ""
    instead: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if bool(self.program) == bool(self.refusal):
            raise ValueError("give one of program and refusal")


@cache
def kernel_caches() -> dict[str, KernelCache]:
    """Return the known caches by the canonical name of the project."""
    from packaging.utils import canonicalize_name

    return {canonicalize_name(one.project): one for one in rows("kernel_caches", KernelCache)()}

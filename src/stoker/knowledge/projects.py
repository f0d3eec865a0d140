"""Projects that stoker knows, their features and releases, and what their builds need."""

from collections.abc import Iterable
from functools import cache

from stoker.knowledge import Row, load
from stoker.knowledge.wheels import unversioned
from stoker.model.plan import Backend
from stoker.model.recipe import ProjectRecipe
from stoker.model.source import ProjectKind

# -- projects --------------------------------------------------------------------------------------
# Facts about single projects: recipes, who reads variables for them, images to build in.


class _Projects(Row, frozen=True, kw_only=True):
    project: tuple[ProjectRecipe, ...]


class _Linked(Row, frozen=True, kw_only=True):
    project: str
    library: str


class _Architectures(Row, frozen=True, kw_only=True):
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
def projects() -> dict[str, ProjectRecipe]:
    """Return the recipes that are shipped, by name."""
    return {row.name: row for row in load("projects", _Projects).project}


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


class _Readers(Row, frozen=True, kw_only=True):
    reader: tuple[_Reader, ...]


@cache
def _readers() -> tuple[_Reader, ...]:
    return load("readers", _Readers).reader


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


@cache
def _architectures() -> _Architectures:
    return load("extra_architectures", _Architectures)


@cache
def _images() -> _Images:
    return load("builder_images", _Images)


def added(project: str, asked: Iterable[str]) -> frozenset[str]:
    """Return the architectures, such as ``9.0a``, that a project builds besides ``asked``."""
    recipe = next((row for row in projects().values() if project in row.packages), None)
    known = recipe.backends.get(Backend.CUDA) if recipe else None
    adds = known.adds if known else {}
    return frozenset(extra for arch in asked for extra in adds.get(arch, ()))


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


# -- features --------------------------------------------------------------------------------------
# Features and BLAS libraries: the names people use and the CMake names behind them.


class FeatureRow(Row, frozen=True, kw_only=True):
    name: str
    help: str
    option: str  # of CMake
    backends: tuple[Backend, ...] = ()
    library: str | None = None
    python_package: str | None = None
    needs: str | None = None  # another feature, which must not be switched off
    submodule: str | None = None  # a copy inside the tree that serves instead of the library


class BlasRow(Row, frozen=True, kw_only=True):
    name: str
    value: str
    vendor: str | None = None
    library: str | None = None
    families: tuple[str, ...] = ()
    systems: tuple[str, ...] = ()
    aliases: tuple[str, ...] = ()


class _FeatureTable(Row, frozen=True, kw_only=True):
    feature: tuple[FeatureRow, ...]
    blas: tuple[BlasRow, ...]


@cache
def _feature_table() -> _FeatureTable:
    return load("features", _FeatureTable)


@cache
def features() -> dict[str, FeatureRow]:
    return {row.name: row for row in _feature_table().feature}


@cache
def blas_libraries() -> dict[str, BlasRow]:
    return {row.name: row for row in _feature_table().blas}


# -- torch -----------------------------------------------------------------------------------------
# Releases of PyTorch, and the environment variables that its front ends pass to CMake.


class TorchRelease(Row, frozen=True, kw_only=True):
    version: str  # "2.6"
    cuda_newest: str
    cuda_usual: str | None = None  # of the wheels for x86-64 on the usual package index
    python: tuple[str, str]  # oldest and newest
    gcc_min: int
    cmake_below: str | None = None
    macos: str | None = None  # the oldest that its wheels are built for
    cxx: int = 17  # the C++ standard that its headers need


class Forwarding(Row, frozen=True, kw_only=True):
    prefixes: tuple[str, ...]
    suffixes: tuple[str, ...]
    names: tuple[str, ...]
    aliases: dict[str, str]

    def variable(self, option: str) -> str | None:
        """Return the environment variable that sets a CMake option; ``None`` if there is none."""
        if alias := self.aliases.get(option):
            return alias
        passes = (
            option in self.names
            or option.startswith(self.prefixes)
            or option.endswith(self.suffixes)
        )
        return option if passes else None


class _FrontEnd(Row, frozen=True, kw_only=True):
    names: tuple[str, ...]


class _TorchTable(Row, frozen=True, kw_only=True):
    release: tuple[TorchRelease, ...]
    forwarding: Forwarding
    front_end: _FrontEnd


@cache
def _torch_table() -> _TorchTable:
    return load("torch", _TorchTable)


def forwarding() -> Forwarding:
    return _torch_table().forwarding


def front_end_variables() -> tuple[str, ...]:
    return _torch_table().front_end.names


@cache
def torch_releases() -> dict[str, TorchRelease]:
    return {row.version: row for row in _torch_table().release}


@cache
def oldest_python() -> str:
    """Return the oldest Python that any known release of PyTorch supports."""
    oldest = (row.python[0] for row in _torch_table().release)
    return min(oldest, key=lambda version: [int(part) for part in version.split(".")])


def torch_release(version: str | None) -> TorchRelease | None:
    """Return the release of a version such as ``2.6.0a0+git1234``."""
    return torch_releases().get(".".join((version or "").split(".")[:2]))


# -- estimates -------------------------------------------------------------------------------------
# Measured figures of whole builds: memory, time, disk, wheel size.


class BuildFigures(Row, frozen=True, kw_only=True):
    project: ProjectKind
    backend: Backend
    basis: str
    name: str | None = None
    release: str | None = None  # of PyTorch, whose newer releases need more
    cpu_seconds: tuple[float, float] | None = None  # from, to
    kernel_seconds: tuple[float, float] | None = None  # besides, for each GPU target
    largest_step: int | None = None
    needs_feature: str | None = None  # if it is off, the figures do not apply
    without_feature: str | None = None  # it was off: with it, a build takes more
    disk: int | None = None  # bytes written by the whole build
    disk_at_least: bool = False


class HeavyRow(Row, frozen=True, kw_only=True):
    project: ProjectKind
    pattern: str
    bytes: int
    basis: str
    name: str | None = None  # of one project; None: all of this kind
    backend: Backend | None = None


class WheelFigures(Row, frozen=True, kw_only=True):
    torch: str
    cuda: str
    base: int
    targets: dict[str, int]
    basis: str


class CompileFigures(Row, frozen=True, kw_only=True):
    """CPU seconds and memory of one compile, from and to, of a project that was never measured."""

    device_seconds: tuple[float, float]  # for one target
    host_seconds: tuple[float, float]
    device_bytes: tuple[int, int]
    host_bytes: tuple[int, int]
    basis: str


class SlimFigures(Row, frozen=True, kw_only=True):
    """A wheel of ``bytes`` slimmed and verified. More than ``cpus`` were not measured."""

    bytes: int
    cpu_seconds: float
    cpus: int
    basis: str


class Estimates(Row, frozen=True, kw_only=True):
    build: tuple[BuildFigures, ...]
    heavy: tuple[HeavyRow, ...]
    wheel: tuple[WheelFigures, ...]
    compiles: CompileFigures
    slim: SlimFigures


@cache
def estimates() -> Estimates:
    return load("estimates", Estimates)

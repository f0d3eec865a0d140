"""The request, the plan and the result of packaging, as values that can be printed."""

import re
from collections.abc import Collection
from enum import StrEnum
from pathlib import Path, PurePosixPath

from packaging.utils import canonicalize_name

from stoker.knowledge.wheels import bringer
from stoker.model.artifact import LibraryFacts, WheelFacts
from stoker.model.errors import ArtifactError, UsageError
from stoker.model.value import Value
from stoker.wheel.engine import Wheel
from stoker.wheel.facts import read_wheel


class PackageMode(StrEnum):
    """Where a packaged wheel gets NVIDIA's libraries from."""

    PYPI = "pypi"  # from NVIDIA's own packages, which it requires
    BUNDLE = "bundle"  # from itself
    PLAIN = "plain"  # unchanged: only tags and search paths are corrected


class PackageRequest(Value, frozen=True, kw_only=True):
    """The user's options; ``None`` means that the wheel decides."""

    mode: PackageMode
    libraries: tuple[str, ...] = ()  # folders, wheels and folders of wheels to search
    exclude: tuple[str, ...] = ()  # patterns of libraries that the target machine provides
    requires: tuple[str, ...] = ()
    like: str | None = None  # the PyTorch release whose requirements are used
    torch: str | None = None  # the PyTorch version that an extension was built against
    cuda: str | None = None
    label: str | None = None  # of the version; empty removes it
    strip: bool = False


class LibrarySource(Value, frozen=True, kw_only=True, order=True):
    """A file, or a member of a wheel."""

    file: str
    member: str | None = None

    def __str__(self) -> str:
        return f"{self.file}: {self.member}" if self.member else self.file


class LibraryChange(Value, frozen=True, kw_only=True):
    """The changes to an ELF file of the new wheel.

    ``rpath`` None keeps the search path, empty removes it; ``as_runpath`` writes it as DT_RUNPATH.
    ``source`` is set for bundled files.
    """

    path: str
    rpath: str | None = None
    as_runpath: bool = False
    needed: dict[str, str] = {}
    soname: str | None = None
    strip: bool = False
    source: LibrarySource | None = None
    size_bytes: int = 0
    wanted_by: tuple[str, ...] = ()  # the libraries that need a bundled one


class Licence(Value, frozen=True, kw_only=True):
    """A licence text of a bundled library. ``path`` is relative to dist-info/licenses."""

    path: str
    source: LibrarySource


class PackagePlan(Value, frozen=True, kw_only=True):
    mode: PackageMode
    wheel: str
    file_name: str
    version: str
    tags: tuple[str, ...]
    changed: tuple[LibraryChange, ...] = ()
    added: tuple[LibraryChange, ...] = ()
    requires_added: tuple[str, ...] = ()
    requires_dropped: tuple[str, ...] = ()
    excluded: tuple[str, ...] = ()  # patterns of libraries that the target machine provides
    licences: tuple[Licence, ...] = ()
    notes: tuple[str, ...] = ()


class Packaged(Value, frozen=True, kw_only=True):
    """The written wheel. ``debug_files`` are in a folder next to it."""

    path: str
    size_bytes: int
    debug_files: tuple[str, ...] = ()


# -- built wheel -----------------------------------------------------------------------------------
# Reads the wheel to package: its metadata, its libraries and their machine.


_TORCH_VERSION = "torch/version.py"
_CUDA = re.compile(r"^cuda\b[^=\n]*=\s*['\"]([0-9]+\.[0-9]+)", re.MULTILINE)


class BuiltWheel(Value, frozen=True, kw_only=True):
    """``libraries`` are the ELF files that the loader of the machine can load."""

    path: str
    facts: WheelFacts
    libraries: tuple[LibraryFacts, ...]
    members: tuple[str, ...]
    machine: str
    metadata: bytes
    wheel: bytes
    dist_info: str
    cuda: str | None = None  # from torch/version.py

    @property
    def is_torch(self) -> bool:
        return canonicalize_name(self.facts.name) == "torch"

    @property
    def needed(self) -> frozenset[str]:
        return frozenset(name for library in self.libraries for name in library.needed)

    @property
    def own(self) -> frozenset[str]:
        """Return all names of libraries in the wheel."""
        names = (PurePosixPath(member).name for member in self.members)
        sonames = (library.soname for library in self.libraries if library.soname)
        return frozenset((*names, *sonames))

    @property
    def is_extension(self) -> bool:
        """Return whether it is linked to PyTorch and is not PyTorch itself."""
        return any(row.name == "torch" for row in map(bringer, self.needed - self.own) if row)


def read_built_wheel(wheel: Wheel) -> BuiltWheel:
    facts, libraries, members = read_wheel(wheel.path)
    _check(wheel, libraries)
    loaded = [library for library in libraries if library.is_loaded]
    machine = _machine(facts.tags, {library.machine for library in loaded}, wheel.path)
    return BuiltWheel(
        path=str(wheel.path),
        facts=facts,
        libraries=tuple(library for library in loaded if library.machine == machine),
        members=members,
        machine=machine,
        metadata=wheel.read(f"{wheel.dist_info}/METADATA"),
        wheel=wheel.read(f"{wheel.dist_info}/WHEEL"),
        dist_info=wheel.dist_info,
        cuda=torch_cuda(wheel),
    )


def _check(wheel: Wheel, libraries: Collection[LibraryFacts]) -> None:
    for library in libraries:
        if library.problem:
            raise ArtifactError(library.problem)
    if not any(library.is_loaded for library in libraries):
        raise UsageError(
            f"{wheel.path.name} holds no Linux library or program, so there is nothing to package",
            hints=["use it as it is: a pure Python wheel is portable"],
        )


def _machine(tags: Collection[str], machines: Collection[str], path: Path) -> str:
    """Return the machine of all libraries; if there are several, the one in the tags."""
    named = [machine for machine in machines if any(tag.endswith(f"_{machine}") for tag in tags)]
    fitting = named if len(machines) > 1 else list(machines)
    if len(fitting) != 1:
        words = ", ".join(sorted(machines))
        raise UsageError(f"{path.name} holds libraries for several machines: {words}")
    return fitting[0]


def torch_cuda(wheel: Wheel) -> str | None:
    """Return the CUDA release that PyTorch was built with, or None for any other wheel."""
    if _TORCH_VERSION not in wheel.members:
        return None
    found = _CUDA.search(wheel.read(_TORCH_VERSION).decode(errors="replace"))
    return found[1] if found else None

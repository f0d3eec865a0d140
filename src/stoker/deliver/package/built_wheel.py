"""The wheel to be packaged: what it says of itself, its libraries, and what they are built for."""

import re
from collections.abc import Collection
from pathlib import Path, PurePosixPath

from packaging.utils import canonicalize_name

from stoker.artifact.engine import Wheel
from stoker.artifact.wheel_facts import read_wheel
from stoker.knowledge.sonames import bringer
from stoker.model.artifact import ElfKind, LibraryFacts, WheelFacts
from stoker.model.errors import ArtifactError, UsageError
from stoker.model.value import Value

_TORCH_VERSION = "torch/version.py"
_CUDA = re.compile(r"^cuda\b[^=\n]*=\s*['\"]([0-9]+\.[0-9]+)", re.MULTILINE)
_LOADED = (ElfKind.LIBRARY, ElfKind.PROGRAM)


class BuiltWheel(Value, frozen=True, kw_only=True):
    """``libraries`` are the ELF files that a loader of the machine deals with."""

    path: str
    facts: WheelFacts
    libraries: tuple[LibraryFacts, ...]
    members: tuple[str, ...]
    machine: str
    metadata: bytes
    wheel: bytes
    dist_info: str
    cuda: str | None = None  # as PyTorch's own wheel says

    @property
    def is_torch(self) -> bool:
        return canonicalize_name(self.facts.name) == "torch"

    @property
    def needed(self) -> frozenset[str]:
        return frozenset(name for library in self.libraries for name in library.needed)

    @property
    def own(self) -> frozenset[str]:
        """The names that others can find here."""
        names = (PurePosixPath(member).name for member in self.members)
        sonames = (library.soname for library in self.libraries if library.soname)
        return frozenset((*names, *sonames))

    @property
    def is_extension(self) -> bool:
        """Whether it is linked to PyTorch without being it."""
        return any(row.name == "torch" for row in map(bringer, self.needed - self.own) if row)


def read_built_wheel(wheel: Wheel) -> BuiltWheel:
    facts, libraries, members = read_wheel(wheel.path)
    _check(wheel, libraries)
    loaded = [library for library in libraries if _is_loaded(library)]
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
        cuda=_cuda(wheel),
    )


def _check(wheel: Wheel, libraries: Collection[LibraryFacts]) -> None:
    for library in libraries:
        if library.problem:
            raise ArtifactError(library.problem)
    if not any(_is_loaded(library) for library in libraries):
        raise UsageError(
            f"{wheel.path.name} holds no library or program of Linux: nothing ties it to a system",
            hints=["a wheel of Python code alone runs everywhere as it is"],
        )


def _is_loaded(library: LibraryFacts) -> bool:
    """Not objects, nor device code that lies there as a file of its own."""
    return library.kind in _LOADED and library.machine != "cuda"


def _machine(tags: Collection[str], machines: Collection[str], path: Path) -> str:
    """The one all libraries are for; of several, the one that the tags name."""
    named = [machine for machine in machines if any(tag.endswith(f"_{machine}") for tag in tags)]
    fitting = named if len(machines) > 1 else list(machines)
    if len(fitting) != 1:
        words = ", ".join(sorted(machines))
        raise UsageError(f"{path.name} holds libraries for several machines: {words}")
    return fitting[0]


def _cuda(wheel: Wheel) -> str | None:
    if _TORCH_VERSION not in wheel.members:
        return None
    found = _CUDA.search(wheel.read(_TORCH_VERSION).decode(errors="replace"))
    return found[1] if found else None

"""Reads the wheel to package: its metadata, its libraries, their machine and CUDA version."""

from pathlib import PurePosixPath

from packaging.utils import canonicalize_name

from stoker.knowledge.sonames import bringer
from stoker.model.artifact import LibraryFacts, WheelFacts
from stoker.model.errors import ArtifactError, UsageError
from stoker.model.value import Value
from stoker.wheel.inspect.facts import read_wheel
from stoker.wheel.inspect.torch_builds import toolkit_of_wheel
from stoker.wheel.zip import Wheel


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
    facts, libraries, members = read_wheel(wheel)
    for library in libraries:
        if library.problem:
            raise ArtifactError(library.problem)
    loaded = [library for library in libraries if library.is_loaded]
    if not loaded:
        raise UsageError(
            f"{wheel.path.name} holds no Linux library or program, so there is nothing to package",
            hints=["use it as it is: a pure Python wheel is portable"],
        )
    machines = {library.machine for library in loaded}
    # Of libraries for several machines, those that the tags name count.
    named = {one for one in machines if any(tag.endswith(f"_{one}") for tag in facts.tags)}
    fitting = named if len(machines) > 1 else machines
    if len(fitting) != 1:
        words = ", ".join(sorted(machines))
        raise UsageError(f"{wheel.path.name} holds libraries for several machines: {words}")
    (machine,) = fitting
    return BuiltWheel(
        path=str(wheel.path),
        facts=facts,
        libraries=tuple(library for library in loaded if library.machine == machine),
        members=members,
        machine=machine,
        metadata=wheel.read(f"{wheel.dist_info}/METADATA"),
        wheel=wheel.read(f"{wheel.dist_info}/WHEEL"),
        dist_info=wheel.dist_info,
        cuda=toolkit_of_wheel(wheel),
    )

"""What libraries run on: GPUs, drivers, systems. Pure."""

from collections.abc import Sequence

from stoker.knowledge.device_code import oldest_driver
from stoker.knowledge.gpus import gpus, runs_on
from stoker.knowledge.manylinux import oldest_policy, policies
from stoker.model.artifact import DeviceCode, DeviceKind, LibraryFacts, RunsOn
from stoker.model.variant import Backend, GpuTarget


def served_gpus(libraries: Sequence[LibraryFacts]) -> tuple[RunsOn, ...]:
    """Every GPU architecture that at least one library has code for."""
    with_code = [library for library in libraries if _runnable(library)]
    served = []
    for gpu in gpus().values():
        if gpu.backend is not Backend.CUDA:
            continue
        ways = {library.path: _way(library, gpu.arch) for library in with_code}
        if any(ways.values()):
            compiled = DeviceKind.PTX in ways.values()
            served.append(
                RunsOn(
                    arch=gpu.arch,
                    names=gpu.names,
                    by=DeviceKind.PTX if compiled else DeviceKind.CUBIN,
                    without=tuple(path for path, way in ways.items() if way is None),
                )
            )
    return tuple(served)


def minimum_driver(libraries: Sequence[LibraryFacts]) -> str | None:
    """The oldest driver that unpacks all the device code, where that is a matter at all."""
    return oldest_driver(
        compression
        for library in libraries
        for code in _runnable(library)
        for compression in code.compression
    )


def oldest_manylinux(libraries: Sequence[LibraryFacts]) -> str | None:
    """The oldest tag that promises every symbol version; None where no tag fits them all."""
    found = [oldest_policy(library.machine, library.versions) for library in libraries]
    fitting = [policy for policy in found if policy is not None]
    if not fitting or len(fitting) < len(found):
        return None
    return max(fitting, key=policies().index).name


def _runnable(library: LibraryFacts) -> list[DeviceCode]:
    return [c for c in library.device_code if c.linked and c.kind is not DeviceKind.LTOIR]


def _way(library: LibraryFacts, capability: str) -> DeviceKind | None:
    """How a library serves a GPU: by a cubin where one fits, else by PTX."""
    ways = {code.kind for code in _runnable(library) if runs_on(_target(code), capability)}
    if DeviceKind.CUBIN in ways:
        return DeviceKind.CUBIN
    return DeviceKind.PTX if ways else None


def _target(code: DeviceCode) -> GpuTarget:
    """``sm_90a`` as ``9.0a``."""
    arch = code.arch.partition("_")[2]
    number = arch.rstrip("af")
    dotted = f"{number[:-1] or '0'}.{number[-1]}{arch[len(number) :]}"
    return GpuTarget(arch=dotted, ptx=code.kind is DeviceKind.PTX)

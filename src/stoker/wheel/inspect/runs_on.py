"""Finds the GPUs, drivers and systems that libraries run on. Pure."""

from collections.abc import Iterable, Sequence
from functools import cache

from stoker.knowledge.gpus import gpus, oldest_driver, runs_on
from stoker.knowledge.manylinux import oldest_policy, policies
from stoker.model.artifact import DeviceKind, LibraryFacts, RunsOn
from stoker.model.variant import Backend, GpuTarget


def served_gpus(libraries: Sequence[LibraryFacts]) -> tuple[RunsOn, ...]:
    """Return every GPU architecture that at least one library has code for."""
    rows = []
    for gpu in gpus().values():
        if gpu.backend is not Backend.CUDA:
            continue
        ways = {
            library.path: {_way(pattern.archs, gpu.arch) for pattern in library.regions}
            for library in libraries
            if library.regions
        }
        if everything := {way for found in ways.values() for way in found if way}:
            row = RunsOn(
                arch=gpu.arch,
                names=gpu.names,
                by=DeviceKind.PTX if DeviceKind.PTX in everything else DeviceKind.CUBIN,
                without=tuple(path for path, found in ways.items() if found == {None}),
                partly=tuple(path for path, found in ways.items() if found > {None}),
            )
            rows.append(row)
    return tuple(rows)


def minimum_driver(libraries: Sequence[LibraryFacts]) -> str | None:
    """Return the oldest driver that decompresses all device code, or None if any driver does."""
    return oldest_driver(
        compression
        for library in libraries
        for code in library.device_code
        if code.linked
        for compression in code.compression
    )


def oldest_manylinux(libraries: Sequence[LibraryFacts]) -> str | None:
    """Return the oldest tag whose systems have all symbol versions, or None if there is none."""
    found = [oldest_policy(library.machine, library.versions) for library in libraries]
    fitting = [policy for policy in found if policy is not None]
    if not fitting or len(fitting) < len(found):
        return None
    return max(fitting, key=policies().index).name


def needed_code(archs: Iterable[str], gpus: Iterable[GpuTarget]) -> frozenset[str]:
    """Return the architectures of one region that the driver may choose for one of the GPUs.

    These are machine code if some runs, else PTX, else LTO-IR, and the PTX that a target asks for.
    The result is empty if nothing runs on any of the GPUs.
    """
    present = frozenset(archs)
    return frozenset(arch for gpu in gpus for arch in _needed(present, gpu))


@cache
def _needed(archs: frozenset[str], gpu: GpuTarget) -> frozenset[str]:
    capability = ".".join(map(str, gpu.capability))
    asked = _ptx_onwards(archs, capability) if gpu.ptx else frozenset()
    for kind in ("sm", "compute", "lto"):
        own = {arch for arch in archs if arch.startswith(f"{kind}_")}
        # LTO-IR is linked at run time and follows the rules of PTX.
        fitting = [arch for arch in own if _fits(arch.replace("lto_", "compute_"), capability)]
        if fitting:
            # The newest for all chips, for a family and for one chip; the driver may take any.
            ordered = sorted(fitting, key=arch_number)
            newest = {arch[-1] if arch[-1] in "af" else "": arch for arch in ordered}
            return frozenset(newest.values()) | asked
    return asked


def _ptx_onwards(archs: Iterable[str], capability: str) -> frozenset[str]:
    """Return PTX for newer GPUs: the newest that this GPU runs too, else the next."""
    plain = [arch for arch in archs if arch.startswith("compute_") and arch[-1].isdigit()]
    plain.sort(key=arch_number)
    fitting = [arch for arch in plain if _fits(arch, capability)]
    return frozenset(fitting[-1:] or plain[:1])


def arch_number(arch: str) -> int:
    """Return ``90`` for ``sm_90a``."""
    return int(arch.partition("_")[2].rstrip("af"))


def arch_order(arch: str) -> tuple[str, int, str]:
    """Return a sort key for architectures of device code: by kind, then by number."""
    return arch.partition("_")[0], arch_number(arch), arch


@cache
def _way(archs: tuple[str, ...], capability: str) -> DeviceKind | None:
    """Return how code runs on a GPU: through a cubin if one fits, else through PTX."""
    fitting = {arch.partition("_")[0] for arch in archs if _fits(arch, capability)}
    if "sm" in fitting:
        return DeviceKind.CUBIN
    return DeviceKind.PTX if fitting else None


@cache
def _fits(arch: str, capability: str) -> bool:
    """Return whether code for ``arch`` (``sm_90a``, ``compute_90``) fits. LTO-IR does not run by
    itself.
    """
    kind, _, name = arch.partition("_")
    number = name.rstrip("af")
    dotted = f"{number[:-1] or '0'}.{number[-1]}{name[len(number) :]}"
    target = GpuTarget(arch=dotted, ptx=kind == "compute")
    return kind != "lto" and runs_on(target, capability) is not None

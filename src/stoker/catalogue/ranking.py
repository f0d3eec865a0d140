"""Which wheels run on a machine, in what order, and why. Pure.

What device code runs on which GPU is decided by `wheel.runs_on`; this module applies it to
the regions that a catalogue lists, so an answer does not depend on the day a wheel was published.
"""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from functools import cache

from msgspec.structs import replace
from packaging.tags import Tag, compatible_tags, cpython_tags
from packaging.version import Version

from stoker.catalogue.entry import named_gpus
from stoker.catalogue.foreign_wheels import unknown_properties
from stoker.catalogue.values import (
    NO_LABEL,
    NULL_LABEL,
    Candidate,
    CodeRegions,
    Fit,
    Host,
    HostGpu,
    PublishedWheel,
)
from stoker.knowledge.gpus import cuda_releases
from stoker.model.distribution import read_tags, read_version
from stoker.model.value import Value, first_of, version_numbers, whole_number
from stoker.model.variant import Backend, GpuTarget
from stoker.wheel.inspect.runs_on import arch_number, needed_code

_LEGACY = {17: "manylinux2014", 12: "manylinux2010", 5: "manylinux1"}
_OLDEST_GLIBC = 5
_MOST_SHOWN = 6


def rank(host: Host, wheels: Iterable[PublishedWheel]) -> tuple[Candidate, ...]:
    """Return all wheels, the best first and those that do not run last."""
    return ordered(host, [judged(host, Candidate(wheel=wheel)) for wheel in wheels])


def ordered(host: Host, candidates: Iterable[Candidate]) -> tuple[Candidate, ...]:
    """Return candidates that were judged, the best first and those that do not run last."""

    def among_one_version(one: Candidate) -> tuple[object, ...]:
        needs, notes, wheel = -len(one.wheel.cpu_needs), len(one.notes), one.wheel
        closeness = _closeness_to_gpus(host, wheel) if one.runs else ()
        return closeness, needs, notes, wheel.size_bytes, wheel.variant, wheel.file

    found = sorted(candidates, key=among_one_version)
    # A sort leaves what is equal in its order, so the most important key comes last.
    found.sort(key=lambda one: _public(one.wheel.version), reverse=True)
    # A GPU that is there is to be used, even by an older release.
    found.sort(key=lambda one: (not one.runs, one.fit is Fit.CPU))
    return tuple(found)


def judged(host: Host, candidate: Candidate) -> Candidate:
    """Return a wheel with how it runs on a machine, by what is known of it."""
    wheel = candidate.wheel
    if problem := next(_problems(host, wheel), None):
        return candidate.refused(problem)
    if wheel.backend is Backend.CPU:
        return replace(candidate, fit=Fit.CPU, reason=_on_cpu(host, wheel))
    if gpu := _named_gpu(host, wheel):
        return replace(candidate, fit=Fit.NATIVE, reason=f"code for {gpu}")
    return _on_gpus(host, candidate)


@cache
def _public(version: str) -> Version:
    """Return the version without the local label, which says nothing about age."""
    return Version(read_version(version).public)


def _problems(host: Host, wheel: PublishedWheel) -> Iterator[str]:
    if problem := _tag_problem(host, wheel):
        yield problem
    if missing := sorted(set(wheel.cpu_needs) - set(host.cpu_features)):
        yield f"it needs {wheel.cpu}: {host.cpu} lacks {_listed(missing)}"
    if unknown := unknown_properties(wheel):
        yield f"it needs {_listed(unknown)}, which cannot be checked"
    if wheel.backend not in (Backend.CUDA, Backend.CPU) and not _named_gpu(host, wheel):
        named = _listed(named_gpus(wheel)) or "GPUs that it does not name"
        yield f"it is for {named} ({wheel.backend}), and there is no such GPU"
    if wheel.backend is Backend.CUDA:
        if not _nvidia_gpus(host):
            yield "it is for NVIDIA GPUs, and there is none"
        if problem := _driver_problem(host, wheel):
            yield problem


def _tag_problem(host: Host, wheel: PublishedWheel) -> str | None:
    told = read_tags(wheel.tags)
    if told & supported_tags(host):
        return None
    platforms = sorted({tag.platform for tag in told})
    if not any(_is_for(host, platform) for platform in platforms):
        own = f"{host.os} {host.cpu_family}"
        return f"it is for {_listed(platforms) or 'no known platform'}, not {own}"
    if not {tag.platform for tag in supported_tags(host)} & {*platforms}:
        return f"it needs {_glibc_floor(platforms)}; this machine has {host.libc or 'another libc'}"
    pythons = sorted({tag.interpreter + "t" * tag.abi.endswith("t") for tag in told})
    free = "t" if host.free_threaded else ""
    return f"it is for Python {_listed(pythons)}, not {host.python}{free}"


def _is_for(host: Host, platform: str) -> bool:
    if platform == "any":
        return True
    system = "macosx" if host.os == "macos" else "linux"
    family = "arm64" if (host.os, host.cpu_family) == ("macos", "aarch64") else host.cpu_family
    return system in platform and platform.endswith((f"_{family}", "_universal2"))


def _glibc_floor(platforms: Sequence[str]) -> str:
    found = (re.search(r"manylinux_([0-9]{1,3})_([0-9]{1,3})_", platform) for platform in platforms)
    floors = sorted((int(one[1]), int(one[2])) for one in found if one)
    return f"glibc {floors[0][0]}.{floors[0][1]}" if floors else f"one of {_listed(platforms)}"


def _driver_problem(host: Host, wheel: PublishedWheel) -> str | None:
    if host.driver is None:
        return None
    needed = [wheel.minimum_driver] if wheel.minimum_driver else []
    if release := cuda_releases().get(wheel.cuda or ""):
        needed.append(str(release.driver))
    newest = max(needed, key=version_numbers, default=None)
    if newest and version_numbers(host.driver) < version_numbers(newest):
        return f"it needs NVIDIA driver {newest} or newer; this machine has {host.driver}"
    below = _too_new(wheel)
    if below and version_numbers(host.driver) >= version_numbers(below):
        return f"it needs an NVIDIA driver below {below}; this machine has {host.driver}"
    return None


def _too_new(wheel: PublishedWheel) -> str | None:
    """Return the first driver that is too new for a wheel variant with such a bound."""
    bounds = [line.rpartition(" ")[2] for line in wheel.properties if "_upper_bound" in line]
    drivers = [cuda_releases()[bound].driver for bound in bounds if bound in cuda_releases()]
    return str(max(drivers, key=lambda one: version_numbers(str(one)))) if drivers else None


def _nvidia_gpus(host: Host) -> tuple[HostGpu, ...]:
    return tuple(gpu for gpu in host.gpus if "." in gpu.capability)


def _named_gpu(host: Host, wheel: PublishedWheel) -> HostGpu | None:
    """Return the AMD or Intel GPU of the host that a wheel is for."""
    if wheel.backend in (Backend.CUDA, Backend.CPU):
        return None
    named = named_gpus(wheel)
    return next((gpu for gpu in host.gpus if gpu.capability in named), None)


def _on_cpu(host: Host, wheel: PublishedWheel) -> str:
    if wheel.variant in (NULL_LABEL, NO_LABEL):
        return "the index offers it for every machine"
    code = f"code for {wheel.cpu}" if wheel.cpu else f"code for any {host.cpu_family} CPU"
    idle = "; the GPU is not used" if host.gpus else ""
    return f"runs on the CPU alone, {code}{idle}"


class _Served(Value, frozen=True, kw_only=True):
    """How one GPU is served: ``arch`` is what most regions have for it, ``without`` have none."""

    gpu: HostGpu
    fit: Fit
    arch: str
    without: int


def _served(host: Host, wheel: PublishedWheel) -> list[_Served]:
    """Return how each GPU of a machine is served."""
    served = []
    for gpu in dict.fromkeys(_nvidia_gpus(host)):
        fit, arch, without = device_fit(wheel.regions, gpu.capability)
        served.append(_Served(gpu=gpu, fit=fit, arch=arch, without=without))
    return served


def _closeness_to_gpus(host: Host, wheel: PublishedWheel) -> tuple[object, ...]:
    """Return a sort key for how close code is to the GPUs; empty if it is for none of NVIDIA."""
    if wheel.backend is not Backend.CUDA:
        return ()
    served = _served(host, wheel)
    running = [one for one in served if one.fit is not Fit.NONE]
    return len(served) - len(running), *_closeness(max(running, key=_closeness))


def _on_gpus(host: Host, candidate: Candidate) -> Candidate:
    wheel, served = candidate.wheel, _served(host, candidate.wheel)
    running = [one for one in served if one.fit is not Fit.NONE]
    if not running:
        return candidate.refused(_cannot(served[0].gpu, wheel))
    worst = max(running, key=_closeness)
    notes = [_cannot(one.gpu, wheel) for one in served if one.fit is Fit.NONE]
    total = sum(region.count for region in wheel.regions)
    notes += [
        f"{one.without} of {total} kernel groups have no code for {one.gpu}"
        for one in running
        if one.without
    ]
    return replace(candidate, fit=worst.fit, reason=_how(worst, wheel), notes=tuple(notes))


@cache
def device_fit(regions: tuple[CodeRegions, ...], capability: str) -> tuple[Fit, str, int]:
    """Return how device code runs on a GPU, by which architecture, and how many regions have none.
    The majority of regions decides: a few contain code for one chip only, or a stub left by
    slimming.
    """
    if not regions:
        return Fit.COMPATIBLE, "", 0
    taken: Counter[str | None] = Counter()
    for region in regions:
        taken[_taken(region.archs, capability)] += region.count
    without = taken.pop(None, 0)
    if not taken or without > sum(taken.values()):
        return Fit.NONE, "", without
    arch = max(taken, key=lambda one: (taken[one], str(one)))
    assert arch is not None
    if arch.startswith("compute_"):
        return Fit.PTX, arch, without
    exact = arch_number(arch) == whole_number(capability.replace(".", ""))
    return Fit.NATIVE if exact else Fit.COMPATIBLE, arch, without


@cache
def _taken(archs: tuple[str, ...], capability: str) -> str | None:
    """Return the code that the driver loads: for exactly this chip, for its family, else the
    generic one.
    """
    runs = [a for a in needed_code(archs, [GpuTarget(arch=capability)]) if not a.startswith("lto_")]
    return max(runs, key=lambda arch: (arch_number(arch), arch[-1] == "a"), default=None)


def _closeness(served: _Served) -> tuple[int, int, bool]:
    """Return a sort key: native before compatible before PTX, then the newest code, then code for
    one chip.
    """
    number = arch_number(served.arch) if served.arch else 0
    return served.fit.rank, -number, not served.arch.endswith("a")


def _how(served: _Served, wheel: PublishedWheel) -> str:
    if not served.arch:
        return f"holds no device code of its own, so it suits {served.gpu}"
    if served.fit is Fit.PTX:
        ready = f" that is as new as CUDA {wheel.cuda}" if wheel.cuda else ""
        return f"{served.gpu} runs it through PTX ({served.arch}), compiled by a driver{ready}"
    if served.fit is Fit.NATIVE:
        return f"native {served.arch} code for {served.gpu}"
    return f"{served.arch} code, which {served.gpu} runs"


def _cannot(gpu: HostGpu, wheel: PublishedWheel) -> str:
    held = [code.arch for code in wheel.code]
    return f"{gpu} cannot run what it holds: {_listed(held)}"


def _listed(words: Sequence[str]) -> str:
    return first_of(words, _MOST_SHOWN)


@cache
def supported_tags(host: Host) -> frozenset[Tag]:
    """Return the tags of wheels that an installer on this machine accepts."""
    version = tuple(int(part) for part in host.python.split(".")[:2])
    name = f"cp{version[0]}{version[1]}"
    platforms = list(_platforms(host))
    abis = [f"{name}t" if host.free_threaded else name]
    return frozenset(
        [
            *cpython_tags(version, abis=abis, platforms=platforms),
            *compatible_tags(version, interpreter=name, platforms=platforms),
        ]
    )


def _platforms(host: Host) -> Iterator[str]:
    kind, _, version = (host.libc or "").partition(" ")
    numbers = version_numbers(version)
    if host.os == "linux" and kind == "glibc" and len(numbers) > 1:
        for minor in range(numbers[1], _OLDEST_GLIBC - 1, -1):
            yield f"manylinux_2_{minor}_{host.cpu_family}"
            if minor in _LEGACY:
                yield f"{_LEGACY[minor]}_{host.cpu_family}"
    if host.os == "linux" and kind == "musl" and len(numbers) > 1:
        for minor in range(numbers[1], -1, -1):
            yield f"musllinux_1_{minor}_{host.cpu_family}"
    if host.os == "linux":
        yield f"linux_{host.cpu_family}"
    if host.os == "macos":
        from packaging.tags import mac_platforms

        newest = (int(numbers[0]), 0) if numbers and numbers[0] else (11, 0)
        yield from mac_platforms(newest, "arm64" if host.cpu_family == "aarch64" else "x86_64")

"""Judges whether a wheel fits a machine and the PyTorch that is installed there. Pure.

Wheels of an index, of a page with links and of a catalogue are judged by the same function.
"""

from packaging.specifiers import InvalidSpecifier, SpecifierSet

from stoker.catalogue.choosing import (
    TORCH,
    active_requirements,
    marker_environment,
    out_of_step,
)
from stoker.catalogue.ranking import judged
from stoker.catalogue.values import Candidate, Host, PublishedWheel
from stoker.model.artifact import ArtifactFacts, TorchFit
from stoker.model.value import Value, version_numbers
from stoker.model.variant import Backend
from stoker.wheel.inspect.loads_with import ReadTorch, TorchNeeds, loads_with
from stoker.wheel.inspect.loads_with_words import lacking


class Place(Value, frozen=True, kw_only=True):
    """Where a wheel is to run. ``torch`` is the PyTorch that is installed there, if any."""

    host: Host
    torch: ReadTorch | None = None


def judge_metadata(place: Place, candidate: Candidate) -> Candidate:
    """Judge a wheel by its metadata, before its libraries are read."""
    wheel = candidate.wheel
    if reason := _wrong_python(place, wheel) or _wrong_torch(place, wheel):
        return candidate.refused(reason)
    if place.torch is None and (needed := required_torch(place, wheel)):
        exactly = f" ({needed})" if needed != TORCH else ""
        reason = f"it needs PyTorch{exactly}, which is not installed"
        return candidate.refused(reason, shared=True)
    return judged(place.host, candidate)


def required_torch(place: Place, wheel: PublishedWheel) -> str | None:
    """Return how a wheel with libraries requires PyTorch. One without libraries gets PyTorch from
    the installer, and its code does not depend on which.
    """
    if all(tag.endswith("-any") for tag in wheel.tags):
        return None
    required = active_requirements(wheel, marker_environment(place.host))
    return next((f"{TORCH}{one.specifier}" for one in required if one.name == TORCH), None)


def judge(
    place: Place, candidate: Candidate, facts: ArtifactFacts, needs: TorchNeeds | None
) -> Candidate:
    """Judge a wheel whose libraries have been read."""
    wheel = candidate.wheel
    reason = (
        _unreadable(facts, wheel)
        or _without_gpu(place, wheel)
        or _wrong_machine(place, facts)
        or _wrong_glibc(place, facts)
        or _wrong_python(place, wheel)
        or _unresolved(place, needs)
        or _wrong_torch(place, wheel)
    )
    if reason:
        shared = needs is not None and _lacks_cuda(place, needs)
        return candidate.refused(reason, shared=shared)
    return judged(place.host, candidate)


def _lacks_cuda(place: Place, needs: TorchNeeds) -> bool:
    """Return whether a wheel needs libraries of a PyTorch for GPUs, and this one is for CPUs."""
    if place.torch is None:
        return True
    absent = loads_with(needs, [place.torch]).builds[-1].absent
    return place.torch.build.cuda is None and any("cuda" in name for name in absent)


def _unreadable(facts: ArtifactFacts, wheel: PublishedWheel) -> str | None:
    problem = next(iter(facts.problems), None)
    return f"it is damaged: {problem.removeprefix(f'{wheel.file}: ')}" if problem else None


def _without_gpu(place: Place, wheel: PublishedWheel) -> str | None:
    """Return why a wheel that was built for a machine without GPU does not suit one with a GPU."""
    built_here = wheel.source is not None
    if not built_here or wheel.backend is not Backend.CPU or place.torch is None:
        return None
    if place.torch.build.cuda is None or not place.host.gpus:
        return None
    return f"it was built for a CPU alone, and this PyTorch uses {place.host.gpus[0]}"


def _wrong_machine(place: Place, facts: ArtifactFacts) -> str | None:
    machines = {one.machine for one in facts.libraries if one.is_loaded}
    if not machines or place.host.cpu_family in machines:
        return None
    return f"its libraries are for {', '.join(sorted(machines))}, not {place.host.cpu_family}"


def _wrong_glibc(place: Place, facts: ArtifactFacts) -> str | None:
    kind, _, have = (place.host.libc or "").partition(" ")
    versions = [one.versions["GLIBC"] for one in facts.libraries if "GLIBC" in one.versions]
    needed = max(versions, key=version_numbers, default=None)
    if kind != "glibc" or not have or needed is None:
        return None
    if version_numbers(needed) <= version_numbers(have):
        return None
    return f"a library needs glibc {needed}; this machine has {have}"


def _wrong_python(place: Place, wheel: PublishedWheel) -> str | None:
    try:
        allowed = SpecifierSet(wheel.requires_python or "")
    except InvalidSpecifier:
        return f"its requirement for Python, '{wheel.requires_python}', cannot be read"
    if allowed.contains(place.host.python, prereleases=True):
        return None
    return f"it requires Python {wheel.requires_python}, not {place.host.python}"


def _wrong_torch(place: Place, wheel: PublishedWheel) -> str | None:
    """Return why requirements, CUDA or C++ ABI differ from those of the installed PyTorch."""
    if place.torch is None:
        return None
    build = place.torch.build
    installed = PublishedWheel(
        file=f"torch {build.release}",
        sha256="",
        size_bytes=0,
        unpacked_bytes=0,
        metadata_sha256="",
        project=TORCH,
        version=build.release,
        tags=(),
        variant="installed",
        backend=Backend.CUDA if build.cuda else Backend.CPU,
        cuda=build.cuda,
    )
    return out_of_step(wheel, installed)


def _unresolved(place: Place, needs: TorchNeeds | None) -> str | None:
    if needs is None:
        return None
    if place.torch is None:
        return "it needs PyTorch, which is not installed"
    fit: TorchFit = loads_with(needs, [place.torch]).builds[-1]
    release = place.torch.build.release
    if fit.absent:
        return f"it needs {fit.absent[0]}, which torch {release} does not have"
    if fit.missing:
        return f"torch {release} does not export {lacking(fit, most=1)}"
    return None

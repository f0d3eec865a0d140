"""Checks that the code is what was asked for: GPU architectures, CUDA and Python."""

from collections.abc import Iterable, Iterator
from pathlib import PurePosixPath

from stoker.knowledge.projects import added, holds_foreign_code
from stoker.knowledge.sonames import cuda_of
from stoker.model.artifact import DeviceKind, LibraryFacts
from stoker.model.finding import Finding, error, note, warning
from stoker.model.slimming import SLIM_MEMBER
from stoker.model.variant import Backend, GpuTarget
from stoker.wheel.inspect.runs_on import arch_number, needed_code
from stoker.wheel.verify.tested import WheelUnderTest


def as_asked(wheel: WheelUnderTest) -> Iterator[Finding]:
    yield from _architectures(wheel)
    asked = wheel.expected
    if asked is None:
        return
    if asked.toolkit and asked.backend is Backend.CUDA:
        other = {
            f"{library.path} needs {name}"
            for library in wheel.own_libraries
            for name in library.needed
            if (major := cuda_of(name)) and str(major) != asked.toolkit.partition(".")[0]
        }
        if other:
            yield error("wrong-cuda", f"it was not built for CUDA {asked.toolkit}", sorted(other))
    told = {tag.interpreter for tag in wheel.tags}
    if (
        asked.python
        and told.isdisjoint({"py3", "cp" + asked.python.replace(".", "")})
        and not any(tag.abi == "abi3" for tag in wheel.tags)
    ):
        yield error("wrong-python", f"it was not built for Python {asked.python}", sorted(told))


def _architectures(wheel: WheelUnderTest) -> Iterator[Finding]:
    if wheel.slimmed_for:  # `as_slimmed` checks it by what runs on each GPU, as `stoker slim` cuts
        return
    variant, why = wheel.expected, ""
    if variant is None:
        return
    if variant.backend not in (Backend.CPU, Backend.CUDA):
        why = f"stoker cannot read device code for {variant.backend}"
    elif variant.backend is Backend.CUDA and not variant.gpus:
        why = "the variant names no GPU"
    elif wheel.plan and wheel.plan.accepted and wheel.asked is None:
        why = "the wheel was built with --accept-targets"
    if why:
        yield note("architectures-unchecked", "GPU architectures were not checked", [why])
        return
    present, planned = _present(wheel.own_libraries), wheel.planned_targets
    if planned:  # for this project's build; code for sm_90a serves a plan for sm_90, not vice versa
        bases = {f"sm_{arch_number(word)}" for word in present if word.startswith("sm_")}
        wanted = [_words(GpuTarget(arch=arch))[0] for arch in planned.cubins if planned.compiles]
        lacking = [word for word in wanted if word not in present | bases]
        stated = (*planned.cubins, *planned.gpus, *planned.ptx, *planned.accepted)
        numbers = {arch.removesuffix("+PTX").replace(".", "").rstrip("af") for arch in stated}
        allowed = {word for word in present if str(arch_number(word)) in numbers}
    else:
        asked = {word for target in variant.gpus for word in _words(target)}
        lacking = sorted(asked - present)
        known = added(wheel.project, (target.arch for target in variant.gpus))
        allowed = asked | {word for arch in known for word in _words(GpuTarget(arch=arch))}
    if lacking:
        title = "device code for a requested architecture is missing"
        yield error("missing-architecture", title, lacking)
    extra = [
        f"{library.path}: {', '.join(words)}"
        for library in _made_here(wheel)
        if (words := sorted(_present([library]) - allowed))
    ]
    if extra:
        yield error("extra-architecture", "it holds device code that was not requested", extra)
    yield from _not_everywhere(wheel, variant.gpus)


def as_slimmed(wheel: WheelUnderTest) -> Iterator[Finding]:
    """Check that a slimmed wheel holds code for its GPUs and for no others."""
    if wheel.slim and wheel.slim.problem:
        yield error("unreadable-slim-note", f"{SLIM_MEMBER} cannot be read", [wheel.slim.problem])
    if wheel.slim and wheel.slim.record and wheel.slim.record.private:
        lines = ["it holds modified NVIDIA libraries, and NVIDIA's licence forbids passing them on"]
        yield warning("private", "the wheel must not be redistributed", lines)
    gpus = wheel.slimmed_for
    present = _present(wheel.own_libraries)
    if lacking := [gpu.arch for gpu in gpus if not needed_code(present, [gpu])]:
        yield error("missing-architecture", "it holds no device code for these GPUs", lacking)
    lines = []
    for library in wheel.own_libraries if gpus else ():
        extra = {
            arch
            for region in library.regions
            if len(region.archs) > 1  # none may be empty, so an only entry may be for another GPU
            for arch in set(region.archs) - needed_code(region.archs, gpus)
        }
        if extra:
            lines.append(f"{library.path}: {', '.join(sorted(extra))}")
    if lines:
        yield warning("not-slimmed", "it holds device code for GPUs not in its record", lines)


def _words(target: GpuTarget) -> list[str]:
    """Return ``sm_90a`` for ``9.0a``, and ``compute_90a`` as well with PTX."""
    return [f"sm_{target.digits}", *([f"compute_{target.digits}"] if target.ptx else [])]


def _present(libraries: Iterable[LibraryFacts]) -> set[str]:
    return {
        code.arch
        for library in libraries
        for code in library.device_code
        if code.linked and code.kind is not DeviceKind.LTOIR
    }


def _made_here(wheel: WheelUnderTest) -> list[LibraryFacts]:
    return [
        one
        for one in wheel.own_libraries
        if not holds_foreign_code(wheel.project, PurePosixPath(one.path).name)
    ]


def _not_everywhere(wheel: WheelUnderTest, gpus: Iterable[GpuTarget]) -> Iterator[Finding]:
    own = {library.path for library in _made_here(wheel)}
    served = {row.arch: row for row in wheel.facts.runs_on}
    lines = [
        f"{path}: {word} for {target.arch}"
        for target in gpus
        if (row := served.get(target.plain))
        for word, paths in (("nothing", row.without), ("only some kernels", row.partly))
        for path in paths
        if path in own
    ]
    if lines:
        title = "some kernels do not run on the requested GPUs"
        yield warning("architecture-not-everywhere", title, lines)

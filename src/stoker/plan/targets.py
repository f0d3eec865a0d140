"""The GPU targets that a plan states: what the build compiles for with its settings. Pure.

``stoker.plan.compiled`` holds compile commands against them.
"""

import re
from collections.abc import Iterable, Iterator

from stoker.knowledge.hardware import runs_on
from stoker.knowledge.projects import reader_of
from stoker.model.errors import UsageError
from stoker.model.evidence import Evidence, EvidenceKind
from stoker.model.plan import Backend, GpuTarget, PlannedTargets, Setting
from stoker.model.recipe import BackendRecipe
from stoker.model.source import ProjectKind
from stoker.plan.recipes.project import sets_targets, written_targets
from stoker.plan.subject import Subject

_WITH_DEVICE_CODE = (Backend.CUDA, Backend.ROCM, Backend.XPU)


def planned_targets(subject: Subject, settings: Iterable[Setting]) -> PlannedTargets:
    """Return the targets that the build compiles for with these settings."""
    known = subject.backend_recipe or BackendRecipe()
    asked = subject.asked
    cubins, ptx = _compiled(subject, known)
    if asked and not asked.refusal:
        cubins, ptx = list(asked.cubins), list(asked.ptx)
    setters = [f"{s.name}={s.value}" for s in settings if sets_targets(s, subject)]
    return PlannedTargets(
        backend=subject.variant.backend,
        gpus=tuple(target.arch for target in subject.gpus),
        cubins=tuple(cubins),
        ptx=tuple(ptx),
        accepted=asked.some if asked else tuple(_accepted(known, cubins)),
        fixed=bool(known.fixed),
        compiles=bool(asked.device_compiles) if asked else _compiles(subject, known),
        evidence=Evidence(kind=EvidenceKind.ASKED, where=asked.when) if asked else None,
        set_by=tuple(setters),
        choices=tuple(_choices(subject)),
    )


def refuse_unserved(subject: Subject) -> None:
    """Raise an error if the targets that the tree fixes run on none of the GPUs asked for."""
    known = subject.backend_recipe
    if known is None or not known.fixed:
        return
    cubins, ptx = _compiled(subject, known)
    made = [GpuTarget(arch=arch) for arch in cubins]
    made += [GpuTarget(arch=arch, ptx=True) for arch in ptx]
    for target in subject.gpus:
        plain = target.arch.rstrip("af")
        if not any(runs_on(candidate, plain) for candidate in made):
            raise UsageError(
                f"{subject.project.name if subject.project else 'it'} names its targets itself, "
                f"and none of them runs on {target.arch}",
                hints=[f"it compiles for: {', '.join(cubins)}"],
                where=subject.tree.path if subject.tree else None,
            )


def _compiled(subject: Subject, known: BackendRecipe) -> tuple[list[str], list[str]]:
    """Return the targets of machine code, and those of PTX."""
    if known.fixed:
        named = [
            arch
            for row in known.fixed
            if _at_least(subject.cuda_version, row.cuda) and not _reached(subject, row.below)
            for arch in row.archs
        ]
        cubins = [arch for arch in named if not arch.endswith("+PTX")]
        ptx = [arch.removesuffix("+PTX") for arch in named if arch.endswith("+PTX")]
        wanted = {target.arch for target in subject.gpus}
        for switch in known.switches:
            if wanted & set(switch.serves or switch.archs):
                cubins += switch.archs
    else:
        targets = written_targets(subject)
        cubins = [target.arch for target in targets]
        ptx = [target.arch for target in targets if target.ptx]
    if known.ptx_of_newest and cubins:
        ptx.append(max(cubins, key=lambda arch: GpuTarget(arch=arch).sort_key))
    return list(dict.fromkeys(cubins)), list(dict.fromkeys(ptx))


def _at_least(version: str | None, wanted: str) -> bool:
    return version is None or _numbers(version) >= _numbers(wanted)


def _reached(subject: Subject, below: str | None) -> bool:
    return below is not None and _at_least(subject.cuda_version, below)


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split(".") if part.isdecimal())


def _accepted(known: BackendRecipe, cubins: Iterable[str]) -> dict[str, None]:
    """Return the targets of single kernels, once each."""
    added = (extra for arch in (*cubins, "*") for extra in known.adds.get(arch, ()))
    return dict.fromkeys((*known.accepts, *added))


def _compiles(subject: Subject, known: BackendRecipe) -> bool:
    """Tell whether the build must have compiled device code when it ends."""
    tree = subject.tree
    if subject.variant.backend not in _WITH_DEVICE_CODE or not known.compiles:
        return False
    if subject.project and subject.backend_recipe:
        return subject.variant.backend is not Backend.XPU
    if tree is None or tree.kind is ProjectKind.PYTORCH:
        return True
    return ".cu" in tree.device_sources or (
        subject.variant.backend is Backend.ROCM and ".hip" in tree.device_sources
    )


# Variables that name GPU targets, by the words of their names.
_ARCH_NAME = re.compile(
    r"(?:CUDA|GPU|GPUS|HIP|ROCM|AMDGPU|NVCC|SM|XPU|SYCL)_?\w*?"
    r"(?:ARCHS?|ARCHES|ARCHITECTURES?|CAPABILIT\w+|TARGETS?|GENERATE_CODE|GENCODE|DEVICE_ARCH)"
    r"(?:_LIST|_BIN|_NAME)?|COMPUTE_CAPABILIT\w+|GPU_COMPUTE_VER",
    re.IGNORECASE,
)
_NO_CHOICE = re.compile(r"SUPPORTED|DEFAULT|KNOWN|NATIVE|_ALL|FILTERED|FLAGS|READABLE|FOUND")


def names_targets(name: str) -> bool:
    """Tell whether a variable looks like a choice of GPU targets."""
    found = _ARCH_NAME.search(name)
    return bool(found) and not _NO_CHOICE.search(name.upper())


def _choices(subject: Subject) -> Iterator[str]:
    """Yield where the build of the tree takes its targets from: ``NAME (file:line)``."""
    tree = subject.tree
    if tree is None:
        return
    for ask in tree.asks:
        if ask.certain and names_targets(ask.name):
            yield f"{ask.name} ({ask.where})"
    if tree.own_targets:
        yield f"flags in {tree.own_targets[0]}"
    elif reader := reader_of("TORCH_CUDA_ARCH_LIST", tree.readers, environment=True):
        yield f"TORCH_CUDA_ARCH_LIST ({reader})"

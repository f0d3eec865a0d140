"""Refuses plans that cannot work, before anything is configured. Pure.

These rules look at the plan alone. ``stoker.plan.doctor`` checks what this machine lacks.
"""

from collections.abc import Callable

from stoker.knowledge.cpus import cpu_family
from stoker.knowledge.features import blas_libraries, features
from stoker.knowledge.gpus import CudaRelease, cuda_releases, gpus
from stoker.knowledge.platforms import platforms
from stoker.knowledge.torch_releases import first_releases, newest_python, oldest_python
from stoker.model.errors import UsageError, nearest
from stoker.model.setting import is_on
from stoker.model.value import version_numbers
from stoker.model.variant import Backend, GpuTarget, plain_arch
from stoker.plan.recipes.project import refuse_targets
from stoker.plan.subject import Subject
from stoker.plan.targets import (
    refuse_old_gpus,
    refuse_unmade,
    refuse_unserved,
    refuse_unsupported,
)


def refuse(subject: Subject) -> None:
    """Raise for the first rule that the variant breaks."""
    for rule in _RULES:
        rule(subject)


def _tree_has_backend(subject: Subject) -> None:
    tree, backend = subject.tree, subject.variant.backend
    if tree and backend.value not in tree.backends:
        why = subject.project.refused.get(backend) if subject.project else None
        raise UsageError(
            f"{tree.name} has no {backend} back end" + (f": {why}" if why else ""),
            hints=[
                f"it can be built for: {', '.join(tree.backends)}",
                "`--source DIR` names another source tree",
            ],
            where=tree.path,
        )


def _backend_fits(subject: Subject) -> None:
    """Refuse a back end that the platform lacks, and targets of another one."""
    backend = subject.variant.backend
    if backend not in (Backend.CPU, Backend.VULKAN, *subject.platform_row.backends):
        fitting = [
            str(platform) for platform, row in platforms().items() if backend in row.backends
        ]
        raise UsageError(
            f"{backend} code is built for {' or '.join(fitting)}, not for {subject.platform}",
            hints=[f"choose another platform: --platform {fitting[0]}"],
        )
    for target in subject.variant.gpus:
        row = gpus().get(target.plain)
        if row and row.backend is not backend:
            raise UsageError(f"{target.arch} is a {row.backend} target, not {backend}")


def _toolkit_makes_targets(subject: Subject) -> None:
    release = cuda_releases().get(subject.cuda_version or "")
    if subject.variant.backend is not Backend.CUDA or release is None:
        return
    for target in subject.variant.gpus:
        if target.arch in release.archs:
            continue
        where = "" if subject.variant.toolkit else f" in {subject.toolkit_home}"
        row = gpus().get(target.arch)
        names = f" ({', '.join(row.names[:3])})" if row and row.names else ""
        raise UsageError(
            f"CUDA {release.version}{where} cannot make code for {target.arch}{names}",
            hints=[
                _maker(target.arch, release),
                f"nearest that it makes: {', '.join(_near(target.arch, release.archs))}",
            ],
        )


def _maker(arch: str, release: CudaRelease) -> str:
    """Name the last CUDA that makes an architecture if ``release`` dropped it, else the first."""
    versions = list(cuda_releases())
    makers = [version for version, row in cuda_releases().items() if arch in row.archs]
    if not makers:
        return "no release of CUDA that stoker knows makes it"
    dropped = versions.index(makers[-1]) < versions.index(release.version)
    which, version = ("last", makers[-1]) if dropped else ("first", makers[0])
    return f"the {which} CUDA that does is {version}: cu{version.replace('.', '')}"


def _tree_accepts_cuda(subject: Subject) -> None:
    """Refuse a CUDA, or a target, that the tree's own files or its recipe do not accept."""
    version, known, tree = subject.cuda_version, subject.backend_recipe, subject.tree
    if subject.variant.backend is not Backend.CUDA or tree is None:
        return
    minimum, where = known.cuda_min if known else None, tree.path
    if tree.code.cuda_minimum:
        minimum, where = tree.code.cuda_minimum.version, tree.code.cuda_minimum.where
    if version and minimum and version_numbers(version) < version_numbers(minimum):
        raise UsageError(
            f"{tree.name} needs CUDA {minimum} or newer, not {version}",
            hints=[f"name another one: cu{minimum.replace('.', '')}"],
            where=where,
        )
    below = known.cuda_below if known else None
    if version and below and version_numbers(version) >= version_numbers(below):
        raise UsageError(
            f"{tree.name} cannot be built with CUDA {version}: it needs one below {below}",
            hints=[known.note] if known and known.note else [],
            where=tree.path,
        )
    for target in subject.variant.gpus if tree.cuda_archs else ():
        if target.arch not in tree.cuda_archs:
            raise UsageError(
                f"{tree.name} {tree.version or ''} does not know {target.arch}".replace("  ", " "),
                hints=[
                    f"nearest it knows: {', '.join(_near(target.arch, tree.cuda_archs))}",
                    *_first_release(subject, target.plain),
                ],
                where=tree.path,
            )


def _first_release(subject: Subject, arch: str) -> list[str]:
    first = first_releases().get(arch) if subject.is_pytorch else None
    return [f"{GpuTarget(arch=arch).word} needs PyTorch {first} or newer"] if first else []


def _near(arch: str, archs: tuple[str, ...]) -> tuple[str, ...]:
    """Return the three architectures whose numbers are nearest."""
    wanted = float(plain_arch(arch))
    return tuple(sorted(archs, key=lambda known: abs(float(plain_arch(known)) - wanted))[:3])


def _ptx_runs_forward(subject: Subject) -> None:
    for target in subject.variant.gpus:
        if target.ptx and target.suffix:
            raise UsageError(
                f"PTX of {target.arch} runs on no newer GPU: the suffix ties it to "
                + ("one chip" if target.suffix == "a" else "one family"),
                hints=[f"for newer GPUs add plain {target.plain}+PTX beside it"],
            )


def _code_fits_platform(subject: Subject) -> None:
    """Refuse a CPU level or a BLAS library that the platform does not have."""
    cpu, families = subject.variant.cpu, subject.platform_row.families
    if cpu and cpu_family(cpu) not in families:
        raise UsageError(
            f"{cpu} is {cpu_family(cpu)} code, but the target is {subject.platform}",
            hints=["leave the platform out, or name a CPU level of that platform"],
        )
    if subject.variant.blas is None:
        return
    row = blas_libraries()[subject.variant.blas]
    if row.families and not set(row.families) & set(families):
        raise UsageError(
            f"{row.value} exists for {', '.join(row.families)} only; the target is "
            f"{subject.platform}",
            hints=["OpenBLAS runs on every platform: openblas"],
        )
    if row.systems and subject.platform.os not in row.systems:
        raise UsageError(f"{row.value} exists on {', '.join(row.systems)} only")


def _features_fit(subject: Subject) -> None:
    """Refuse features that the back end or the tree lacks, or that need one that is off."""
    for feature in subject.variant.features:
        row = features()[feature.name]
        if feature.on and row.backends and subject.variant.backend not in row.backends:
            backends = " or ".join(row.backends)
            raise UsageError(f"feature {row.name} needs {backends}, not {subject.variant.backend}")
        is_of_cmake = row.option.startswith("CMAKE_")
        if subject.tree and not (is_of_cmake or subject.tree.option(row.option)):
            near = nearest(row.option, [option.name for option in subject.tree.options])
            raise UsageError(
                f"{subject.tree.name} has no feature {row.name} ({row.option})",
                hints=[f"nearest options: {', '.join(near)}"] if near else [],
                where=subject.tree.path,
            )
    off = {define.name for define in subject.defines if not is_on(define.value)}
    for feature in subject.variant.features:
        needed = features()[feature.name].needs
        if not feature.on or not needed:
            continue
        if features()[needed].option in off or subject.feature(needed) is False:
            raise UsageError(
                f"feature {feature.name} needs {needed}, which is switched off",
                hints=[f"leave out one of the two: --{feature.name} or --no-{needed}"],
            )


def supported_pythons(subject: Subject) -> tuple[str, str]:
    """Return the oldest and the newest Python for a subject, as its tree says if it does."""
    own, known = subject.tree.release if subject.tree else None, subject.release
    table = known.python if known else (oldest_python(), newest_python())
    return (own and own.python_oldest) or table[0], (own and own.python_newest) or table[1]


def _python_is_new_enough(subject: Subject) -> None:
    python = subject.variant.python
    oldest, newest = supported_pythons(subject)
    of = f"PyTorch {subject.tree.version}" if subject.is_pytorch and subject.tree else ""
    if python and version_numbers(python) < version_numbers(oldest):
        of = of or "any project that stoker builds"
        raise UsageError(f"Python {python} is too old for {of}: the oldest is {oldest}")
    if python and of and version_numbers(python) > version_numbers(newest):
        hints = [f"the newest that the tree lists: {newest}"]
        raise UsageError(f"{of} does not support Python {python}", hints=hints)
    installed = subject.toolbox.python.release
    if python not in (None, installed) and version_numbers(python) > version_numbers(
        newest_python()
    ):
        hints = [f"the newest that PyTorch is known to support: {newest_python()}"]
        raise UsageError(f"no Python {python} is known or installed", hints=hints)


_RULES: tuple[Callable[[Subject], None], ...] = (
    _backend_fits,
    _toolkit_makes_targets,
    _tree_has_backend,
    _tree_accepts_cuda,
    refuse_targets,
    refuse_unsupported,
    refuse_old_gpus,
    refuse_unserved,
    refuse_unmade,
    _ptx_runs_forward,
    _code_fits_platform,
    _features_fit,
    _python_is_new_enough,
)

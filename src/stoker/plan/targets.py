"""The GPU targets that a plan states: what the build compiles for with its settings. Pure.

``stoker.plan.compiled`` holds compile commands against them.
"""

from collections.abc import Iterable, Iterator, Sequence

from stoker.knowledge.gpus import cuda_releases, runs_on
from stoker.knowledge.projects import reader_of
from stoker.model.errors import UsageError
from stoker.model.evidence import Evidence, EvidenceKind
from stoker.model.recipe import BackendRecipe, FixedTargets, Switch
from stoker.model.setting import Setting
from stoker.model.source import ProjectKind
from stoker.model.value import Value
from stoker.model.variant import Backend, GpuTarget, PlannedTargets, plain_arch
from stoker.plan.present import kernel_lists, places
from stoker.plan.recipes.project import known_facts, sets_targets, written_targets
from stoker.plan.subject import Subject
from stoker.plan.tree_recipe import names_targets, target_choices, tree_recipe

_WITH_DEVICE_CODE = (Backend.CUDA, Backend.ROCM, Backend.XPU)


def planned_targets(subject: Subject, settings: Iterable[Setting]) -> PlannedTargets:
    """Return the targets that the build compiles for with these settings."""
    known = known_facts(subject) or BackendRecipe()
    asked = subject.answer
    settings = tuple(settings)
    evidence = _evidence(subject, settings)
    cubins, ptx = _compiled(subject, known) if evidence.known else ([], [])
    if asked:
        cubins, ptx = list(asked.cubins), list(asked.ptx)
    setters = [f"{s.name}={s.value}" for s in settings if sets_targets(s, subject)]
    return PlannedTargets(
        backend=subject.variant.backend,
        gpus=tuple(target.arch for target in subject.gpus),
        cubins=tuple(cubins),
        ptx=tuple(ptx),
        accepted=asked.some if asked else tuple(_accepted(subject, known, cubins)),
        left_out=asked.left_out if asked else (),
        fixed=bool(known.fixed),
        compiles=bool(asked.device_compiles) if asked else _compiles(subject, known),
        evidence=evidence.targets,
        language=_language(subject),
        set_by=tuple(setters),
        choices=tuple(_choices(subject)),
    )


def refuse_unserved(subject: Subject) -> None:
    """Raise an error if the targets that the tree fixes run on none of the GPUs asked for."""
    known = known_facts(subject)
    if known is None or not known.fixed or subject.asked or not _evidence(subject).known:
        return
    cubins, ptx = _compiled(subject, known)
    made = [GpuTarget(arch=arch) for arch in cubins]
    made += [GpuTarget(arch=arch, ptx=True) for arch in ptx]
    for target in subject.gpus:
        plain = target.plain
        if not any(runs_on(candidate, plain) for candidate in made):
            name = subject.tree.name if subject.tree else "it"
            evidence = _evidence(subject).targets
            rows = [row.archs for row in known.fixed] + [switch.archs for switch in known.switches]
            named = [arch for archs in rows for arch in archs]
            hints = [f"it compiles for: {', '.join(dict.fromkeys(named))}"]
            raise UsageError(
                f"{subject.project.name if subject.project else name} names its targets itself, "
                f"and none of them runs on {target.arch}",
                hints=hints + ([str(evidence)] if evidence.where else []),
                where=subject.tree.path if subject.tree else None,
            )


def refuse_unmade(subject: Subject) -> None:
    """Raise an error if the tree names a target that this CUDA cannot make."""
    known = known_facts(subject)
    release = cuda_releases().get(subject.cuda_version or "")
    if known is None or release is None or subject.asked:
        return
    cubins, ptx = _compiled(subject, known) if known.fixed else ([], [])
    for arch in (*cubins, *ptx):
        if arch not in release.archs:
            raise UsageError(
                f"CUDA {release.version} cannot make {arch}, which the build names itself",
                hints=[str(_evidence(subject).targets)],
                where=subject.tree.path if subject.tree else None,
            )


def refuse_unsupported(subject: Subject) -> None:
    """Raise an error if no GPU is among the targets that the build says it supports."""
    supported = subject.tree.code.supported if subject.tree else None
    if supported is None or subject.variant.backend is not Backend.CUDA or subject.backend_recipe:
        return
    plain = {plain_arch(arch) for arch in supported.archs}
    if subject.gpus and not any(target.plain in plain for target in subject.gpus):
        raise UsageError(
            f"the build compiles for {', '.join(sorted(plain))} and refuses others, "
            f"such as {subject.gpus[0].arch}",
            hints=[f"read at {supported.where}"],
            where=subject.tree.path if subject.tree else None,
        )


def refuse_old_gpus(subject: Subject) -> None:
    """Raise an error for a GPU that the build itself refuses."""
    oldest = subject.tree.code.oldest_gpu if subject.tree else None
    if oldest is None or subject.variant.backend is not Backend.CUDA or subject.backend_recipe:
        return
    for target in subject.gpus:
        if target.capability < GpuTarget(arch=oldest.version).capability:
            raise UsageError(
                f"the build refuses GPUs below {oldest.version}, such as {target.arch}",
                hints=[f"read at {oldest.where}"],
                where=subject.tree.path if subject.tree else None,
            )


def _language(subject: Subject) -> str:
    """Return the language of device code that no compile command of a GPU shows, and where the tree
    has it: ``Metal: aten/src/ATen/native/mps/kernels``.
    """
    release = subject.tree.release if subject.tree else None
    return release.device_code.get(subject.variant.backend, "") if release else ""


class _Known(Value, frozen=True, kw_only=True):
    targets: Evidence
    known: bool = True


def _evidence(subject: Subject, settings: Iterable[Setting] = ()) -> _Known:
    """Return how the targets of the plan are known, and whether they are known at all."""
    tree, backend = subject.tree, subject.variant.backend
    if asked := subject.answer:
        shown = ""
        if tree and not asked.device_compiles and backend in _WITH_DEVICE_CODE:
            # A build may lack a setting or a library with which it would compile device code, so
            # its answer alone does not show that there is none.
            if tree.code.device_source:
                shown = f"{tree.code.device_source} lists a source for GPUs"
            elif choices := target_choices(tree, backend):
                shown = f"{choices[0].where} reads {choices[0].name}"
            else:
                shown = tree.hinted.get(backend, "")
        if shown:
            where = f"the build was asked and named no device code, but {shown}"
            return _Known(targets=Evidence(kind=EvidenceKind.ASSUMED, where=where))
        return _Known(targets=Evidence(kind=EvidenceKind.ASKED, where=asked.when))
    if read := tree_recipe(subject):
        return _Known(targets=read.targets, known=read.known)
    project, known = subject.project, subject.backend_recipe
    if project and project.facts_from:
        where = project.facts_from
        readers = [f"{s.name} read by {s.reader}" for s in settings if sets_targets(s, subject)]
        found = places(known, tree.presence if tree else None) if known else ()
        if still := [*readers, *filter(None, found)]:
            where += f"; still in this tree: {', '.join(still[:3])}"
        gone = not all(row.archs for row in _rows(subject, known or BackendRecipe()))
        targets = Evidence(kind=EvidenceKind.RECIPE, where=where)
        return _Known(targets=targets, known=not gone)
    kind = EvidenceKind.RECIPE if project else EvidenceKind.ASSUMED
    return _Known(targets=Evidence(kind=kind, where="yours" if project else "no tree was read"))


def _compiled(subject: Subject, known: BackendRecipe) -> tuple[list[str], list[str]]:
    """Return the targets of machine code, and those of PTX."""
    if known.fixed:
        named = [arch for row in _rows(subject, known) for arch in row.archs]
        switches = _switches_on(subject, known, single=False)
        named += [arch for switch in switches for arch in switch.archs]
        cubins = [arch for arch in named if not arch.endswith("+PTX")]
        ptx = [arch.removesuffix("+PTX") for arch in named if arch.endswith("+PTX")]
    else:
        targets = written_targets(subject)
        cubins = [target.arch for target in targets]
        ptx = [target.arch for target in targets if target.ptx]
    if known.ptx_of_newest and cubins:
        ptx.append(max(cubins, key=lambda arch: GpuTarget(arch=arch).sort_key))
    return list(dict.fromkeys(cubins)), list(dict.fromkeys(ptx))


def _switches_on(subject: Subject, known: BackendRecipe, *, single: bool) -> Iterator[Switch]:
    """Yield the switches of this kind of machine whose targets are wanted, for all kernels or for
    single ones.
    """
    wanted = {target.arch for target in subject.gpus}
    for switch in known.switches:
        here = not switch.cpus or subject.platform.cpu in switch.cpus
        if switch.single is single and here and wanted & set(switch.serves or switch.archs):
            yield switch


def _rows(subject: Subject, known: BackendRecipe) -> list[FixedTargets]:
    """Return the targets that the build names itself with this CUDA, on this kind of machine."""
    return [
        row
        for row in known.fixed
        if subject.cuda_is_at_least(row.cuda)
        if row.below is None or not subject.cuda_is_at_least(row.below)
        if not row.cpus or subject.platform.cpu in row.cpus
    ]


def _accepted(subject: Subject, known: BackendRecipe, cubins: Iterable[str]) -> dict[str, None]:
    """Return the targets of single kernels, once each."""
    added = [extra for arch in (*cubins, "*") for extra in known.adds.get(arch, ())]
    release = subject.tree.release if subject.tree else None
    built = {plain for arch in cubins for plain in (arch, GpuTarget(arch=arch).plain)}
    added += [
        each.arch
        for each in (release.added if release else ())
        if each.of in built and (each.cuda is None or subject.cuda_is_at_least(each.cuda))
    ]
    added += [arch for each in _switches_on(subject, known, single=True) for arch in each.archs]
    lists = kernel_lists(known, subject.tree.presence if subject.tree else None)
    if not lists:
        return dict.fromkeys((*known.accepts, *added))
    families = subject.cuda_is_at_least(known.serves_cuda)
    own = _loose_targets(lists, list(cubins), families=families)
    return dict.fromkeys(arch for arch in (*own, *added) if arch not in cubins)


def _compiles(subject: Subject, known: BackendRecipe) -> bool:
    """Tell whether the build must have compiled device code when it ends."""
    tree, backend = subject.tree, subject.variant.backend
    if backend not in _WITH_DEVICE_CODE or not known.compiles:
        return False
    if subject.project and subject.backend_recipe:
        return backend is not Backend.XPU
    if tree is None or tree.kind is ProjectKind.PYTORCH:
        return True
    if backend in tree.hinted:
        return False
    return tree.code.device_source is not None or tree.kind is ProjectKind.CMAKE


def _choices(subject: Subject) -> Iterator[str]:
    """Yield where the build of the tree takes its targets from: ``NAME (file:line)``."""
    tree = subject.tree
    if tree is None:
        return
    for ask in tree.asks:
        if ask.certain and names_targets(ask.name, subject.variant.backend):
            yield f"{ask.name} ({ask.where})"
    if tree.code.targets:
        yield f"flags in {tree.code.targets[0].where}"
    elif reader := reader_of("TORCH_CUDA_ARCH_LIST", tree.readers, environment=True):
        yield f"TORCH_CUDA_ARCH_LIST ({reader})"


def _loose_targets(
    lists: Iterable[Sequence[str]], wanted: Sequence[str], *, families: bool
) -> Iterator[str]:
    """Yield the targets of single kernels, of which a build lists those that each has code for.

    Of each list and each target of the build, the kernel is compiled for the newest listed target
    that runs there: one of the same generation, or an older one whose PTX is compiled as well.
    ``families``: of ``10.0a`` and ``10.0f``, which are for different releases of CUDA, the second
    one counts.
    """
    lists = list(lists)
    named = {arch for each in lists for arch in each}
    for arch in dict.fromkeys(arch for each in lists for arch in _of_list(each, wanted)):
        if arch.endswith("f"):
            of_this_cuda = families
        else:
            of_this_cuda = not (arch.endswith("a") and families and f"{arch[:-1]}f" in named)
        if of_this_cuda:
            yield arch


def _of_list(listed: Sequence[str], wanted: Sequence[str]) -> Iterator[str]:
    with_ptx = {arch.removesuffix("+PTX") for arch in listed if arch.endswith("+PTX")}
    plain = sorted(
        (arch.removesuffix("+PTX") for arch in listed if not arch.endswith(("a", "f"))),
        key=_capability,
    )
    left = list(wanted)
    for arch in listed:
        served = [gpu for gpu in left if _is_for(arch, gpu)]
        if served:
            yield arch
            left = [gpu for gpu in left if gpu not in served]
    for gpu in left:
        fitting = [arch for arch in plain if _capability(arch) <= _capability(gpu)]
        fitting = [a for a in fitting if a in with_ptx or _generation(a) == _generation(gpu)]
        yield from fitting[-1:]
        yield from (f"{arch}+PTX" for arch in fitting[-1:] if arch in with_ptx)


def _is_for(arch: str, gpu: str) -> bool:
    """Tell whether a target with a suffix is for this GPU: its own, or that of its family."""
    if arch.endswith("f"):
        same = _generation(arch) == _generation(gpu)
        return same and _capability(arch) <= _capability(gpu)
    return arch.endswith("a") and arch[:-1] == gpu


def _capability(arch: str) -> tuple[int, int]:
    return GpuTarget(arch=arch).capability


def _generation(arch: str) -> int:
    return _capability(arch)[0]

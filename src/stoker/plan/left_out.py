"""GPU targets that a build names itself and its variant does not need. Pure.

The preloaded library removes them from the commands of nvcc (``launcher/targets.c``), before a
cache or the governor sees these. Only what the build showed when it was asked is removed, and never
all targets of a command.
"""

import re
from collections.abc import Collection, Iterable, Iterator

from msgspec.structs import replace

from stoker.knowledge.gpus import runs_on
from stoker.model.finding import Finding, note
from stoker.model.variant import Backend, GpuTarget, PlannedTargets, plain_arch
from stoker.plan.compiled import DeviceCompile, cuda_targets
from stoker.plan.subject import Subject

VARIABLE = "STOKER_LEFT_OUT_TARGETS"
_GENCODE = re.compile(r"(?:-gencode|--generate-code)[= ](\S+)")


def left_out(compiles: Iterable[DeviceCompile], gpus: Collection[GpuTarget]) -> tuple[str, ...]:
    """Return the values of ``-gencode`` that no GPU needs in any of these commands."""
    named, needed = dict[str, None](), set[str]()
    for compiled in compiles:
        values = _values(compiled.flags)
        kept = {value for gpu in gpus for value in _needed(values, gpu)}
        named |= dict.fromkeys(values if kept else ())
        needed |= kept
    return tuple(value for value in named if value not in needed)


def _values(flags: Iterable[str]) -> list[str]:
    return [found[1] for found in map(_GENCODE.fullmatch, flags) if found]


def _needed(values: Iterable[str], gpu: GpuTarget) -> set[str]:
    """Return those of the best code for a GPU: the newest machine code that runs on it, or else the
    newest PTX, which is also kept if it was asked for.
    """
    arch = gpu.plain
    code, ptx = list[tuple[GpuTarget, str]](), list[tuple[GpuTarget, str]]()
    for value in values:
        cubins, virtual = cuda_targets((f"-gencode={value}",))
        code += [(GpuTarget(arch=one), value) for one in cubins]
        ptx += [(GpuTarget(arch=one, ptx=True), value) for one in virtual]
    best = _newest(code, arch) or _newest(ptx, arch)
    return best | _newest(ptx, arch) if gpu.ptx else best


def _newest(found: list[tuple[GpuTarget, str]], arch: str) -> set[str]:
    running = [(target.capability, value) for target, value in found if runs_on(target, arch)]
    newest = max((capability for capability, _ in running), default=None)
    return {value for capability, value in running if capability == newest}


def without(compiled: DeviceCompile, values: Collection[str]) -> DeviceCompile:
    """Return the compile as it runs: without the options that have these values."""
    flags = tuple(flag for flag in compiled.flags if not set(_values([flag])) & set(values))
    if flags == compiled.flags or not _values(flags):
        return compiled
    cubins, ptx = cuda_targets(flags)
    return replace(
        compiled,
        flags=flags,
        cubins=tuple(dict.fromkeys(cubins)),
        ptx=tuple(dict.fromkeys(ptx)),
    )


def named_archs(values: Iterable[str]) -> tuple[str, ...]:
    """Return the targets that values of ``-gencode`` name, as plans write them."""
    cubins, ptx = cuda_targets(tuple(f"-gencode={value}" for value in values))
    return tuple(dict.fromkeys([*cubins, *(f"{arch}+PTX" for arch in ptx)]))


def needless(targets: PlannedTargets | None) -> tuple[str, ...]:
    """Return the planned targets of machine code that run on no GPU that was asked for."""
    if targets is None or targets.backend is not Backend.CUDA or not targets.gpus:
        return ()
    gpus = [plain_arch(gpu) for gpu in targets.gpus]
    return tuple(
        arch
        for arch in targets.cubins
        if not any(runs_on(GpuTarget(arch=arch), gpu) for gpu in gpus)
    )


def staying(subject: Subject, targets: PlannedTargets) -> Iterator[Finding]:
    """Say which targets a build compiles for although no GPU of the variant needs them."""
    others = needless(targets)
    if not others or not (targets.fixed or subject.answer):
        return
    if subject.keep_targets:
        why = "--keep-targets keeps them"
    elif subject.answer is None:
        why = "where the build can be asked (--ask), they are left out of the commands of nvcc"
    else:
        why = "they stay: its commands name them in another way than by -gencode"
    yield note(
        "fixed-targets",
        f"the build also compiles for {', '.join(others)}, which it names itself",
        evidence=why,
        fix=("stoker slim WHEEL   # removes targets from the finished wheel",),
    )

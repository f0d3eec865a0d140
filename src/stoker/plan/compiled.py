"""Holds compile commands against the GPU targets of a plan. Pure, and quick to import.

Each command of a GPU compiler is read by the same function, whether it comes from the governor
while the build runs, from ninja's files after CMake has configured, or from the history of a build.
"""

import re
from collections.abc import Iterable, Iterator
from posixpath import basename

from stoker.model.govern import Role, Step
from stoker.model.value import Value
from stoker.model.variant import Backend, PlannedTargets, plain_arch


class DeviceCompile(Value, frozen=True, kw_only=True):
    """A command that compiles device code. ``default`` means that it names no target."""

    source: str
    compiler: str
    backend: Backend
    cubins: tuple[str, ...] = ()
    ptx: tuple[str, ...] = ()
    flags: tuple[str, ...] = ()  # those that name the targets
    default: bool = False
    native: bool = False  # the GPUs of the machine that compiles

    @property
    def named(self) -> tuple[str, ...]:
        """The targets as compilers write them: ``sm_90``, ``PTX of 9.0``."""
        if self.native:
            return ("the GPUs of this machine (native)",)
        if self.default:
            return ("the compiler's default target",)
        return (*map(sm, self.cubins), *(f"PTX of {arch}" for arch in self.ptx))

    @property
    def described(self) -> str:
        return ", ".join(self.named)


# Compiled at first use, by re itself: most runs compile no device code.
_CUDA_FLAG = (
    r"(?:-gencode|--generate-code|-arch|--gpu-architecture|-code|--gpu-code"
    r"|--cuda-gpu-arch|--offload-arch)(?:=(.*))?"
)
_REAL = r"(?<![\w])(?:sm|lto)_(\d+)(\d)([af]?)"
_VIRTUAL = r"(?<![\w])compute_(\d+)(\d)([af]?)"
_AMD = r"gfx[0-9a-f]+"
_NO_COMPILE = {
    *("-E", "-M", "-MM", "-V", "--dryrun", "--preprocess", "--version"),
    *("-dlink", "--device-link", "-run", "--run"),
}
# CMake's own checks of compilers, which compile nothing of the project.
_CHECK = r"CMakeFiles/CMake(?:Scratch|Tmp)|CompilerId|CUDACompilerABI|TryCompile"


def device_compile(step: Step) -> DeviceCompile | None:
    """Return what a step compiles for, if it compiles device code of the project."""
    backend = _backend_of(step)
    if backend is None or set(step.flags) & _NO_COMPILE:
        return None
    if re.search(_CHECK, f"{step.source} {step.output} {step.directory}"):
        return None
    flags = tuple(_target_flags(step.flags))
    text = " ".join(flags)
    cubins, ptx = (re.findall(_AMD, text), []) if backend is Backend.ROCM else cuda_targets(flags)
    native = re.search(r"arch[ =]native", text) is not None
    return DeviceCompile(
        source=step.source,
        compiler=step.compiler,
        backend=backend,
        cubins=tuple(dict.fromkeys(cubins)),
        ptx=tuple(dict.fromkeys(ptx)),
        flags=flags,
        native=native,
        default=not (cubins or ptx or native),
    )


def _backend_of(step: Step) -> Backend | None:
    """Return the language of device code that a step compiles."""
    name = basename(step.compiler)
    hip = "hipcc" in name or any(
        flag.startswith("--offload-arch=gfx") or flag in ("hip", "-xhip") for flag in step.flags
    )
    if step.role is Role.CUDA and ("nvcc" in name or "clang" in name) and not hip:
        # Without -x, nvcc takes files of other suffixes as host code.
        by_flag = {"cu", "cuda", "-xcu", "-xcuda", "-x=cu", "--x=cu"} & set(step.flags)
        return Backend.CUDA if by_flag or step.source.endswith(".cu") else None
    if hip and (step.source.endswith((".hip", ".cu")) or "clang" in name or "hipcc" in name):
        compiled = step.role in (Role.CUDA, Role.CXX)
        return Backend.ROCM if compiled else None
    return None


def _target_flags(flags: Iterable[str]) -> Iterator[str]:
    """Yield the words that name targets; ``-gencode WORDS`` becomes one."""
    before = ""
    for flag in flags:
        if found := re.fullmatch(_CUDA_FLAG, flag):
            before = "" if found[1] is not None else flag
            if found[1] is not None:
                yield flag
        elif before:
            yield f"{before} {flag}"
            before = ""


def cuda_targets(flags: tuple[str, ...]) -> tuple[list[str], list[str]]:
    """Return the targets of machine code and of PTX that flags of nvcc name."""
    cubins: list[str] = []
    ptx: list[str] = []
    for flag in flags:
        option, _, value = flag.replace(" ", "=", 1).partition("=")
        # Of `arch=compute_90,code=sm_90` only the code is kept in the object.
        code = value.partition("code=")[2] if "code=" in value else value
        cubins += [f"{a}.{b}{c}" for a, b, c in re.findall(_REAL, code)]
        only_arch = option in ("-arch", "--gpu-architecture") and any(
            other.startswith(("-code", "--gpu-code")) for other in flags
        )
        virtual = [f"{a}.{b}{c}" for a, b, c in re.findall(_VIRTUAL, code)]
        ptx += [] if only_arch else virtual
        # `-arch=sm_90` is short for machine code and PTX of 9.0.
        if option in ("-arch", "--gpu-architecture") and re.search(_REAL, value):
            ptx += [f"{a}.{b}{c}" for a, b, c in re.findall(_REAL, value)]
    return cubins, ptx


def difference(planned: PlannedTargets, found: DeviceCompile) -> str | None:
    """Return how a command differs from the plan, in words; ``None`` if it does not."""
    if planned.backend is not found.backend:
        return f"planned {planned.backend}, this command compiles {found.backend} code"
    # Where a plan does not know what the build chooses, the GPUs that were asked for count.
    if not (planned.cubins or planned.gpus):
        return None
    bases = {plain_arch(arch) for arch in (*planned.cubins, *planned.gpus)}
    accepted = {arch for arch in planned.accepted if not arch.endswith("+PTX")}
    accepted_ptx = {arch.removesuffix("+PTX") for arch in planned.accepted}
    known = bases | {plain_arch(arch) for arch in accepted}
    others = [arch for arch in found.cubins if plain_arch(arch) not in known]
    known_ptx = bases | accepted_ptx | {plain_arch(arch) for arch in planned.ptx}
    others_ptx = [arch for arch in found.ptx if plain_arch(arch) not in known_ptx]
    if found.native or others or others_ptx or found.default:
        return f"planned {_planned(planned)}, this command compiles for {found.described}"
    as_planned = accepted_ptx | set(planned.ptx)
    if not found.cubins and as_planned.isdisjoint(map(plain_arch, found.ptx)):
        return f"planned {_planned(planned)}, this command makes {found.described} only"
    return None


def unserved(planned: PlannedTargets, found: Iterable[DeviceCompile]) -> tuple[str, ...]:
    """Return the planned targets that none of the commands compiles for."""
    made = {plain_arch(arch) for compiled in found for arch in compiled.cubins}
    wanted = planned.cubins or planned.gpus
    return tuple(arch for arch in wanted if plain_arch(arch) not in made)


def where_from(planned: PlannedTargets) -> tuple[str, ...]:
    """Return hints about what chooses the targets of the build."""
    hints = []
    if planned.set_by:
        hints.append(f"the plan set {', '.join(planned.set_by)}")
    if planned.choices:
        hints.append(f"the build takes its targets from {', '.join(planned.choices[:4])}")
    hints.append("--accept-targets builds with the targets that the build chose")
    return tuple(hints)


def _planned(planned: PlannedTargets) -> str:
    named = [sm(arch) for arch in planned.cubins or planned.gpus]
    return ", ".join(named + [f"PTX of {arch}" for arch in planned.ptx])


def sm(arch: str) -> str:
    """Return a target as compilers write it."""
    return "sm_" + arch.replace(".", "") if "." in arch else arch


class KernelTargets(Value, frozen=True, kw_only=True):
    """The targets of one source, for records and reports."""

    source: str
    targets: tuple[str, ...]


def kernels(steps: Iterable[Step]) -> tuple[KernelTargets, ...]:
    """Return each source with device code and what it was compiled for, by name."""
    found: dict[str, dict[str, None]] = {}
    for step in steps:
        if compiled := device_compile(step):
            named = found.setdefault(compiled.source, {})
            named |= dict.fromkeys(compiled.named)
    return tuple(
        KernelTargets(source=source, targets=tuple(found[source])) for source in sorted(found)
    )

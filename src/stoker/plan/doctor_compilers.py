"""Checks that host compiler, GPU toolkit and driver can do what the plan needs. Pure."""

from collections.abc import Iterator

from stoker.knowledge.gpus import cuda_releases
from stoker.knowledge.packages import fitting_gcc, gcc_versions, install_command
from stoker.model.finding import Finding, error, ok, warning
from stoker.model.machine import TORCH_INCLUDES
from stoker.model.source import ProjectKind
from stoker.model.value import major
from stoker.model.variant import Backend, plain_arch
from stoker.plan.planning import PlannedBuild

# The compiler, the toolkit, the page that explains how to install it, and its setup command.
_TOOLKITS = {
    Backend.ROCM: (
        "hipcc",
        "ROCm",
        "https://rocm.docs.amd.com/projects/install-on-linux/",
        "export PATH=/opt/rocm/bin:$PATH   # once it is installed there",
    ),
    Backend.XPU: (
        "icpx",
        "Intel oneAPI",
        "https://www.intel.com/content/www/us/en/developer/tools/oneapi/base-toolkit-download.html",
        ". /opt/intel/oneapi/setvars.sh   # once it is installed there",
    ),
}


def check_compiler(planned: PlannedBuild) -> Iterator[Finding]:
    subject = planned.subject
    tools = (subject.toolbox.tool(name) for name in ("cxx", "g++", "clang++"))
    tool = next(filter(None, tools), None)
    if tool is None:
        yield error("compiler-missing", "no C++ compiler found", fix=planned.install("cxx"))
        return
    if tool.problem or tool.version is None:
        problem = tool.problem or "does not print its version"
        yield error("compiler-broken", f"{tool.path} {problem}", fix=planned.install("cxx"))
        return
    kind, version = subject.compiler
    release, cuda = subject.release, cuda_releases().get(subject.cuda_version or "")
    newest = None  # nvcc refuses host compilers that are newer than it knows
    if cuda and subject.variant.backend is Backend.CUDA:
        newest = cuda.clang_below - 1 if kind == "clang" else cuda.gcc_max
    if release and kind == "gcc" and major(version) < release.gcc_min:
        yield error(
            "compiler-too-old",
            f"gcc {version} is too old: PyTorch {release.version} needs {release.gcc_min}",
            evidence=tool.path,
            fix=_other_gcc(planned, least=release.gcc_min),
        )
    elif cuda and newest is not None and major(version) > newest:
        yield error(
            "compiler-too-new",
            f"{kind} {version} is newer than CUDA {cuda.version} accepts ({newest})",
            evidence=tool.path,
            fix=_other_gcc(planned, most=cuda.gcc_max),
        )
    else:
        yield ok("compiler", f"{kind} {version}", tool.path)


def _other_gcc(
    planned: PlannedBuild, *, least: int | None = None, most: int | None = None
) -> tuple[str, ...]:
    """Return the commands for the best version that is installed, or that this distribution has."""
    installed = planned.subject.toolbox.gccs
    available = {*installed, *gcc_versions(planned.subject.machine.os)}
    version = fitting_gcc(available, least=least, most=most)
    if version is None:
        number = least or most
        return (f"export CC=gcc-{number} CXX=g++-{number}   # once they are installed",)
    use = f"export CC=gcc-{version} CXX=g++-{version} CUDAHOSTCXX=g++-{version}"
    if version in installed:
        return (use,)
    return f"{planned.install('cxx')[0]}-{version}", use


def check_cuda(planned: PlannedBuild) -> Iterator[Finding]:
    subject = planned.subject
    if subject.variant.backend is not Backend.CUDA:
        return
    for broken in (cuda for cuda in subject.toolbox.cuda if cuda.problem):
        yield warning("nvcc-broken", f"{broken.nvcc} {broken.problem}")
    toolkit = subject.toolkit
    if toolkit is None:
        wanted = subject.variant.toolkit
        here = ", ".join(cuda.version or "?" for cuda in subject.toolbox.cuda) or "none"
        yield error(
            "nvcc-missing",
            f"no working CUDA {wanted} compiler" if wanted else "no working CUDA compiler",
            evidence=f"CUDA toolkits found: {here}",
            fix=_toolkit_fix(planned),
        )
        return
    listed = {plain_arch(arch) for arch in toolkit.archs}  # nvcc lists them without suffixes
    if listed and (missing := [t.arch for t in subject.gpus if t.plain not in listed]):
        yield error(
            "nvcc-lacks-target",
            f"nvcc {toolkit.version} cannot make {', '.join(missing)}",
            evidence=f"{toolkit.nvcc} lists {' '.join(toolkit.archs)}",
            fix=_toolkit_fix(planned),
        )
    elif toolkit.lacks and subject.is_with_torch:
        yield warning(
            "cuda-headers-missing",
            f"CUDA {toolkit.version} lacks {', '.join(toolkit.lacks)}, which PyTorch's headers "
            "include",
            evidence=toolkit.home,
            fix=(f"stoker toolchain install cuda=={toolkit.version}{_components(planned)}",),
        )
    else:
        yield ok("nvcc", f"CUDA {toolkit.version}", toolkit.nvcc)


def _components(planned: PlannedBuild) -> str:
    """Return the option that adds what PyTorch needs, or what its headers include."""
    if not planned.subject.is_with_torch:
        return ""
    is_torch = planned.subject.kind is ProjectKind.PYTORCH
    return f" --with {'torch' if is_torch else ','.join(TORCH_INCLUDES)}"


def _toolkit_fix(planned: PlannedBuild) -> tuple[str, ...]:
    """Return the command that installs a toolkit. The index has compilers from CUDA 13 on."""
    targets = {target.arch for target in planned.subject.gpus}
    able = [version for version, row in cuda_releases().items() if targets <= set(row.archs)]
    if not able:
        return ()  # no single release makes them all
    wanted = planned.subject.variant.toolkit or ("13.0" if "13.0" in able else able[-1])
    if command := install_command("cuda", planned.subject.machine.os, wanted):
        return (f"{command[0]}{_components(planned)}",)
    return (f"export CUDA_HOME=/usr/local/cuda-{wanted}   # once it is installed there",)


def check_other_toolkit(planned: PlannedBuild) -> Iterator[Finding]:
    """Check that the compiler of ROCm or XPU is installed in the requested version."""
    backend = planned.subject.variant.backend
    if backend not in _TOOLKITS:
        return
    program, title, link, setup = _TOOLKITS[backend]
    tool, wanted = planned.subject.toolbox.tool(program), planned.subject.variant.toolkit
    if tool is None or tool.problem:
        problem = f"{tool.path} {tool.problem}" if tool else f"no {program} found"
        yield error(
            f"{backend}-missing",
            f"{title} is not installed: {problem}",
            evidence=f"how to install it: {link}",
            fix=(setup,),
        )
    elif wanted and not f"{tool.version}.".startswith(f"{wanted}."):
        found = f"{program} is of version {tool.version}"
        yield error(f"{backend}-version", f"{title} {wanted} not found: {found}", tool.path)
    else:
        yield ok(backend.value, f"{title} {tool.version or ''}".strip(), tool.path)


def check_driver(planned: PlannedBuild) -> Iterator[Finding]:
    subject = planned.subject
    release = cuda_releases().get(subject.cuda_version or "")
    if subject.variant.backend is not Backend.CUDA or release is None or not subject.here:
        return
    for gpu in subject.machine.gpus:
        if gpu.is_nvidias and major(gpu.driver) < release.driver:
            yield warning(
                "driver-too-old",
                f"{gpu.name}: driver {gpu.driver} cannot load CUDA {release.version} code",
                evidence=f"CUDA {release.version} needs driver {release.driver} or newer",
            )

"""The host compiler, nvcc and the driver: can they do what the plan asks?"""

from collections.abc import Iterator

from stoker.knowledge.cuda import cuda_releases
from stoker.knowledge.packages import install_command
from stoker.model.finding import Finding
from stoker.model.machine import CudaToolkit, Tool
from stoker.model.variant import Backend, GpuTarget
from stoker.plan.doctor.case import Case, error, major, ok, warning


def _cxx(case: Case) -> Tool | None:
    for name in ("cxx", "g++", "clang++"):
        if tool := case.subject.toolbox.tool(name):
            return tool
    return None


def compiler(case: Case) -> Iterator[Finding]:
    tool = _cxx(case)
    if tool is None:
        yield error("compiler-missing", "no C++ compiler found", fix=case.install("cxx"))
        return
    if tool.problem or tool.version is None:
        problem = tool.problem or "does not say its version"
        yield error("compiler-broken", f"{tool.path} {problem}", fix=case.install("cxx"))
        return
    kind, version = case.subject.compiler
    release = case.subject.release
    if release and kind == "gcc" and major(version) < release.gcc_min:
        yield error(
            "compiler-too-old",
            f"gcc {version} is too old: PyTorch {release.version} needs {release.gcc_min}",
            evidence=tool.path,
            fix=_other_gcc(case, release.gcc_min),
        )
    elif refused := list(_host_compiler(case, tool)):
        yield from refused
    else:
        yield ok("compiler", f"{kind} {version}", tool.path)


def _host_compiler(case: Case, tool: Tool) -> Iterator[Finding]:
    """nvcc refuses host compilers newer than it knows."""
    release = cuda_releases().get(case.subject.cuda_version or "")
    if case.subject.variant.backend is not Backend.CUDA or release is None:
        return
    kind, version = case.subject.compiler
    newest = release.clang_below - 1 if kind == "clang" else release.gcc_max
    if major(version) > newest:
        yield error(
            "compiler-too-new",
            f"{kind} {version} is newer than CUDA {release.version} accepts ({newest})",
            evidence=tool.path,
            fix=_other_gcc(case, release.gcc_max),
        )


def _other_gcc(case: Case, major: int) -> tuple[str, ...]:
    command = "".join(case.install("cxx"))
    # Only Debian's names of older compilers are known to be good.
    install = (f"{command}-{major}",) if command.endswith(" g++") else ()
    return (*install, f"export CC=gcc-{major} CXX=g++-{major} CUDAHOSTCXX=g++-{major}")


def cuda(case: Case) -> Iterator[Finding]:
    if case.subject.variant.backend is not Backend.CUDA:
        return
    for broken in (cuda for cuda in case.subject.toolbox.cuda if cuda.problem):
        yield warning("nvcc-broken", f"{broken.nvcc} {broken.problem}")
    toolkit = case.subject.toolkit
    if toolkit is None:
        wanted = case.subject.variant.toolkit
        here = ", ".join(cuda.version or "?" for cuda in case.subject.toolbox.cuda) or "none"
        yield error(
            "nvcc-missing",
            f"no working CUDA {wanted} compiler" if wanted else "no working CUDA compiler",
            evidence=f"CUDA toolkits found: {here}",
            fix=_toolkit_fix(case),
        )
        return
    if missing := [t.arch for t in case.subject.gpus if not _makes(toolkit, t)]:
        yield error(
            "nvcc-lacks-target",
            f"nvcc {toolkit.version} cannot make {', '.join(missing)}",
            evidence=f"{toolkit.nvcc} lists {' '.join(toolkit.archs)}",
            fix=_toolkit_fix(case),
        )
    else:
        yield ok("nvcc", f"CUDA {toolkit.version}", toolkit.nvcc)


def _makes(toolkit: CudaToolkit, target: GpuTarget) -> bool:
    """Tell whether nvcc lists a target. It lists architectures without their suffixes."""
    listed = {arch.rstrip("af") for arch in toolkit.archs}
    return not listed or target.arch.rstrip("af") in listed


def _toolkit_fix(case: Case) -> tuple[str, ...]:
    """The index has a compiler from CUDA 13 on; before, only the distribution has one."""
    targets = {target.arch for target in case.subject.gpus}
    able = [version for version, row in cuda_releases().items() if targets <= set(row.archs)]
    if not able:
        return ()  # no single release makes them all
    wanted = case.subject.variant.toolkit or ("13.0" if "13.0" in able else able[-1])
    if command := install_command("cuda", case.subject.machine.os, wanted):
        return command
    return (f"export CUDA_HOME=/usr/local/cuda-{wanted}   # once it is installed there",)


def driver(case: Case) -> Iterator[Finding]:
    release = cuda_releases().get(case.subject.cuda_version or "")
    if case.subject.variant.backend is not Backend.CUDA or release is None or not case.subject.here:
        return
    for gpu in case.subject.machine.gpus:
        if major(gpu.driver) < release.driver:
            yield warning(
                "driver-too-old",
                f"{gpu.name}: driver {gpu.driver} cannot load CUDA {release.version} code",
                evidence=f"CUDA {release.version} needs driver {release.driver} or newer",
            )

"""Checks of compilers and tools. Pure."""

import shlex
from collections.abc import Iterable, Iterator, Sequence

from stoker.knowledge.hardware import cuda_releases
from stoker.knowledge.packages import gcc_versions, install_command
from stoker.knowledge.projects import torch_release
from stoker.model.finding import Finding, error, ok, warning
from stoker.model.machine import CudaToolkit, PythonInstallation, Tool
from stoker.model.plan import Backend, GpuTarget, is_on
from stoker.model.source import ProjectKind, Standard
from stoker.plan.planning import PlannedBuild

# -- compilers -------------------------------------------------------------------------------------
# Checks that the host compiler, the GPU toolkit and the driver can do what the plan needs.


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


def _cxx(planned: PlannedBuild) -> Tool | None:
    for name in ("cxx", "g++", "clang++"):
        if tool := planned.subject.toolbox.tool(name):
            return tool
    return None


def check_compiler(planned: PlannedBuild) -> Iterator[Finding]:
    tool = _cxx(planned)
    if tool is None:
        yield error("compiler-missing", "no C++ compiler found", fix=planned.install("cxx"))
        return
    if tool.problem or tool.version is None:
        problem = tool.problem or "does not print its version"
        yield error("compiler-broken", f"{tool.path} {problem}", fix=planned.install("cxx"))
        return
    kind, version = planned.subject.compiler
    release = planned.subject.release
    if release and kind == "gcc" and major(version) < release.gcc_min:
        yield error(
            "compiler-too-old",
            f"gcc {version} is too old: PyTorch {release.version} needs {release.gcc_min}",
            evidence=tool.path,
            fix=_other_gcc(planned, range(release.gcc_min, 100)),
        )
    elif refused := list(_host_compiler(planned, tool)):
        yield from refused
    else:
        yield ok("compiler", f"{kind} {version}", tool.path)


def _host_compiler(planned: PlannedBuild, tool: Tool) -> Iterator[Finding]:
    """Check the host compiler: nvcc refuses those that are newer than it knows."""
    release = cuda_releases().get(planned.subject.cuda_version or "")
    if planned.subject.variant.backend is not Backend.CUDA or release is None:
        return
    kind, version = planned.subject.compiler
    newest = release.clang_below - 1 if kind == "clang" else release.gcc_max
    if major(version) > newest:
        yield error(
            "compiler-too-new",
            f"{kind} {version} is newer than CUDA {release.version} accepts ({newest})",
            evidence=tool.path,
            fix=_other_gcc(planned, range(release.gcc_max, 0, -1)),
        )


def _other_gcc(planned: PlannedBuild, wanted: range) -> tuple[str, ...]:
    """Return the commands for the best of the wanted versions that this distribution has."""
    available = gcc_versions(planned.subject.machine.os)
    version = next((number for number in wanted if number in available), None)
    if version is None:
        number = wanted[0]
        return (f"export CC=gcc-{number} CXX=g++-{number}   # once they are installed",)
    return (
        f"{planned.install('cxx')[0]}-{version}",
        f"export CC=gcc-{version} CXX=g++-{version} CUDAHOSTCXX=g++-{version}",
    )


def check_cuda(planned: PlannedBuild) -> Iterator[Finding]:
    if planned.subject.variant.backend is not Backend.CUDA:
        return
    for broken in (cuda for cuda in planned.subject.toolbox.cuda if cuda.problem):
        yield warning("nvcc-broken", f"{broken.nvcc} {broken.problem}")
    toolkit = planned.subject.toolkit
    if toolkit is None:
        wanted = planned.subject.variant.toolkit
        here = ", ".join(cuda.version or "?" for cuda in planned.subject.toolbox.cuda) or "none"
        yield error(
            "nvcc-missing",
            f"no working CUDA {wanted} compiler" if wanted else "no working CUDA compiler",
            evidence=f"CUDA toolkits found: {here}",
            fix=_toolkit_fix(planned),
        )
        return
    if missing := [t.arch for t in planned.subject.gpus if not _makes(toolkit, t)]:
        yield error(
            "nvcc-lacks-target",
            f"nvcc {toolkit.version} cannot make {', '.join(missing)}",
            evidence=f"{toolkit.nvcc} lists {' '.join(toolkit.archs)}",
            fix=_toolkit_fix(planned),
        )
    else:
        yield ok("nvcc", f"CUDA {toolkit.version}", toolkit.nvcc)


def _makes(toolkit: CudaToolkit, target: GpuTarget) -> bool:
    """Tell whether nvcc lists a target. It lists architectures without their suffixes."""
    listed = {arch.rstrip("af") for arch in toolkit.archs}
    return not listed or target.arch.rstrip("af") in listed


def _toolkit_fix(planned: PlannedBuild) -> tuple[str, ...]:
    """Return the command that installs a toolkit. The index has compilers from CUDA 13 on."""
    targets = {target.arch for target in planned.subject.gpus}
    able = [version for version, row in cuda_releases().items() if targets <= set(row.archs)]
    if not able:
        return ()  # no single release makes them all
    wanted = planned.subject.variant.toolkit or ("13.0" if "13.0" in able else able[-1])
    if command := install_command("cuda", planned.subject.machine.os, wanted):
        return command
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
    release = cuda_releases().get(planned.subject.cuda_version or "")
    if (
        planned.subject.variant.backend is not Backend.CUDA
        or release is None
        or not planned.subject.here
    ):
        return
    for gpu in planned.subject.machine.gpus:
        if gpu.is_nvidias and major(gpu.driver) < release.driver:
            yield warning(
                "driver-too-old",
                f"{gpu.name}: driver {gpu.driver} cannot load CUDA {release.version} code",
                evidence=f"CUDA {release.version} needs driver {release.driver} or newer",
            )


def major(version: str | None) -> int:
    """Return the first number of a version; 0 if there is none."""
    return int((version or "0").partition(".")[0])


# -- tools -----------------------------------------------------------------------------------------
# Checks the build tools, Python, and whether the source tree is complete.


def check_cmake(planned: PlannedBuild) -> Iterator[Finding]:
    if planned.subject.kind is ProjectKind.EXTENSION:
        return
    tool = planned.subject.build_tool("cmake")
    if tool is None or tool.problem or tool.version is None:
        yield _tool_missing(planned, "cmake", tool)
        return
    if planned.subject.tree and planned.subject.is_too_old(tool):
        minimum = planned.subject.tree.cmake_minimum
        title = f"{tool.path} is version {tool.version}, the source requires {minimum}"
        yield error("cmake-too-old", title, fix=(_from_index("cmake"),))
        return
    release = planned.subject.release
    limit = release.cmake_below if release else None
    if release and limit and major(tool.version) >= major(limit):
        yield warning(
            "cmake-too-new",
            f"CMake {tool.version} refuses third-party projects of PyTorch {release.version}",
            evidence="CMake 4 dropped compatibility with policies before 3.5",
            fix=("export CMAKE_POLICY_VERSION_MINIMUM=3.5",),
        )
    else:
        yield ok("cmake", f"CMake {tool.version}", tool.path)


def check_ninja(planned: PlannedBuild) -> Iterator[Finding]:
    tool = planned.subject.build_tool("ninja")
    if tool is None or tool.problem or tool.version is None:
        yield _tool_missing(planned, "ninja", tool)
        return
    parts = tuple(int(part) for part in tool.version.split(".")[:2] if part.isdigit())
    says = "takes part in make's job server" if parts >= (1, 13) else "no job server"
    yield ok("ninja", f"ninja {tool.version}", f"{tool.path}; {says}")


def _tool_missing(planned: PlannedBuild, name: str, tool: Tool | None) -> Finding:
    commands = tuple(dict.fromkeys((*planned.install(name), _from_index(name))))
    either = "either command installs one" if len(commands) > 1 else ""
    return error(f"{name}-missing", _problem(name, tool), evidence=either, fix=commands)


def _from_index(name: str) -> str:
    """Return the command that installs a package of the index."""
    return f"python3 -m pip install {shlex.quote(name)}"


def _problem(name: str, tool: Tool | None) -> str:
    if tool is None:
        return f"no {name} found"
    return f"{tool.path} {tool.problem or 'does not print its version'}"


def check_python(planned: PlannedBuild) -> Iterator[Finding]:
    python = planned.subject.toolbox.python
    if planned.subject.feature("bindings") is False:
        return
    wanted = planned.subject.variant.python
    free = "t" if python.free_threaded else ""
    if wanted and python.release != wanted:
        yield error(
            "python-missing",
            f"no Python {wanted} found",
            evidence=f"{python.executable} is {python.version}{free}",
            fix=(f"uv python install {wanted}",),
        )
    elif planned.subject.kind is ProjectKind.CMAKE:
        return  # it may have no bindings
    elif python.headers is None:
        yield error(
            "python-headers-missing",
            f"Python.h of {python.executable} is missing",
            fix=planned.install("python-headers"),
        )
    else:
        yield ok("python", f"Python {python.version} with headers", python.executable)
    release = planned.subject.release
    if release and not _between(python.version, release.python):
        oldest, newest = release.python
        yield warning(
            "python-untested",
            f"PyTorch {release.version} was released for Python {oldest} to {newest}, "
            f"not {python.version}",
        )


def _between(version: str, bounds: tuple[str, str]) -> bool:
    numbers = [
        tuple(int(p) for p in text.split(".")[:2]) for text in (bounds[0], version, bounds[1])
    ]
    return numbers[0] <= numbers[1] <= numbers[2]


def check_requirements(planned: PlannedBuild) -> Iterator[Finding]:
    """Check the build requirements. `stoker build` checks those of CMake projects, which may be
    built in an environment of their own.
    """
    if planned.subject.tree is None or planned.subject.kind is ProjectKind.CMAKE:
        return
    lines, python = planned.subject.tree.requirements, planned.subject.toolbox.python
    if missing := unmet_requirements(lines, python):
        yield requirements_missing(missing, python)
    elif lines:
        yield ok("requirements", f"{len(lines)} build requirements installed")


def requirements_missing(missing: Sequence[str], python: PythonInstallation) -> Finding:
    return error(
        "requirements-missing",
        f"{len(missing)} Python packages that the build imports are missing",
        evidence=", ".join(missing),
        fix=(shlex.join([python.executable, "-m", "pip", "install", *missing]),),
    )


def unmet_requirements(lines: Iterable[str], python: PythonInstallation) -> list[str]:
    """Return the requirements that are not installed, without their markers."""
    from packaging.utils import canonicalize_name

    from stoker.model.distribution import read_requirement

    of_python = {
        "python_version": ".".join(python.version.split(".")[:2]),
        "python_full_version": python.version,
    }
    missing = []
    for line in lines:
        requirement = read_requirement(line)
        if requirement.marker and not requirement.marker.evaluate(of_python):
            continue
        version = python.packages.get(canonicalize_name(requirement.name))
        if version is None or not requirement.specifier.contains(version, prereleases=True):
            requirement.marker = None
            missing.append(str(requirement))
    return missing


def check_needs(planned: PlannedBuild) -> Iterator[Finding]:
    """Check the programs and packages that the recipe of the project names."""
    project, toolbox = planned.subject.project, planned.subject.toolbox
    backend = planned.subject.variant.backend
    for need in project.needs if project else ():
        if need.backends and backend not in need.backends:
            continue
        name = need.tool or need.python or ""
        tool = toolbox.tool(need.tool) if need.tool else None
        here = toolbox.python.packages.get(need.python) if need.python else None
        if (tool and not tool.problem) or here:
            yield ok("need", f"{name} {tool.version if tool else here}", need.why)
            continue
        fix = planned.install(need.tool) if need.tool else ()
        fix = fix or (_from_index(name),) if need.python else fix
        left_out = "; without it that part is left out" if need.optional else ""
        make = warning if need.optional else error
        yield make(f"{name}-missing", f"no {name} found", f"{need.why}{left_out}", fix)


def check_standard(planned: PlannedBuild) -> Iterator[Finding]:
    """Warn if setup.py asks for an older C++ than the headers of the installed torch need."""
    tree, torch = planned.subject.tree, planned.subject.toolbox.python.packages.get("torch")
    release = torch_release(torch)
    if tree is None or release is None or planned.subject.kind is not ProjectKind.EXTENSION:
        return
    for standard in tree.standards:
        if standard.version < release.cxx:
            yield warning(
                "standard-too-old",
                f"{tree.name} compiles with -std=c++{standard.version}, but the headers of torch "
                f"{torch} need C++{release.cxx}",
                evidence=standard.where,
                fix=(_other_standard(standard, release.cxx),),
            )


def _other_standard(standard: Standard, wanted: int) -> str:
    file = shlex.quote(standard.where.rpartition(":")[0])
    return f"sed -i s/-std=c++{standard.version}/-std=c++{wanted}/ {file}"


def check_submodules(planned: PlannedBuild) -> Iterator[Finding]:
    if planned.subject.tree is None or not planned.subject.tree.submodules:
        return
    absent = [
        submodule.path for submodule in planned.subject.tree.submodules if not submodule.present
    ]
    if absent:
        more = f" and {len(absent) - 5} more" if len(absent) > 5 else ""
        path = planned.subject.tree.path
        yield error(
            "submodules-missing",
            f"{len(absent)} of {len(planned.subject.tree.submodules)} submodules are empty",
            evidence=", ".join(absent[:5]) + more,
            fix=(f"git -C {shlex.quote(path)} submodule update --init --recursive --depth 1",),
        )
    else:
        yield ok("submodules", f"all {len(planned.subject.tree.submodules)} submodules are present")


def check_protobuf(planned: PlannedBuild) -> Iterator[Finding]:
    """Check the bundled protobuf, which PyTorch builds unless it is told to use the system's."""
    tree = planned.subject.tree
    if tree is None or tree.own_protobuf is not False:
        return
    value = planned.plan.value("BUILD_CUSTOM_PROTOBUF")
    if value is None or is_on(value):
        yield error(
            "protobuf-missing",
            "the plan builds the bundled protobuf, but the tree does not have it",
            evidence="third_party/protobuf is missing or empty",
            fix=("stoker plan ... -D BUILD_CUSTOM_PROTOBUF=OFF", *planned.install("protobuf")),
        )

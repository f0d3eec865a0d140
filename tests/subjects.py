"""Values for tests of the pure core: a machine, its tools and trees with everything in order.

A test states only the differences. No file is read and no process is started.
"""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, TypeVar

import msgspec
from hypothesis import strategies as st
from packaging.utils import canonicalize_name

from stoker.knowledge.cpus import cpu_names
from stoker.knowledge.features import blas_libraries
from stoker.knowledge.features import features as known_features
from stoker.knowledge.gpus import cuda_archs, cuda_releases, gpus
from stoker.knowledge.platforms import platforms
from stoker.knowledge.projects import projects
from stoker.model.finding import Finding, Severity
from stoker.model.machine import (
    Cpu,
    CudaToolkit,
    Disk,
    Gpu,
    Library,
    LimitKind,
    Machine,
    Memory,
    MemoryLimit,
    OperatingSystem,
    PythonInstallation,
    Tool,
    Toolbox,
)
from stoker.model.plan import Estimate, Plan, Quantity
from stoker.model.setting import Origin, OriginKind
from stoker.model.source import (
    CMakeOption,
    CompiledCode,
    FrontEnd,
    OptionKind,
    ProjectKind,
    SourceTree,
)
from stoker.model.variant import (
    Backend,
    BuildType,
    Feature,
    GpuTarget,
    PlannedTargets,
    Sanitizer,
    Variant,
)
from stoker.plan.defines import define
from stoker.plan.doctor import examine
from stoker.plan.estimates import estimate
from stoker.plan.grammar import canonical
from stoker.plan.planning import make_plan
from stoker.plan.subject import Subject, wanted_variant
from stoker.source.tree import read_tree

GIB = 1024**3
COMMAND_LINE = Origin(kind=OriginKind.COMMAND_LINE)
T = TypeVar("T", bound=msgspec.Struct)


def changed(value: T, **changes: Any) -> T:
    return msgspec.structs.replace(value, **changes)


def debian(**changes: Any) -> OperatingSystem:
    system = OperatingSystem(
        system="linux",
        id="debian",
        version="12",
        pretty="Debian GNU/Linux 12 (bookworm)",
        kernel="6.1.0",
        libc="glibc 2.36",
    )
    return changed(system, **changes)


def zen4(**changes: Any) -> Cpu:
    cpu = Cpu(
        model="AMD EPYC 9354",
        family="x86_64",
        microarchitecture="zen4",
        features=("avx", "avx2", "avx512f", "fma"),
        online=8,
        affinity=8,
        quota=None,
    )
    return changed(cpu, **changes)


def neoverse(**changes: Any) -> Cpu:
    return zen4(family="aarch64", microarchitecture="neoverse_v2", **changes)


def memory(
    limit: int = 64 * GIB, *, used: int = 0, kills_group: bool = False, **changes: Any
) -> Memory:
    binding = MemoryLimit(
        kind=LimitKind.CGROUP_V2,
        where="/sys/fs/cgroup/build",
        limit=limit,
        used=used,
        kills_group=kills_group,
    )
    whole = Memory(
        total=128 * GIB, available=limit - used, swap_total=0, swap_free=0, limit=binding
    )
    return changed(whole, **changes)


def gpu(capability: str = "9.0", **changes: Any) -> Gpu:
    card = Gpu(
        index=0,
        name="NVIDIA H100 80GB HBM3",
        capability=capability,
        memory=80 * GIB,
        driver="580.65.06",
    )
    return changed(card, **changes)


def disk(free: int = 200 * GIB, **changes: Any) -> Disk:
    whole = Disk(path="/home/me", filesystem="ext4", total=500 * GIB, free=free, in_memory=False)
    return changed(whole, **changes)


def linux(**changes: Any) -> Machine:
    machine = Machine(os=debian(), cpu=zen4(), memory=memory(), gpus=(), disks=(disk(),))
    return changed(machine, **changes)


def arm_linux(**changes: Any) -> Machine:
    return linux(cpu=neoverse(), **changes)


def mac(**changes: Any) -> Machine:
    system = debian(system="macos", id="macos", version="15.1", pretty="macOS 15.1", libc=None)
    return linux(os=system, cpu=zen4(family="aarch64", microarchitecture="m1"), **changes)


def tool(name: str, version: str | None = None, **changes: Any) -> Tool:
    return changed(Tool(name=name, path=f"/usr/bin/{name}", version=version), **changes)


def toolkit(version: str | None = "13.0", **changes: Any) -> CudaToolkit:
    """Return a CUDA toolkit; its architectures have no suffixes, as in nvcc's list."""
    release = cuda_releases().get(version or "")
    home = f"/usr/local/cuda-{version}"
    plain = dict.fromkeys(arch.rstrip("af") for arch in (release.archs if release else ()))
    kit = CudaToolkit(home=home, nvcc=f"{home}/bin/nvcc", version=version, archs=tuple(plain))
    return changed(kit, **changes)


def library(name: str, **changes: Any) -> Library:
    whole = Library(
        name=name, version="1.0", header=f"/usr/include/{name}.h", library=f"/usr/lib/lib{name}.so"
    )
    return changed(whole, **changes)


def python(**changes: Any) -> PythonInstallation:
    installed = PythonInstallation(
        executable="/usr/bin/python3",
        version="3.11.7",
        headers="/usr/include/python3.11",
        packages={"numpy": "2.1.0", "pyyaml": "6.0", "setuptools": "75.0"},
    )
    return changed(installed, **changes)


TOOLS = {"cxx": "13.2.0", "cmake": "3.31.0", "ninja": "1.12.1", "git": "2.39.5"}


def tools(**versions: Tool | None) -> tuple[Tool, ...]:
    """Return the usual tools; ``tools(cmake=None)`` lacks one, ``tools(gold=...)`` adds one."""
    usual: dict[str, Tool | None] = {name: tool(name, version) for name, version in TOOLS.items()}
    return tuple(found for found in (usual | versions).values() if found)


def libraries(*, without: Iterable[str] = ()) -> tuple[Library, ...]:
    """Return every library that a feature or a BLAS needs."""
    wanted = [
        *(row.library for row in known_features().values()),
        *(row.library for row in blas_libraries().values()),
    ]
    names = dict.fromkeys(name for name in wanted if name and name not in set(without))
    return tuple(library(name) for name in names)


def toolbox(**changes: Any) -> Toolbox:
    box = Toolbox(tools=tools(), cuda=(toolkit(),), libraries=libraries(), python=python())
    return changed(box, **changes)


def cmake_option(name: str, default: str = "ON", **changes: Any) -> CMakeOption:
    declared = CMakeOption(
        name=name,
        kind=OptionKind.OPTION,
        type="BOOL",
        default=default,
        help=f"about {name}",
        file="CMakeLists.txt",
        line=1,
    )
    return changed(declared, **changes)


_PYTORCH_OPTIONS = (
    *dict.fromkeys(
        row.option
        for row in known_features().values()
        if row.option and not row.option.startswith("CMAKE_")
    ),
    *("USE_CUDA", "USE_ROCM", "USE_XPU", "USE_MPS", "USE_VULKAN", "USE_ASAN", "USE_TSAN"),
    *("USE_STATIC_CUDNN", "USE_SYSTEM_NCCL", "CAFFE2_STATIC_LINK_CUDA", "BUILD_SHARED_LIBS"),
    *("ONNX_ML", "MSVC_Z7_OVERRIDE"),
)
_PYTORCH_ARCHS = (
    *("3.5", "3.7", "5.0", "5.2", "5.3", "6.0", "6.1", "6.2", "7.0", "7.2", "7.5"),
    *("8.0", "8.6", "8.7", "8.9", "9.0", "9.0a"),
)


def pytorch_tree(**changes: Any) -> SourceTree:
    """Return a complete tree of PyTorch 2.6.0."""
    tree = SourceTree(
        path="/src/pytorch",
        kind=ProjectKind.PYTORCH,
        name="torch",
        version="2.6.0",
        front_end=FrontEnd.SETUPTOOLS,
        options=(
            *(cmake_option(name) for name in _PYTORCH_OPTIONS),
            cmake_option("BLAS", "MKL", kind=OptionKind.CACHED, type="STRING"),
        ),
        variables=("CUDNN_ROOT", "CAFFE2_PERF_WITH_AVX512"),
        requirements=("numpy", "pyyaml", "setuptools"),
        own_protobuf=True,
        cuda_archs=_PYTORCH_ARCHS,
        backends=("cpu", "cuda", "rocm", "xpu", "mps", "vulkan"),
    )
    return changed(tree, **changes)


def extension_tree(name: str = "flash_attn", **changes: Any) -> SourceTree:
    known = (row.name for row in projects().values() if canonicalize_name(name) in row.packages)
    tree = SourceTree(
        path=f"/src/{name}",
        kind=ProjectKind.EXTENSION,
        name=name,
        version="2.8.3",
        front_end=FrontEnd.SETUPTOOLS,
        requirements=("setuptools",),
        backends=("cpu", "cuda", "rocm"),
        recipe=next(known, None),
        code=CompiledCode(device_source="setup.py:9"),
    )
    return changed(tree, **changes)


def cmake_tree(**changes: Any) -> SourceTree:
    tree = SourceTree(
        path="/src/demo",
        kind=ProjectKind.CMAKE,
        name="demo",
        version="1.0",
        front_end=FrontEnd.CMAKE,
        options=(cmake_option("DEMO_FAST"), cmake_option("BUILD_TESTING")),
        backends=("cpu", "cuda", "rocm"),
        code=CompiledCode(device_source="CMakeLists.txt:9"),
    )
    return changed(tree, **changes)


CMAKE_VARIABLES = frozenset(
    {"CMAKE_BUILD_TYPE", "CMAKE_CXX_FLAGS", "CMAKE_CXX_STANDARD", "CMAKE_PREFIX_PATH"}
)


def subject(
    words: str = "cpu",
    *,
    machine: Machine | None = None,
    defines: Mapping[str, str] | None = None,
    parts: Mapping[str, str] | None = None,
    features: Iterable[tuple[str, Origin]] = (),
    said: Origin = COMMAND_LINE,
    **changes: Any,
) -> Subject:
    """Return the subject of ``stoker plan WORDS``. ``said`` is the origin of defines and parts."""
    machine = machine or linux()
    spoken = {part: (text, said) for part, text in (parts or {}).items()}
    variant, origins = wanted_variant(
        (words, COMMAND_LINE), parts=spoken, features=features, machine=machine
    )
    whole = Subject(
        variant=variant,
        name=variant.name,
        origins=origins,
        machine=machine,
        toolbox=toolbox(),
        defines=tuple(define(key, value, said) for key, value in (defines or {}).items()),
        cmake_variables=CMAKE_VARIABLES,
    )
    return changed(whole, **changes)


def plan_of(about: Subject) -> Plan:
    return make_plan(about, estimate(about))


def plan(words: str = "cpu", **about: Any) -> Plan:
    return plan_of(subject(words, **about))


def doctor(words: str = "cpu", **about: Any) -> tuple[Finding, ...]:
    whole = subject(words, **about)
    return examine(whole, plan_of(whole))


def file_line(line: int) -> Origin:
    return Origin(kind=OriginKind.FILE, where=f"stoker.toml:{line}")


def environment_of(planned: Plan) -> dict[str, str]:
    return {setting.name: setting.value for setting in planned.environment}


def cmake_of(planned: Plan) -> dict[str, str]:
    return {setting.name: setting.value for setting in planned.cmake}


def targets_of(planned: Plan) -> PlannedTargets:
    assert planned.targets
    return planned.targets


def named(findings: Iterable[Finding], name: str) -> Finding:
    """Return the only finding of that name."""
    (found,) = (finding for finding in findings if finding.name == name)
    return found


def names(findings: Iterable[Finding], severity: Severity | None = None) -> set[str]:
    """Return the names of the findings, optionally of one severity."""
    return {f.name for f in findings if severity in (None, f.severity)}


def unknown_estimate(**changes: Any) -> Estimate:
    nothing = Quantity(amount=None, basis="not measured")
    whole = Estimate(
        wall_s=nothing, largest_step_bytes=nothing, disk_bytes=nothing, wheel_bytes=nothing
    )
    return changed(whole, **changes)


def _of_backend(backend: Backend) -> st.SearchStrategy[Variant]:
    """Generate variants of one backend, with its toolkits and targets."""
    toolkits: st.SearchStrategy[str | None] = st.none()
    archs = [row.arch for row in gpus().values() if row.backend is backend]
    match backend:
        case Backend.CUDA:
            toolkits, archs = st.sampled_from([None, *cuda_releases()]), list(cuda_archs())
        case Backend.ROCM:
            toolkits = st.sampled_from([None, "5.7", "6.4", "7.0", "7.10"])
        case Backend.XPU:
            toolkits = st.sampled_from([None, "2024.2", "2025.0"])
    ptx = st.booleans() if backend is Backend.CUDA else st.just(False)
    targets = st.builds(GpuTarget, arch=st.sampled_from(archs), ptx=ptx) if archs else st.nothing()
    chosen = st.builds(Feature, name=st.sampled_from(sorted(known_features())), on=st.booleans())
    return st.builds(
        Variant,
        backend=st.just(backend),
        toolkit=toolkits,
        gpus=st.lists(targets, max_size=3 if archs else 0).map(tuple),
        cpu=st.sampled_from([None, *cpu_names()]),
        blas=st.sampled_from([None, *blas_libraries()]),
        python=st.sampled_from([None, "3.8", "3.9", "3.10", "3.14"]),
        build_type=st.sampled_from(BuildType),
        sanitizer=st.sampled_from([None, *Sanitizer]),
        features=st.lists(chosen, max_size=3, unique_by=lambda feature: feature.name).map(tuple),
        platform=st.sampled_from([None, *platforms()]),
    )


VARIANTS = st.one_of([_of_backend(backend) for backend in Backend]).map(canonical)


EXTENSION = "from torch.utils.cpp_extension import BuildExtension, CUDAExtension\n"


def planned(folder: Path, words: str, *, setup: str = "", cmake: str = "", **files: str) -> Plan:
    """Return the plan of a tree with these files."""
    for name_, content in {"setup.py": setup, "CMakeLists.txt": cmake, **files}.items():
        if content:
            (folder / name_).write_text(content)
    return plan(words, tree=read_tree(folder))

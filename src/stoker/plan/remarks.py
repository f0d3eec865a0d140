"""Remarks on unusual plans, before anything is configured. Pure."""

import re
from collections.abc import Iterator

from stoker.knowledge.cpus import cpu_dispatch
from stoker.model.caching import NUMBER_OF_JOBS
from stoker.model.finding import Finding, error, note, warning
from stoker.model.recipe import BackendRecipe
from stoker.model.source import ProjectKind, SourceTree
from stoker.model.value import version_numbers
from stoker.model.variant import Backend
from stoker.plan.subject import Subject, ndk
from stoker.plan.tree_recipe import tree_recipe

# In a file of CMake, or a source that no file was seen to list.
_UNREAD = re.compile(r"(?:CMakeLists\.txt|\.cmake):\d|\.(?:cu|hip|sycl)$")


def remarks(subject: Subject) -> Iterator[Finding]:
    """Yield what is unusual, but allowed."""
    if not subject.here:
        yield warning(
            "other-platform",
            f"the plan is for {subject.platform}, this machine is {subject.machine.platform}",
            evidence="the tools and libraries of the target machine were not checked",
        )
    if subject.platform.os == "android" and ndk(subject) is None:
        yield error(
            "ndk-unset",
            "a build for Android needs the NDK, and no variable names its folder",
            evidence="CMAKE_TOOLCHAIN_FILE is then FOLDER/build/cmake/android.toolchain.cmake",
            fix=("export ANDROID_NDK=FOLDER",),
        )
    release = subject.release
    version = subject.cuda_version if subject.variant.backend is Backend.CUDA else None
    if release and version and version_numbers(version) > version_numbers(release.cuda_newest):
        yield warning(
            "toolkit-untested",
            f"PyTorch {release.version} was released with CUDA up to {release.cuda_newest}, "
            f"not {version}",
            evidence="it may not configure, or fail to compile late",
        )
    yield from _torch_of_cpu(subject)
    yield from _unset_targets(subject)
    if subject.variant.cpu and subject.kind is ProjectKind.PYTORCH:
        already = "PyTorch has no run-time kernels of this level"
        if dispatch := cpu_dispatch(subject.variant.cpu):
            already = f"PyTorch compiles its kernels for {dispatch} anyway and chooses at run time"
        yield note(
            "cpu-level",
            f"{subject.variant.cpu}: {already}",
            evidence=(
                "the flags change only the default kernels, autograd, c10 and third-party code; "
                "on an older CPU this wheel ends in an illegal instruction (SIGILL). Measure "
                "before you rely on it being faster; ATEN_CPU_CAPABILITY switches the run-time "
                "choice."
            ),
        )
    yield from subject.told
    yield from _jobs(subject)
    yield from _unused_cuda(subject)
    if subject.tree is None:
        yield note(
            "no-source",
            "no source tree given: planned for PyTorch, option names checked only roughly",
            advice="Name the source tree with --source DIR.",
        )
    else:
        yield from _of_tree(subject, subject.tree)


def _of_tree(subject: Subject, tree: SourceTree) -> Iterator[Finding]:
    yield from _native_code(subject, tree)
    yield from _cuda_stays(subject, tree)
    wants = subject.variant.backend is Backend.CUDA and subject.here
    if tree.code.needs_gpu and wants and not subject.machine.gpus and not subject.asked:
        yield warning(
            "needs-visible-gpu",
            "its build refuses a machine on which no GPU is visible, as on this one",
            evidence=f"{tree.code.needs_gpu} raises an error unless torch.cuda.is_available()",
            advice="Build where such a GPU is visible.",
        )
    missing = tree.missing_submodules
    if missing and not subject.is_pytorch:
        yield warning(
            "submodules-missing",
            f"{tree.name} lacks {len(missing)} of its submodules, and what they declare is not "
            "known",
            evidence=", ".join(missing[:4]) + (", ..." if len(missing) > 4 else ""),
            fix=("git submodule update --init --recursive",),
        )
    for problem in tree.notes:
        yield warning("source-unreadable", problem)


def _unset_targets(subject: Subject) -> Iterator[Finding]:
    said = {name for name, value in subject.exported.items() if value}
    said |= {setting.name for setting in subject.defines}
    by_cmake = subject.kind is ProjectKind.CMAKE
    variable = "CMAKE_CUDA_ARCHITECTURES" if by_cmake else "TORCH_CUDA_ARCH_LIST"
    if subject.variant.backend is Backend.CUDA and not subject.gpus and variable not in said:
        yield error(
            "arch-list-unset",
            "no GPU target named, and no GPU here to take it from",
            evidence="PyTorch's own default holds targets that CUDA 13 no longer makes",
            fix=(f"stoker plan {subject.name}-sm90   # or the name of the GPU: h100, rtx4090",),
        )


def _torch_of_cpu(subject: Subject) -> Iterator[Finding]:
    """Refuse a torch for the CPU: what is compiled with it has no CUDA, whatever it is told."""
    torch = subject.toolbox.python.packages.get("torch", "")
    wants = subject.variant.backend is Backend.CUDA and subject.here
    if wants and subject.kind is ProjectKind.EXTENSION and torch.endswith("+cpu"):
        yield error(
            "torch-of-cpu",
            f"torch {torch} of {subject.toolbox.python.executable} is for the CPU: the build of "
            f"{subject.name} needs one for CUDA",
            advice="Install one for CUDA there, or name one for the build: `stoker build --torch`.",
        )


def _jobs(subject: Subject) -> Iterator[Finding]:
    for name in NUMBER_OF_JOBS:
        if (value := subject.exported.get(name, "")).isdecimal():
            yield note(
                "jobs-needless",
                f"{name}={value} is not needed: `stoker build` runs as many steps as fit in memory",
                advice=f"`stoker build --cpus {value}` and `stoker run --respect-jobs` make it an "
                "upper bound.",
            )


def _unused_cuda(subject: Subject) -> Iterator[Finding]:
    """Say so where CUDA is installed, but no GPU was found and no back end was named."""
    words = re.split(r"[-\s,;]+", subject.origin("backend").where.casefold())
    usable = [cuda for cuda in subject.toolbox.cuda if cuda.version and not cuda.problem]
    named = "cpu" in words or subject.variant.backend is not Backend.CPU
    if usable and subject.here and not named and not subject.machine.gpus:
        yield note(
            "cpu-only",
            "planned for the CPU only: no GPU was found, and the variant names none",
            evidence=f"CUDA {usable[0].version} in {usable[0].home} is not used",
            fix=("stoker plan h100   # the name of the GPU to build for",),
        )


def _native_code(subject: Subject, tree: SourceTree) -> Iterator[Finding]:
    """Say so where the build still uses the instructions of the build machine's CPU."""
    if subject.is_pytorch or "cpu" in subject.origins:
        return
    read = tree_recipe(subject)
    recipe = read.recipe if read else subject.backend_recipe or BackendRecipe()
    off = {name for name, value in recipe.cmake.items() if value == "OFF"}
    off |= {option.name for option in tree.options if option.default == "OFF"}
    off = {name.upper() for name in off if "NATIVE" in name.upper()}
    on_gpu = subject.variant.backend is not Backend.CPU
    uses = [
        use
        for use in tree.code.native
        if not off & set(re.findall(r"\w+", (use.within or "").upper()))
        # A file for builds without a GPU is no part of the others.
        if not (on_gpu and re.search(r"(?<![a-z])cpu(?![a-z])", use.where.replace("_", "/")))
    ]
    stays = [use.where for use in uses if use.within is None]
    perhaps = [f"{use.where}, if {use.within}" for use in uses if use.within is not None]
    for option in tree.options:
        about = re.search(r"SIMD|INSTRUCTION", f"{option.name} {option.help}".upper())
        automatic = option.default.upper() in ("AUTO", "NATIVE") and option.within is None
        if about and automatic and option.choices and option.name not in recipe.cmake:
            stays.append(f"{option.where}: {option.name} is {option.default}")
    if stays:
        yield warning(
            "native-code",
            f"{tree.name} is compiled for the CPU of the build machine, and may not run on others",
            evidence="; ".join(dict.fromkeys(stays[:3])),
        )
    elif perhaps:
        yield note(
            "native-code",
            f"{tree.name} may be compiled for the CPU of the build machine",
            evidence="; ".join(dict.fromkeys(perhaps[:2]))[:300],
        )


def _cuda_stays(subject: Subject, tree: SourceTree) -> Iterator[Finding]:
    """Say so where a CPU build compiles CUDA code wherever it finds a toolkit."""
    if subject.variant.backend is not Backend.CPU or subject.backend_recipe:
        return
    read = tree_recipe(subject)
    switched = read is not None and bool(read.recipe.backend_settings)
    if tree.code.cuda_if_found and tree.code.device_source and not switched:
        yield warning(
            "cuda-stays",
            f"{tree.name} also compiles its CUDA code if its build finds a CUDA toolkit",
            evidence=f"{tree.code.cuda_if_found} decides by the toolkit that it finds, which no "
            "setting can hide",
        )
    elif tree.kind is not ProjectKind.CMAKE and _UNREAD.search(tree.code.device_source or ""):
        yield warning(
            "cuda-stays",
            f"nothing was found that leaves the CUDA code of {tree.name} out",
            evidence=f"{tree.code.device_source}, which {tree.front_end} "
            + ("gives to CMake" if ":" in (tree.code.device_source or "") else "may compile"),
        )

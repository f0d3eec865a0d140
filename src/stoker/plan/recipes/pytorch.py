"""PyTorch itself, by setup.py (up to 2.13) or scikit-build-core (from 2.14).

Both front ends read the environment and pass a part of it to CMake, so every option is set there
too: a plan printed with --shell works without stoker.
"""

from collections.abc import Iterator

from stoker.knowledge.features import blas_libraries, features
from stoker.knowledge.torch_releases import forwarding
from stoker.model.plan import Command
from stoker.model.setting import Setting
from stoker.model.source import FrontEnd, ProjectKind
from stoker.model.variant import Backend, BuildType, Sanitizer
from stoker.plan.grammar import label
from stoker.plan.recipes.cmake import plain_cmake, wheel_command
from stoker.plan.subject import (
    Subject,
    compiler_flags,
    environment,
    option,
    platform_options,
    recipe_origin,
)

_BACKENDS = {
    Backend.CUDA: "USE_CUDA",
    Backend.ROCM: "USE_ROCM",
    Backend.XPU: "USE_XPU",
    Backend.MPS: "USE_MPS",
    Backend.VULKAN: "USE_VULKAN",
}
_SANITIZERS = {Sanitizer.ADDRESS: "USE_ASAN", Sanitizer.THREAD: "USE_TSAN"}
_ORIGIN = recipe_origin(ProjectKind.PYTORCH)
jobs_variable = "MAX_JOBS"


def variable(name: str) -> str | None:
    return forwarding().variable(name)


def settings(subject: Subject) -> Iterator[Setting]:
    variant, tree = subject.variant, subject.tree
    if _knows(subject, "BUILD_TEST"):
        why = "test programs double the links and are not shipped"
        yield option("BUILD_TEST", "0", _ORIGIN, why)
    for candidate, name in _BACKENDS.items():
        chosen = candidate is variant.backend
        if _knows(subject, name) and (chosen or candidate is not Backend.VULKAN):
            yield option(name, "1" if chosen else "0", subject.origin("backend"))
    yield from target_settings(subject)
    yield from toolkit_settings(subject)
    if variant.backend is Backend.CUDA:
        is_13 = (subject.cuda_version or "").startswith("13.")
        flags = "-Xfatbin -compress-all" + (" -compress-mode=size" if is_13 else "")
        why = "as the official wheels: smaller libraries"
        yield environment("TORCH_NVCC_FLAGS", flags, _ORIGIN, why)
    yield from _blas(subject)
    if variant.build_type is not BuildType.RELEASE:
        yield option("CMAKE_BUILD_TYPE", variant.build_type.value, subject.origin("build_type"))
    switch = _SANITIZERS.get(variant.sanitizer) if variant.sanitizer else None
    if switch:
        yield option(switch, "1", subject.origin("sanitizer"))
    for feature in variant.features:
        name = features()[feature.name].option
        yield option(name, "1" if feature.on else "0", subject.origin(feature.name))
    yield from _platform(subject)
    if tree and tree.version and not subject.platform_row.mobile:
        version = f"{tree.version.partition('+')[0]}+{label(variant)}"
        why = "the version of the wheel names the variant"
        yield environment("PYTORCH_BUILD_VERSION", version, _ORIGIN, why)
        yield environment("PYTORCH_BUILD_NUMBER", "1", _ORIGIN, "read together with the version")
    yield from compiler_flags(subject, sanitizer=None if switch else variant.sanitizer)


def _knows(subject: Subject, name: str) -> bool:
    return subject.tree is None or subject.tree.option(name) is not None


def target_settings(subject: Subject) -> Iterator[Setting]:
    """Yield the list of targets that torch reads, in PyTorch and in extensions."""
    if not subject.gpus:
        return
    archs = [target.arch for target in subject.gpus]
    match subject.variant.backend:
        case Backend.CUDA:
            words = ";".join(target.torch_word for target in subject.gpus)
            yield environment("TORCH_CUDA_ARCH_LIST", words, subject.gpus_origin)
        case Backend.ROCM:
            yield environment("PYTORCH_ROCM_ARCH", ";".join(archs), subject.gpus_origin)
        case Backend.XPU:
            yield environment("TORCH_XPU_ARCH_LIST", ",".join(archs), subject.gpus_origin)


def toolkit_settings(subject: Subject) -> Iterator[Setting]:
    """Yield the variables that name the CUDA toolkit."""
    if toolkit := subject.toolkit:
        origin = subject.toolkit_origin
        yield environment("CUDA_HOME", toolkit.home, origin, f"CUDA {toolkit.version} found there")
        yield environment("CUDACXX", toolkit.nvcc, origin, "CMake uses this compiler")
        # Without it, FindCUDA takes the toolkit of the first nvcc in PATH.
        yield environment("CUDA_PATH", toolkit.home, origin, "for find_package(CUDA)")


def _blas(subject: Subject) -> Iterator[Setting]:
    if blas := subject.variant.blas:
        yield option("BLAS", blas_libraries()[blas].value, subject.origin("blas"))
    elif subject.platform_row.mobile:
        yield option(
            "BLAS", "Eigen", _ORIGIN, "bundled with the tree, so nothing has to be installed"
        )
    elif subject.platform.os == "linux" and subject.platform.cpu != "x86_64":
        yield option("BLAS", "OpenBLAS", _ORIGIN, "the tree's default, MKL, exists for x86-64 only")


def _platform(subject: Subject) -> Iterator[Setting]:
    row = subject.platform_row
    origin = subject.origin("platform")
    if row.mobile:
        yield option("BUILD_PYTHON", "OFF", _ORIGIN, "a mobile build has no Python")
    for name, value in platform_options(subject).items():
        yield option(name, value, origin)
    for name, value in row.environment.items():
        yield environment(name, value, origin)
    release = subject.release
    if subject.platform.os == "macos" and release and release.macos:
        why = f"the oldest macOS that PyTorch {release.version} is built for"
        yield environment("MACOSX_DEPLOYMENT_TARGET", release.macos, origin, why)


def commands(subject: Subject, cmake: tuple[Setting, ...]) -> tuple[Command, ...]:
    if not subject.has_front_end:
        return plain_cmake(subject, cmake)
    if subject.tree is None or subject.tree.front_end is not FrontEnd.SCIKIT_BUILD_CORE:
        return (wheel_command(subject, ()),)
    return (wheel_command(subject, tuple(s for s in cmake if variable(s.name) is None)),)

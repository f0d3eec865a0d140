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
from stoker.plan.subject import Subject, compiler_flags, environment, option, recipe_origin

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
    yield from _defaults(subject)
    yield from _backend(subject)
    yield from _blas(subject)
    yield from _build_type(subject)
    yield from _features(subject)
    yield from _platform(subject)
    yield from _version(subject)
    sanitizer = subject.variant.sanitizer
    yield from compiler_flags(subject, sanitizer=None if sanitizer in _SANITIZERS else sanitizer)


def _knows(subject: Subject, name: str) -> bool:
    return subject.tree is None or subject.tree.option(name) is not None


def _defaults(subject: Subject) -> Iterator[Setting]:
    if _knows(subject, "BUILD_TEST"):
        yield option(
            "BUILD_TEST", "0", _ORIGIN, "test programs double the links and are not shipped"
        )


def _backend(subject: Subject) -> Iterator[Setting]:
    backend, origin = subject.variant.backend, subject.origin("backend")
    for candidate, name in _BACKENDS.items():
        if _knows(subject, name) and (candidate is backend or candidate is not Backend.VULKAN):
            yield option(name, "1" if candidate is backend else "0", origin)
    if backend is Backend.CUDA:
        yield from _cuda(subject)
    archs = [target.arch for target in subject.gpus]
    if backend is Backend.ROCM and archs:
        yield environment("PYTORCH_ROCM_ARCH", ";".join(archs), subject.gpus_origin)
    if backend is Backend.XPU and archs:
        yield environment("TORCH_XPU_ARCH_LIST", ",".join(archs), subject.gpus_origin)


def _cuda(subject: Subject) -> Iterator[Setting]:
    yield from cuda_settings(subject)
    yield from toolkit_settings(subject)
    flags = "-Xfatbin -compress-all"
    if (subject.cuda_version or "").startswith("13."):
        flags += " -compress-mode=size"
    yield environment(
        "TORCH_NVCC_FLAGS", flags, _ORIGIN, "as the official wheels: smaller libraries"
    )


def cuda_settings(subject: Subject) -> Iterator[Setting]:
    """Yield the list of targets that torch's CUDA support reads, in PyTorch and in extensions."""
    if subject.gpus:
        archs = (target.torch_word for target in subject.gpus)
        yield environment("TORCH_CUDA_ARCH_LIST", ";".join(archs), subject.gpus_origin)


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


def _build_type(subject: Subject) -> Iterator[Setting]:
    if subject.variant.build_type is not BuildType.RELEASE:
        origin = subject.origin("build_type")
        yield option("CMAKE_BUILD_TYPE", subject.variant.build_type.value, origin)
    if name := _SANITIZERS.get(subject.variant.sanitizer or Sanitizer.UNDEFINED):
        yield option(name, "1", subject.origin("sanitizer"))


def _features(subject: Subject) -> Iterator[Setting]:
    for feature in subject.variant.features:
        name = features()[feature.name].option
        yield option(name, "1" if feature.on else "0", subject.origin(feature.name))


def _platform(subject: Subject) -> Iterator[Setting]:
    row = subject.platform_row
    origin = subject.origin("platform")
    if row.mobile:
        yield option("BUILD_PYTHON", "OFF", _ORIGIN, "a mobile build has no Python")
    for name, value in row.cmake.items():
        yield option(name, value, origin)
    for name, value in row.environment.items():
        yield environment(name, value, origin)
    release = subject.release
    if subject.platform.os == "macos" and release and release.macos:
        why = f"the oldest macOS that PyTorch {release.version} is built for"
        yield environment("MACOSX_DEPLOYMENT_TARGET", release.macos, origin, why)


def _version(subject: Subject) -> Iterator[Setting]:
    if subject.tree and subject.tree.version and not subject.platform_row.mobile:
        public = subject.tree.version.partition("+")[0]
        why = "the version of the wheel names the variant"
        yield environment(
            "PYTORCH_BUILD_VERSION", f"{public}+{label(subject.variant)}", _ORIGIN, why
        )
        yield environment("PYTORCH_BUILD_NUMBER", "1", _ORIGIN, "read together with the version")


def commands(subject: Subject, cmake: tuple[Setting, ...]) -> tuple[Command, ...]:
    if not subject.has_front_end:
        return plain_cmake(subject, cmake)
    if subject.tree is None or subject.tree.front_end is not FrontEnd.SCIKIT_BUILD_CORE:
        return (wheel_command(subject, ()),)
    return (wheel_command(subject, tuple(s for s in cmake if variable(s.name) is None)),)

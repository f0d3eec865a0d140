"""Any CMake project: everything is a -D option, so nothing depends on the environment."""

from collections.abc import Iterator

from stoker.knowledge.projects import blas_libraries, features
from stoker.model.plan import Backend, Command, GpuTarget, Setting
from stoker.model.source import FrontEnd
from stoker.plan.flags import compiler_flags
from stoker.plan.subject import Subject, environment, option

jobs_variable = "CMAKE_BUILD_PARALLEL_LEVEL"


def variable(name: str) -> str | None:  # noqa: ARG001
    """Return None: CMake is called directly, without a front end."""
    return None


def settings(subject: Subject) -> Iterator[Setting]:
    variant = subject.variant
    yield option("CMAKE_BUILD_TYPE", variant.build_type.value, subject.origin("build_type"))
    if variant.backend is Backend.CUDA:
        yield from _cuda(subject)
    if variant.backend is Backend.ROCM and subject.gpus:
        archs = ";".join(target.arch for target in subject.gpus)
        yield option("CMAKE_HIP_ARCHITECTURES", archs, subject.gpus_origin)
    vendor = blas_libraries()[variant.blas].vendor if variant.blas else None
    if vendor:
        yield option("BLA_VENDOR", vendor, subject.origin("blas"))
    for feature in variant.features:
        name = features()[feature.name].option
        yield option(name, "ON" if feature.on else "OFF", subject.origin(feature.name))
    for name, value in subject.platform_row.cmake.items():
        yield option(name, value, subject.origin("platform"))
    for name, value in subject.platform_row.environment.items():
        yield environment(name, value, subject.origin("platform"))
    yield from compiler_flags(subject, sanitizer=variant.sanitizer)


def _cuda(subject: Subject) -> Iterator[Setting]:
    if subject.gpus:
        archs = ";".join(_cmake_arch(target) for target in subject.gpus)
        yield option("CMAKE_CUDA_ARCHITECTURES", archs, subject.gpus_origin)
    if toolkit := subject.toolkit:
        origin = subject.toolkit_origin
        yield option("CMAKE_CUDA_COMPILER", toolkit.nvcc, origin, f"CUDA {toolkit.version}")
        yield option("CUDAToolkit_ROOT", toolkit.home, origin, "for find_package(CUDAToolkit)")


def _cmake_arch(target: GpuTarget) -> str:
    """Return CMake's form of a target: ``90-real`` is machine code, ``90`` also contains PTX."""
    number = target.arch.replace(".", "")
    return number if target.ptx else f"{number}-real"


def commands(subject: Subject, cmake: tuple[Setting, ...]) -> tuple[Command, ...]:
    front_end = subject.tree.front_end if subject.tree else FrontEnd.CMAKE
    if front_end is FrontEnd.CMAKE or not subject.has_front_end:
        return plain_cmake(cmake)
    return (wheel_command(subject, cmake if front_end is FrontEnd.SCIKIT_BUILD_CORE else ()),)


def wheel_command(subject: Subject, options: tuple[Setting, ...]) -> Command:
    """Build a wheel; scikit-build-core takes the CMake options as settings of the back end."""
    python = f"python{subject.variant.python}" if subject.variant.python else "python3"
    words = [python, "-m", "build", "--wheel", "--no-isolation"]
    if subject.tree and subject.tree.front_end is FrontEnd.SCIKIT_BUILD_CORE:
        words.append("-Cbuild-dir=build")
    for setting in options:
        name = "build-type" if setting.name == "CMAKE_BUILD_TYPE" else f"define.{setting.name}"
        words.append(f"-Ccmake.{name}={setting.value}")
    return Command(stage="wheel", words=tuple(words))


def plain_cmake(cmake: tuple[Setting, ...]) -> tuple[Command, ...]:
    """Configure, compile and install without any front end."""
    options = (f"-D{setting.name}={setting.value}" for setting in cmake)
    configure = ("cmake", "-S", ".", "-B", "build", "-G", "Ninja", *options)
    install = ("cmake", "--install", "build", "--prefix", "install")
    return (
        Command(stage="configure", words=configure),
        Command(stage="compile", words=("cmake", "--build", "build")),
        Command(stage="install", words=install),
    )

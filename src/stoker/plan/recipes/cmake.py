"""Any CMake project: everything is a -D option, so nothing depends on the environment."""

from collections.abc import Iterator

from stoker.knowledge.features import blas_libraries, features
from stoker.knowledge.projects import reader_of
from stoker.model.plan import Command
from stoker.model.setting import Setting
from stoker.model.source import FrontEnd
from stoker.model.variant import Backend
from stoker.plan.recipes.project import backend_settings, known_facts, project_settings
from stoker.plan.subject import Subject, compiler_flags, environment, option, platform_options

jobs_variable = "CMAKE_BUILD_PARALLEL_LEVEL"


def variable(name: str) -> str | None:  # noqa: ARG001
    """Return None: CMake is called directly, without a front end."""
    return None


def settings(subject: Subject) -> Iterator[Setting]:
    variant = subject.variant
    yield option("CMAKE_BUILD_TYPE", variant.build_type.value, subject.origin("build_type"))
    yield from _targets(subject)
    yield from project_settings(subject)
    vendor = blas_libraries()[variant.blas].vendor if variant.blas else None
    if vendor:
        yield option("BLA_VENDOR", vendor, subject.origin("blas"))
    for feature in variant.features:
        name = features()[feature.name].option
        yield option(name, "ON" if feature.on else "OFF", subject.origin(feature.name))
    for name, value in platform_options(subject).items():
        yield option(name, value, subject.origin("platform"))
    for name, value in subject.platform_row.environment.items():
        yield environment(name, value, subject.origin("platform"))
    yield from compiler_flags(subject, sanitizer=variant.sanitizer)


def _targets(subject: Subject) -> Iterator[Setting]:
    """Yield the toolkit, and the targets unless the project's recipe writes them otherwise."""
    known, tree, backend = known_facts(subject), subject.tree, subject.variant.backend
    own = known is not None and (known.chooses_targets or not known.compiles)
    if backend is Backend.CUDA and (toolkit := subject.toolkit):
        origin = subject.toolkit_origin
        yield option("CMAKE_CUDA_COMPILER", toolkit.nvcc, origin, f"CUDA {toolkit.version}")
        yield option("CUDAToolkit_ROOT", toolkit.home, origin, "for find_package(CUDAToolkit)")
        yield environment("CUDA_PATH", toolkit.home, origin, "for find_package(CUDA)")
    if own or not subject.gpus:
        return
    if backend is Backend.ROCM:
        archs = ";".join(target.arch for target in subject.gpus)
        yield option("CMAKE_HIP_ARCHITECTURES", archs, subject.gpus_origin)
    if backend is Backend.CUDA:
        archs = ";".join(target.cmake_word for target in subject.gpus)
        yield option("CMAKE_CUDA_ARCHITECTURES", archs, subject.gpus_origin)
        if tree is None or subject.backend_recipe:
            return
        # As torch's CMake package reads them, if the tree uses it.
        name, archs = "TORCH_CUDA_ARCH_LIST", ";".join(target.torch_word for target in subject.gpus)
        if reader_of(name, tree.readers, environment=True) or tree.ask(name, environment=True):
            yield environment(name, archs, subject.gpus_origin)
        elif tree.ask(name, environment=False):
            yield option(name, archs, subject.gpus_origin)


def commands(subject: Subject, cmake: tuple[Setting, ...]) -> tuple[Command, ...]:
    front_end = subject.tree.front_end if subject.tree else FrontEnd.CMAKE
    if front_end is FrontEnd.CMAKE or not subject.has_front_end:
        return plain_cmake(subject, cmake)
    return (wheel_command(subject, cmake if front_end is FrontEnd.SCIKIT_BUILD_CORE else ()),)


def wheel_command(subject: Subject, options: tuple[Setting, ...]) -> Command:
    """Build a wheel with pip, which nearly every environment has, unlike the package ``build``.
    scikit-build-core takes the CMake options as settings of the back end.
    """
    words = [subject.python, "-m", "pip", "wheel", ".", "--no-deps", "--no-build-isolation"]
    if subject.tree and subject.tree.front_end is FrontEnd.SCIKIT_BUILD_CORE:
        words.append("-Cbuild-dir=build")
    for setting in options:
        name = "build-type" if setting.name == "CMAKE_BUILD_TYPE" else f"define.{setting.name}"
        words.append(f"-Ccmake.{name}={setting.value}")
    words += (f"-C{name}={value}" for name, value in backend_settings(subject).items())
    return Command(stage="wheel", words=tuple(words))


def plain_cmake(subject: Subject, cmake: tuple[Setting, ...]) -> tuple[Command, ...]:
    """Configure, compile and install without any front end."""
    options = [f"-D{setting.name}={setting.value}" for setting in cmake]
    folder = (subject.tree.folder if subject.tree else "") or "."
    cmake_word, ninja = subject.program("cmake"), subject.program("ninja")
    if ninja != "ninja" and "CMAKE_MAKE_PROGRAM" not in {setting.name for setting in cmake}:
        options.append(f"-DCMAKE_MAKE_PROGRAM={ninja}")
    configure = (cmake_word, "-S", folder, "-B", "build", "-G", "Ninja", *options)
    install = (cmake_word, "--install", "build", "--prefix", "install")
    return (
        Command(stage="configure", words=configure),
        Command(stage="compile", words=(cmake_word, "--build", "build")),
        Command(stage="install", words=install),
    )

"""The options of a CMake project: all by -D."""

import shlex

import pytest

from stoker.model.setting import OriginKind
from stoker.model.source import FrontEnd
from subjects import cmake_of, cmake_tree, environment_of, gpu, linux, plan, toolbox, toolkit


@pytest.mark.parametrize(
    ("words", "archs"),
    [
        ("cu130-sm90", "90-real"),
        ("cu130-sm90+ptx", "90"),
        ("cu130-sm80+sm90a+sm120+ptx", "80-real;90a-real;120"),
        ("cu130-sm100f", "100f-real"),
        ("cu128-sm70+sm101", "70-real;101-real"),
    ],
)
def test_architectures_as_cmake_writes_them(words: str, archs: str) -> None:
    assert cmake_of(plan(words, tree=cmake_tree()))["CMAKE_CUDA_ARCHITECTURES"] == archs


def test_architectures_of_this_machine() -> None:
    planned = plan("cu130", tree=cmake_tree(), machine=linux(gpus=(gpu("12.0"), gpu("8.9"))))
    (setting,) = (s for s in planned.cmake if s.name == "CMAKE_CUDA_ARCHITECTURES")
    assert setting.value == "89-real;120-real"
    assert setting.origin.kind is OriginKind.MACHINE


def test_the_toolkit_that_fits_is_named() -> None:
    box = toolbox(cuda=(toolkit("13.0"), toolkit("12.4")))
    cmake = cmake_of(plan("cu124-sm90", tree=cmake_tree(), toolbox=box))
    assert cmake["CMAKE_CUDA_COMPILER"] == "/usr/local/cuda-12.4/bin/nvcc"
    assert cmake["CUDAToolkit_ROOT"] == "/usr/local/cuda-12.4"
    assert "CMAKE_CUDA_COMPILER" not in cmake_of(plan("cu126-sm90", tree=cmake_tree(), toolbox=box))


def test_a_cpu_build_has_no_cuda_options() -> None:
    planned = plan("cpu", tree=cmake_tree())
    assert cmake_of(planned) == {"CMAKE_BUILD_TYPE": "Release"}
    assert [setting.origin.kind for setting in planned.cmake] == [OriginKind.DEFAULT]


@pytest.mark.parametrize(
    ("words", "name", "value"),
    [
        ("cpu-debug", "CMAKE_BUILD_TYPE", "Debug"),
        ("rocm-gfx942+gfx90a", "CMAKE_HIP_ARCHITECTURES", "gfx90a;gfx942"),
        ("cpu-openblas", "BLA_VENDOR", "OpenBLAS"),
        ("cpu-mkl", "BLA_VENDOR", "Intel10_64lp"),
        ("cpu-eigen", "BLA_VENDOR", None),
        ("cpu-nolto", "CMAKE_INTERPROCEDURAL_OPTIMIZATION", "OFF"),
        ("cpu-macos_universal", "CMAKE_OSX_ARCHITECTURES", "arm64;x86_64"),
        ("android", "CMAKE_ANDROID_ARCH_ABI", "arm64-v8a"),
        ("ios-simulator", "CMAKE_OSX_SYSROOT", "iphonesimulator"),
    ],
)
def test_parts_as_options(words: str, name: str, value: str | None) -> None:
    assert plan(words, tree=cmake_tree()).value(name) == value


def test_names_of_pytorch_are_not_set() -> None:
    planned = plan("cpu-openblas-macos_arm64-debug", tree=cmake_tree())
    names = {*environment_of(planned), *cmake_of(planned)}
    assert not names & {"USE_CUDA", "BLAS", "BUILD_TEST", "BUILD_PYTHON", "TORCH_CUDA_ARCH_LIST"}


def test_every_option_stands_in_the_configure_command() -> None:
    planned = plan("cu130-sm90+ptx", tree=cmake_tree(), defines={"DEMO_FAST": "a b;c"})
    configure, compile_, install = planned.commands
    assert {f"-D{name}={value}" for name, value in cmake_of(planned).items()} <= set(
        configure.words
    )
    assert "-DDEMO_FAST=a b;c" in configure.words
    assert configure.words[:7] == ("cmake", "-S", ".", "-B", "build", "-G", "Ninja")
    assert compile_.words == ("cmake", "--build", "build")
    assert install.words[:3] == ("cmake", "--install", "build")


def test_jobs_by_cmakes_own_variable() -> None:
    environment = environment_of(plan("cpu", tree=cmake_tree()))
    assert environment["CMAKE_BUILD_PARALLEL_LEVEL"] == "8"
    assert "MAX_JOBS" not in environment


def test_a_wheel_by_scikit_build_core_takes_the_options_as_settings() -> None:
    tree = cmake_tree(front_end=FrontEnd.SCIKIT_BUILD_CORE)
    (command,) = plan("cu130-sm90-debug", tree=tree, defines={"DEMO_FAST": "OFF"}).commands
    assert command.stage == "wheel"
    assert command.words[:5] == ("python3", "-m", "pip", "wheel", ".")
    assert {
        "-Cbuild-dir=build",
        "-Ccmake.build-type=Debug",
        "-Ccmake.define.DEMO_FAST=OFF",
        "-Ccmake.define.CMAKE_CUDA_ARCHITECTURES=90-real",
    } <= set(command.words)


def test_a_wheel_by_another_back_end_is_left_to_it() -> None:
    (command,) = plan("cpu", tree=cmake_tree(front_end=FrontEnd.OTHER_BACKEND)).commands
    assert shlex.join(command.words) == "python3 -m pip wheel . --no-deps --no-build-isolation"


def test_a_tree_that_uses_torchs_package_is_told_its_list() -> None:
    tree = cmake_tree(readers=("CMake", "torch's CMake package"))
    planned = plan("cu130-sm80+sm90+ptx", tree=tree)
    assert environment_of(planned)["TORCH_CUDA_ARCH_LIST"] == "8.0;9.0+PTX"
    assert cmake_of(planned)["CMAKE_CUDA_ARCHITECTURES"] == "80-real;90"
    assert "TORCH_CUDA_ARCH_LIST" not in environment_of(plan("cu130-sm90", tree=cmake_tree()))

"""The options of PyTorch, through both of its front ends."""

import pytest
from packaging.version import Version

from stoker.model.machine import Machine
from stoker.model.setting import OriginKind
from stoker.model.source import FrontEnd, SourceTree
from subjects import (
    arm_linux,
    cmake_of,
    cmake_option,
    environment_of,
    gpu,
    linux,
    mac,
    plan,
    pytorch_tree,
    toolbox,
    toolkit,
)

OLD = pytorch_tree()
NEW = pytorch_tree(
    version="2.14.0",
    front_end=FrontEnd.SCIKIT_BUILD_CORE,
    cuda_archs=("7.5", "8.0", "9.0", "9.0a", "10.0", "12.0"),
)
BOTH = [OLD, NEW]


@pytest.mark.parametrize("tree", BOTH)
@pytest.mark.parametrize(
    ("words", "name", "on"),
    [
        ("cpu", None, ()),
        ("cu130-sm90", "USE_CUDA", ("9.0",)),
        ("rocm6.4-gfx942", "USE_ROCM", ()),
        ("xpu-pvc", "USE_XPU", ()),
        ("mps", "USE_MPS", ()),
        ("vulkan", "USE_VULKAN", ()),
    ],
)
def test_one_back_end_is_on_and_the_others_are_off(
    words: str, name: str | None, on: tuple[str, ...], tree: SourceTree
) -> None:
    environment = environment_of(plan(words, tree=tree))
    switches = ["USE_CUDA", "USE_ROCM", "USE_XPU", "USE_MPS", "USE_VULKAN"]
    assert [s for s in switches if environment.get(s) == "1"] == ([name] if name else [])
    assert {"USE_CUDA", "USE_ROCM", "USE_XPU", "USE_MPS"} <= set(environment)
    assert ("TORCH_CUDA_ARCH_LIST" in environment) == bool(on)


def test_only_options_of_the_tree_are_set() -> None:
    tree = pytorch_tree(options=(cmake_option("USE_CUDA"),))
    planned = plan("cu124-sm90", tree=tree)
    assert set(cmake_of(planned)) == {"USE_CUDA"}


@pytest.mark.parametrize(
    ("words", "archs"),
    [
        ("cu130-sm90", "9.0"),
        ("cu130-sm120+ptx+sm80", "8.0;12.0+PTX"),
        ("cu130-sm90a+sm90", "9.0;9.0a"),
        ("cu130-hopper", "9.0+PTX"),
        ("cu130-sm80+ptx+sm100", "8.0+PTX;10.0"),
    ],
)
def test_the_arch_list(words: str, archs: str) -> None:
    assert environment_of(plan(words, tree=NEW))["TORCH_CUDA_ARCH_LIST"] == archs


def test_targets_of_other_back_ends() -> None:
    assert environment_of(plan("gfx942+gfx90a", tree=OLD))["PYTORCH_ROCM_ARCH"] == "gfx90a;gfx942"
    assert environment_of(plan("atsm150+pvc", tree=OLD))["TORCH_XPU_ARCH_LIST"] == "pvc,ats-m150"


def test_targets_of_the_gpus_here_say_so() -> None:
    planned = plan("cu124", tree=OLD, machine=linux(gpus=(gpu("9.0"), gpu("8.0"))))
    (setting,) = (s for s in planned.environment if s.name == "TORCH_CUDA_ARCH_LIST")
    assert setting.value == "8.0;9.0"
    assert setting.origin.kind is OriginKind.MACHINE


def test_the_toolkit_that_fits_is_named() -> None:
    box = toolbox(cuda=(toolkit("13.0"), toolkit("12.4")))
    environment = environment_of(plan("cu124-sm90", tree=OLD, toolbox=box))
    assert environment["CUDA_HOME"] == "/usr/local/cuda-12.4"
    assert environment["CUDACXX"] == "/usr/local/cuda-12.4/bin/nvcc"
    missing = environment_of(plan("cu126-sm90", tree=OLD, toolbox=box))
    assert not {"CUDA_HOME", "CUDACXX"} & set(missing)


@pytest.mark.parametrize(("words", "smaller"), [("cu130-sm90", True), ("cu128-sm90", False)])
def test_device_code_is_compressed_as_in_official_wheels(words: str, smaller: bool) -> None:
    flags = environment_of(plan(words, tree=NEW))["TORCH_NVCC_FLAGS"]
    assert "-Xfatbin -compress-all" in flags
    assert ("-compress-mode=size" in flags) == smaller


@pytest.mark.parametrize(
    ("words", "machine", "blas"),
    [
        ("cpu", linux(), None),
        ("cpu-mkl", linux(), "MKL"),
        ("cpu-openblas", linux(), "OpenBLAS"),
        ("cpu", arm_linux(), "OpenBLAS"),
        ("cpu-nvpl", arm_linux(), "NVPL"),
        ("cpu", mac(), None),
        ("cpu-accelerate", mac(), "vecLib"),
        ("cpu-linux_ppc64le", linux(), "OpenBLAS"),
        ("android", linux(), "Eigen"),
        ("ios", mac(), "Eigen"),
    ],
)
def test_blas(words: str, machine: Machine, blas: str | None) -> None:
    assert plan(words, machine=machine, tree=OLD).value("BLAS") == blas


@pytest.mark.parametrize("platform", ["android-arm64", "android-x86_64", "ios-arm64"])
def test_phones_have_no_python(platform: str) -> None:
    planned = plan("cpu", parts={"platform": platform}, tree=OLD)
    cmake = cmake_of(planned)
    assert (cmake["BUILD_PYTHON"], cmake["BLAS"]) == ("OFF", "Eigen")
    assert cmake["CMAKE_SYSTEM_NAME"] in ("Android", "iOS")
    assert [command.stage for command in planned.commands] == ["configure", "compile", "install"]
    assert {f"-D{name}={value}" for name, value in cmake.items()} <= set(planned.commands[0].words)
    assert not {"PYTORCH_BUILD_VERSION", "MAX_JOBS"} & set(environment_of(planned))


@pytest.mark.parametrize(
    ("platform", "archs"),
    [("macos-arm64", "arm64"), ("macos-x86_64", "x86_64"), ("macos-universal", "arm64;x86_64")],
)
def test_macs(platform: str, archs: str) -> None:
    planned = plan("cpu", parts={"platform": platform}, tree=OLD)
    assert cmake_of(planned)["CMAKE_OSX_ARCHITECTURES"] == archs
    assert "MACOSX_DEPLOYMENT_TARGET" in environment_of(planned)


def test_features_are_options() -> None:
    environment = environment_of(plan("cu124-sm90-nonccl-tests-nokineto", tree=OLD))
    assert environment["USE_NCCL"] == environment["USE_KINETO"] == "0"
    assert environment["BUILD_TEST"] == "1"


def test_every_option_reaches_the_front_end_by_the_environment() -> None:
    for tree in BOTH:
        planned = plan("cu128-sm90-openblas-debug-asan-nonccl", tree=tree)
        environment = environment_of(planned)
        assert {name: environment.get(name) for name in cmake_of(planned)} == cmake_of(planned)


@pytest.mark.parametrize("version", ["2.6.0", "2.6.0a0", "2.6.0a0+git12ab", "2.6.0rc1"])
@pytest.mark.parametrize("words", ["cpu", "cu124-sm80+sm90+ptx-x86_64_v3-nonccl", "cpu-armv8.2"])
def test_the_version_says_the_variant(version: str, words: str) -> None:
    environment = environment_of(plan(words, tree=pytorch_tree(version=version)))
    built = Version(environment["PYTORCH_BUILD_VERSION"])
    assert str(built) == environment["PYTORCH_BUILD_VERSION"]
    assert built.public == Version(version).public
    assert environment["PYTORCH_BUILD_NUMBER"] == "1"


def test_no_version_is_invented() -> None:
    assert "PYTORCH_BUILD_VERSION" not in environment_of(plan("cpu"))
    unversioned = plan("cpu", tree=pytorch_tree(version=None))
    assert "PYTORCH_BUILD_VERSION" not in environment_of(unversioned)


@pytest.mark.parametrize("tree", BOTH)
def test_both_front_ends_make_a_wheel_by_the_same_command(tree: SourceTree) -> None:
    (command,) = plan("cpu-py312", tree=tree).commands
    assert command.stage == "wheel"
    assert command.words[:5] == ("python3.12", "-m", "pip", "wheel", ".")
    assert plan("cpu", tree=tree).commands[0].words[0] == "python3"


def test_without_bindings_it_is_plain_cmake() -> None:
    planned = plan("cpu-nobindings", tree=OLD)
    assert planned.commands[0].words[:3] == ("cmake", "-S", ".")
    assert planned.value("BUILD_PYTHON") == "0"

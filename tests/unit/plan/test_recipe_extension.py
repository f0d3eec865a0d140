"""The options of an extension: all by the environment."""

import pytest

from stoker.model.setting import OriginKind
from subjects import cmake_of, environment_of, extension_tree, gpu, linux, plan, toolbox, toolkit


def test_cuda_kernels_are_built_though_no_gpu_is_visible() -> None:
    environment = environment_of(plan("cu130-sm80+sm90+ptx", tree=extension_tree("my_kernels")))
    assert environment["FORCE_CUDA"] == "1"
    assert environment["TORCH_CUDA_ARCH_LIST"] == "8.0;9.0+PTX"
    assert environment["CUDA_HOME"] == "/usr/local/cuda-13.0"
    assert environment["CUDACXX"] == "/usr/local/cuda-13.0/bin/nvcc"
    assert environment["CUDA_PATH"] == "/usr/local/cuda-13.0", (
        "torch's CMake package reads no other"
    )
    assert "USE_CUDA" not in environment


@pytest.mark.parametrize("name", ["flash_attn", "flash-attn"])
def test_flash_attention_wants_variables_of_its_own(name: str) -> None:
    planned = plan("cu130-sm80+sm90a", tree=extension_tree(name))
    environment = environment_of(planned)
    assert environment["FLASH_ATTENTION_FORCE_BUILD"] == "TRUE"
    assert environment["FLASH_ATTN_CUDA_ARCHS"] == "80;90"
    origins = {setting.name: setting.origin.kind for setting in planned.environment}
    assert origins["FLASH_ATTENTION_FORCE_BUILD"] is OriginKind.RECIPE


def test_flash_attention_takes_the_gpus_of_this_machine() -> None:
    machine = linux(gpus=(gpu("12.0"), gpu("9.0")))
    environment = environment_of(plan("cu130", tree=extension_tree(), machine=machine))
    assert environment["FLASH_ATTN_CUDA_ARCHS"] == "90;120"


def test_no_empty_list_is_set() -> None:
    environment = environment_of(plan("cu130", tree=extension_tree()))
    assert "FLASH_ATTN_CUDA_ARCHS" not in environment
    assert "TORCH_CUDA_ARCH_LIST" not in environment


def test_a_project_without_wishes_gets_none() -> None:
    environment = environment_of(plan("cu130-sm90", tree=extension_tree("my_kernels")))
    assert not [name for name in environment if "FLASH" in name or "BUILD" in name]


def test_cpu_only_hides_the_gpus() -> None:
    environment = environment_of(plan("cpu", tree=extension_tree("my_kernels")))
    assert "FORCE_CUDA" not in environment  # to bool(), "0" is true
    assert environment["CUDA_VISIBLE_DEVICES"] == ""
    assert "CUDA_HOME" not in environment


def test_rocm() -> None:
    environment = environment_of(plan("rocm6.4-gfx942", tree=extension_tree("my_kernels")))
    assert environment["PYTORCH_ROCM_ARCH"] == "gfx942"
    assert environment["FORCE_CUDA"] == "1"  # torch's extensions read it for HIP as well


def test_a_debug_build() -> None:
    assert environment_of(plan("cpu-debug", tree=extension_tree()))["DEBUG"] == "1"
    assert "DEBUG" not in environment_of(plan("cpu", tree=extension_tree()))


def test_the_users_variables_win() -> None:
    defines = {"FLASH_ATTN_CUDA_ARCHS": "90", "FORCE_CUDA": "0"}
    environment = environment_of(plan("cu130-sm80", tree=extension_tree(), defines=defines))
    assert environment["FLASH_ATTN_CUDA_ARCHS"] == "90"
    assert environment["FORCE_CUDA"] == "0"


def test_there_is_no_cmake_and_the_wheel_sees_the_installed_torch() -> None:
    planned = plan("cu130-sm90-py312-openblas", tree=extension_tree())
    assert cmake_of(planned) == {}
    (command,) = planned.commands
    assert command.words[0] == "python3.12"
    assert "--no-build-isolation" in command.words


def test_a_toolkit_that_is_not_here_is_not_named() -> None:
    box = toolbox(cuda=(toolkit("12.4"),))
    environment = environment_of(plan("cu130-sm90", tree=extension_tree(), toolbox=box))
    assert "CUDA_HOME" not in environment

"""A plan states of a recipe what the planned tree still shows, and nothing else."""

from pathlib import Path

import pytest

from stoker.model.errors import UsageError
from stoker.model.plan import Plan
from stoker.source.tree import read_tree
from subjects import (
    arm_linux,
    changed,
    doctor,
    environment_of,
    names,
    plan,
    targets_of,
    toolbox,
    tools,
)

OLD = """
from torch.utils.cpp_extension import BuildExtension, CUDAExtension
FORCE = os.getenv("FLASH_ATTENTION_FORCE_BUILD", "FALSE") == "TRUE"
def cuda_archs():
    return os.getenv("FLASH_ATTN_CUDA_ARCHS", "80;90;100;120").split(";")
if "90" in cuda_archs():
    flags += ["-gencode", "arch=compute_90,code=sm_90"]
setup(name="flash_attn", version="2.8.3", ext_modules=[CUDAExtension("x", ["x.cu"])])
"""
NEW = OLD.replace("80;90;100;120", "80;90;100;110;120").replace(
    "setup(", 'flags += ["-gencode", f"arch=compute_{newest},code=compute_{newest}"]\nsetup('
)


def planned(folder: Path, words: str, setup: str) -> Plan:
    (folder / "setup.py").write_text(setup)
    return plan(words, tree=read_tree(folder))


def test_facts_of_the_head_are_not_stated_about_a_release(tmp_path: Path) -> None:
    old, new = planned(tmp_path, "cu130-sm90", OLD), planned(tmp_path, "cu130-sm90", NEW)
    assert (targets_of(old).cubins, targets_of(old).ptx) == (("9.0",), ())
    assert (targets_of(new).cubins, targets_of(new).ptx) == (("9.0",), ("9.0",))
    assert old.recipe == new.recipe
    evidence = str(new.statements[0].evidence)
    assert "still in this tree: FLASH_ATTN_CUDA_ARCHS read by setup.py:5, setup.py:8" in evidence


def test_a_target_that_the_tree_does_not_name_is_not_promised(tmp_path: Path) -> None:
    assert environment_of(planned(tmp_path, "cu130-sm110", NEW))["FLASH_ATTN_CUDA_ARCHS"] == "110"
    with pytest.raises(UsageError, match=r"no code for 11\.0") as refused:
        planned(tmp_path, "cu130-sm110", OLD)
    assert "it has code for: 8.0, 9.0, 10.0, 12.0" in refused.value.hints


SPCONV = """
from cumm.common import TensorView
setup(name="spconv", version="2.3.8", ext_modules=[])
"""


def test_targets_of_another_package_hold_for_a_tree_that_uses_it(tmp_path: Path) -> None:
    """The tree names no target, so the list of cumm was dropped, and any GPU was accepted."""
    (tmp_path / "spconv").mkdir()
    (tmp_path / "spconv/core.py").write_text("")
    (tmp_path / "kernel.cu").write_text("")
    with pytest.raises(UsageError, match=r"no code for 10\.0"):
        planned(tmp_path, "cu130-sm100", SPCONV)
    assert planned(tmp_path, "cu130-sm90", SPCONV).targets


SGL_PROJECT = """
[build-system]
requires = ["scikit-build-core", "torch"]
build-backend = "scikit_build_core.build"
[project]
name = "sgl-kernel"
version = "1"
"""


def flags_for(*archs: str) -> str:
    flags = " ".join(f'"-gencode=arch=compute_{arch},code=sm_{arch}"' for arch in archs)
    return f"project(sgl_kernel LANGUAGES CXX CUDA)\nset(FLAGS {flags})\nadd_library(x x.cu)\n"


def test_a_list_with_a_target_that_is_gone_is_not_stated_in_part(tmp_path: Path) -> None:
    """The head has 10.0f where a release has 10.0a and 10.3a: the rest of the list was stated, and
    GPUs that the release has code for were refused.
    """
    (tmp_path / "pyproject.toml").write_text(SGL_PROJECT)
    (tmp_path / "x.cu").write_text("")
    old, new = ("90", "90a", "100a", "103a", "120a"), ("90", "90a", "100f", "120a")
    (tmp_path / "CMakeLists.txt").write_text(flags_for(*old))
    for words in ("cu130-sm90", "cu130-sm100"):
        targets = plan(words, tree=read_tree(tmp_path)).targets
        assert targets
        assert (targets.cubins, targets.compiles) == ((), True)
    (tmp_path / "CMakeLists.txt").write_text(flags_for(*new))
    targets = plan("cu130-sm90", tree=read_tree(tmp_path)).targets
    assert targets
    assert set(targets.cubins) == {"9.0", "9.0a", "10.0f", "12.0a"}


VLLM = """
from torch.utils.cpp_extension import CUDA_HOME
subprocess.run(["cmake", "."])
device = os.getenv("VLLM_TARGET_DEVICE")
setup(name="vllm", version="0.11.0", ext_modules=[Extension("x", [])])
"""
LIST = (
    'project(vllm CXX)\nset(CUDA_SUPPORTED_ARCHS "{}")\nfind_package(Torch)\nadd_library(x x.cu)\n'
)


def vllm(folder: Path, words: str, archs: str, setup: str = VLLM) -> Plan:
    (folder / "CMakeLists.txt").write_text(LIST.format(archs))
    return planned(folder, words, setup)


def test_targets_are_read_where_the_recipe_says(tmp_path: Path) -> None:
    made = vllm(tmp_path, "cu128-sm70", "7.0;7.5;8.0;12.0")
    assert targets_of(made).cubins == ("7.0",)
    with pytest.raises(UsageError, match=r"no code for 7\.0"):
        vllm(tmp_path, "cu128-sm70", "7.5;8.0;12.0")


def test_a_gpu_that_is_not_listed_gets_the_next_lower_target(tmp_path: Path) -> None:
    made = vllm(tmp_path, "cu129-sm121", "7.0;7.5;8.0;12.0")
    assert environment_of(made)["TORCH_CUDA_ARCH_LIST"] == "12.0"
    made = vllm(tmp_path, "cu129-sm121", "8.0;12.0;12.1")
    assert environment_of(made)["TORCH_CUDA_ARCH_LIST"] == "12.1"
    made = vllm(tmp_path, "cu130-sm121", "8.0;12.0;12.1")
    assert environment_of(made)["TORCH_CUDA_ARCH_LIST"] == "12.0"


def test_a_tool_is_needed_only_by_a_tree_that_uses_it(tmp_path: Path) -> None:
    def needs(setup: str) -> set[str]:
        vllm(tmp_path, "cu130-sm90", "8.0;9.0", setup)
        bare = toolbox(tools=tools(cargo=None))
        return names(doctor("cu130-sm90", tree=read_tree(tmp_path), toolbox=bare))

    assert "cargo-missing" not in needs(VLLM)
    assert "cargo-missing" in needs(f"import setuptools_rust{VLLM}")


SGL = """cmake_minimum_required(VERSION 3.26)
project(sgl-kernel CXX CUDA)
option(ENABLE_BELOW_SM90 "x" ON)
set(FLAGS "-gencode=arch=compute_90,code=sm_90" "-gencode=arch=compute_90a,code=sm_90a")
set(FLAGS "-gencode=arch=compute_100f,code=sm_100f" "-gencode=arch=compute_120a,code=sm_120a")
set(FLAGS "-gencode=arch=compute_110a,code=sm_110a" "-gencode=arch=compute_121a,code=sm_121a")
set(FLAGS "-gencode=arch=compute_80,code=sm_80" "-gencode=arch=compute_89,code=sm_89")
set(FLAGS "-gencode=arch=compute_86,code=sm_86" "-gencode=arch=compute_87,code=sm_87")
"""


def test_targets_that_depend_on_the_cpu_of_the_build_machine(tmp_path: Path) -> None:
    (tmp_path / "CMakeLists.txt").write_text(SGL)
    (tmp_path / "pyproject.toml").write_text(SGL_PROJECT)
    tree = read_tree(tmp_path)
    x86, arm = plan("cu130-sm80", tree=tree), plan("cu130-sm80", tree=tree, machine=arm_linux())
    assert set(targets_of(x86).cubins) == {"9.0", "9.0a", "12.0a", "10.0f", "8.0", "8.9"}
    assert targets_of(x86).accepted == ("8.6",)
    assert set(targets_of(arm).cubins) == {
        *("9.0", "12.0a", "10.0f", "11.0a", "12.1a", "8.0", "8.9", "8.7"),
    }
    assert targets_of(arm).accepted == ()


def test_a_recipe_of_the_user_is_kept_whole(tmp_path: Path) -> None:
    from stoker.knowledge.projects import projects
    from subjects import plan_of, subject

    (tmp_path / "setup.py").write_text(OLD)
    own = (changed(projects()["flash-attn"], facts_from=""),)
    about = changed(subject("cu130-sm90", tree=read_tree(tmp_path, own)), own_recipes=own)
    made = plan_of(about)
    assert targets_of(made).ptx == ("9.0",)


KERNELS = """
project(vllm_extensions LANGUAGES CXX)
set(CUDA_SUPPORTED_ARCHS "7.5;8.0;8.6;8.7;8.9;9.0;10.0;12.0")
find_package(Torch REQUIRED)
enable_language(CUDA)
intersection(MARLIN "8.0;8.7;9.0+PTX" "${CUDA_ARCHS}")
intersection(ALLSPARK "8.0;8.6;8.7;8.9" "${CUDA_ARCHS}")
intersection(CUTLASS_2
    "7.5;8.0;8.7;8.9+PTX" "${CUDA_ARCHS}")
intersection(MACHETE "9.0a" "${CUDA_ARCHS}")
if(CUDA_VERSION VERSION_GREATER_EQUAL 13.0)
  intersection(FP4 "10.0f;11.0f" "${CUDA_ARCHS}")
else()
  intersection(FP4 "10.0a;10.3a" "${CUDA_ARCHS}")
endif()
"""


@pytest.mark.parametrize(
    ("words", "single"),
    [
        ("cu130-sm90", ("9.0+PTX", "8.9", "8.9+PTX", "9.0a")),
        ("cu130-sm89", ("8.7", "8.9+PTX")),
        ("cu130-sm75", ()),
        ("cu130-sm100", ("9.0", "9.0+PTX", "8.9", "8.9+PTX", "10.0f")),
        ("cu128-sm100", ("9.0", "9.0+PTX", "8.9", "8.9+PTX", "10.0a")),
        ("cu130-sm80-sm86", ()),
    ],
)
def test_targets_of_single_kernels_follow_from_their_lists(
    tmp_path: Path, words: str, single: tuple[str, ...]
) -> None:
    """All that any kernel may have was stated for every GPU."""
    (tmp_path / "CMakeLists.txt").write_text(KERNELS)
    (tmp_path / "kernel.cu").write_text("")
    text = "import torch\nVLLM_TARGET_DEVICE = os.getenv('VLLM_TARGET_DEVICE')\n"
    text += "setup(name='vllm', ext_modules=[CMakeExtension('vllm._C')])\n"
    made = planned(tmp_path, words, text)
    assert made.recipe == "extension"
    assert targets_of(made).accepted == single


def test_a_switch_names_the_targets_that_it_adds_on_this_cpu(tmp_path: Path) -> None:
    """Of several facts about one switch, the last one was told, whatever CPU it is for."""
    (tmp_path / "CMakeLists.txt").write_text(SGL)
    (tmp_path / "pyproject.toml").write_text(SGL_PROJECT)
    reasons = {}
    for cpu in ("aarch64", "x86_64"):
        made = plan(f"cu128-sm90-linux_{cpu}", tree=read_tree(tmp_path))
        (switch,) = [s for s in made.cmake if s.name == "ENABLE_BELOW_SM90"]
        reasons[cpu] = switch.why
    assert reasons == {
        "aarch64": "no GPU asked for needs the kernels for 8.0, 8.9, 8.7",
        "x86_64": "no GPU asked for needs the kernels for 8.0, 8.9, 8.6",
    }

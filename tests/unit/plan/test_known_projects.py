"""Plans of projects whose settings were wrong once, each on a miniature of its build files.

A miniature reads the same variables as the project, at places of its own.
"""

from pathlib import Path

import pytest

from stoker.knowledge.projects import projects
from stoker.model.errors import UsageError
from stoker.model.finding import Severity
from stoker.model.plan import Plan
from stoker.model.recipe import ProjectRecipe
from stoker.model.source import ProjectKind, SourceTree
from stoker.source.tree import read_tree
from subjects import (
    cmake_of,
    doctor,
    environment_of,
    extension_tree,
    linux,
    mac,
    named,
    names,
    plan,
    python,
    pytorch_tree,
    targets_of,
    tool,
    toolbox,
    tools,
)

EXTENSION = """
from setuptools import setup
from torch.utils.cpp_extension import BuildExtension, CUDAExtension
setup(name={name!r}, version="1.0", ext_modules=[CUDAExtension("m", ["k.cu"])],
      cmdclass={{"build_ext": BuildExtension}})
"""


def made(folder: Path, **files: str) -> SourceTree:
    """Return the tree of these files; ``__`` in a name is a dot, ``___`` a slash."""
    for name, text in files.items():
        path = folder / name.replace("___", "/").replace("__", ".")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return read_tree(folder)


def extension(folder: Path, name: str, reads: str = "", **files: str) -> SourceTree:
    """Return an extension whose setup.py reads variables in its first lines."""
    text = f"import os\n{reads}\n" + EXTENSION.format(name=name)
    return made(folder, setup__py=text, k__cu="", **files)


def build_system(*requires: str, backend: str) -> str:
    listed = ", ".join(f'"{line}"' for line in requires)
    return f'[build-system]\nrequires = [{listed}]\nbuild-backend = "{backend}"\n'


def read_by(planned: Plan, name: str) -> str:
    settings = (*planned.environment, *planned.cmake)
    return next(setting.reader for setting in settings if setting.name == name)


def torch_tree(folder: Path, **files: str) -> SourceTree:
    return made(
        folder,
        CMakeLists__txt="cmake_minimum_required(VERSION 3.27)\nproject(Torch)\n"
        "include(cmake/Flash.cmake)\ninclude(cmake/public/cuda.cmake)\n",
        version__txt="2.15.0a0\n",
        setup__py="",
        torch___utils___cpp_extension__py="",
        **files,
    )


def test_rocm_of_pytorch_translates_its_sources_first(tmp_path: Path) -> None:
    planned = plan("rocm6.4-gfx942", tree=torch_tree(tmp_path))
    assert planned.commands[0].stage == "prepare"
    assert planned.commands[0].words[1:] == ("tools/amd_build/build_amd.py",)
    assert planned.commands[-1].stage == "wheel"


def test_pytorch_says_itself_which_cuda_is_too_old(tmp_path: Path) -> None:
    check = (
        "if(CUDA_VERSION VERSION_LESS 12.6)\n"
        '  message(FATAL_ERROR "CUDA 12.6 or newer is needed")\nendif()\n'
    )
    tree = torch_tree(tmp_path, cmake___public___cuda__cmake=check)
    with pytest.raises(UsageError, match=r"needs CUDA 12\.6 or newer, not 12\.4") as caught:
        plan("cu124-sm90", tree=tree)
    assert "cmake/public/cuda.cmake:1" in str(caught.value.where)


def test_wheels_of_pytorch_for_macos_start_at_14() -> None:
    new = plan("mps", tree=pytorch_tree(version="2.15.0"), machine=mac())
    old = plan("mps", tree=pytorch_tree(version="2.6.0"), machine=mac())
    assert environment_of(new)["MACOSX_DEPLOYMENT_TARGET"] == "14.0"
    assert environment_of(old)["MACOSX_DEPLOYMENT_TARGET"] == "11.0"


def test_a_number_of_jobs_that_cmake_reads_from_the_environment(tmp_path: Path) -> None:
    reads = 'set(jobs "$ENV{FLASH_ATTENTION_MAX_JOBS}")\n'
    tree = torch_tree(tmp_path, cmake___Flash__cmake=reads)
    ask = tree.ask("FLASH_ATTENTION_MAX_JOBS", environment=True)
    assert ask
    assert ask.where == "cmake/Flash.cmake:1"
    planned = plan("cu130-sm90", tree=tree, defines={"FLASH_ATTENTION_MAX_JOBS": "4"})
    assert environment_of(planned)["FLASH_ATTENTION_MAX_JOBS"] == "4"


def test_a_python_with_a_lock_does_not_serve_3_14t() -> None:
    locked = toolbox(python=python(version="3.14.0"))
    free = toolbox(python=python(version="3.14.0", free_threaded=True))
    tree = pytorch_tree(version="2.15.0")
    assert "python-missing" in names(doctor("cpu-py314t", tree=tree, toolbox=locked))
    assert "python-missing" not in names(doctor("cpu-py314t", tree=tree, toolbox=free))


FLASH = """archs = os.getenv("FLASH_ATTN_CUDA_ARCHS", "80;90;100;120")
force = os.getenv("FLASH_ATTENTION_FORCE_BUILD")
amd = os.getenv("GPU_ARCHS", "native")
target = os.getenv("BUILD_TARGET")"""


@pytest.mark.parametrize(
    ("asked", "told"),
    [("8.6", "80"), ("8.7", "80"), ("8.9", "80"), ("10.3", "100"), ("12.1", "120"), ("9.0", "90")],
)
def test_flash_attention_is_told_the_target_that_serves_a_gpu(
    tmp_path: Path, asked: str, told: str
) -> None:
    planned = plan(f"cu130-{asked}", tree=extension(tmp_path, "flash-attn", FLASH))
    assert environment_of(planned)["FLASH_ATTN_CUDA_ARCHS"] == told
    assert read_by(planned, "FLASH_ATTN_CUDA_ARCHS") == "setup.py:2"
    assert "setting-unread" not in names(planned.findings)


def test_flash_attention_has_no_cpu_kernels(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="CUDA and ROCm kernels only"):
        plan("cpu", tree=extension(tmp_path, "flash-attn", FLASH))


def test_a_standard_that_is_too_old_for_the_headers_of_torch(tmp_path: Path) -> None:
    tree = extension(tmp_path, "flash-attn", FLASH + '\nflags = ["-std=c++17"]')
    new = toolbox(python=python(packages={"torch": "2.14.0"}))
    found = doctor("cu130-sm90", tree=tree, toolbox=new)
    assert any("C++20" in finding.title and "setup.py:6" in finding.evidence for finding in found)
    old = toolbox(python=python(packages={"torch": "2.9.0"}))
    assert not [f for f in doctor("cu130-sm90", tree=tree, toolbox=old) if "C++20" in f.title]


def test_flash_attention_3_compiles_sm80_only_if_a_gpu_needs_it(tmp_path: Path) -> None:
    tree = extension(
        tmp_path,
        "flash-attn-3",
        'force = os.getenv("FLASH_ATTENTION_FORCE_BUILD")\n'
        'off = os.getenv("FLASH_ATTENTION_DISABLE_SM80")\n'
        'flags = ["arch=compute_80,code=sm_80", "arch=compute_90a,code=sm_90a"]',
    )
    hopper, both = plan("cu130-sm90", tree=tree), plan("cu130-sm80+sm90", tree=tree)
    assert environment_of(hopper)["FLASH_ATTENTION_FORCE_BUILD"] == "TRUE"
    assert environment_of(hopper)["FLASH_ATTENTION_DISABLE_SM80"] == "TRUE"
    assert environment_of(both)["FLASH_ATTENTION_DISABLE_SM80"] == "FALSE"
    assert targets_of(hopper).cubins == ("9.0a",)
    assert targets_of(both).cubins == ("9.0a", "8.0")


def test_vllm_needs_rust_and_is_told_its_build_type(tmp_path: Path) -> None:
    reads = (
        'device = os.environ.get("VLLM_TARGET_DEVICE")\nkind = os.environ.get("CMAKE_BUILD_TYPE")\n'
        "import setuptools_rust"
    )
    tree = extension(tmp_path, "vllm", reads)
    assert environment_of(plan("cu130-sm90", tree=tree))["CMAKE_BUILD_TYPE"] == "Release"
    assert environment_of(plan("xpu", tree=tree))["VLLM_TARGET_DEVICE"] == "xpu"
    bare, rust = (
        toolbox(tools=tools(cargo=None)),
        toolbox(tools=(*tools(), tool("cargo", "1.90.0"))),
    )
    title = named(doctor("cu130-sm90", tree=tree, toolbox=bare), "cargo-missing").title
    assert "cargo" in title
    assert "cargo-missing" not in names(doctor("cu130-sm90", tree=tree, toolbox=rust))


def test_triton_reads_max_jobs_and_its_plan_has_no_options_that_get_lost(tmp_path: Path) -> None:
    text = """import os
jobs = os.getenv("MAX_JOBS")
more = os.getenv("TRITON_APPEND_CMAKE_ARGS", "")
from setuptools import setup
setup(name="triton", version="3.5")
"""
    tree = made(
        tmp_path,
        setup__py=text,
        CMakeLists__txt="project(triton)\n",
        lib___Dialect___Triton___IR___Dialect__cpp="",
    )
    planned = plan("cu130-sm90", tree=tree)
    assert read_by(planned, "MAX_JOBS") == "setup.py:2"
    assert not cmake_of(planned)
    assert not targets_of(planned).compiles


GGML = """option(GGML_NATIVE "for this CPU" ON)
option(GGML_CUDA "use CUDA" OFF)
option(GGML_HIP "use HIP" OFF)
"""


@pytest.mark.parametrize(("name", "below"), [("llama.cpp", "ggml"), ("ggml", "src/ggml-cuda")])
def test_ggml_switches_its_back_end_on(tmp_path: Path, name: str, below: str) -> None:
    file = f"{below}/CMakeLists.txt"
    (tmp_path / below).mkdir(parents=True)
    (tmp_path / file).write_text("")
    scripts = (
        '[project]\nname = "llama-cpp-scripts"\nversion = "0"\n' if name == "llama.cpp" else ""
    )
    tree = made(
        tmp_path,
        CMakeLists__txt=f'project("{name}")\n{GGML}',
        **({"pyproject__toml": scripts} if scripts else {}),
    )
    assert tree.kind is ProjectKind.CMAKE
    cuda, rocm = plan("cu130-sm90", tree=tree), plan("rocm6.4-gfx942", tree=tree)
    assert cmake_of(cuda)["GGML_CUDA"] == "ON"
    assert cmake_of(cuda)["CMAKE_CUDA_ARCHITECTURES"] == "90-real"
    assert read_by(cuda, "GGML_CUDA") == "CMakeLists.txt:3"
    assert cmake_of(rocm)["GGML_HIP"] == "ON"
    assert [command.stage for command in cuda.commands] == ["configure", "compile", "install"]


def test_llama_cpp_python_has_a_cuda_back_end(tmp_path: Path) -> None:
    backend = build_system("scikit-build-core", backend="scikit_build_core.build")
    project = '[project]\nname = "llama-cpp-python"\nversion = "1"\n'
    tree = made(tmp_path, CMakeLists__txt="project(llama_cpp)\n", pyproject__toml=backend + project)
    planned = plan("cu130-sm90", tree=tree)
    assert cmake_of(planned)["GGML_CUDA"] == "ON"
    assert "-Ccmake.define.GGML_CUDA=ON" in planned.commands[-1].words


@pytest.mark.parametrize("inside", [False, True])
def test_onnxruntime_is_built_in_its_cmake_folder(tmp_path: Path, inside: bool) -> None:
    project = 'project(onnxruntime)\noption(onnxruntime_USE_CUDA "CUDA" OFF)\n'
    made(tmp_path / "cmake", CMakeLists__txt=project, onnxruntime_providers_cuda__cmake="")
    tree = read_tree(tmp_path / "cmake" if inside else tmp_path)
    planned = plan("cu130-sm90", tree=tree)
    assert cmake_of(planned)["onnxruntime_USE_CUDA"] == "ON"
    place = "CMakeLists.txt:2" if inside else "cmake/CMakeLists.txt:2"
    assert read_by(planned, "onnxruntime_USE_CUDA") == place
    assert planned.commands[0].words[2] == ("." if inside else "cmake")


BITSANDBYTES = """project(bitsandbytes)
set(COMPUTE_BACKEND "cpu" CACHE STRING "cpu, cuda or hip")
if(COMPUTE_BACKEND STREQUAL "cuda")
  set(COMPUTE_CAPABILITY "75;80" CACHE STRING "capabilities")
endif()
"""


def test_bitsandbytes_is_told_back_end_and_capability(tmp_path: Path) -> None:
    project = '[project]\nname = "bitsandbytes"\nversion = "0.50"\n'
    backend = build_system("scikit-build-core", backend="scikit_build_core.setuptools.build_meta")
    tree = made(tmp_path, CMakeLists__txt=BITSANDBYTES, pyproject__toml=backend + project)
    planned = plan("cu130-sm90", tree=tree)
    assert cmake_of(planned)["COMPUTE_BACKEND"] == "cuda"
    assert cmake_of(planned)["COMPUTE_CAPABILITY"] == "90"
    assert read_by(planned, "COMPUTE_CAPABILITY") == "CMakeLists.txt:4"


def test_there_are_at_least_thirty_and_each_says_where_its_facts_are_from() -> None:
    assert len(projects()) >= 30
    for recipe in projects().values():
        assert recipe.facts_from.count(" ") >= 2, recipe.name  # repository, commit, day


@pytest.mark.parametrize("recipe", projects().values(), ids=lambda recipe: recipe.name)
def test_a_refused_back_end_has_no_recipe(recipe: ProjectRecipe) -> None:
    assert not set(recipe.refused) & set(recipe.backends)
    assert recipe.backends


def test_every_cuda_recipe_either_chooses_targets_or_says_why_not() -> None:
    silent = [
        recipe.name
        for recipe in projects().values()
        for backend, known in recipe.backends.items()
        if backend == "cuda" and not known.chooses_targets and known.compiles
    ]
    assert silent == ["pytorch"]  # whose own rules write TORCH_CUDA_ARCH_LIST


def test_a_user_without_a_recipe_is_told_of_open_choices() -> None:
    """Without a tree that was read, there is nothing to say."""
    planned = plan("cu130-sm90", tree=extension_tree("my_kernels"), machine=linux())
    assert "gpu-choice-unset" not in names(planned.findings, Severity.WARNING)

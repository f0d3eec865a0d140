"""Builds that are asked what they compile: what they say, and what plans make of it."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

import closed_room
from conftest import Stoker, find_tool
from stoker.ask.asking import ask
from stoker.machine.system import read_machine
from stoker.plan.survey import survey
from stoker.settings.declared import CommandLine


def test_the_build_finds_the_cmake_that_a_build_would_use(stoker: Stoker, tmp_path: Path) -> None:
    """The CMake on the PATH is too old for the tree, and that beside stoker is not."""
    find_tool("cmake")
    programs, tree = tmp_path / "programs", tmp_path / "tree"
    for folder in (programs, tree):
        folder.mkdir()
    old = programs / "cmake"
    old.write_text("#!/bin/sh\necho cmake version 3.1.0\n")
    old.chmod(0o755)
    (tree / "a.cpp").touch()
    (tree / "CMakeLists.txt").write_text("cmake_minimum_required(VERSION 3.18)\nproject(a)\n")
    (tree / "setup.py").write_text(
        "import subprocess\n"
        "raise SystemExit(subprocess.check_output(['cmake', '--version'], text=True))\n"
        "from setuptools import Extension, setup\n"
        "setup(name='a', version='1', ext_modules=[Extension('a', ['a.cpp'])])\n"
    )
    path = f"{programs}:{os.environ['PATH']}"
    python = str(Path(sys.base_prefix) / "bin/python3")  # the CMake of the tests is not beside it
    words = ("plan", "cpu", "--source", str(tree), "--python", python, "--ask", "--json")
    done = stoker(*words, PATH=path)
    said = json.loads(done.stdout)["asked"]["refusal"]
    assert "cmake version" in said
    assert "3.1.0" not in said


EXTENSION = """
import os, subprocess, sys
from setuptools import Extension, setup
if os.environ.get("MINI_CUDA", "0") == "1" or "--force_cuda" in sys.argv:
    targets = os.getenv("MINI_CUDA_ARCHS", "75,80").split(",")
    flags = [f"-gencode=arch=compute_{t},code=sm_{t}" for t in targets]
    if int(targets[0]) < 75:
        raise SystemExit("ValueError: compute capability below 7.5 is not supported")
    subprocess.check_call(["nvcc", *flags, "-c", "kernel.cu", "-o", "kernel.o"])
setup(name="mini-asked", version="1.0", ext_modules=[Extension("mini", ["mini.c"])])
"""


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A package whose kernels are compiled only if a variable says so."""
    find_tool("nvcc")
    folder = tmp_path / "mini"
    folder.mkdir()
    (folder / "setup.py").write_text(EXTENSION)
    (folder / "mini.c").write_text("int mini;\n")
    (folder / "kernel.cu").write_text("__global__ void kernel() {}\n")
    return folder


def plan(stoker: Stoker, tree: Path, *words: str, status: int = 0) -> Any:
    done = stoker("plan", *words, "--source", str(tree), "--python", sys.executable, "--json")
    assert done.returncode == status, done.stderr
    return json.loads(done.stdout)


def test_asking_finds_the_switch_and_the_targets(stoker: Stoker, tree: Path) -> None:
    said = plan(stoker, tree, "h100", "--ask")
    environment, targets, asked = said["environment"], said["targets"], said["asked"]
    assert environment["MINI_CUDA"] == "1"
    assert environment["MINI_CUDA_ARCHS"] == "90"
    assert (targets["cubins"], targets["compiles"]) == (["9.0"], True)
    assert asked["kernels"] == [{"source": "kernel.cu", "targets": ["sm_90"]}]
    assert (asked["device_compiles"], asked["host_compiles"]) == (1, 1)
    read = {variable["name"]: variable["where"] for variable in asked["variables"]}
    assert read["MINI_CUDA_ARCHS"] == "setup.py:5"
    assert not (tree / "kernel.o").exists()
    assert not (tree / "build").exists()


TORCH_LIKE = """
import os, subprocess
from setuptools import Extension, setup
os.makedirs("made", exist_ok=True)
subprocess.check_call(["nvcc", "-arch=sm_90", "-Icsrc", "-c", "csrc/kernel.cu", "-o", "made/k.o"])
with open("made/build.ninja", "w") as stream:
    stream.write("rule c\\n command = cc -c $in -o $out\\nbuild a.o: c ../csrc/plain.c\\n")
if NINJA:
    subprocess.check_call(["ninja", "-C", "made"])
setup(name="like", version="1", ext_modules=[] if NINJA else [
    Extension(name, ["csrc/main.cpp", "csrc/plain.c"], define_macros=[("NAME", name)])
    for name in ("one", "two")
])
"""


@pytest.mark.parametrize("ninja", [False, True])
def test_the_time_said_counts_headers_of_pytorch_and_compiles_that_wait(
    stoker: Stoker, tmp_path: Path, ninja: bool
) -> None:
    """setuptools compiles a source for each extension, one after the other."""
    for tool in ("nvcc", "ninja"):
        find_tool(tool)
    (tmp_path / "csrc").mkdir()
    (tmp_path / "setup.py").write_text(f"NINJA = {ninja}\n{TORCH_LIKE}")
    for name, text in {
        "kernel.cu": "#include <all.h>\n",
        "main.cpp": '#include "all.h"\n',
        "plain.c": "#include <stdio.h>\n",
        "all.h": "#include <torch/extension.h>\n",
    }.items():
        (tmp_path / "csrc" / name).write_text(text)
    said = plan(stoker, tmp_path, "h100", "--ask")
    asked, estimate = said["asked"], said["estimate"]
    names = ("device_compiles", "device_with_torch", "host_compiles", "host_with_torch")
    assert [asked[name] for name in names] == ([1, 1, 1, 0] if ninja else [1, 1, 4, 2])
    assert asked["one_at_a_time"] is not ninja
    basis = estimate["wall_s"]["basis"]
    assert ("one file at a time" in basis) is not ninja
    assert f"{1 if ninja else 3} of them include all of PyTorch's headers" in basis


def test_a_tree_that_is_unchanged_is_not_asked_again(stoker: Stoker, tree: Path) -> None:
    words = ("plan", "cpu", "--source", str(tree), "--python", sys.executable, "--ask")
    first = stoker(*words)
    assert "asking the build of mini-asked" in first.stderr
    assert "asking" not in stoker(*words).stderr
    (tree / "mini.c").write_text("int other;\n")
    assert "asking" in stoker(*words).stderr


@pytest.mark.parametrize("name", ['"mini-asked"', 'open("name.txt").read()'])
def test_what_was_learned_is_a_recipe(
    stoker: Stoker, tree: Path, tmp_path: Path, name: str
) -> None:
    """A tree whose name is not written in its files is recognized by its files."""
    (tree / "name.txt").write_text("mini-asked")
    (tree / "setup.py").write_text(EXTENSION.replace('"mini-asked"', name))
    file = tmp_path / "mini.toml"
    plan(stoker, tree, "h100", "--ask", "--write-recipe", str(file))
    checked = stoker("plan", "--check-recipe", str(file), "--source", str(tree))
    assert checked.returncode == 0, checked.stdout
    planned = plan(stoker, tree, "rtx4090", "--recipe", str(file))
    environment, targets = planned["environment"], planned["targets"]
    assert environment["MINI_CUDA_ARCHS"] == "89"
    assert targets["cubins"] == ["8.9"]


def test_ptx_of_the_newest_target_is_that_of_other_variants_too(
    stoker: Stoker, tree: Path, tmp_path: Path
) -> None:
    ptx = (
        't = targets[-1]\n    flags += [f"-gencode=arch=compute_{t},code=compute_{t}"]\n    if int('
    )
    (tree / "setup.py").write_text(EXTENSION.replace("if int(", ptx))
    file = tmp_path / "mini.toml"
    plan(stoker, tree, "h100", "--ask", "--write-recipe", str(file))
    targets = plan(stoker, tree, "rtx4090", "--recipe", str(file))["targets"]
    assert (targets["cubins"], targets["ptx"], targets["accepted"]) == (["8.9"], ["8.9"], [])


def test_an_answer_that_the_files_do_not_bear_out_is_no_recipe(
    stoker: Stoker, tree: Path, tmp_path: Path
) -> None:
    """The plan does not say that no device code is compiled, so a recipe must not."""
    (tree / "setup.py").write_text(
        "from setuptools import Extension, setup\n"
        "setup(name='mini-asked', version='1.0', ext_modules=[Extension('mini', ['mini.c'])])\n"
    )
    (tree / "Makefile").write_text("CUDA_DIR ?=\n")
    file = tmp_path / "mini.toml"
    words = ("--source", str(tree), "--python", sys.executable, "--ask")
    done = stoker("plan", "h100", *words, "--write-recipe", str(file))
    assert done.returncode != 0
    assert "named no device code" in done.stderr
    assert not file.exists()


def test_a_project_refuses_in_its_own_words(stoker: Stoker, tree: Path) -> None:
    (tree / "setup.py").write_text('raise RuntimeError("mini needs a moon")\n')
    done = stoker("doctor", "cpu", "--source", str(tree), "--python", sys.executable, "--ask")
    assert done.returncode == 1
    assert "RuntimeError: mini needs a moon" in done.stdout


def test_without_walls_it_works_on_a_copy(stoker: Stoker, tree: Path) -> None:
    said = plan(stoker, tree, "h100", "--ask=open")
    asked = said["asked"]
    assert asked["walls"] == "open"
    assert asked["cubins"] == ["9.0"]
    assert not (tree / "kernel.o").exists()


def test_a_recipe_is_written_only_if_the_build_was_asked(stoker: Stoker, tree: Path) -> None:
    done = stoker("plan", "cpu", "--source", str(tree), "--write-recipe", "x.toml")
    assert done.returncode == 2
    assert "--write-recipe needs --ask" in done.stderr


def test_a_build_that_ran_out_of_time_says_nothing_about_its_kernels(tree: Path) -> None:
    """The plan stated that no device code is compiled, because none was until then."""
    (tree / "setup.py").write_text("while True: pass\n")
    options = {"variant": "h100", "source": str(tree), "python": sys.executable}
    subject = survey(CommandLine(options=options))
    result = ask(subject, limits=replace(closed_room.FEW, seconds=2.0))
    assert result.asked.ended_for == "time"
    assert result.subject.asked is None


CMAKE = """
cmake_minimum_required(VERSION 3.18)
project(mini_asked LANGUAGES CXX)
foreach(name CUDA HIP)
  set(MINI_ENABLE_${name} OFF CACHE BOOL "build for ${name}")
endforeach()
add_library(mini mini.cpp)
if(MINI_ENABLE_CUDA)
  enable_language(CUDA)
  add_library(kernels kernel.cu)
  set_target_properties(kernels PROPERTIES CUDA_ARCHITECTURES "${CMAKE_CUDA_ARCHITECTURES}")
endif()
"""


def test_cmake_is_asked_with_options_whose_names_are_computed(
    stoker: Stoker, tmp_path: Path
) -> None:
    for tool in ("nvcc", "cmake", "ninja"):
        find_tool(tool)
    (tmp_path / "CMakeLists.txt").write_text(CMAKE)
    (tmp_path / "mini.cpp").write_text("int mini;\n")
    (tmp_path / "kernel.cu").write_text("__global__ void kernel() {}\n")
    said = plan(stoker, tmp_path, "h100", "--ask")
    cmake, asked = said["cmake"], said["asked"]
    assert cmake["MINI_ENABLE_CUDA"] == "ON"
    assert (asked["cubins"], asked["ptx"]) == (["9.0"], [])
    assert (asked["device_compiles"], asked["host_compiles"]) == (1, 1)
    assert not (tmp_path / "build").exists()


PARTS = """
cmake_minimum_required(VERSION 3.18)
project(parts LANGUAGES CXX)
add_library(base base.cpp)
option(PKG_GPU "the package for GPUs" OFF)
if(PKG_GPU)
  set(GPU_API "opencl" CACHE STRING "API of the package")
  set_property(CACHE GPU_API PROPERTY STRINGS opencl cuda hip)
  if(GPU_API STREQUAL "cuda")
    enable_language(CUDA)
    add_library(kernels kernels.cu)
  endif()
endif()
"""


def test_a_part_that_is_switched_on_chooses_its_back_end(tmp_path: Path) -> None:
    """Neither of the two settings has an effect alone."""
    for tool in ("cmake", "ninja", "nvcc"):
        find_tool(tool)
    (tmp_path / "CMakeLists.txt").write_text(PARTS)
    (tmp_path / "base.cpp").write_text("int base;\n")
    (tmp_path / "kernels.cu").write_text("__global__ void kernel() {}\n")
    said = CommandLine(options={"variant": "cuda-sm90", "source": str(tmp_path)})
    result = ask(survey(said))
    (known,) = (result.recipe.backends if result.recipe else {}).values()
    assert known.cmake["PKG_GPU"] == "ON"
    assert known.cmake["GPU_API"] == "cuda"
    assert result.asked.cubins == ("9.0",)


OLD = """
cmake_minimum_required(VERSION 3.10)
project(old LANGUAGES CXX)
option(WITH_CUDA "" OFF)
if(WITH_CUDA)
  find_package(CUDA REQUIRED)
  cuda_add_library(kernels kernels.cu OPTIONS -lineinfo)
endif()
"""


def test_compiles_of_find_cuda_are_seen_and_get_targets(tmp_path: Path) -> None:
    """They are scripts of CMake, and no list of targets reaches them."""
    for tool in ("cmake", "ninja", "nvcc"):
        find_tool(tool)
    (tmp_path / "CMakeLists.txt").write_text(OLD)
    (tmp_path / "kernels.cu").write_text("__global__ void kernel() {}\n")
    said = CommandLine(options={"variant": "cuda-sm90+sm100", "source": str(tmp_path)})
    result = ask(survey(said))
    assert result.asked.device_compiles == 1, result.asked.refusal
    assert result.asked.cubins == ("9.0", "10.0")
    (known,) = (result.recipe.backends if result.recipe else {}).values()
    assert known.cmake["CUDA_NVCC_FLAGS"] == "-gencode={gencode}"


def test_compiles_of_find_cuda_are_seen_where_cmake_writes_no_graph(tmp_path: Path) -> None:
    """A library to link is missing, so there is no build.ninja, and xmrig-cuda was said to compile
    no device code.
    """
    for tool in ("cmake", "nvcc"):
        find_tool(tool)
    missing = "find_library(MOON moon-that-is-not-here)\n"
    linked = "add_library(host SHARED host.cpp)\ntarget_link_libraries(host kernels ${MOON})\n"
    switched_on = OLD.replace('"" OFF', '"" ON')
    (tmp_path / "CMakeLists.txt").write_text(switched_on + missing + linked)
    (tmp_path / "kernels.cu").write_text("__global__ void kernel() {}\n")
    (tmp_path / "host.cpp").write_text("int host;\n")
    said = CommandLine(options={"variant": "cuda-sm90", "source": str(tmp_path)})
    result = ask(survey(said))
    assert "MOON" in result.asked.stopped
    assert (result.asked.device_compiles, result.asked.host_compiles) == (1, 1)
    assert result.asked.cubins == ("9.0",)


LOOKS = """
import subprocess
if subprocess.call(["nvidia-smi"]):
    raise SystemExit("NotImplementedError: there is no GPU")
subprocess.check_call(["nvcc", "-arch=sm_90", "-c", "kernel.cu", "-o", "kernel.o"])
"""


def test_a_build_that_needs_a_visible_gpu_is_an_error_on_a_machine_without(
    stoker: Stoker, tree: Path
) -> None:
    """The plan stated the targets, with a warning, although the build ends here."""
    if read_machine(()).gpus:
        pytest.skip("this machine has a GPU")
    (tree / "setup.py").write_text(LOOKS)
    words = ("doctor", "h100", "--source", str(tree), "--python", sys.executable, "--ask")
    done = stoker(*words)
    assert done.returncode == 1
    assert "without a visible GPU, as on this machine, the build ends:" in done.stdout
    assert "NotImplementedError: there is no GPU" in done.stdout


def test_a_cpu_build_that_compiles_device_code_is_an_error(stoker: Stoker, tree: Path) -> None:
    """The plan for cpu said nothing about it."""
    (tree / "setup.py").write_text(f"import subprocess\n{LOOKS.splitlines()[-1]}\n")
    done = stoker("doctor", "cpu", "--source", str(tree), "--python", sys.executable, "--ask")
    assert (done.returncode, "compiles CUDA code" in done.stdout) == (1, True), done.stdout


CHOICE = """
cmake_minimum_required(VERSION 3.18)
set(USE_BACKEND CACHE STRING "Back end")
set_property(CACHE USE_BACKEND PROPERTY STRINGS "" CUDA OPENCL)
project(mini CXX)
add_library(mini mini.cpp)
if(USE_BACKEND STREQUAL "CUDA")
  find_path(MOON_INCLUDE_DIR moon.h)
  if(NOT MOON_INCLUDE_DIR)
    message(FATAL_ERROR "moon.h was NOT found")
  endif()
  enable_language(CUDA)
endif()
"""


def test_a_switch_whose_build_lacks_something_is_told(stoker: Stoker, tmp_path: Path) -> None:
    """With it the build ends; without it, it would compile no device code."""
    find_tool("nvcc")
    (tmp_path / "CMakeLists.txt").write_text(CHOICE)
    (tmp_path / "mini.cpp").touch()
    (tmp_path / "kernel.cu").touch()
    said = plan(stoker, tmp_path, "h100", "--ask", status=1)
    asked, cmake = said["asked"], said["cmake"]
    assert isinstance(asked, dict)
    assert isinstance(cmake, dict)
    assert "moon.h was NOT found" in asked["refusal"]
    assert cmake["USE_BACKEND"] == "CUDA"


BELOW = """
import pathlib
from setuptools import Extension, setup
version = (pathlib.Path(__file__).resolve().parents[1] / "version.txt").read_text().strip()
setup(name="below", version=version, ext_modules=[Extension("below", ["below.c"])])
"""


def test_a_project_below_the_root_of_a_repository_sees_the_files_above(
    stoker: Stoker, tmp_path: Path
) -> None:
    """The folders of the user are hidden in the room; of these, the repository is shown."""
    repository = tmp_path / "home/repository"
    tree = repository / "python"
    tree.mkdir(parents=True)
    (repository / ".git").mkdir()
    (repository / "version.txt").write_text("1.5\n")
    (tree / "setup.py").write_text(BELOW)
    (tree / "below.c").write_text("int below;\n")
    words = ("plan", "cpu", "--source", str(tree), "--python", sys.executable, "--ask", "--json")
    done = stoker(*words, HOME=str(tmp_path / "home"))
    assert done.returncode == 0, done.stdout + done.stderr
    assert json.loads(done.stdout)["asked"]["host_compiles"] == 1


def test_a_build_that_ended_ends_the_plan_with_a_status(stoker: Stoker, tmp_path: Path) -> None:
    tree = tmp_path / "tree"
    tree.mkdir()
    (tree / "a.c").write_text("int a;\n")
    (tree / "setup.py").write_text(
        "from setuptools import Extension, setup\n"
        "open('third_party/list.txt')\n"
        "setup(name='a', version='1', ext_modules=[Extension('a', ['a.c'])])\n"
    )
    words = ("plan", "cpu", "--source", str(tree), "--python", sys.executable, "--ask", "--json")
    done = stoker(*words)
    assert done.returncode == 1
    titles = [finding["title"] for finding in json.loads(done.stdout)["findings"]]
    assert "the build needs third_party/list.txt, which is not there" in titles


def test_a_build_is_asked_with_the_packages_that_it_would_get(
    stoker: Stoker, tmp_path: Path
) -> None:
    """The Python of the plan lacks what pyproject.toml requires; the build installs it."""
    python, tree = tmp_path / "python", tmp_path / "tree"
    venv = [sys.executable, "-m", "venv", "--without-pip", str(python)]
    subprocess.run(venv, check=True)
    tree.mkdir()
    (tree / "a.c").write_text("int a;\n")
    (tree / "pyproject.toml").write_text('[build-system]\nrequires = ["setuptools", "packaging"]\n')
    (tree / "setup.py").write_text(
        "import packaging.version\n"
        "raise ValueError(f'found {packaging.version.__name__}')\n"
        "from setuptools import Extension, setup\n"
        "setup(name='a', version='1', ext_modules=[Extension('a', ['a.c'])])\n"
    )
    words = ("plan", "cpu", "--source", str(tree), "--python", f"{python}/bin/python", "--ask")
    said = json.loads(stoker(*words, "--json").stdout)["asked"]["refusal"]
    assert "found packaging.version" in said

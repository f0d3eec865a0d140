"""Which back ends the files of a project show, and how they are chosen.

That a project has no such back end is said only where nothing that its build reads speaks of one.
"""

from pathlib import Path

import pytest

from stoker.model.errors import UsageError
from stoker.source.tree import read_tree
from subjects import EXTENSION, cmake_of, environment_of, names, planned, targets_of

COMPARED = """
if(LIB_BACKEND STREQUAL "CUDA")
  list(APPEND languages CUDA)
endif()
project(lib LANGUAGES CXX ${languages})
if(LIB_BACKEND STREQUAL "CUDA")
  add_library(k k.cu)
elseif("${LIB_BACKEND}" STREQUAL "ROCM")
  set(CMAKE_HIP_ARCHITECTURES ${LIB_ROCM_ARCH})
elseif(LIB_BACKEND STREQUAL "TBB")
  add_library(k k.cpp)
endif()
"""


def test_a_variable_that_is_compared_with_back_ends_chooses_one(tmp_path: Path) -> None:
    assert {"cuda", "rocm", "cpu"} <= {*backends(tmp_path, COMPARED)}
    assert cmake_of(planned(tmp_path, "cu130-sm90", cmake=COMPARED))["LIB_BACKEND"] == "CUDA"
    assert cmake_of(planned(tmp_path, "rocm-gfx942", cmake=COMPARED))["LIB_BACKEND"] == "ROCM"
    assert "LIB_BACKEND" not in cmake_of(planned(tmp_path, "cpu", cmake=COMPARED))


def backends(folder: Path, cmake: str) -> tuple[str, ...]:
    (folder / "CMakeLists.txt").write_text(cmake)
    return read_tree(folder).backends


BY_ENVIRONMENT = """
import os
from scikit_build_core.build import *
variant = os.environ.get("LIB_VARIANT", "cpu").lower()
if variant == "cuda":
    os.environ["SKBUILD_CMAKE_ARGS"] = "-DUSE_CUDA_TOOLKIT=TRUE"
elif variant in ("rocm", "hip"):
    os.environ["SKBUILD_CMAKE_ARGS"] = "-DUSE_ROCM_TOOLKIT=TRUE"
elif variant != "cpu":
    raise RuntimeError(variant)
"""
OWN_BACK_END = """
[build-system]
requires = ["scikit-build-core"]
build-backend = "builder"
backend-path = ["."]
[project]
name = "lib"
"""


def test_a_variable_of_the_environment_that_is_compared_with_back_ends(tmp_path: Path) -> None:
    (tmp_path / "builder.py").write_text(BY_ENVIRONMENT)
    cmake = "project(lib CXX)\nif(USE_CUDA_TOOLKIT)\nenable_language(CUDA)\n"
    cmake += "add_library(k k.cu)\nendif()\n"
    files = {"pyproject.toml": OWN_BACK_END}
    made = planned(tmp_path, "cu130-sm90", cmake=cmake, **files)
    assert environment_of(made)["LIB_VARIANT"] == "cuda"
    assert environment_of(planned(tmp_path, "rocm-gfx942"))["LIB_VARIANT"] == "rocm"
    assert "LIB_VARIANT" not in environment_of(planned(tmp_path, "cpu")), "that is its default"


@pytest.mark.parametrize("name", ["LIB_VULKAN", "USE_VULKAN"])
def test_an_option_shows_a_back_end_whichever_it_is(tmp_path: Path, name: str) -> None:
    text = f'project(lib CXX)\noption({name} "" OFF)\nadd_library(k k.cpp)\n'
    assert cmake_of(planned(tmp_path, "vulkan", cmake=text))[name] == "ON"


def test_a_variable_that_the_build_reads_may_show_a_back_end(tmp_path: Path) -> None:
    """A Makefile that setup.py starts may compile it: what is not shown is not denied."""
    setup = (
        "import os\nfrom setuptools import Extension, setup\n"
        "path = os.environ.get('CUDA_PATH')\n"
        "setup(name='lib', ext_modules=[Extension('lib', ['a.cpp'])])\n"
    )
    (tmp_path / "a.cpp").touch()
    made = planned(tmp_path, "cu130-sm90", setup=setup)
    assert "back-end-unknown" in names(made.findings)
    assert targets_of(made).cubins == ()
    with pytest.raises(UsageError, match="has no rocm back end"):
        planned(tmp_path, "rocm-gfx942", setup=setup)


MAKES = """
import subprocess
from setuptools import setup
from setuptools.command.build_ext import build_ext
class Build(build_ext):
    def run(self):
        subprocess.check_call(["make", "install"])
setup(name="lib", cffi_modules=["build_lib.py:ffi"], cmdclass={"build_ext": Build})
"""


@pytest.mark.parametrize(
    ("name", "text", "variant"),
    [
        ("Makefile", "CUDA_DIR ?=\nNVCC ?= $(CUDA_DIR)/bin/nvcc\n", "cu130-sm90"),
        ("Makefile", "HIPCC ?= $(ROCM_DIR)/bin/hipcc\n", "rocm-gfx942"),
        ("meson.build", "if get_option('cuda')\nendif\n", "cu130-sm90"),
        ("backends/ref.cu", "", "cu130-sm90"),
    ],
)
def test_a_file_that_speaks_of_a_back_end_is_not_denied(
    tmp_path: Path, name: str, text: str, variant: str
) -> None:
    (tmp_path / "a.c").touch()
    (tmp_path / name).parent.mkdir(exist_ok=True)
    (tmp_path / name).write_text(text)
    made = planned(tmp_path, variant, setup=MAKES)
    assert "back-end-unknown" in names(made.findings)
    assert targets_of(made).cubins == ()
    assert not targets_of(made).without_device_code


@pytest.mark.parametrize(
    ("name", "text"),
    [("Makefile", "# no CUDA here\n"), ("Makefile", "CUDAS = 1\n"), ("tests/a.cu", "")],
)
def test_what_is_no_part_of_the_build_shows_no_back_end(
    tmp_path: Path, name: str, text: str
) -> None:
    (tmp_path / "a.c").touch()
    (tmp_path / name).parent.mkdir(exist_ok=True)
    (tmp_path / name).write_text(text)
    with pytest.raises(UsageError, match="has no cuda back end"):
        planned(tmp_path, "cu130-sm90", setup=MAKES)


PASSES = """
import os, subprocess
from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext
class Build(build_ext):
    def build_extension(self, ext):
        words = ["-DLIB_VULKAN=ON", *os.environ.get("LIB_CMAKE_ARGS", "").split()]
        subprocess.check_call(["cmake", ".", *words])
setup(name="lib", ext_modules=[Extension("lib", [])], cmdclass={"build_ext": Build})
"""
OPTIONS = (
    'project(lib CXX)\noption(LIB_VULKAN "" OFF)\noption(LIB_CUDA "" ON)\nadd_library(k k.cpp)\n'
)


def test_words_reach_cmake_by_the_variable_that_setup_py_reads(tmp_path: Path) -> None:
    """An option that setup.py switches on is on, whatever its default in CMake."""
    made = planned(tmp_path, "cpu", setup=PASSES, cmake=OPTIONS)
    words = environment_of(made)["LIB_CMAKE_ARGS"].split()
    assert {"-DLIB_CUDA=OFF", "-DLIB_VULKAN=OFF"} <= {*words}
    assert "option-not-passed" not in names(made.findings)


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ('own_option(CPU_ONLY "" OFF)', {"CPU_ONLY": "ON"}),
        ('option(LIB_NO_CUDA "" OFF)', {"LIB_NO_CUDA": "ON"}),
        (
            'option(WITH_GPU "" ON)\nif(WITH_GPU)\ncuda_add_library(a x.cu)\nendif()',
            {"WITH_GPU": "OFF"},
        ),
    ],
)
def test_a_cpu_plan_leaves_cuda_out(tmp_path: Path, text: str, wanted: dict[str, str]) -> None:
    made = planned(tmp_path, "cpu", cmake=f"project(lib CXX)\n{text}\nadd_library(k k.cpp)\n")
    assert wanted.items() <= cmake_of(made).items()


def test_an_included_file_is_not_another_of_its_name(tmp_path: Path) -> None:
    """Each folder has a CMakeLists.txt; including one by its path says nothing of the others."""
    for folder in ("used", "other"):
        (tmp_path / folder).mkdir()
    (tmp_path / "used/CMakeLists.txt").write_text("add_library(k k.cu)\n")
    (tmp_path / "other/CMakeLists.txt").write_text(
        'set(CUDA_NVCC_FLAGS "-gencode arch=compute_60,code=sm_60")\n'
    )
    text = "project(lib CXX CUDA)\ninclude(${CMAKE_CURRENT_LIST_DIR}/used/CMakeLists.txt)\n"
    text += "if(OTHER)\nadd_subdirectory(other)\nendif()\n"
    made = planned(tmp_path, "cu130-sm90", cmake=text)
    assert targets_of(made).cubins == ("9.0",)


def test_a_file_that_the_root_never_adds_is_not_read(tmp_path: Path) -> None:
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests/CMakeLists.txt").write_text(
        'project(demo CUDA)\noption(DEMO_CUDA "" ON)\n'
        "set(A ${CUDA_ARCH_LIST})\nadd_library(k k.cu)\n"
    )
    text = "project(lib C)\nadd_library(k k.c)\n"
    assert "cuda" not in backends(tmp_path, text)
    assert read_tree(tmp_path).options == ()
    computed = text + "foreach(part IN LISTS parts)\nadd_subdirectory(${part})\nendforeach()\n"
    assert "cuda" in backends(tmp_path, computed), "which folders are added is not known"


@pytest.mark.parametrize(
    ("condition", "kind"),
    [('option(USE_CUDA "" OFF)\nif(USE_CUDA)', "read"), ("if(EXISTS parts)", "assumed")],
)
def test_targets_are_read_only_where_the_build_has_device_code(
    tmp_path: Path, condition: str, kind: str
) -> None:
    text = f"project(lib CXX)\n{condition}\nenable_language(CUDA)\nadd_library(k k.cu)\nendif()\n"
    made = planned(tmp_path, "cu130-sm90", cmake=text)
    evidence = targets_of(made).evidence
    assert evidence
    assert (targets_of(made).cubins, evidence.kind) == (("9.0",), kind)


@pytest.mark.parametrize(
    ("text", "said"),
    [("", False), ("jobs = os.environ.get('MAX_JOBS')\n", True)],
)
def test_a_number_of_jobs_is_set_only_where_something_reads_it(
    tmp_path: Path, text: str, said: bool
) -> None:
    setup = "import os\nfrom setuptools import Extension, setup\n" + text
    setup += "setup(name='lib', ext_modules=[Extension('lib', ['a.cpp'])])\n"
    (tmp_path / "a.cpp").touch()
    assert ("MAX_JOBS" in environment_of(planned(tmp_path, "cpu", setup=setup))) is said


LISTED = """
import os
SUPPORTED_ARCHS = {"8.0", "8.9", "9.0"}
def wanted():
    asked = set(os.environ["TORCH_CUDA_ARCH_LIST"].split(";"))
    known = asked.intersection(SUPPORTED_ARCHS)
    if not known:
        raise RuntimeError(f"None of the architectures in {asked} is supported.")
    return known
setup(ext_modules=[CUDAExtension("x", ["x.cu"])])
"""


def test_gpus_that_the_build_does_not_list_among_those_it_supports(tmp_path: Path) -> None:
    with pytest.raises(
        UsageError, match=r"compiles for 8\.0, 8\.9, 9\.0 and refuses others"
    ) as refused:
        planned(tmp_path, "cu130-sm100", setup=EXTENSION + LISTED)
    assert "setup.py:" in refused.value.hints[0]
    planned(tmp_path, "cu130-sm90", setup=EXTENSION + LISTED)
    only_said = LISTED.replace("raise RuntimeError", "print")
    planned(tmp_path, "cu130-sm100", setup=EXTENSION + only_said)

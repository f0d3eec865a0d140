"""What the files of a project decide about CUDA and its targets themselves."""

from pathlib import Path

import pytest

from stoker.model.errors import UsageError
from stoker.model.evidence import EvidenceKind
from stoker.source.tree import read_tree
from subjects import EXTENSION, cmake_of, environment_of, names, planned, targets_of

CALLS_CMAKE = """
from setuptools import setup
from setuptools.command.build_py import build_py
class Build(build_py):
    def run(self):
        self.spawn(["cmake", "-S", "lib", "-B", "build"])
setup(name="lib", cmdclass={"build_py": Build})
"""


@pytest.mark.parametrize(
    ("text", "only_cuda"),
    [
        ("project(lib CXX CUDA)\nadd_library(a x.cu)\n", True),
        (
            "project(lib CXX)\nif(WITH)\nenable_language(CUDA)\nadd_library(a x.cu)\nendif()\n",
            False,
        ),
    ],
)
def test_a_setup_py_whose_only_cmake_project_needs_cuda(
    tmp_path: Path, text: str, only_cuda: bool
) -> None:
    (tmp_path / "lib").mkdir()
    (tmp_path / "lib/CMakeLists.txt").write_text(text)
    (tmp_path / "setup.py").write_text(CALLS_CMAKE)
    (tmp_path / "lib/x.cu").touch()
    assert ("cpu" in read_tree(tmp_path).backends) is not only_cuda
    # It may be an optional part of a package that has other extensions.
    optional = CALLS_CMAKE.replace("cmdclass", "ext_modules=[Extension('a', ['a.c'])], cmdclass")
    (tmp_path / "setup.py").write_text(f"from setuptools import Extension\n{optional}")
    assert "cpu" in read_tree(tmp_path).backends


OWN_LIST = """
project(lib LANGUAGES CXX CUDA)
foreach(number IN LISTS all)
  string(FIND "${SM}" "${number}" found)
  if(found GREATER -1)
    set(any True)
    list(APPEND CMAKE_CUDA_ARCHITECTURES ${number})
  endif()
endforeach()
if(NOT any)
  set(CMAKE_CUDA_ARCHITECTURES 75 80)
endif()
add_library(a x.cu)
"""


def test_targets_that_the_tree_sets_unless_another_variable_chooses(tmp_path: Path) -> None:
    """What CMake is given is replaced, so the plan does not state that it is compiled."""
    made = planned(tmp_path, "cu130-sm90", cmake=OWN_LIST)
    assert targets_of(made).cubins == ()
    (targets,) = made.statements
    assert targets.evidence.kind is EvidenceKind.ASSUMED
    assert "SM (CMakeLists.txt:4)" in targets.evidence.where


GUARDED = """
project(lib LANGUAGES CXX)
option(COMMON_CUDA_ARCHS "" OFF)
if(CMAKE_CUDA_ARCHITECTURES)
  message(STATUS "${CMAKE_CUDA_ARCHITECTURES}")
else()
  if(COMMON_CUDA_ARCHS)
    set(CMAKE_CUDA_ARCHITECTURES 75-real 80)
  endif()
endif()
enable_language(CUDA)
add_library(a x.cu)
"""


def test_default_targets_of_the_tree_yield_to_those_of_the_plan(tmp_path: Path) -> None:
    made = planned(tmp_path, "cu130-sm90", cmake=GUARDED)
    assert targets_of(made).cubins == ("9.0",)


def test_flags_that_a_project_gives_to_find_cuda_itself_leave_its_targets_open(
    tmp_path: Path,
) -> None:
    text = "project(lib CXX)\nfind_package(CUDA)\ncuda_add_library(a x.cu)\n"
    text += 'list(APPEND CUDA_NVCC_FLAGS "-gencode;arch=compute_${CC},code=sm_${CC}")\n'
    assert planned(tmp_path, "cu130-sm90", cmake=text).statements[0].text == "not known"


def test_the_option_that_guards_cuda_is_its_switch_whatever_its_name(tmp_path: Path) -> None:
    text = (
        'option(BUILD_CUDA_MODULE "kernels" OFF)\noption(CUDA_CACHED_MANAGER "memory" ON)\n'
        "if(BUILD_CUDA_MODULE)\n  if(NOT WIN32)\n    enable_language(CUDA)\n  endif()\n"
        "  add_library(k k.cu)\nendif()\n"
    )
    made = planned(tmp_path, "cu130-sm90", cmake="project(lib LANGUAGES CXX)\n" + text)
    assert cmake_of(made)["BUILD_CUDA_MODULE"] == "ON"


def test_a_variable_that_cmake_overwrites_is_no_choice(tmp_path: Path) -> None:
    """`set(ENV{X})` is no read, and what it sets is read after that."""
    text = (
        "if(SM)\n  set(ENV{TORCH_CUDA_ARCH_LIST} ${SM})\nelse()\n"
        '  set(ENV{TORCH_CUDA_ARCH_LIST} "7.0;8.0")\n'
        '  set(CMAKE_CUDA_FLAGS "${CMAKE_CUDA_FLAGS} -gencode=arch=compute_70,code=sm_70")\n'
        "endif()\nset(LIST $ENV{TORCH_CUDA_ARCH_LIST})\nadd_library(k k.cu)\n"
    )
    made = planned(tmp_path, "cu130-sm90", cmake="project(lib LANGUAGES CUDA)\n" + text)
    assert "TORCH_CUDA_ARCH_LIST" not in environment_of(made)
    assert "gpu-choice-unset" in names(made.findings)
    assert any("SM: CMakeLists.txt:2" in (f.evidence or "") for f in made.findings)


def test_a_build_that_makes_its_kernels_itself_is_not_called_free_of_them(tmp_path: Path) -> None:
    setup = (
        'import os\nARCHS = os.getenv("LIB_CUDA_ARCH_LIST")\n'
        "from setuptools import Extension, setup\nfrom generator import sources\n"
        "setup(name='lib', ext_modules=[Extension('lib', sources(ARCHS))])\n"
    )
    made = planned(tmp_path, "cu130-sm90", setup=setup, **{"host.cpp": "int x;"})
    (statement,) = made.statements
    assert (statement.about, statement.text) == ("targets", "not known")
    assert str(targets_of(made).evidence).endswith("setup.py:2 reads LIB_CUDA_ARCH_LIST")


OFF_BY_VARIABLE = """
BUILD_NO_CUDA = os.getenv("BUILD_NO_CUDA", "0") == "1"
def get_extensions():
    return [CUDAExtension("x", ["x.cu"])]
setup(ext_modules=get_extensions() if not BUILD_NO_CUDA else [])
"""
OFF_BY_CONDITION = """
if os.environ.get("WITH_CUDA", "1") != "0":
    extensions.append(CUDAExtension("x", ["x.cu"]))
setup(ext_modules=extensions)
"""
ON_BY_ARGUMENT = """
enabled = False
for arg in sys.argv:
    if arg == "--enable-cuda-ext":
        enabled = True
sys.argv = others
if enabled:
    extensions.append(CUDAExtension("x", ["x.cu"]))
setup(ext_modules=extensions)
"""


@pytest.mark.parametrize(
    ("setup", "environment"),
    [
        (OFF_BY_VARIABLE, {"BUILD_NO_CUDA": "1"}),
        (OFF_BY_CONDITION, {"WITH_CUDA": "0"}),
        (ON_BY_ARGUMENT, {}),
    ],
)
def test_a_cpu_plan_leaves_cuda_out_by_what_the_build_reads(
    tmp_path: Path, setup: str, environment: dict[str, str]
) -> None:
    made = planned(tmp_path, "cpu", setup=EXTENSION + setup)
    assert environment.items() <= environment_of(made).items()
    assert not targets_of(made).compiles
    assert "cuda-stays" not in names(made.findings)


def test_one_extension_that_stays_is_a_build_for_cuda(tmp_path: Path) -> None:
    both = OFF_BY_VARIABLE.replace("[CUDA", '[CUDAExtension("y", ["y.cu"])]\nz = [CUDA', 1)
    with pytest.raises(UsageError, match="has no cpu back end"):
        planned(tmp_path, "cpu", setup=EXTENSION + both)


def test_a_build_that_decides_by_the_toolkit_is_remarked(tmp_path: Path) -> None:
    setup = (
        "from torch.utils.cpp_extension import CppExtension\n"
        "major = version_of(CUDA_HOME)\n"
        "if major != -1:\n    modules = [CUDAExtension('x', ['x.cu'])]\n"
        "else:\n    modules = [CppExtension('x', ['x.cpp'])]\nsetup(ext_modules=modules)\n"
    )
    made = planned(tmp_path, "cpu", setup=EXTENSION + setup)
    assert "cuda-stays" in names(made.findings)


def test_a_build_that_looks_for_the_toolkit_by_a_function_is_remarked(tmp_path: Path) -> None:
    setup = (
        "from torch.utils.cpp_extension import BuildExtension, CppExtension\n"
        "def has_toolkit():\n"
        "    try:\n        return not call(['nvcc'])\n"
        "    except OSError:\n        return False\n"
        "modules = [CppExtension('x', ['x.cpp'])]\n"
        "if has_toolkit():\n    modules += [CUDAExtension('y', ['x.cu'])]\n"
        "setup(ext_modules=modules)\n"
    )
    made = planned(tmp_path, "cpu", setup=EXTENSION + setup)
    assert "cuda-stays" in names(made.findings)


def test_names_in_a_table_are_not_taken_for_targets(tmp_path: Path) -> None:
    """They may be words that the build looks for: which targets follow is not known."""
    setup = (
        "ALIASES = {'9.0a': ('9a', 'sm_90a'), '10.0a': ('10a', 'compute_100a')}\n"
        "has = any(word in os.environ.get('TORCH_CUDA_ARCH_LIST', '') for word in ALIASES)\n"
        "setup(ext_modules=[CUDAExtension('x', ['x.cu'])])\n"
    )
    made = planned(tmp_path, "cu130-sm90", setup=EXTENSION + setup)
    assert made.statements[0].text == "not known"
    assert environment_of(made)["TORCH_CUDA_ARCH_LIST"] == "9.0"


def test_a_name_after_the_flag_that_takes_it_is_a_target(tmp_path: Path) -> None:
    setup = (
        "flags = ['-arch', 'sm_90']\n"
        "setup(ext_modules=[CUDAExtension('x', ['x.cu'], extra_compile_args={'nvcc': flags})])\n"
    )
    assert targets_of(planned(tmp_path, "cu130-sm90", setup=EXTENSION + setup)).fixed


def test_targets_of_one_configuration_are_not_denied(tmp_path: Path) -> None:
    """The list of CMake is replaced where the back end is chosen."""
    text = (
        'project(lib CXX)\nset(LIB_BACKEND 0 CACHE STRING "0 - Vulkan, 1 - CUDA")\n'
        "if(${LIB_BACKEND} EQUAL 1)\nenable_language(CUDA)\nadd_library(k k.cu)\n"
        "set_property(TARGET k PROPERTY CUDA_ARCHITECTURES 60 70)\nendif()\n"
    )
    made = planned(tmp_path, "cu130-sm90", cmake=text)
    assert made.statements[0].text == "not known"


def test_a_property_of_a_library_replaces_the_list_for_amd_too(tmp_path: Path) -> None:
    text = (
        'project(lib CXX)\noption(USE_HIP "" OFF)\nif(USE_HIP)\nenable_language(HIP)\n'
        'add_library(k k.hip)\nset_target_properties(k PROPERTIES HIP_ARCHITECTURES "gfx90a")\n'
        "endif()\n"
    )
    made = planned(tmp_path, "rocm-gfx942", cmake=text)
    assert made.statements[0].text == "not known"


def test_a_property_of_a_test_says_nothing_of_the_library(tmp_path: Path) -> None:
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests/CMakeLists.txt").write_text(
        "set_target_properties(t PROPERTIES CUDA_ARCHITECTURES 60)\n"
    )
    text = "project(lib CXX CUDA)\nadd_library(k k.cu)\nadd_subdirectory(tests)\n"
    assert targets_of(planned(tmp_path, "cu130-sm90", cmake=text)).cubins == ("9.0",)


def test_a_version_that_another_compiler_needs_is_not_that_of_cuda(tmp_path: Path) -> None:
    refusal = (
        'if(CMAKE_CUDA_COMPILER_VERSION VERSION_LESS 14.0)\nmessage(FATAL_ERROR "x")\nendif()\n'
    )
    text = f'project(lib CXX CUDA)\nif(CMAKE_CUDA_COMPILER_ID STREQUAL "Clang")\n{refusal}endif()\n'
    made = planned(tmp_path, "cu130-sm90", cmake=text + "add_library(k k.cu)\n")
    assert targets_of(made).cubins == ("9.0",)
    with pytest.raises(UsageError, match=r"needs CUDA 14\.0 or newer"):
        planned(tmp_path, "cu130-sm90", cmake=f"project(lib CXX CUDA)\n{refusal}")


def test_device_code_below_a_back_end_that_is_not_read_may_stay(tmp_path: Path) -> None:
    system = '[build-system]\nrequires = ["meson-python"]\nbuild-backend = "mesonpy"\n'
    (tmp_path / "kernel.cu").touch()
    (tmp_path / "a.cpp").touch()
    made = planned(tmp_path, "cpu", **{"pyproject.toml": f'{system}[project]\nname = "mini"\n'})
    assert "cuda-stays" in names(made.findings)


ONE_LIST = """
project(lib CXX CUDA)
set(LIB_GPU_ARCH sm_70 CACHE STRING "the GPU")
string(REGEX REPLACE sm_ "" DIGITS ${LIB_GPU_ARCH})
SETTING
add_library(a x.cu)
"""


@pytest.mark.parametrize(
    ("setting", "known"),
    [
        ("set(CMAKE_CUDA_ARCHITECTURES ${DIGITS})", False),
        ("list(APPEND CMAKE_CUDA_ARCHITECTURES ${DIGITS}-virtual)", False),
        ("if(NOT CMAKE_CUDA_ARCHITECTURES)\nset(CMAKE_CUDA_ARCHITECTURES ${D})\nendif()", True),
    ],
)
def test_targets_that_the_project_computes_from_its_own_list_are_not_stated(
    tmp_path: Path, setting: str, known: bool
) -> None:
    (tmp_path / "x.cu").touch()
    made = planned(tmp_path, "cu130-sm90", cmake=ONE_LIST.replace("SETTING", setting))
    assert made.targets
    assert made.targets.cubins == (("9.0",) if known else ())


def test_a_project_that_calls_nvcc_itself_does_not_read_the_list_of_cmake(tmp_path: Path) -> None:
    cmake = (
        "project(lib CXX)\nfind_package(CUDA REQUIRED)\nset(CUDA_ARCH 50 CACHE STRING targets)\n"
        'set(COMPILER nvcc)\nset(CUDA_NVCC_FLAGS "--generate-code arch=compute_${CUDA_ARCH},'
        'code=sm_${CUDA_ARCH}")\ncuda_add_library(a x.cu)\n'
    )
    made = planned(tmp_path, "cu130-sm90", cmake=cmake)
    assert made.targets
    assert made.targets.cubins == ()


CHOICE_OF_GPU = """
set(KINDS CUDA HIP SYCL)
set(DEFAULT_KIND CUDA)
set(LIB_TARGET_TYPE "${DEFAULT_KIND}" CACHE STRING "which")
set_property(CACHE LIB_TARGET_TYPE PROPERTY STRINGS ${KINDS})
project(lib CXX)
if(LIB_TARGET_TYPE STREQUAL "CUDA")
enable_language(CUDA)
elseif(LIB_TARGET_TYPE STREQUAL "HIP")
enable_language(HIP)
endif()
add_library(a x.cu)
"""


def test_a_choice_that_only_names_gpus_has_no_cpu_build(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="has no cpu back end"):
        planned(tmp_path, "cpu", cmake=CHOICE_OF_GPU)
    made = planned(tmp_path, "mi300x", cmake=CHOICE_OF_GPU)
    assert cmake_of(made)["LIB_TARGET_TYPE"] == "HIP"

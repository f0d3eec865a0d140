"""What a plan sets and states for a tree without a recipe, from its own files."""

from pathlib import Path

import pytest

from stoker.model.errors import UsageError
from stoker.model.evidence import EvidenceKind
from stoker.model.source import FrontEnd
from stoker.source.tree import read_tree
from subjects import (
    EXTENSION,
    cmake_of,
    environment_of,
    gpu,
    linux,
    named,
    names,
    plan,
    planned,
    targets_of,
)

SWITCHED = """
def is_set(flag):
    return os.getenv(flag, "FALSE").lower() in ["true", "1"]
flags = []
if not is_set("LIB_DISABLE_SM100"):
    flags += ["-gencode", "arch=compute_100f,code=sm_100f"]
if not is_set("LIB_DISABLE_SM90"):
    flags += ["-gencode", "arch=compute_90a,code=sm_90a"]
setup(ext_modules=[CUDAExtension("x", ["x.cu"], extra_compile_args={"nvcc": flags})])
"""


def test_targets_that_variables_leave_out(tmp_path: Path) -> None:
    made = planned(tmp_path, "cu130-sm90", setup=EXTENSION + SWITCHED)
    assert environment_of(made)["LIB_DISABLE_SM100"] == "1"
    assert not {"LIB_DISABLE_SM90", "TORCH_CUDA_ARCH_LIST"} & environment_of(made).keys()
    assert (targets_of(made).cubins, targets_of(made).fixed) == (("9.0a",), True)
    (targets,) = made.statements
    assert targets.evidence.kind is EvidenceKind.READ
    assert targets.evidence.where == "setup.py:9"


def test_a_gpu_that_no_target_of_the_tree_runs_on_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"none of them runs on 8\.9"):
        planned(tmp_path, "cu130-sm89", setup=EXTENSION + SWITCHED)


def test_a_target_that_this_cuda_cannot_make_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"CUDA 12\.8 cannot make 10\.0f"):
        planned(tmp_path, "cu128-sm100", setup=EXTENSION + SWITCHED)


COMPUTED = """
CAPS = os.getenv("COMPUTE_CAPABILITIES", "75,80,90")
flags = [f"-gencode=arch=compute_{c},code=sm_{c}" for c in CAPS.split(",")]
if cc < 75:
    raise RuntimeError("capability below 7.5")
other = get({80, 90})
setup(ext_modules=[CUDAExtension("x", ["x.cu"])])
"""


def test_a_variable_whose_default_shows_its_form(tmp_path: Path) -> None:
    made = planned(tmp_path, "cu130-sm89", setup=EXTENSION + COMPUTED)
    assert environment_of(made)["COMPUTE_CAPABILITIES"] == "89"
    assert targets_of(made).cubins == ("8.9",)
    assert targets_of(made).accepted == ("8.0", "9.0")
    assert "gpu-choice-unset" not in names(made.findings)


def test_a_gpu_that_the_build_refuses(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"below 7\.5, such as 7\.0"):
        planned(tmp_path, "cu126-sm70", setup=EXTENSION + COMPUTED)


def test_targets_that_are_not_known_are_not_stated(tmp_path: Path) -> None:
    text = "flags = [f'-gencode=arch=compute_{c},code=sm_{c}' for c in found()]\n"
    text += 'setup(ext_modules=[CUDAExtension("x", ["x.cu"])])\n'
    made = planned(tmp_path, "cu130-sm90", setup=EXTENSION + text)
    assert targets_of(made).cubins == ()
    (statement,) = made.statements
    assert (statement.about, statement.text) == ("targets", "not known")
    assert statement.evidence.kind is EvidenceKind.ASSUMED
    assert "setup.py:2" in statement.evidence.where


def test_a_host_only_extension_compiles_no_device_code(tmp_path: Path) -> None:
    text = 'setup(ext_modules=[CUDAExtension("x", ["x.cpp"])])\n'
    made = planned(tmp_path, "cu130-sm90", setup=EXTENSION + text, **{"jit.cu": "kernel"})
    assert not targets_of(made).compiles
    (statement,) = made.statements
    assert (statement.about, statement.text) == ("device code", "none is compiled")


def test_a_package_that_compiles_nothing(tmp_path: Path) -> None:
    text = "from setuptools import setup\nsetup(name='x')\n"
    made = planned(tmp_path, "cu130-sm90", setup=text, **{"kernel.cu": "kernel"})
    assert not targets_of(made).compiles
    assert not {"FORCE_CUDA", "CUDACXX", "TORCH_CUDA_ARCH_LIST"} & environment_of(made).keys()


def test_an_argument_of_setup_that_chooses_the_back_end(tmp_path: Path) -> None:
    text = EXTENSION.replace("CUDAExtension", "CppExtension, CUDAExtension")
    text += 'CPU = "--cpu_only" in argv\nCUDA = "--force_cuda" in argv\nargv.remove(x)\n'
    text += 'setup(ext_modules=[(CppExtension if CPU else CUDAExtension)("x", ["x.cu"])])\n'
    made = planned(tmp_path, "cu130-sm90", setup=text)
    assert made.backend_settings == {"--build-option": "--force_cuda"}
    assert "-C--build-option=--force_cuda" in made.commands[-1].words
    made = planned(tmp_path, "cpu", setup=text)
    assert made.backend_settings == {"--build-option": "--cpu_only"}


CHOICES = """project(lib CXX)
set(LIB_GPU OFF CACHE STRING "GPU")
set_property(CACHE LIB_GPU PROPERTY STRINGS OFF CUDA HIP)
option(LIB_CLANG_CUDA "use clang" OFF)
find_package(CUDAToolkit 12.8 REQUIRED)
add_library(a x.cu)
"""


def test_an_option_of_several_choices_switches_the_back_end_on(tmp_path: Path) -> None:
    made = planned(tmp_path, "cu130-sm90", cmake=CHOICES)
    assert cmake_of(made)["LIB_GPU"] == "CUDA"
    assert "LIB_CLANG_CUDA" not in cmake_of(made)
    assert "LIB_GPU" not in cmake_of(planned(tmp_path, "cpu", cmake=CHOICES))


def test_the_cuda_that_find_package_wants(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"needs CUDA 12\.8 or newer"):
        planned(tmp_path, "cu126-sm90", cmake=CHOICES)


def test_options_that_are_one_target_each(tmp_path: Path) -> None:
    text = 'project(lib CXX)\noption(Lib_ENABLE_CUDA "CUDA" ${DEFAULT})\n'
    text += 'option(Lib_ARCH_ADA89 "NVIDIA Ada CC 8.9" OFF)\n'
    text += 'option(Lib_ARCH_HOPPER90 "NVIDIA Hopper CC 9.0" OFF)\n'
    made = planned(tmp_path, "cu130-sm90", cmake=text)
    assert cmake_of(made)["Lib_ARCH_HOPPER90"] == "ON"
    assert cmake_of(made)["Lib_ENABLE_CUDA"] == "ON"
    assert "Lib_ARCH_ADA89" not in cmake_of(made)
    assert (targets_of(made).cubins, targets_of(made).compiles) == (("9.0",), True)
    assert cmake_of(planned(tmp_path, "cpu", cmake=text))["Lib_ENABLE_CUDA"] == "OFF"


def test_native_code_is_switched_off(tmp_path: Path) -> None:
    text = 'project(lib CXX)\noption(LIB_NATIVE "for this machine" ${DEFAULT})\n'
    text += "if(LIB_NATIVE)\n  add_compile_options(-march=native)\nendif()\n"
    made = planned(tmp_path, "cpu", cmake=text)
    assert cmake_of(made)["LIB_NATIVE"] == "OFF"
    assert "native-code" not in names(made.findings)


@pytest.mark.parametrize(
    "text",
    [
        "project(lib CXX)\nadd_compile_options(-march=native)\n",
        """project(lib CXX)
        set(LIB_SIMD AUTO CACHE STRING "SIMD instruction set")
        set_property(CACHE LIB_SIMD PROPERTY STRINGS AUTO None AVX2)
        """,
    ],
)
def test_native_code_that_stays_is_told(tmp_path: Path, text: str) -> None:
    finding = named(planned(tmp_path, "cpu", cmake=text).findings, "native-code")
    assert "CMakeLists.txt:2" in finding.evidence


def test_cuda_that_stays_in_a_cpu_build_is_told(tmp_path: Path) -> None:
    text = EXTENSION.replace("CUDAExtension", "CppExtension, CUDAExtension, CUDA_HOME")
    text += "if CUDA_HOME is not None:\n    sources = ['x.cu']\n"
    text += "setup(ext_modules=[CppExtension('x', sources)])\n"
    finding = named(planned(tmp_path, "cpu", setup=text).findings, "cuda-stays")
    assert "setup.py:2" in finding.evidence


def test_cuda_of_a_setup_that_calls_cmake_stays(tmp_path: Path) -> None:
    setup = (
        "import subprocess\nimport torch\nfrom setuptools import setup\n"
        "subprocess.check_call(['cmake', '-S', '.', '-B', 'build'])\nsetup(name='lib')\n"
    )
    cmake = "project(lib CXX)\nif(FOUND)\nenable_language(CUDA)\nadd_library(k k.cu)\nendif()\n"
    made = planned(tmp_path, "cpu", setup=setup, cmake=cmake, **{"h.cpp": "int x;"})
    assert "CMakeLists.txt:4" in named(made.findings, "cuda-stays").evidence


def test_choices_of_other_back_ends_are_not_told(tmp_path: Path) -> None:
    text = 'project(lib CXX)\noption(LIB_CUDA "CUDA" OFF)\nadd_library(a x.cu)\n'
    text += 'set(GPU_TARGETS "" CACHE STRING "AMD")\nset(SMT_MARCH_STR "" CACHE STRING "")\n'
    text += 'set(LIB_SYCL_TARGET "" CACHE STRING "")\nset(AMDGPU_TARGETS "" CACHE STRING "")\n'
    text += "if(LIB_HIP)\nset(MORE_GPU_TARGETS x CACHE STRING y)\nendif()\n"
    made = planned(tmp_path, "cu130-sm90", cmake=text)
    finding = named(made.findings, "gpu-choice-unset")
    assert finding.evidence == "GPU_TARGETS: CMakeLists.txt:4"


def test_a_cmake_project_whose_switch_was_not_found_is_not_called_free_of_kernels(
    tmp_path: Path,
) -> None:
    text = "project(lib CXX)\nif(LIB_KIND STREQUAL CUDA)\nenable_language(CUDA)\nendif()\n"
    made = planned(tmp_path, "cu130-sm90", cmake=text)
    assert (targets_of(made).compiles, targets_of(made).cubins) == (True, ())
    assert made.statements[0].text == "not known"


def test_missing_submodules_are_told(tmp_path: Path) -> None:
    (tmp_path / ".gitmodules").write_text('[submodule "x"]\n\tpath = ggml\n')
    made = planned(tmp_path, "cpu", cmake="project(lib CXX)\nadd_subdirectory(ggml)\n")
    assert named(made.findings, "submodules-missing").evidence == "ggml"


LITERAL = """
WITH_CUDA = torch.cuda.is_available() and CUDA_HOME is not None
if os.getenv("FORCE_CUDA", "0") == "1":
    WITH_CUDA = True
if WITH_CUDA:
    flags = ["-arch=sm_35", "-O2"]
    setup(ext_modules=[CUDAExtension("x", ["x.cu"], extra_compile_args={"nvcc": flags})])
"""


def test_a_target_of_every_build_with_cuda_is_fixed(tmp_path: Path) -> None:
    """The test around it is true in every build for a GPU."""
    with pytest.raises(UsageError, match=r"none of them runs on 9\.0") as refused:
        planned(tmp_path, "cu130-sm90", setup=EXTENSION + LITERAL)
    assert "3.5" in " ".join(refused.value.hints)


def test_a_target_of_builds_without_cuda_is_not_that_of_others(tmp_path: Path) -> None:
    text = LITERAL.replace("if WITH_CUDA:", "if not WITH_CUDA:")
    made = planned(tmp_path, "cu130-sm90", setup=EXTENSION + text)
    assert made.statements[0].text == "not known"


PARTS = """
project(Lib CXX)
option(BUILD_VECTOR_CUDA "Build the vector with CUDA" ON)
option(ENABLE_CUDA "Enable CUDA" OFF)
option(SUPERLU_CUDA "SuperLU has CUDA" OFF)
if(ENABLE_CUDA)
  enable_language(CUDA)
  add_library(a x.cu)
endif()
"""


def test_the_switch_of_the_whole_project_comes_before_those_of_parts(tmp_path: Path) -> None:
    made = planned(tmp_path, "cu130-sm90", cmake=PARTS)
    assert cmake_of(made)["ENABLE_CUDA"] == "ON"
    assert not {"SUPERLU_CUDA", "BUILD_VECTOR_CUDA"} & cmake_of(made).keys()


AT_RUN_TIME = """
project(Lib CXX)
find_package(CUDAToolkit QUIET)
if(CUDAToolkit_FOUND)
  set(LIB_BUILD_CUDA_LIB ON CACHE BOOL "Build the library for NVIDIA GPUs")
else()
  set(LIB_BUILD_CUDA_LIB OFF CACHE BOOL "Build the library for NVIDIA GPUs")
endif()
set(LIB_BUILD_PART_CUDA_LIB ON CACHE BOOL "Build a part of it")
file(GLOB KERNELS kernels/*.cu)
encode_kernels(${KERNELS})
"""


def test_kernels_that_cmake_does_not_compile(tmp_path: Path) -> None:
    """They are texts that a program compiles while it runs: no command enables CUDA."""
    made = planned(tmp_path, "cu130-sm90", cmake=AT_RUN_TIME)
    assert cmake_of(made)["LIB_BUILD_CUDA_LIB"] == "ON"
    assert not targets_of(made).compiles
    on_cpu = planned(tmp_path, "cpu", cmake=AT_RUN_TIME)
    assert cmake_of(on_cpu)["LIB_BUILD_CUDA_LIB"] == "OFF"


@pytest.mark.parametrize(
    "line",
    [
        "enable_language(CUDA)",
        "enable_language(${LANGUAGE})",
        "cuda_add_library(a ${KERNELS})",
        "add_custom_command(OUTPUT a.o COMMAND ${CUDA_NVCC_EXECUTABLE} -c a.cu)",
        "set_source_files_properties(a.cpp PROPERTIES LANGUAGE CUDA)",
        "project(other LANGUAGES CXX CUDA)",
    ],
)
def test_kernels_that_cmake_may_compile(tmp_path: Path, line: str) -> None:
    made = planned(tmp_path, "cu130-sm90", cmake=f"{AT_RUN_TIME}\n{line}\n")
    assert targets_of(made).compiles


@pytest.mark.parametrize(
    "line",
    [
        'option(LIB_WARNINGS "more warnings of nvcc" OFF)',
        "add_custom_target(c ALL COMMAND ${CMAKE_COMMAND} -E copy a.cu b.cu)",
        "list(APPEND CUDA_NVCC_FLAGS -O3)",
    ],
)
def test_kernels_that_are_only_spoken_of(tmp_path: Path, line: str) -> None:
    made = planned(tmp_path, "cu130-sm90", cmake=f"{AT_RUN_TIME}\n{line}\n")
    assert not targets_of(made).compiles


def test_the_folder_that_pyproject_names_is_what_is_built(tmp_path: Path) -> None:
    """The library beside it has kernels, and is not a part of the package."""
    (tmp_path / "python").mkdir()
    (tmp_path / "python/CMakeLists.txt").write_text(
        "project(bindings CXX)\nfind_package(lib)\nadd_library(b b.cpp)\noption(BINDINGS_CUDA x)\n"
    )
    pyproject = '[build-system]\nrequires = ["scikit-build-core"]\n'
    pyproject += 'build-backend = "scikit_build_core.build"\n[project]\nname = "lib"\n'
    pyproject += 'version = "1"\n[tool.scikit-build]\ncmake.source-dir = "python/"\n'
    library = "project(lib CXX CUDA)\noption(LIB_CUDA x)\nadd_library(a x.cu)\n"
    made = planned(tmp_path, "cu130-sm90", cmake=library, **{"pyproject.toml": pyproject})
    assert not targets_of(made).compiles
    assert cmake_of(made)["BINDINGS_CUDA"] == "ON"
    assert "LIB_CUDA" not in cmake_of(made)


def test_a_setup_that_python_cannot_read_is_not_what_is_built(tmp_path: Path) -> None:
    setup = "setup(name='lib', ext_modules=[Extension('lib'), language_level='3'])\n"
    cmake = "project(lib CXX)\noption(LIB_WITH_CUDA x OFF)\nenable_language(CUDA)\n"
    cmake += "add_library(a x.cu)\n"
    made = planned(tmp_path, "cu130-sm90", setup=setup, cmake=cmake)
    assert cmake_of(made)["LIB_WITH_CUDA"] == "ON"
    assert made.source
    assert made.source.front_end is FrontEnd.CMAKE


@pytest.mark.parametrize("project", ["lib CXX", "lib VERSION ${LIB_VERSION}"])
def test_find_cuda_takes_targets_as_flags(tmp_path: Path, project: str) -> None:
    """The plan set CMAKE_CUDA_ARCHITECTURES, which FindCUDA does not read: a version that project()
    takes from a variable was read as a language, which may be CUDA.
    """
    text = f"project({project})\noption(LIB_CUDA x OFF)\nfind_package(CUDA)\n"
    text += "cuda_add_library(a x.cu)\n"
    made = planned(tmp_path, "cu130-sm89-sm90", cmake=text)
    given = cmake_of(made)
    assert "CMAKE_CUDA_ARCHITECTURES" not in given
    assert given["CUDA_NVCC_FLAGS"] == (
        "-gencode=arch=compute_89,code=sm_89;-gencode=arch=compute_90,code=sm_90"
    )
    assert targets_of(made).cubins == ("8.9", "9.0")
    assert not any(finding.name == "setting-unread" for finding in made.findings)
    rival = text + 'set(LIB_CUDA_ARCHS "35" CACHE STRING x)\n'
    assert planned(tmp_path, "cu130-sm90", cmake=rival).statements[0].text == "not known"


NEEDS_GPU = """
if torch.cuda.is_available() and CUDA_HOME is not None:
    sources += ["x.cu"]
else:
    raise NotImplementedError("CUDA is not available")
setup(ext_modules=[CUDAExtension("x", sources)])
"""


def test_a_build_that_refuses_without_a_visible_gpu_is_told(tmp_path: Path) -> None:
    made = planned(tmp_path, "cu130-sm90", setup=EXTENSION + NEEDS_GPU)
    assert named(made.findings, "needs-visible-gpu").evidence.startswith("setup.py:3")
    seen = plan("cu130-sm90", tree=read_tree(tmp_path), machine=linux(gpus=(gpu(),)))
    assert "needs-visible-gpu" not in names(seen.findings)


def test_a_variable_that_forces_a_build_is_no_need_of_a_gpu(tmp_path: Path) -> None:
    forced = NEEDS_GPU.replace("if torch", 'if os.getenv("FORCE_CUDA") == "1" or torch')
    made = planned(tmp_path, "cu130-sm90", setup=EXTENSION + forced)
    assert "needs-visible-gpu" not in names(made.findings)


WITHOUT_GPU = """
def flags():
    if torch.cuda.is_available():
        return []
    else:
        return ["-arch=compute_60"]
setup(ext_modules=[CUDAExtension("x", ["x.cu"], extra_compile_args=flags())])
"""


def test_targets_of_a_machine_without_a_gpu(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"CUDA 13\.0 cannot make 6\.0"):
        planned(tmp_path, "cu130-sm90", setup=EXTENSION + WITHOUT_GPU)
    machine = linux(gpus=(gpu(),))
    made = plan("cu130-sm90", tree=read_tree(tmp_path), machine=machine)
    assert targets_of(made).cubins == ("9.0",)


@pytest.mark.parametrize(
    "text",
    [
        "project(lib LANGUAGES CXX CUDA)\nadd_library(a x.cu)\n",
        "project(lib CXX)\nfind_package(CUDA 7.0 REQUIRED)\ncuda_add_library(a x.cu)\n",
    ],
)
def test_a_project_that_always_needs_cuda_has_no_cpu_build(tmp_path: Path, text: str) -> None:
    with pytest.raises(UsageError, match="has no cpu back end"):
        planned(tmp_path, "cpu", cmake=text)
    planned(tmp_path, "cu130-sm90", cmake=text)


CONDITIONAL = """
cmake_minimum_required(VERSION 3.5)
project(lists)
find_package(CUDA)
set(CUDA_NVCC_FLAGS "${CUDA_NVCC_FLAGS} -gencode arch=compute_80,code=sm_80")
if(CUDA_VERSION GREATER 12.0)
  set(CUDA_NVCC_FLAGS "${CUDA_NVCC_FLAGS} -gencode arch=compute_90,code=sm_90")
endif()
cuda_add_library(lists a.cu)
"""


def test_a_list_that_a_condition_extends_is_at_least_that(tmp_path: Path) -> None:
    """A refusal needs all of its targets: the build compiles them where the condition holds."""
    made = planned(tmp_path, "cu128-sm80", cmake=CONDITIONAL)
    evidence = targets_of(made).evidence
    assert evidence
    assert str(evidence).startswith("assumed: at least these; CMakeLists.txt:7 adds others")
    assert targets_of(planned(tmp_path, "cu128-sm90", cmake=CONDITIONAL)).cubins == ("8.0", "9.0")
    with pytest.raises(UsageError, match=r"none of them runs on 12\.0"):
        planned(tmp_path, "cu128-sm120", cmake=CONDITIONAL)

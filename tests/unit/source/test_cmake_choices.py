"""What a CMake project lets its user choose: reads and sets, computed names, several choices."""

from pathlib import Path

from stoker.source.files import TreeFiles
from stoker.source.options import CMakeFacts, read_options


def read(folder: Path, text: str, **others: str) -> CMakeFacts:
    (folder / "CMakeLists.txt").write_text(text)
    for name, content in others.items():
        (folder / f"{name}.cmake").write_text(content)
    return read_options(TreeFiles(folder))


def asked(facts: CMakeFacts) -> dict[str, str]:
    return {ask.name: ask.where for ask in facts.asks}


def test_set_is_no_read(tmp_path: Path) -> None:
    facts = read(tmp_path, "project(lib)\nset(MY_ARCHS 70)\nset(USED 1)\nif(USED)\nendif()\n")
    assert asked(facts) == {}
    assert {"MY_ARCHS", "USED"} <= set(facts.variables)  # -D still knows the names


def test_a_value_that_is_set_only_if_it_is_missing_is_read(tmp_path: Path) -> None:
    text = "if(NOT DEFINED MY_ARCHS)\n  set(MY_ARCHS 70)\nendif()\nmessage(${MY_ARCHS})\n"
    assert asked(read(tmp_path, text)) == {"MY_ARCHS": "CMakeLists.txt:1"}
    text = 'set(MY_FLAGS "${MY_FLAGS} -O3")\nmessage(${MY_FLAGS})\n'
    assert asked(read(tmp_path, text)) == {"MY_FLAGS": "CMakeLists.txt:1"}


def test_a_list_that_only_grows_is_no_choice(tmp_path: Path) -> None:
    assert asked(read(tmp_path, "list(APPEND MY_SOURCES a.c)\n")) == {}


def test_options_with_computed_names(tmp_path: Path) -> None:
    facts = read(
        tmp_path,
        'include(macros)\ndevice_option(CUDA ${CUDA_DEFAULT} "build for CUDA")\n'
        'arch_option(HOPPER90 "NVIDIA Hopper CC 9.0")\n',
        macros="""
        function(lib_option SUFFIX DEFAULT TYPE TEXT)
          set(CAMEL Lib_${SUFFIX})
          string(TOUPPER ${CAMEL} UC)
          set(${CAMEL} ${DEFAULT} CACHE ${TYPE} ${TEXT})
          set(${UC} ${${CAMEL}} PARENT_SCOPE)
        endfunction()
        function(DEVICE_OPTION SUFFIX DEFAULT TEXT)
          lib_option(ENABLE_${SUFFIX} ${DEFAULT} BOOL ${TEXT})
        endfunction()
        macro(arch_option NAME TEXT)
          cmake_dependent_option(Lib_ARCH_${NAME} "Optimize for ${TEXT}" OFF "SHOW" OFF)
        endmacro()
        """,
    )
    options = {option.name: option for option in facts.options}
    assert set(options) == {"Lib_ENABLE_CUDA", "Lib_ARCH_HOPPER90"}
    assert options["Lib_ENABLE_CUDA"].default == "${CUDA_DEFAULT}"
    assert options["Lib_ENABLE_CUDA"].line == 2
    assert options["Lib_ARCH_HOPPER90"].help == "Optimize for NVIDIA Hopper CC 9.0"


def test_functions_that_call_each_other_end(tmp_path: Path) -> None:
    text = "function(a X)\n  option(${X} t OFF)\n  a(${X}_A)\n  a(${X}_B)\nendfunction()\na(Z)\n"
    assert len(read(tmp_path, text).options) < 1000


def test_an_option_of_several_choices(tmp_path: Path) -> None:
    facts = read(
        tmp_path,
        'include(macros)\nlib_choice(LIB_GPU "GPU" OFF OFF CUDA HIP)\n'
        'set(KIND cpu CACHE STRING "kind")\n'
        "set_property(CACHE KIND PROPERTY STRINGS cpu cuda)\n",
        macros="""
        function(LIB_CHOICE NAME TEXT DEFAULT)
          string(REPLACE "[own]" "" allowed "${ARGN}")
          set(${NAME} ${DEFAULT} CACHE STRING "${TEXT}")
          set_property(CACHE ${NAME} PROPERTY STRINGS ${allowed})
        endfunction()
        """,
    )
    choices = {option.name: (option.default, option.choices) for option in facts.options}
    assert choices == {"LIB_GPU": ("OFF", ("OFF", "CUDA", "HIP")), "KIND": ("cpu", ("cpu", "cuda"))}


def test_the_oldest_cuda(tmp_path: Path) -> None:
    text = "set(MIN 12.1)\nfind_package(CUDAToolkit ${MIN} REQUIRED)\n"
    minimum = read(tmp_path, text).cuda_minimum
    assert minimum
    assert (minimum.version, minimum.where) == ("12.1", "CMakeLists.txt:2")
    assert read(tmp_path, "find_package(CUDAToolkit 12.1)\n").cuda_minimum is None


def test_targets_that_the_tree_sets(tmp_path: Path) -> None:
    facts = read(tmp_path, "set(CMAKE_CUDA_ARCHITECTURES 80-real 90a)\n")
    found = {(target.arch, target.ptx) for target in facts.own_targets}
    assert found == {("8.0", False), ("9.0a", False), ("9.0a", True)}
    assert not any(target.conditional for target in facts.own_targets)
    facts = read(tmp_path, "if(X)\nset(CMAKE_CUDA_ARCHITECTURES 80)\nendif()\n")
    assert all(target.conditional for target in facts.own_targets)


def test_flags_of_targets(tmp_path: Path) -> None:
    facts = read(tmp_path, 'add_compile_options("--offload-arch=gfx942")\n')
    assert [(target.arch, target.amd) for target in facts.own_targets] == [("gfx942", True)]


def test_sources_of_the_build(tmp_path: Path) -> None:
    assert read(tmp_path, "add_library(a x.cpp)\n").device_source is None
    assert read(tmp_path, "add_library(a x.cpp y.cu)\n").device_source == "CMakeLists.txt:1"
    assert read(tmp_path, "file(GLOB S src/*.cu)\n").device_source == "CMakeLists.txt:1"


def test_instructions_of_the_build_machine(tmp_path: Path) -> None:
    text = 'add_compile_options(-march=native)\noption(LIB_NATIVE "native" ON)\n'
    text += "if(LIB_NATIVE)\nset(F -mcpu=native)\nendif()\n"
    found = read(tmp_path, text).native
    assert [(use.where, use.within) for use in found] == [
        ("CMakeLists.txt:1", None),
        ("CMakeLists.txt:4", "LIB_NATIVE"),
    ]


def test_choices_in_a_variable(tmp_path: Path) -> None:
    text = "set(KINDS NONE CUDA HIP)\nset(LIB_GPU NONE CACHE STRING x)\n"
    text += "set_property(CACHE LIB_GPU PROPERTY STRINGS ${KINDS})\n"
    assert read(tmp_path, text).options[0].choices == ("NONE", "CUDA", "HIP")


def test_targets_in_a_file_that_nothing_includes(tmp_path: Path) -> None:
    """Settings for one machine, such as host-configs, are no part of other configurations."""
    targets = "set(CMAKE_CUDA_ARCHITECTURES 70)\n"
    assert read(tmp_path, "project(x)\n", machine=targets).own_targets == ()
    chosen = "project(x)\nif(HOST)\n  include(${HOST})\nendif()\n"
    (lone,) = read(tmp_path, chosen, machine=targets).own_targets[:1]
    assert lone.conditional
    (included,) = read(tmp_path, "include(machine)\n", machine=targets).own_targets[:1]
    assert not included.conditional

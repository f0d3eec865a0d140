"""Options and variables, from texts and from trees, and as cmake itself caches them."""

import re
from pathlib import Path

import pytest

from conftest import PROJECTS, Need
from stoker.model.source import CMakeOption, OptionKind
from stoker.outside import process
from stoker.source.files import TreeFiles
from stoker.source.options import CMakeFacts, CMakeProject, read_options


def read(folder: Path, text: str) -> CMakeFacts:
    (folder / "CMakeLists.txt").write_text(text)
    return read_options(TreeFiles(folder))


def only(folder: Path, text: str) -> CMakeOption:
    (option,) = read(folder, text).options
    return option


def test_an_option(tmp_path: Path) -> None:
    text = '\nOPTION(USE_X\n  "Use\\\n  X"\n  ON)'
    assert only(tmp_path, text) == CMakeOption(
        name="USE_X",
        kind=OptionKind.OPTION,
        type="BOOL",
        default="ON",
        help="Use X",
        file="CMakeLists.txt",
        line=2,
    )


@pytest.mark.parametrize(
    ("value", "default"),
    [("", "OFF"), ("True", "ON"), ("1", "ON"), ("0", "OFF"), ('""', "OFF"), ("${X}", "${X}")],
)
def test_an_option_is_on_or_off(tmp_path: Path, value: str, default: str) -> None:
    assert only(tmp_path, f'option(A "help" {value})').default == default


def test_a_dependent_option(tmp_path: Path) -> None:
    text = 'cmake_dependent_option(NCCL "help" ON "CUDA OR ROCM;UNIX;NOT APPLE" OFF)'
    option = only(tmp_path, text)
    assert (option.kind, option.default, option.otherwise) == (OptionKind.DEPENDENT, "ON", "OFF")
    assert option.condition == "(CUDA OR ROCM) AND UNIX AND NOT APPLE"


def test_a_cached_variable(tmp_path: Path) -> None:
    option = only(tmp_path, 'set(FLAGS -a "-b c" CACHE STRING "some flags")')
    assert (option.kind, option.type) == (OptionKind.CACHED, "STRING")
    assert (option.default, option.help) == ("-a;-b c", "some flags")


@pytest.mark.parametrize(
    "text",
    [
        'set(A ON CACHE BOOL "the tree decides" FORCE)',
        'set(A ON CACHE INTERNAL "not for users")',
        'set(${name} ON CACHE BOOL "a computed name")',
        'option(${name}_TESTS "a computed name" ON)',
        'cmake_dependent_option(A "too few" ON)',
        "option()",
        'message("option(A \\"in a string\\" ON)")',
        '#[[ option(A "in a comment" ON) ]]',
    ],
)
def test_what_is_no_option(tmp_path: Path, text: str) -> None:
    assert read(tmp_path, text).options == ()


def test_the_blocks_that_enclose_an_option(tmp_path: Path) -> None:
    text = """
        option(NONE "" ON)
        if(A OR B)
          option(IF "" ON)
          if(C)
          elseif(NOT D)
            option(ELSEIF "" ON)
          else()
            option(ELSE "" ON)
          endif()
        else()
          option(OUTER_ELSE "" ON)
        endif(A OR B)
        option(AFTER "" ON)
    """
    assert {option.name: option.within for option in read(tmp_path, text).options} == {
        "NONE": None,
        "IF": "A OR B",
        "ELSEIF": "(A OR B) AND NOT C AND NOT D",
        "ELSE": "(A OR B) AND NOT C AND D",
        "OUTER_ELSE": "NOT (A OR B)",
        "AFTER": None,
    }


def test_blocks_that_do_not_match_do_no_harm(tmp_path: Path) -> None:
    text = 'endif()\nelse()\nelseif(A)\nif(B)\nif(C)\noption(X "" ON)'
    assert only(tmp_path, text).within == "B AND C"


def test_names_that_are_read_or_set_are_known(tmp_path: Path) -> None:
    facts = read(
        tmp_path,
        """
        option(USE_CUDNN "" ON)
        set(SET_HERE 1)
        message("${READ_IN_STRING} $ENV{FROM_ENVIRONMENT} $CACHE{READ_FROM_CACHE}")
        if(DEFINED ASKED_FOR AND NOT DEFINED ENV{ASKED_OF_ENVIRONMENT} AND TARGET SOME_TARGET)
        endif()
        list(APPEND APPENDED x)
        find_library(FOUND_LIBRARY NAMES CANDIDATE)
        find_package(OpenBLAS REQUIRED)
        cmake_dependent_option(USE_MPS "" ON "MPS_FOUND" OFF)
        set(_private ${_PRIVATE} ${lower} ${mixedCase})
        foo([[${IN_BRACKETS}]])
        """,
    )
    assert facts.variables == (
        "APPENDED",
        "ASKED_FOR",
        "FOUND_LIBRARY",
        "MPS_FOUND",
        "OpenBLAS_DIR",
        "OpenBLAS_ROOT",
        "READ_FROM_CACHE",
        "READ_IN_STRING",
        "SET_HERE",
    )


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("project(Torch CXX C)", CMakeProject(name="Torch", version=None)),
        ("project(a VERSION 1.2.3 LANGUAGES C)", CMakeProject(name="a", version="1.2.3")),
        ("project(a VERSION ${V})", CMakeProject(name="a", version=None)),
        ("project(a VERSION)", CMakeProject(name="a", version=None)),
        ("project(${NAME})", None),
        ("message(project)", None),
    ],
)
def test_the_project(tmp_path: Path, text: str, expected: CMakeProject | None) -> None:
    assert read(tmp_path, text).project == expected


def test_languages_of_gpus(tmp_path: Path) -> None:
    assert read(tmp_path, "project(a LANGUAGES CXX CUDA)\nenable_language(HIP)").gpu_languages == {
        "CUDA",
        "HIP",
    }
    assert not read(tmp_path, "project(a CXX)\nfind_package(CUDA)").gpu_languages


def test_files_are_read_from_the_root_on_but_not_those_of_others(tmp_path: Path) -> None:
    for file in (
        "sub/CMakeLists.txt",
        "cmake/Modules/FindX.cmake",
        "a/b.cmake",
        "third_party/x/CMakeLists.txt",
        "build/CMakeLists.txt",
        ".git/CMakeLists.txt",
        "made/CMakeLists.txt",
    ):
        (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / file).write_text('option(A "" ON)')
    (tmp_path / "made/CMakeCache.txt").touch()
    text = 'option(A "" ON)\nfind_package(X)\ninclude(a/b.cmake)\nadd_subdirectory(sub)\n'
    facts = read(tmp_path, f"{text}include(${{CMAKE_BINARY_DIR}}/made/CMakeLists.txt)\n")
    assert [option.file for option in facts.options] == [
        "CMakeLists.txt",
        "cmake/Modules/FindX.cmake",
        "a/b.cmake",
        "sub/CMakeLists.txt",
    ]


def test_a_broken_file_is_noted_and_the_others_are_read(tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub/CMakeLists.txt").write_text('option(B "" ON)')
    (tmp_path / "CMakeLists.txt").write_bytes(b'option(A "caf\xe9" ON)\noption(C "cut')
    files = TreeFiles(tmp_path)
    assert [option.name for option in read_options(files).options] == ["A", "B"]
    assert files.notes == [
        "CMakeLists.txt:1: not UTF-8; bytes that cannot be decoded were replaced",
        "CMakeLists.txt:2: the quoted argument is never closed; what follows was not read",
    ]


def cached(build: Path) -> dict[str, tuple[str, str, str]]:
    """Help, type and value of each entry of a CMake cache."""
    text = (build / "CMakeCache.txt").read_text()
    entries = re.findall(r"^//(.*)\n(?://.*\n)*(\w+):(\w+)=(.*)$", text, re.MULTILINE)
    return {name: (help_text, kind, value) for help_text, name, kind, value in entries}


@pytest.mark.parametrize("tree", ["mini-cmake", "mini-pytorch"])
def test_cmake_declares_the_same(tree: str, tmp_path: Path, need: Need) -> None:
    need("ninja")
    places = ("-S", str(PROJECTS / tree), "-B", str(tmp_path))
    process.check([need("cmake"), "-G", "Ninja", *places, "-DUSE_CUDA=OFF"], timeout=200)
    entries = cached(tmp_path)
    declared = [
        option
        for option in read_options(TreeFiles(PROJECTS / tree)).options
        if option.kind is not OptionKind.DEPENDENT
        and option.within in (None, "NOT INTERN_BUILD_MOBILE")
        and option.name != "USE_CUDA"
    ]
    assert len(declared) >= 3
    for option in declared:
        help_text, kind, value = entries[option.name]
        assert (option.type, option.default) == (kind, value)
        assert option.help.startswith(help_text.strip())

"""Comparing CMake's final options with the requested ones, with a real CMake if necessary."""

import subprocess
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from conftest import Need
from stoker.builds.configured import answer_file, probe_files, read_answer, switched_off
from subjects import changed, cmake_option, cmake_tree

LOG = """\
-- Looking for other things - not found
-- Could NOT find ZLIB (missing: ZLIB_LIBRARY)
CMake Warning at CMakeLists.txt:12 (message):
  NUMA is currently only supported under Linux. Disabling it
-- Could NOT find CUDNN (missing: CUDNN_LIBRARY_PATH)
  Cannot find cuDNN library. Turning the option off
"""


def test_the_reason_is_what_the_log_says_of_it() -> None:
    tree = cmake_tree()
    (off,) = switched_off(["USE_CUDNN", "USE_MPI"], {"USE_CUDNN": "OFF"}, LOG, tree)
    assert off.name == "USE_CUDNN"
    assert off.lines == (
        "-- Could NOT find CUDNN (missing: CUDNN_LIBRARY_PATH)",
        "Cannot find cuDNN library. Turning the option off",
    )
    assert off.libraries == ("cudnn",)


def test_without_a_message_a_missing_library_is_the_likely_reason() -> None:
    (off,) = switched_off(["WITH_SHRINKING"], {"WITH_SHRINKING": "0"}, LOG, cmake_tree())
    assert len(off.lines) == 2
    assert off.libraries == ("shrinking", "zlib", "cudnn")


def test_the_condition_of_a_dependent_option_is_a_reason() -> None:
    option = changed(cmake_option("USE_NCCL"), condition="USE_CUDA;UNIX")
    (off,) = switched_off(["USE_NCCL"], {"USE_NCCL": ""}, "", cmake_tree(options=(option,)))
    assert off.lines == ("USE_NCCL needs USE_CUDA;UNIX",)


def test_what_is_on_is_on() -> None:
    found = {"A": "ON", "B": "1", "C": "/usr/lib/libc.so"}
    assert switched_off(found, found, LOG, cmake_tree()) == ()


@given(st.text(), st.text())
def test_any_text_is_read(answer: str, log: str) -> None:
    switched_off(["USE_CUDNN"], read_answer(answer), log, cmake_tree())


def test_cmake_tells_what_a_plain_variable_hides(tmp_path: Path, need: Need) -> None:
    """Of the top folder, not of a project below it; names that are none are left out."""
    tree, build = tmp_path / "a tree", tmp_path / "build"
    (tree / "below").mkdir(parents=True)
    (tree / "below" / "CMakeLists.txt").write_text("project(Below NONE)\nset(USE_B WRONG)\n")
    (tree / "CMakeLists.txt").write_text(
        "cmake_minimum_required(VERSION 3.18)\nproject(Top NONE)\n"
        "option(USE_A a ON)\noption(USE_B b ON)\nadd_subdirectory(below)\nset(USE_A OFF)\n"
    )
    probe = probe_files(tmp_path / "probe folder", ["USE_A", "USE_B", "$(rm)"])
    words = ["-S", str(tree), "-B", str(build), f"-DCMAKE_PROJECT_INCLUDE={probe}"]
    subprocess.run([need("cmake"), *words], check=True, capture_output=True)
    assert read_answer(answer_file(build).read_text()) == {"USE_A": "OFF", "USE_B": "ON"}

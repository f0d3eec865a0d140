"""Builds that fetch files while they are configured, asked in a room without a network."""

import sys
from pathlib import Path

import pytest

from conftest import find_tool
from stoker.ask.asking import AskedPlan, ask, asked_remarks, planned
from stoker.plan.survey import survey
from stoker.settings.declared import CommandLine

pytestmark = pytest.mark.usefixtures("_closed_room")

FETCHES = """
cmake_minimum_required(VERSION 3.18)
project(fetches LANGUAGES CXX)
include(FetchContent)
FetchContent_Declare(other GIT_REPOSITORY https://stoker.invalid/other.git)
FetchContent_MakeAvailable(other)
add_library(base base.cpp)
"""
KERNELS = """
enable_language(CUDA)
add_library(kernels kernels.cu)
target_link_libraries(kernels other)
"""
SETUP = """
import subprocess
from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext
class Build(build_ext):
    def build_extensions(self):
        subprocess.check_call(["cmake", "-S", ".", "-B", "made", "-G", "Ninja"])
        subprocess.check_call(["cmake", "--build", "made"])
extension = Extension("fetches", ["kernels.cu"])
setup(name="fetches", version="1", ext_modules=[extension], cmdclass={"build_ext": Build})
"""


def asked(tree: Path, cmake: str, setup: str = "") -> AskedPlan:
    for tool in ("cmake", "ninja", "nvcc", "git"):
        find_tool(tool)
    (tree / "CMakeLists.txt").write_text(cmake)
    (tree / "base.cpp").write_text("int base;\n")
    (tree / "kernels.cu").write_text("__global__ void kernel() {}\n")
    if setup:
        (tree / "setup.py").write_text(setup)
    options = {"variant": "cuda-sm90", "source": str(tree), "python": sys.executable}
    return ask(survey(CommandLine(options=options)))


@pytest.mark.parametrize("setup", ["", SETUP])
def test_what_does_not_depend_on_fetched_files_is_asked(tmp_path: Path, setup: str) -> None:
    """The answer ended at the first file that is fetched, so that nothing was known."""
    result = asked(tmp_path, FETCHES + KERNELS, setup)
    assert result.asked.device_compiles == 1, result.asked
    plan = planned(result.subject)
    (told,) = (f for f in asked_remarks(plan, result.asked) if f.name == "asked-offline")
    assert "is not known" in told.title
    assert plan.estimate.wall_s.at_least, "what is fetched is compiled too"


def test_nothing_is_said_of_a_build_whose_kernels_may_be_fetched(tmp_path: Path) -> None:
    result = asked(tmp_path, f"{FETCHES}if(other_SOURCE_DIR_IS_THERE){KERNELS}endif()\n")
    assert "stoker.invalid" in result.asked.offline
    assert (result.asked.answered, result.subject.asked) == (False, None)

"""The tools that people build with, under `stoker run`: every compiler they start is governed."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from conftest import Need, Stoker

MODULE = """
#include <Python.h>
int grind();
static PyObject* turn(PyObject*, PyObject*) { return PyLong_FromLong(grind()); }
static PyMethodDef methods[] = {{"turn", turn, METH_NOARGS, ""}, {nullptr, nullptr, 0, nullptr}};
static PyModuleDef module = {PyModuleDef_HEAD_INIT, "_stone", "", -1, methods};
PyMODINIT_FUNC PyInit__stone() { return PyModule_Create(&module); }
"""
SETUP = """
from setuptools import Extension, setup
setup(ext_modules=[Extension("gristmill._stone", ["stone.cpp", "grind.cpp"])])
"""
PROJECT = """
[build-system]
requires = ["setuptools"]
build-backend = "setuptools.build_meta"
[project]
name = "gristmill"
version = "1.0"
[tool.setuptools]
packages = ["gristmill"]
"""
CMAKE = """
cmake_minimum_required(VERSION 3.20)
project(mill CXX)
add_library(mill STATIC grind.cpp stone.cpp)
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    folder = tmp_path / "gristmill"
    (folder / "gristmill").mkdir(parents=True)
    (folder / "gristmill/__init__.py").write_text("from gristmill._stone import turn\n")
    files = {"pyproject.toml": PROJECT, "setup.py": SETUP, "stone.cpp": MODULE}
    files["grind.cpp"] = "int grind() { return 42; }\n"
    for name, text in files.items():
        (folder / name).write_text(text)
    return folder


def governed(stoker: Stoker) -> list[str]:
    """Return the sources of the only run, and `link` for each link."""
    done = stoker("history", "1", "--json")
    assert done.returncode == 0, done.stderr
    steps = [attempt["record"]["step"] for attempt in json.loads(done.stdout)["steps"]]
    return sorted("link" if one["role"] == "link" else Path(one["source"]).name for one in steps)


@pytest.mark.slow
@pytest.mark.parametrize(
    "words",
    [
        ("uv", "build", "--wheel", "--no-build-isolation", "--python", sys.executable),
        (
            "uv",
            *[
                "pip",
                "install",
                ".",
                "--no-deps",
                "--no-build-isolation",
                "--target",
                "out",
                "--python",
            ],
            sys.executable,
        ),
        (sys.executable, "-m", "pip", "wheel", "--no-deps", "--no-build-isolation", "."),
    ],
    ids=["uv build", "uv pip install", "pip wheel"],
)
def test_compilers_of_package_managers(
    words: tuple[str, ...], project: Path, stoker: Stoker, need: Need
) -> None:
    if words[0] == "uv":
        need("uv")
    done = stoker("run", "--cache", "none", "--", *words, cwd=project)
    assert done.returncode == 0, done.stderr
    assert governed(stoker) == ["grind.cpp", "link", "stone.cpp"]


def test_editors_read_the_same_compile_commands(tmp_path: Path, stoker: Stoker, need: Need) -> None:
    cmake, ninja = need("cmake"), need("ninja")
    source, build = tmp_path / "source", tmp_path / "build"
    source.mkdir()
    (source / "CMakeLists.txt").write_text(CMAKE)
    (source / "grind.cpp").write_text("int grind() { return 42; }\n")
    (source / "stone.cpp").write_text("int stone() { return 7; }\n")
    words = [cmake, "-S", str(source), "-B", str(build), "-G", "Ninja"]
    words += [f"-DCMAKE_MAKE_PROGRAM={ninja}", "-DCMAKE_EXPORT_COMPILE_COMMANDS=ON"]
    subprocess.run(words, check=True, capture_output=True)
    without = (build / "compile_commands.json").read_bytes()
    shutil.rmtree(build)
    done = stoker("run", "--", *words)
    assert done.returncode == 0, done.stderr
    assert (build / "compile_commands.json").read_bytes() == without

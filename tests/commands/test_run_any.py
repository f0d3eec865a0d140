"""Builds that are not configured for stoker, under `stoker run` and the real governor.

How many compilers started is counted by the compilers: the tests put scripts in their place that
write down each start.
"""

import os
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from conftest import MACHINE_PATH, TOOLS, Need, as_root, missing
from counted_compilers import Project
from governed import STOKER, Build, finished
from memory_groups import MakeGroup
from stoker.model.govern import Role
from stoker.model.runs import RunSummary

MIB = 1 << 20


@pytest.fixture
def project(build: Build, need: Need) -> Project:
    return Project(build, need)


MAKEFILE = """
CC = gcc
VERSION := $(shell $(CC) -dumpversion)
program: main.o s1.o s2.o s3.o sub
	$(CC) -o $@ main.o s0.o s1.o s2.o s3.o
s0.o: s0.c
	@mkdir -p made && $(CC) -c $< -o $@ && touch made/$@
%.o: %.c
	$(CC) -c $< -o $@
sub:
	$(MAKE) s0.o
.PHONY: sub
"""


@pytest.mark.parametrize("words", ["make", "make -j4", "make -j4 SHELL=/bin/bash", "make -j"])
def test_a_plain_makefile(project: Project, need: Need, words: str) -> None:
    """With a make below make, which shares its jobs."""
    need("make")
    project.sources()
    project.write(Makefile=MAKEFILE)
    done = project.is_the_same_governed(*words.split(), steps=6)
    assert "jobserver unavailable" not in done.err


CMAKE = """
cmake_minimum_required(VERSION 3.16)
project(p C CXX)
add_custom_command(OUTPUT made.h COMMAND ${PYTHON} ${CMAKE_CURRENT_SOURCE_DIR}/make.py)
add_library(s STATIC s0.c s1.c s2.c s3.c)
add_library(shared SHARED x.cc)
add_executable(program main.c made.h)
target_link_libraries(program s)
"""
MAKE_HEADER = "open('made.h', 'w').close()\n"


@pytest.mark.parametrize("path", [TOOLS, MACHINE_PATH], ids=["of the index", "of the machine"])
def test_a_folder_that_cmake_configured_without_stoker(
    project: Project, need: Need, path: str
) -> None:
    ninja = shutil.which("ninja", path=path) or missing(f"no ninja in {path}")
    project.sources()
    project.write(x_cc="int x() { return 1; }\n", make_py=MAKE_HEADER, CMakeLists_txt=CMAKE)
    project.plain(need("cmake"), "-G", "Ninja", "-B", "out", f"-DPYTHON={sys.executable}")
    project.is_the_same_governed(ninja, "-C", "out", "-j1", steps=8)


EXTERNAL = """
cmake_minimum_required(VERSION 3.16)
project(outer C)
include(ExternalProject)
ExternalProject_Add(inner SOURCE_DIR ${CMAKE_SOURCE_DIR}/inner INSTALL_COMMAND ""
    CMAKE_ARGS -DPYTHON=${PYTHON} -DCMAKE_C_COMPILER=${CMAKE_C_COMPILER}
    -DCMAKE_CXX_COMPILER=${CXX} BUILD_ALWAYS ON)
add_library(outer OBJECT outer.c)
"""


@pytest.mark.slow
@pytest.mark.parametrize("generator", ["Ninja", "Unix Makefiles"])
def test_an_external_project_of_cmake(project: Project, need: Need, generator: str) -> None:
    """It is configured and built within a custom command."""
    need("make")
    project.sources("inner/")
    project.write(
        inner__x_cc="int x() { return 1; }\n",
        inner__make_py=MAKE_HEADER,
        inner__CMakeLists_txt=CMAKE,
        CMakeLists_txt=EXTERNAL,
        outer_c="int outer;\n",
    )
    compiler = f"-DCXX={project.build.environment['CXX']}"
    options = ["-G", generator, "-B", "out", compiler, f"-DPYTHON={sys.executable}"]
    project.plain(need("cmake"), *options)
    project.is_the_same_governed("cmake", "--build", "out", "-j2", steps=9)


@pytest.mark.slow
def test_meson(project: Project, need: Need) -> None:
    names = ", ".join(f"'{name}.c'" for name in project.sources())
    project.write(meson_build=f"project('p', 'c')\nexecutable('program', {names})\n")
    done = project.build.run(need("meson"), "setup", "out")
    assert done.status == 0, done
    assert project.compiles() == []
    project.is_the_same_governed("meson", "compile", "-C", "out", steps=6)


AUTOCONF = """
AC_INIT([p], [1.0])
AM_INIT_AUTOMAKE([foreign])
AC_PROG_CC
AC_CHECK_HEADERS([stdio.h])
AC_CHECK_FUNCS([malloc])
AC_CONFIG_FILES([Makefile])
AC_OUTPUT
"""


@pytest.mark.slow
def test_autotools(project: Project, need: Need) -> None:
    """None of the tests of configure is a step."""
    need("make")
    need("automake")
    names = " ".join(f"{name}.c" for name in project.sources())
    project.write(configure_ac=AUTOCONF)
    project.write(Makefile_am=f"bin_PROGRAMS = program\nprogram_SOURCES = {names}\n")
    project.plain(need("autoreconf"), "-i")
    done = project.build.run("./configure")
    assert done.status == 0, done
    assert project.compiles() == []
    project.is_the_same_governed("make", "-j4", steps=6)


def test_scons(project: Project, need: Need) -> None:
    """It starts compilers by a shell, in an environment that it makes from nothing."""
    names = " ".join(f"{name}.c" for name in project.sources())
    compiler = project.build.environment["CC"]
    project.write(SConstruct=f"Environment(CC='{compiler}').Program('program', Split('{names}'))\n")
    project.is_the_same_governed(need("scons"), "-j2", steps=6)
    assert {attempt.record.step.role for attempt in project.compiles()} == {Role.C, Role.LINK}


MODULE = """
#include <Python.h>
static struct PyModuleDef module = {PyModuleDef_HEAD_INIT, "p"};
PyMODINIT_FUNC PyInit_p(void) { return PyModule_Create(&module); }
"""


def wheel_words(folder: str) -> list[str]:
    options = ["--no-build-isolation", "--no-deps", "--no-index", "--wheel-dir", folder, "."]
    return [sys.executable, "-m", "pip", "wheel", *options]


SETUP_CUDA = """
import subprocess
from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext

class Build(build_ext):
    def build_extension(self, extension):
        made = []
        for source in [word for word in extension.sources if word.endswith(".cu")]:
            made.append(source + ".o")
            subprocess.check_call(["nvcc", "-Xcompiler", "-fPIC", "-c", source, "-o", made[-1]])
        extension.sources = [word for word in extension.sources if word.endswith(".c")]
        extension.extra_objects = made
        super().build_extension(extension)

setup(name="p", version="1", py_modules=[], cmdclass={"build_ext": Build},
      ext_modules=[Extension("p", ["p.c", "a.cu", "b.cu"])])
"""


@pytest.mark.slow
def test_a_cuda_extension_by_pip(project: Project, need: Need) -> None:
    need("nvcc")
    kernel = 'static __global__ void kernel(int* out) { *out = 1; }\nextern "C" void NAME() {}\n'
    project.write(a_cu=kernel.replace("NAME", "a"), b_cu=kernel.replace("NAME", "b"))
    project.write(p_c=MODULE, setup_py=SETUP_CUDA)
    done = project.build.run(*wheel_words("governed"))
    assert done.status == 0, done
    device = [line for line in project.started() if ".cu " in line]
    roles = [attempt.record.step.role for attempt in project.compiles()]
    assert (len(device), roles.count(Role.CUDA)) == (2, 2)
    assert len(roles) == 4


CMAKE_CUDA = """
cmake_minimum_required(VERSION 3.18)
project(kernels LANGUAGES CUDA)
add_library(kernels STATIC a.cu b.cu)
"""


@pytest.mark.slow
def test_a_launcher_script_before_a_script_called_nvcc(project: Project, need: Need) -> None:
    """The steps are nvcc's, and a change of either script is seen, although a cache is used and
    the script keeps its time.
    """
    need("nvcc"), need("ccache")
    script = Path(project.build.environment["PATH"].split(":")[0], "nvcc")
    launch, log = project.folder / "launch.sh", project.folder / "launched"
    launch.write_text(f'#!/bin/sh\necho "$*" >> {log}\nexec "$@"\n')
    launch.chmod(0o755)
    for name in ("a", "b"):
        text = f"static __global__ void kernel(int* out) {{ *out = 1; }}\nint {name} = SAID;\n"
        project.file(f"{name}.cu", text)
    project.file("CMakeLists.txt", CMAKE_CUDA)
    plain = script.read_text()

    def build(said: int) -> bytes:
        """Build with a script that defines a macro; return what is in the objects."""
        script.write_text(plain.replace('"$@"', f'-DSAID={said} "$@"'))
        os.utime(script, (1_000_000_000,) * 2)
        words = ["cmake", "-G", "Ninja", "-S", ".", "-B", "made", "-DCMAKE_CUDA_ARCHITECTURES=80"]
        words += [f"-DCMAKE_CUDA_COMPILER={script}", f"-DCMAKE_CUDA_COMPILER_LAUNCHER={launch}"]
        project.plain(*words)
        log.unlink(missing_ok=True)
        done = project.build.run("ninja", "-C", "made", options=["--cache", "ccache"])
        assert done.status == 0, done
        shutil.copy(project.folder / "made/libkernels.a", project.folder / f"{said}.a")
        shutil.rmtree(project.folder / "made")
        return (project.folder / f"{said}.a").read_bytes()

    first = build(0x11223344)
    roles = [attempt.record.step.role for attempt in project.compiles()]
    assert roles.count(Role.CUDA) == 2
    assert len(log.read_text().splitlines()) == 2
    assert bytes.fromhex("44332211") in first
    second = build(0x55667788)
    assert bytes.fromhex("88776655") in second
    assert bytes.fromhex("44332211") not in second


def test_commands_that_cannot_reach_the_governor_are_counted(project: Project) -> None:
    project.sources()
    lost = "for i in 0 1; do STOKER_SOCKET=/nowhere gcc -c s$i.c; done; gcc -c s2.c"
    done = project.build.run("sh", "-c", lost)
    assert done.status == 0, done
    assert "2 commands could not reach the governor" in done.err
    assert len(project.started()) == 3
    assert len(project.compiles()) == 1
    assert list(project.build.home.rglob("ungoverned-*")) == []


def test_a_run_within_a_run(project: Project, need: Need) -> None:
    """Both ask the same governor."""
    need("make")
    project.sources()
    project.write(Makefile=MAKEFILE)
    script = f"gcc -c main.c -o main.o && exec {STOKER} run -- make -j2"
    done = project.build.run("sh", "-c", script)
    assert done.status == 0, done
    assert len(project.started()) == 6
    assert len(project.compiles()) == 5  # of the inner one; main.o was made before


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """A folder that every user may read and write."""
    folder = Path(f"/tmp/stoker-test-open-{os.getpid()}")
    folder.mkdir()
    folder.chmod(0o777)
    yield folder
    shutil.rmtree(folder)


@as_root
@pytest.mark.parametrize("mode", [0o700, 0o755], ids=["closed home", "open home"])
@pytest.mark.parametrize("cache", ["none", "ccache"])
def test_a_command_of_another_user_builds_without_a_word(
    open_folder: Path, need: Need, mode: int, cache: str
) -> None:
    """It can neither ask the governor nor use its cache nor, where the home is closed, load the
    library.
    """
    need("ccache")
    home, folder = open_folder / "home", open_folder / "source"
    home.mkdir()
    home.chmod(mode)
    folder.mkdir()
    folder.chmod(0o777)
    own = Build(folder, home)
    own.environment["TMPDIR"] = "/tmp"
    (folder / "Makefile").write_text("all: a.o b.o\n%.o: %.c\n\tgcc -c $< -o $@\n")
    for name in ("a", "b"):
        (folder / f"{name}.c").write_text("int x;\n")
    words = [need("setpriv"), "--reuid=65534", "--clear-groups", need("make"), "-j2"]
    if cache == "ccache":
        own.environment |= {"HOME": "/nonexistent", "CCACHE_DIR": str(open_folder / "closed")}
        (open_folder / "closed").mkdir(mode=0o700)
    done = own.run(*words, options=["--progress", "quiet", "--cache", cache])
    own.wait_for_end()
    assert (done.status, done.err) == (0, ""), done
    assert {file.name for file in folder.glob("*.o")} == {"a.o", "b.o"}


TENFOLD = "".join(f"#define E{level} {' '.join([f'E{level - 1}'] * 10)}\n" for level in range(1, 6))
LARGE = "#define E0 1,\n{tenfold}int table_{index}[] = {{ {elements} }};\n"


@pytest.mark.heavy
def test_a_folder_configured_without_stoker_under_a_limit(
    project: Project, make_group: MakeGroup, need: Need
) -> None:
    """Its largest step fits, but no two of them; ninja was told one job, and gets many."""
    count = 5
    for i in range(count):
        text = LARGE.format(tenfold=TENFOLD, index=i, elements=" ".join(["E5"] * 7))
        project.file(f"t{i}.cpp", text)
    sources = " ".join(f"t{i}.cpp" for i in range(count))
    project.write(CMakeLists_txt=f"project(p CXX)\nadd_library(p OBJECT {sources})\n")
    project.plain(need("cmake"), "-G", "Ninja", "-Wno-dev", "-B", "out")
    measured = project.build.summary("ninja", "-C", "out", "CMakeFiles/p.dir/t0.cpp.o")
    group = make_group("any")
    group.set_limit(int(1.2 * measured.peak_bytes) + 128 * MIB)  # and what stoker itself takes
    file = project.folder / "summary.json"
    options = ["--summary", str(file), "--cpus", "4"]
    words = ["ninja", "-C", "out", "-j1"]
    shutil.rmtree(project.build.home / "state")  # nothing is known of these steps
    (project.folder / "out/CMakeFiles/p.dir/t0.cpp.o").unlink()
    done = finished(project.build.start(*words, options=options, prefix=group.enter))
    assert done.status == 0, done
    summary = msgspec.json.decode(file.read_bytes(), type=RunSummary)
    assert (summary.steps, summary.oom_kills) == (count, 0)
    assert len(project.objects()) == count

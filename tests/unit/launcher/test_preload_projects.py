"""Whole builds that are not configured for stoker: each compiler is governed exactly once.

How many started is counted by strace, not by what we believe of them.
"""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from conftest import MACHINE_PATH, TOOLS, Need, missing
from unit.launcher.preloaded import Preloaded
from unit.launcher.scripted import ScriptedGovernor

_STARTED = re.compile(r'execve\("(?:[^"]*/)?(?:gcc|g\+\+|cc|c\+\+)", (\[.*?\])(?:, |\)).* = 0$')


def traced(preloaded: Preloaded, need: Need, *command: str, cwd: Path) -> list[str]:
    """The command lines of all compilers that it started."""
    traces = preloaded.folder / "traces"
    shutil.rmtree(traces, ignore_errors=True)
    traces.mkdir()
    options = ["-ff", "-qq", "-s", "4096", "-e", "trace=execve", "-o", str(traces / "trace")]
    done = preloaded.run(need("strace"), *options, *command, cwd=cwd)
    assert done.returncode == 0, done
    lines = [line for file in traces.iterdir() for line in file.read_text().splitlines()]
    return [found[1] for line in lines if (found := _STARTED.search(line))]


def objects(folder: Path) -> dict[str, bytes]:
    return {
        str(file.relative_to(folder)): file.read_bytes()
        for pattern in ("*.o", "*.so", "program")
        for file in folder.rglob(pattern)
        if file.is_file()
    }


def ungoverned(preloaded: Preloaded, *command: str, cwd: Path) -> None:
    environment = dict(preloaded.environment)
    del environment["LD_PRELOAD"]
    subprocess.run(command, cwd=cwd, env=environment, check=True, capture_output=True)


def write_sources(folder: Path, count: int = 4) -> list[str]:
    folder.mkdir(parents=True, exist_ok=True)
    for i in range(count):
        (folder / f"s{i}.c").write_text(f"int s{i}(void) {{ return {i}; }}\n")
    (folder / "main.c").write_text("int s0(void);\nint main(void) { return s0(); }\n")
    return [f"s{i}" for i in range(count)] + ["main"]


MAKEFILE = """
CC = gcc
VERSION := $(shell $(CC) -dumpversion)
OBJECTS = {objects}
program: $(OBJECTS) sub
	$(CC) -o $@ $(OBJECTS) s0.o
s0.o: s0.c
	@mkdir -p made && $(CC) -c $< -o $@ && touch made/$@
%.o: %.c
	$(CC) -c $< -o $@
sub:
	$(MAKE) -f Makefile s0.o
clean:
	rm -f *.o program
.PHONY: sub clean
"""


@pytest.mark.parametrize("tool", ["make -j4", "make -j1", "make -j4 SHELL=/bin/bash"])
def test_a_makefile(preloaded: Preloaded, tmp_path: Path, need: Need, tool: str) -> None:
    """Commands with and without a shell, a make below make, the compiler's name from the PATH."""
    source = tmp_path / "source"
    names = write_sources(source)
    text = MAKEFILE.format(objects=" ".join(f"{name}.o" for name in names if name != "s0"))
    (source / "Makefile").write_text(text)
    need("make")
    ungoverned(preloaded, *tool.split(), cwd=source)
    expected = objects(source)
    ungoverned(preloaded, "make", "clean", cwd=source)
    started = traced(preloaded, need, *tool.split(), cwd=source)
    made = preloaded.outputs()
    assert made == sorted([*(f"{name}.o" for name in names), "program"])
    assert len([words for words in started if "-dumpversion" not in words]) == len(made)
    assert objects(source) == expected


def test_the_launcher_itself_under_a_governor(
    preloaded: Preloaded, governor: ScriptedGovernor, launcher: Path, tmp_path: Path, need: Need
) -> None:
    """What it asks for is the path of the compiler and the words of the Makefile."""
    source = tmp_path / "source"
    names = write_sources(source)
    text = MAKEFILE.format(objects=" ".join(f"{name}.o" for name in names if name != "s0"))
    (source / "Makefile").write_text(text)
    asked = governor.permit_everything()
    preloaded.environment |= {
        "STOKER_LAUNCHER": str(launcher),
        "STOKER_SOCKET": str(governor.path),
        "STOKER_RUN": str(os.getpid()),
    }
    started = traced(preloaded, need, need("make"), "-j4", cwd=source)
    commands = sorted(tuple(os.fsdecode(word) for word in ask[7:]) for ask in asked)
    compiles = [(need("gcc"), "-c", f"{name}.c", "-o", f"{name}.o") for name in sorted(names)]
    assert [command for command in commands if command[1] == "-c"] == compiles
    assert len(commands) == len(names) + 1 == len(started) - 2  # and two questions for the version


CMAKE = """
cmake_minimum_required(VERSION 3.16)
project(p C CXX)
include(CheckCSourceCompiles)
check_c_source_compiles("int main(void) { return 0; }" WORKS)
add_custom_command(OUTPUT made.h DEPENDS make.py
    COMMAND ${CMAKE_COMMAND} -E env X=1 ${PYTHON} ${CMAKE_SOURCE_DIR}/make.py made.h)
add_custom_command(OUTPUT touched COMMAND ${CMAKE_COMMAND} -E touch touched)
add_custom_target(all_made ALL DEPENDS touched)
add_library(s STATIC s0.c s1.c s2.c s3.c)
add_library(shared SHARED x.cc)
add_executable(program main.c made.h)
target_include_directories(program PRIVATE ${CMAKE_BINARY_DIR})
target_link_libraries(program s)
"""
CMAKE_MADE = ["libshared.so", "main.c.o", "program", *(f"s{i}.c.o" for i in range(4)), "x.cc.o"]


@pytest.fixture
def cmake_project(tmp_path: Path) -> Path:
    source = tmp_path / "source"
    write_sources(source)
    (source / "main.c").write_text(
        '#include "made.h"\nint s0(void);\nint main() { return s0(); }\n'
    )
    (source / "x.cc").write_text("int x() { return 1; }\n")
    (source / "make.py").write_text("import sys\nopen(sys.argv[1], 'w').close()\n")
    (source / "CMakeLists.txt").write_text(CMAKE)
    return source


def configure(need: Need, source: Path, build: Path, generator: str) -> list[str]:
    options = [f"-DPYTHON={sys.executable}", "-S", str(source), "-B", str(build)]
    return [need("cmake"), "-G", generator, *options]


@pytest.mark.parametrize("path", [TOOLS, MACHINE_PATH], ids=["of the index", "of the machine"])
def test_a_folder_that_cmake_configured_without_us(
    preloaded: Preloaded, cmake_project: Path, tmp_path: Path, need: Need, path: str
) -> None:
    ninja = shutil.which("ninja", path=path) or missing(f"no ninja in {path}")
    build = tmp_path / "build"
    ungoverned(preloaded, *configure(need, cmake_project, build, "Ninja"), cwd=tmp_path)
    ungoverned(preloaded, ninja, "-C", str(build), cwd=tmp_path)
    expected = objects(build)
    ungoverned(preloaded, ninja, "-C", str(build), "-t", "clean", cwd=tmp_path)
    started = traced(preloaded, need, ninja, "-C", str(build), cwd=tmp_path)
    assert [made for made in preloaded.outputs() if made] == CMAKE_MADE
    assert len(started) == len(CMAKE_MADE)
    assert objects(build) == expected


@pytest.mark.slow
@pytest.mark.parametrize("generator", ["Ninja", "Unix Makefiles"])
def test_tests_of_cmake_are_not_steps(
    preloaded: Preloaded, cmake_project: Path, tmp_path: Path, need: Need, generator: str
) -> None:
    build = tmp_path / "build"
    started = traced(
        preloaded, need, *configure(need, cmake_project, build, generator), cwd=tmp_path
    )
    assert len(started) > 5
    assert preloaded.governed() == []
    traced(preloaded, need, need("cmake"), "--build", str(build), cwd=tmp_path)
    assert [made for made in preloaded.outputs() if made] == CMAKE_MADE


@pytest.mark.parametrize("generator", ["Ninja", "Unix Makefiles"])
def test_custom_commands(
    preloaded: Preloaded, cmake_project: Path, tmp_path: Path, need: Need, generator: str
) -> None:
    """Only those that do something: neither cmake -E touch nor the makes of a Makefile."""
    build = tmp_path / "build"
    ungoverned(preloaded, *configure(need, cmake_project, build, generator), cwd=tmp_path)
    done = preloaded.run(need("cmake"), "--build", build)
    assert done.returncode == 0, done
    governed = preloaded.governed()
    custom = [words for words in governed if words[0] == "--custom"]
    assert any("make.py" in " ".join(words) for words in custom)
    assert not any(" -E touch touched" in " ".join(words) for words in custom)
    assert len(governed) - len(custom) == len(CMAKE_MADE)


CONFIGURE = r"""#!/bin/sh
# As Autoconf writes them.
set -e
CC=${CC-gcc}
for option in --version -v -V -qversion -dumpmachine; do
    $CC $option >/dev/null 2>&1 || true
done
echo 'int main (void) { return 0; }' > conftest.c
$CC -g -O2 conftest.c -lm
test -x a.out && rm a.out
$CC -o conftest conftest.c && ./conftest
$CC -c conftest.c && rm conftest.o
$CC -E conftest.c > conftest.i
echo '#include <stdio.h>' | $CC -E - > /dev/null
$CC -print-prog-name=ld > /dev/null
ld -v < /dev/null > /dev/null
rm -f conftest*
sed "s|@CC@|$CC|" Makefile.in > Makefile
"""
MAKEFILE_IN = """
CC = @CC@
all: program
.c.o:
	if $(CC) -g -O2 -MT $@ -MD -MP -MF $*.Tpo -c -o $@ $<; then mv -f $*.Tpo $*.Po; else exit 1; fi
program: {objects}
	/bin/sh ./libtool --mode=link $(CC) -g -O2 -o program {objects}
"""


def test_a_configure_script(preloaded: Preloaded, tmp_path: Path, need: Need) -> None:
    source = tmp_path / "source"
    names = write_sources(source)
    made = " ".join(f"{name}.o" for name in names)
    (source / "configure").write_text(CONFIGURE)
    (source / "Makefile.in").write_text(MAKEFILE_IN.format(objects=made))
    (source / "libtool").write_text('shift\nexec "$@"\n')
    assert len(traced(preloaded, need, "sh", "configure", cwd=source)) == 11
    assert preloaded.governed() == []
    started = traced(preloaded, need, need("make"), "-j2", cwd=source)
    # libtool is a job of make, and the compiler that it links with asks too.
    assert preloaded.outputs() == sorted([*made.split(), "program", "program"])
    assert len(started) == len(names) + 1


SETUP = """
from setuptools import Extension, setup

setup(name="p", version="1", ext_modules=[Extension("p", ["p.c", "s0.c", "s1.c"])])
"""


@pytest.mark.slow
def test_an_extension_built_by_pip(preloaded: Preloaded, tmp_path: Path, need: Need) -> None:
    source = tmp_path / "source"
    write_sources(source)
    (source / "setup.py").write_text(SETUP)
    (source / "pyproject.toml").write_text('[build-system]\nrequires = ["setuptools"]\n')
    (source / "p.c").write_text("#include <Python.h>\nPyObject *PyInit_p(void) { return NULL; }\n")
    pip = [sys.executable, "-m", "pip", "wheel", "--no-build-isolation", "--no-deps", "--no-index"]
    started = traced(preloaded, need, *pip, "-w", str(tmp_path / "made"), ".", cwd=source)
    made = preloaded.outputs()
    assert made[1:] == ["p.o", "s0.o", "s1.o"] or made[:-1] == ["p.o", "s0.o", "s1.o"], made
    assert len(started) == len(made) == 4
    assert len(list((tmp_path / "made").glob("p-1-*.whl"))) == 1


def test_ninja_of_the_same_folder_without_us(
    preloaded: Preloaded, cmake_project: Path, tmp_path: Path, need: Need
) -> None:
    """What was built with the library is up to date for a plain ninja."""
    build = tmp_path / "build"
    assert preloaded.run(*configure(need, cmake_project, build, "Ninja")).returncode == 0
    assert preloaded.run(need("ninja"), "-C", build).returncode == 0
    plain = {key: text for key, text in os.environ.items() if key != "LD_PRELOAD"}
    shown = subprocess.run(["ninja", "-C", build], env=plain, capture_output=True, check=True)
    assert b"no work to do" in shown.stdout

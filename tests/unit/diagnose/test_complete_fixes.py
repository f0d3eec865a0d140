"""Which fixes are shown as fixes: those that can be done as they stand, for the log's own tools."""

from pathlib import Path

import pytest

from diagnosed import BOOKWORM, machine, of_elsewhere
from stoker.knowledge.failures import Shell

TWICE = (
    "FAILED: mill\nb.o: in function `grind':\n"
    "b.c:3: multiple definition of `grind'; a.o:a.c:3: first defined here\n"
    "collect2: error: ld returned 1 exit status\n"
)
CRASH = "mill.cpp:8:2: internal compiler error: Segmentation fault: 11\n"


def test_a_fix_for_another_case_does_not_take_the_place_of_the_best(tmp_path: Path) -> None:
    log = 'mill.cu(3): error: namespace "thrust" has no member "grind"\n'
    found = of_elsewhere(log, machine(tmp_path, BOOKWORM))
    assert found.cause == "cub-version-conflict"
    assert not found.fix
    assert "These headers have no grind" in found.look[0].text


def test_a_command_that_only_shows_is_no_fix(tmp_path: Path) -> None:
    log = "/usr/bin/link: extra operand '/NOLOGO'\nTry 'link --help' for more information.\n"
    found = of_elsewhere(f"C:\\Users\\u\\mill> cargo build\n{log}", machine(tmp_path, BOOKWORM))
    assert found.cause == "other-link-on-path"
    assert not found.fix
    assert found.look[0].commands == ("where link",)


@pytest.mark.parametrize(
    "before",
    [
        "1. Swift version 6.1.2 (swift-6.1.2-RELEASE)\n",
        "icpx: note: diagnostic msg: /tmp/icpx-8308.sh\n",
        "emcc mill.cpp\n",
        "mill.F90:8:49:\n",
    ],
)
def test_another_compiler_is_not_replaced_by_gcc(before: str, tmp_path: Path) -> None:
    here = machine(tmp_path, BOOKWORM)
    assert "CC=gcc" in str(of_elsewhere(CRASH, here).fix)
    assert "CC=gcc" not in str(of_elsewhere(before + CRASH, here).advice)


@pytest.mark.parametrize(
    "place",
    [
        "error: command 'swig.exe' failed: None\n",
        "-- Found Vulkan: C:/VulkanSDK/1.3.290.0/Lib/vulkan-1.lib\n",
    ],
)
def test_windows_is_seen_by_its_programs_and_drives(place: str, tmp_path: Path) -> None:
    log = f"{place}mill.h:3:2: error: #error You need GCC 13\n"
    found = of_elsewhere(log, machine(tmp_path, BOOKWORM))
    assert "apt-get" not in str(found.advice)


def test_plain_commands_have_a_form_for_cmd(tmp_path: Path) -> None:
    log = (
        "C:\\Users\\u\\mill> pip install --no-build-isolation .\n"
        "ModuleNotFoundError: No module named 'wheel'\nerror: metadata-generation-failed\n"
        '  File "setup.py", line 3, in <module>\n'
    )
    found = of_elsewhere(log, machine(tmp_path, BOOKWORM))
    assert found.fix[0].shell is Shell.CMD
    assert found.fix[0].commands[0].startswith("python -m pip install ")


KILLED = "error: could not compile `mill`\nrustc: died (signal: 9, SIGKILL: kill)\n"
NO_MKMF = "extconf.rb: cannot load such file -- mkmf (LoadError)\nextconf failed\n"
MTOC = "mtoc: input file: a.dll contains Mach-O segment __RO_RELOCS with\nmake: *** a\n"
LONG_RECIPE = "make: /bin/sh: Argument list too long\nmake: *** [Makefile:2: all] Error 127\n"
OF_CLANG = """cc -O2 --rtlib=compiler-rt -c a.c
cc: error: unrecognized command-line option '--rtlib=compiler-rt'
"""
NO_CLANG = """CMake Error at CMakeLists.txt:2 (project):
  The CMAKE_CXX_COMPILER:

    clang++-18

  is not a full path and was not found in the PATH.
"""


@pytest.mark.parametrize(
    ("log", "words"),
    [
        (KILLED, "CARGO_BUILD_JOBS"),
        (LONG_RECIPE, ""),
        (OF_CLANG, ""),
        (NO_CLANG, ""),
    ],
)
def test_a_fix_is_for_the_tool_that_failed(log: str, words: str, tmp_path: Path) -> None:
    fix = of_elsewhere(log, machine(tmp_path, BOOKWORM)).fix
    shown = " ".join(line for one in fix[:1] for line in one.commands)
    assert words in shown
    assert bool(shown) == bool(words)


def test_the_newest_python_that_the_project_allows_is_wanted(tmp_path: Path) -> None:
    log = "ERROR: Package 'mill' requires a different Python: 3.14.0 not in '<3.13,>=3.9'\n"
    fix = of_elsewhere(log, machine(tmp_path, BOOKWORM)).fix
    assert "3.12" in fix[0].text


def test_the_compilers_of_this_machine_are_not_those_of_a_log_from_elsewhere(
    tmp_path: Path,
) -> None:
    log = "cc1plus: error: '-Werror=grain-size': no option '-Wgrain-size'\nmake: *** [m] Error 1\n"
    found = of_elsewhere(log, machine(tmp_path, BOOKWORM))
    assert "gcc-12" not in "".join(line for one in found.fix for line in one.commands)

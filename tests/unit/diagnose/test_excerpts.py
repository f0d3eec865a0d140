"""What an excerpt says that has no cause in it, and paths that a space splits."""

from io import BytesIO

import pytest

from stoker.diagnose.sieve import read_log
from stoker.diagnose.values import Diagnosis, Status
from stoker.diagnose.verdict import diagnose


def diagnosis(log: str) -> Diagnosis:
    return diagnose(read_log(BytesIO(log.encode())))


@pytest.mark.parametrize(
    ("log", "command"),
    [
        (
            "make[2]: *** [m:7: gate.o] Error 1\nmake: *** [Makefile:91: all] Error 2",
            "make -j1",
        ),
        (
            """dh_auto_build: error: make -j8 returned exit code 2
make[1]: *** [debian/rules:44: override_dh_auto_build] Error 25
dpkg-buildpackage: error: debian/rules binary subprocess returned exit status 2""",
            ".build file",
        ),
        (
            """ERROR: failed to solve: process "/bin/sh -c apt-get install -y m" did not complete \
successfully: exit code: 100""",
            "`E:` of apt",
        ),
        ("ninja: build stopped: subcommand failed.", "ninja -j1 -v"),
    ],
)
def test_an_excerpt_without_a_cause_says_where_to_look(log: str, command: str) -> None:
    found = diagnosis(log)
    assert found.status is Status.UNKNOWN
    assert found.kind is not None
    assert found.kind.cause == "excerpt-without-cause"
    assert command in found.kind.look[0].text


def test_an_error_of_its_own_is_no_empty_excerpt() -> None:
    found = diagnosis("mill: the grain of the day is odd: error: 17\nmake: *** [all] Error 2")
    assert not found.kind or found.kind.cause != "excerpt-without-cause"


@pytest.mark.parametrize(
    "log",
    [
        "ld: can't open file: /Users/jo/My\nld: file not found: Projects/mill/libgate.a",
        "c++ -L/home/jo/My Mill/lib\nc++: error: no such file or directory: 'Mill/lib'",
        "'C:\\Program' is not recognized as an internal or external command",
        'cd "/home/jo/My Mill/lib"\n/bin/sh: /home/jo/My: No such file or directory\nError 127',
    ],
)
def test_a_path_that_a_space_splits(log: str) -> None:
    assert diagnosis(log).findings[0].cause == "path-with-space"


@pytest.mark.parametrize(
    "log",
    [
        "cc -o /src/mill gate/a.o\ncc: error: gate/a.o: No such file or directory",
        "ld: can't open file: /src/mill/a.map\nmake: *** [all] Error 1",
    ],
)
def test_a_missing_file_has_no_split_path(log: str) -> None:
    assert all(found.cause != "path-with-space" for found in diagnosis(log).findings)


def test_almost_equal_names_of_many_objects_are_no_stale_object() -> None:
    log = "".join(
        f"ld: m.dir/{name}.o: in function `f(int)':\n"
        f"{name}.cpp:(.text+0x0): multiple definition of `f(int)'; m.dir/gate.o:gate.cpp:(.text)\n"
        for name in ("gate2", "gate3")
    )
    found = diagnosis(f"{log}collect2: error: ld returned 1 exit status")
    assert found.findings[0].cause == "duplicate-symbols"


TRACEBACK = """Found ninja-1.13 at C:\\mill\\ninja.EXE
Traceback (most recent call last):
  File "C:\\mill\\Lib\\site-packages\\millbuild\\main.py", line 188, in run
    return options.grind(options)
           ^^^^^^^^^^^^^^^^^^^^^^
  File "C:\\mill\\Lib\\si"""


def test_a_log_that_ends_within_a_traceback_failed() -> None:
    found = diagnosis(TRACEBACK)
    assert found.status is Status.UNKNOWN
    assert found.kind is not None
    assert found.kind.cause == "excerpt-cut-off"


def test_an_error_before_a_cut_traceback_is_not_hidden_by_it() -> None:
    log = f"mill.c:3:10: fatal error: zstd.h: No such file or directory\n{TRACEBACK}"
    assert diagnosis(log).findings[0].cause == "system-headers-missing"


@pytest.mark.parametrize(
    ("path", "cause", "words"),
    [
        ("zstd.lib", "system-library-missing", ""),
        ("python313.lib", "python-import-library-missing", ""),
        ("python311.lib", "python-headers-missing", ""),
        ("millwheel.lib", "link-input-missing", "If millwheel.lib is a part of the project"),
        ("build\\mill.res", "link-input-missing", "mill.res is made by an earlier step"),
        ("..\\lib\\Release\\gate.lib", "link-input-missing", "gate.lib is made by an earlier"),
        ("C:\\jo\\lib\\gate.lib", "link-input-missing", "The folder C:\\jo\\lib\\ was written"),
    ],
)
def test_what_microsofts_linker_does_not_find(path: str, cause: str, words: str) -> None:
    found = diagnosis(f"LINK : fatal error LNK1181: cannot open input file '{path}'").findings[0]
    assert found.cause == cause
    assert any(one.text.startswith(words) for one in (*found.fix, *found.look))


def test_a_log_that_says_neither_that_it_failed_nor_that_it_succeeded() -> None:
    silent, done = diagnosis("Hint: gcc -c mill.c"), diagnosis("[100%] Built target mill")
    assert (silent.status, silent.succeeded) == (Status.NOTHING_FAILED, False)
    assert (done.status, done.succeeded) == (Status.NOTHING_FAILED, True)


def test_the_warning_of_another_cmake_is_no_statement_of_the_project() -> None:
    log = """CMake Error at /opt/mill/tools/component.cmake:225 (message):
  CMake Warning (dev) at

  build/properties.cmake:8:

    Argument not separated from preceding token by whitespace.
"""
    assert not diagnosis(log).findings

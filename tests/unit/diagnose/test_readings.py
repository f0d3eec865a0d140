"""What messages of tools say in general: the kind of failure, what it is about, and whose it is."""

from io import BytesIO

import pytest

from stoker.diagnose.sieve import read_log
from stoker.diagnose.values import Diagnosis, Status
from stoker.diagnose.verdict import diagnose


def diagnosis(*lines: str) -> Diagnosis:
    return diagnose(read_log(BytesIO("\n".join(lines).encode())))


MISFITS = [
    pytest.param(
        (
            "src/mill.cpp:20:15: error: no matching function for call to 'grind(int, double)'",
            "   20 |     grind(1, 2.0);",
            (
                "/opt/homebrew/Cellar/sluice/4.2.0/include/grind.h:31:6: note: candidate: 'void"
                " grind(int)'"
            ),
            "make: *** [Makefile:3: mill.o] Error 1",
        ),
        "sluice 4.2.0 has no grind as it is used here: the source is for another release of sluice",
        id="declared-in-homebrew",
    ),
    pytest.param(
        (
            "src/mill.c:20:5: error: too few arguments to function 'slgrind'; expected 3, have 2",
            "In file included from src/mill.c:3:",
            "/usr/include/sluice-2.0/sluice/grind.h:31:6: note: declared here",
            "make: *** [Makefile:3: mill.o] Error 1",
        ),
        "sluice 2.0 has no slgrind as it is used here: the source is for another release of sluice",
        id="declared-in-usr-include",
    ),
    pytest.param(
        (
            "src/mill.c:20:5: error: 'SDL_Event' has no member named 'mill'",
            "make: *** [Makefile:3: mill.o] Error 1",
        ),
        "SDL has no mill: the source is for another release of SDL",
        id="type-of-a-library",
    ),
    pytest.param(
        ("mill.c(20): error C2660: 'gst_mill': function does not take 2 arguments",),
        "GStreamer has no gst_mill with these arguments: the source is for another release of"
        " GStreamer",
        id="arguments-in-msvc",
    ),
    pytest.param(
        (
            "/build/mill.cpp:20:15: error: 'QRegExp' was not declared in this scope",
            "make: *** [Makefile:3: mill.o] Error 1",
        ),
        "Qt has no QRegExp: the source is for another release of Qt",
        id="name-of-a-library",
    ),
    pytest.param(
        (
            "Traceback (most recent call last):",
            '  File "/src/mill/setup.py", line 3, in <module>',
            "    from sluice.gate import Opener",
            (
                "ImportError: cannot import name 'Opener' from 'sluice.gate' "
                "(/usr/lib/python3/dist-packages/sluice/gate.py)"
            ),
        ),
        "sluice has no Opener: the source is for another release of sluice",
        id="python",
    ),
]


@pytest.mark.parametrize(("log", "title"), MISFITS)
def test_what_a_library_lacks_is_said_with_its_owner(log: tuple[str, ...], title: str) -> None:
    found = diagnosis(*log).findings[0]
    assert (found.cause, found.title) == ("dependency-api-changed", title)


@pytest.mark.parametrize(
    "log",
    [
        pytest.param(
            (
                "src/mill.cpp:20:15: error: no matching function for call to 'grind(int)'",
                "src/wheel.h:31:6: note: candidate: 'void grind(double, int)'",
            ),
            id="declared-in-the-project",
        ),
        pytest.param(
            (
                "/home/me/mill/src/mill.cc:2:15: error: no matching function for call to 'f(int)'",
                "/home/me/mill/include/mill/f.h:31:6: note: candidate: 'void f(double, int)'",
            ),
            id="declared-in-the-include-folder-of-the-project",
        ),
        pytest.param(
            (
                "src/mill.cpp:20:15: error: no matching function for call to 'sort(int)'",
                "/usr/include/c++/15/bits/stl_algo.h:31:6: note: candidate: 'void sort(It)'",
            ),
            id="declared-in-the-standard-library",
        ),
        pytest.param(
            (
                "/usr/include/sluice/a.h:20:15: error: no matching function for call to 'grind(1)'",
                "/usr/include/sluice/b.h:31:6: note: candidate: 'void grind(double, int)'",
            ),
            id="both-in-one-library",
        ),
        pytest.param(
            (
                "Traceback (most recent call last):",
                '  File "/src/mill/setup.py", line 3, in <module>',
                "    from gate import Opener",
                "ImportError: cannot import name 'Opener' from 'gate' (/src/mill/gate.py)",
            ),
            id="own-module",
        ),
    ],
)
def test_a_misfit_within_one_project_is_unknown(log: tuple[str, ...]) -> None:
    assert diagnosis(*log, "make: *** [Makefile:3: mill.o] Error 1").status is Status.UNKNOWN


SAID = [
    (
        (
            "meson.build:12:8: ERROR: Dependency lookup for sluice with method 'pkgconfig' failed:"
            " Invalid version, need 'sluice' ['>= 2.1'] found '1.9.0'."
        ),
        "version-not-accepted",
        "sluice 1.9.0 is there, and >= 2.1 is required",
    ),
    (
        "src/mill.y:3.10-14: error: require bison 3.8, but have 3.5.1",
        "version-not-accepted",
        "bison 3.5.1 is there, and 3.8 is required",
    ),
    (
        (
            'CMake Error at CMakeLists.txt:40 (target_link_libraries):\n  Target "mill" links to:\n'
            "\n    Sluice::gate\n\n  but the target was not found.  Possible reasons include:\n\n"
            "    * There is a typo in the target name.\n\nCMake Generate step failed."
        ),
        "build-target-missing",
        "Sluice::gate is named, and nothing that was found defines it",
    ),
    (
        "../meson.build:12:8: ERROR: Program 'sluicegen' not found or not executable",
        "build-tool-missing",
        "a program that the build calls is not installed: sluicegen",
    ),
    (
        (
            "src/mill.c:12:5: error: redefinition of 'struct grain'\n"
            "/usr/include/sys/grain.h:31:8: note: originally defined here"
        ),
        "declared-by-library-too",
        "the C library declares grain too: it is newer than the source, or another one",
    ),
    (  # Microsoft's words for an incomplete type
        (
            "C:\\mill\\gate.h(7): error C2027: use of undefined type 'spdlog::Wheel'\n"
            "C:\\deps\\spdlog\\logger.h(31): note: see declaration of 'spdlog::Wheel'"
        ),
        "dependency-api-changed",
        "spdlog has no visible spdlog::Wheel: the source is for another release of spdlog",
    ),
    (  # a name that a header of a library has with another spelling
        (
            "gate.h:9:39: error: use of undeclared identifier 'GetWheel'; did you mean 'Wheel'?\n"
            "/usr/local/include/sluice-9.5/wheel.h:36:7: note: 'Wheel' declared here"
        ),
        "dependency-api-changed",
        (
            "sluice 9.5 has no GetWheel as it is used here: "
            "the source is for another release of sluice"
        ),
    ),
]


SAID += [
    (
        (
            "mill.cpp:20:5: error: invalid conversion from 'const OGRMill*' to 'OGRMill*'\n"
            "make: *** [Makefile:3: mill.o] Error 1"
        ),
        "dependency-api-changed",
        "GDAL has no OGRMill as it is used here: the source is for another release of GDAL",
    ),
]


SAID += [
    (
        (
            "mill.c:32:3: error: call to undeclared function 'lua_mill'; ISO C99 and later do not "
            "support implicit function declarations [-Wimplicit-function-declaration]\n"
            "   32 |   lua_mill(x);\nmill.c:32:3: note: did you mean 'lua_till'?"
        ),
        "dependency-api-changed",
        "Lua has no lua_mill: the source is for another release of Lua",
    ),
]


@pytest.mark.parametrize(("log", "cause", "title"), SAID)
def test_a_message_that_says_why_is_read(log: str, cause: str, title: str) -> None:
    found = diagnosis(*log.split("\n"))
    said = found.findings[0]
    assert (said.cause, said.title) == (cause, title)


@pytest.mark.parametrize(
    "log",
    [
        "src/mill.cpp:3:1: error: the wheel requires at least three spokes here",
        "error: the step that grinds all of the grain failed",
        "/src/mill/grind.c:8: undefined reference to `wheel'",
        "make: *** [Makefile:3: mill.o] Error 1",
    ],
)
def test_what_names_no_reason_or_is_of_a_source_is_unknown(log: str) -> None:
    assert diagnosis(log).status is Status.UNKNOWN


NO_HEADER = (
    "mill.cpp:10:10: fatal error: {}: No such file or directory",
    "compilation terminated.",
    "make: *** [Makefile:3: mill.o] Error 1",
)


@pytest.mark.parametrize(
    ("found", "header", "cause"),
    [
        ("-- Looking for a mill", "fmt/old.h", "system-headers-missing"),
        ("-- Found ZLIB: /usr/lib/libz.so", "Eigen/Core", "system-headers-missing"),
    ],
)
def test_a_library_that_was_found_is_not_offered_for_installation(
    found: str, header: str, cause: str
) -> None:
    log = [found, *(line.format(header) for line in NO_HEADER)]
    assert diagnosis(*log).findings[0].cause == cause

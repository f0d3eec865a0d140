"""Failures that no entry knows, explained by what their messages say and whose names they lack."""

from io import BytesIO

import pytest

from stoker.diagnose.sieve import read_log
from stoker.diagnose.values import Diagnosis, Status
from stoker.diagnose.verdict import diagnose


def diagnosis(*lines: str) -> Diagnosis:
    return diagnose(read_log(BytesIO("\n".join(lines).encode())))


STATED = [
    pytest.param(
        (
            "CMake Error at cmake/Mill.cmake:5 (message):",
            "  The mill needs water: set -DMILL_WHEEL=water or build without",
            "  it",
            "",
            "",
            "-- Configuring incomplete, errors occurred!",
        ),
        "cmake/Mill.cmake says: The mill needs water: set -DMILL_WHEEL=water or build without it",
        "-DMILL_WHEEL=water",
        id="cmake",
    ),
    pytest.param(
        (
            "checking whether the mill grinds... no",
            "configure: error: the mill does not grind; use --disable-mill to go without it",
        ),
        "configure says: the mill does not grind; use --disable-mill to go without it",
        "--disable-mill",
        id="configure",
    ),
    pytest.param(
        (
            "../meson.build:12:4: ERROR: Problem encountered: the mill is for rivers, not for seas",
            "",
            "A full log can be found at /src/build/meson-logs/meson-log.txt",
        ),
        "../meson.build says: the mill is for rivers, not for seas",
        "",
        id="meson",
    ),
    pytest.param(
        (
            "Traceback (most recent call last):",
            '  File "/tmp/pip-install-a1/mill_1/setup.py", line 117, in <module>',
            "    raise RuntimeError(",
            "RuntimeError: The mill needs a river of 3 metres; set MILL_RIVER=wide if it has one.",
        ),
        "/tmp/pip-install-a1/mill_1/setup.py says: The mill needs a river of 3 metres; "
        "set MILL_RIVER=wide if it has one.",
        "MILL_RIVER=wide",
        id="python",
    ),
    pytest.param(
        (
            "In file included from mill.c:1:",
            'river.h:12:2: error: #error "The river must be defined before the mill"',
            "   12 | #error The river must be defined before the mill",
            "make: *** [Makefile:2: mill.o] Error 1",
        ),
        "river.h says: The river must be defined before the mill",
        "",
        id="gcc",
    ),
    pytest.param(
        (
            "river.h:12:2: error: The river must be defined before the mill",
            "   12 | #error The river must be defined before the mill",
            "      |  ^",
            "1 error generated.",
        ),
        "river.h says: The river must be defined before the mill",
        "",
        id="clang",
    ),
    pytest.param(
        (
            r"C:\src\river.h(12): fatal error C1189: #error:  The river must be before the mill",
            "Build FAILED.",
        ),
        r"C:\src\river.h says: The river must be before the mill",
        "",
        id="microsoft",
    ),
    pytest.param(
        (
            "mill.hpp:9:15: error: static assertion failed: the wheel needs at least four spokes",
            '    9 | static_assert(spokes > 3, "the wheel needs at least four spokes");',
            "make: *** [Makefile:2: mill.o] Error 1",
        ),
        "mill.hpp says: the wheel needs at least four spokes",
        "",
        id="static-assert",
    ),
    pytest.param(
        (
            "error: failed to run custom build command for `mill-sys v0.3.0 (/src/mill-sys)`",
            "  --- stderr",
            "  thread 'main' (4711) panicked at /src/mill-sys/build.rs:40:9:",
            "  MILL_LIB_DIR must name the folder with its library",
            "  note: run with `RUST_BACKTRACE=1` environment variable to display a backtrace",
        ),
        "/src/mill-sys/build.rs says: MILL_LIB_DIR must name the folder with its library",
        "",
        id="cargo",
    ),
]


@pytest.mark.parametrize(("log", "title", "option"), STATED)
def test_what_a_project_says_itself_is_the_answer(
    log: tuple[str, ...], title: str, option: str
) -> None:
    found = diagnosis(*log).findings
    assert [one.cause for one in found] == ["stated-by-project"]
    assert found[0].title == title
    assert [fix.text for fix in found[0].advice] == (
        [f"Set or correct {option}, which the message names"] if option else []
    )
    assert not any(fix.commands for fix in found[0].advice)


def test_a_release_that_a_message_asks_for_is_installed() -> None:
    found = diagnosis(
        "../meson.build:9:2: ERROR: Problem encountered: Mill requires Cython >= 3.0.6"
    )
    assert found.findings[0].advice[0].text == "Use Cython 3.0.6 or newer"
    assert found.findings[0].advice[0].commands[0].endswith("pip install 'cython>=3.0.6'")


@pytest.mark.parametrize(
    "log",
    [
        (  # CMake itself speaks
            "CMake Error at CMakeLists.txt:9 (add_subdirectory):",
            "  The source directory /src/third_party/mill has no water at all in it",
            "-- Configuring incomplete, errors occurred!",
        ),
        (  # only that a step failed
            "CMake Error at mill-launcher.cmake:43 (message):",
            "  Mill: the step grind failed with exit code 'Segmentation fault'.",
            "make: *** [Makefile:3: grind] Error 1",
        ),
        ("configure: error: see config.log for details of this",),
        (  # words of the project that want nothing
            "mill.hpp:9:15: error: static assertion failed: the wheel and the river disagree here",
            "make: *** [Makefile:2: mill.o] Error 1",
        ),
        (
            "CMake Error at FindMill.cmake:43 (message):",
            "  Error generating file /src/build/mill_generated_wheel.cpp.o",
            "-- Configuring incomplete, errors occurred!",
        ),
        (  # these words were not written for this case
            "Traceback (most recent call last):",
            '  File "/src/setup.py", line 7, in <module>',
            "    wheel = river[3]",
            "KeyError: there are no words in here that say why",
        ),
    ],
)
def test_what_a_tool_says_of_itself_is_no_statement(log: tuple[str, ...]) -> None:
    assert diagnosis(*log).status is Status.UNKNOWN


@pytest.mark.parametrize(
    "error",
    [
        "mill.cpp:7:12: error: no member named 'grind' in 'spdlog::logger'",
        "m.cc:7:2: error: \u2018class spdlog::logger\u2019 has no member named \u2018grind\u2019",
        "mill.cpp:7:12: error: \u2018grind\u2019 is not a member of \u2018spdlog\u2019",
        "mill.cpp:7:12: error: no type named 'grind' in namespace 'spdlog'",
        'mill.cu(7): error: namespace "spdlog" has no member "grind"',
        r"C:\src\mill.cpp(7,12): error C2039: 'grind': is not a member of 'spdlog::logger'",
    ],
)
def test_a_name_that_a_library_does_not_have_is_one_of_another_release(error: str) -> None:
    found = diagnosis("c++ -c mill.cpp", error, "make: *** [Makefile:2: mill.o] Error 1").findings
    assert [one.cause for one in found] == ["dependency-api-changed"]
    assert found[0].title == "spdlog has no grind: the source is for another release of spdlog"


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (
            "mill.cpp:7:12: error: \u2018class Wheel\u2019 has no member named \u2018grind\u2019",
            "grind of Wheel",
        ),
        ("mill.cpp:7:12: error: no member named 'grind' in 'gear::Wheel'", "grind of gear::Wheel"),
        (
            "error[E0615]: attempted to take value of method `grind` on type `&mut Wheel<Gear>`",
            "grind of Wheel",
        ),
        ("error[E0599]: no method named `grind` found for struct `Wheel<'a>`", "grind of Wheel"),
    ],
)
def test_a_type_of_no_known_library_is_of_another_release(error: str, said: str) -> None:
    found = diagnosis("c++ -c mill.cpp", error, "make: *** [Makefile:2: mill.o] Error 1").findings
    assert [one.cause for one in found] == ["interface-mismatch"]
    assert f"the source uses {said}," in found[0].title


@pytest.mark.parametrize(
    "error",
    [
        "mill.cpp:7:12: error: no member named 'grind' in 'mill::wheel'",  # the project's own
        "wheel.cpp:7:12: error: \u2018class Wheel\u2019 has no member named \u2018grind\u2019",
    ],
)
def test_a_name_that_the_file_itself_may_have_is_unknown(error: str) -> None:
    found = diagnosis("c++ -c mill.cpp", error, "make: *** [Makefile:2: mill.o] Error 1")
    assert found.status is Status.UNKNOWN


@pytest.mark.parametrize(
    "log",
    [
        (
            "./configure: line 9: syntax error near unexpected token `x,'",
            "./configure: line 9: `A(x, y)'",
        ),
        ("../meson.build:3:0: ERROR: keyword argument 'x' was of type y", "", "A full log is at z"),
        ("# mill", "./mill.go:5:2: undefined: wheel"),
        ("E: Unable to correct problems, you have held broken packages.",),
    ],
)
def test_a_log_that_ends_with_a_complaint_has_failed(log: tuple[str, ...]) -> None:
    assert diagnosis("Building", *log).status is not Status.NOTHING_FAILED


@pytest.mark.parametrize(
    "log",
    [
        ("warning: the error is not found", "[9/9] Linking mill"),
        ("0 errors, 0 failures, 3 tests passed",),
        ("FAIL: 0  ERROR: 0  XFAIL: 2",),
        ("-- Looking for mill.h - not found", "done"),
        ("gcc -o error_test -c failed.c", "touch not_found.stamp"),
    ],
)
def test_words_of_errors_at_the_end_of_a_success_are_no_complaint(log: tuple[str, ...]) -> None:
    assert diagnosis("Building", *log).status is Status.NOTHING_FAILED


def test_a_symbol_that_names_a_release_is_of_other_headers_than_the_library() -> None:
    found = diagnosis(
        "cc -o mill mill.o -lx264 -licuuc",
        "/usr/bin/ld: mill.o: in function `grind':",
        "mill.c:(.text+0x9): undefined reference to `x264_encoder_open_164'",
        "collect2: error: ld returned 1 exit status",
    ).findings
    assert [one.cause for one in found] == ["library-release-mismatch"]
    assert "x264_encoder_open_164" in found[0].title


def test_an_internal_header_of_a_library_is_one_of_another_release() -> None:
    error = "mill.cpp:2:10: fatal error: spdlog/details/mill.h: No such file or directory"
    found = diagnosis("c++ -c mill.cpp", error, "compilation terminated.").findings
    assert [one.cause for one in found] == ["dependency-api-changed"]
    assert found[0].title.startswith("spdlog has no spdlog/details/mill.h")


def test_headers_of_two_libraries_that_do_not_fit_are_of_different_ages() -> None:
    found = diagnosis(
        "c++ -c mill.cpp",
        "/usr/include/mill.h:4:5: error: no matching function for call to 'spdlog::v1::log(int)'",
        "make: *** [Makefile:2: mill.o] Error 1",
    ).findings
    assert [one.cause for one in found] == ["dependency-api-changed"]


FAILED_TO_SOLVE = (
    "ERROR: failed to solve: failed to compute cache key: failed to calculate checksum of ref "
    'm0::q1: "/mill.txt": not found'
)
REASONS = [
    pytest.param(cause, log, id=f"{cause}-{number}")
    for number, (cause, *log) in enumerate(
        [
            [
                "own-symbol-not-linked",
                "/usr/bin/ld: libmill.a(server.o): in function `mill::Server::setup()':",
                "server.cpp:(.text+0x74): undefined reference to `mill::wheel::grind(int)'",
            ],
            [
                "own-symbol-not-linked",
                "/usr/bin/ld: mill.o: in function `mill_new':",
                "/src/mill.c:8:(.text+0x74): undefined reference to `mill_grind'",
            ],
            ["own-symbol-not-linked", "ld: a.o: undefined reference to `grindcmp(char const*)'"],
            ["own-symbol-not-linked", "/src/php-src/zend.c:8: undefined reference to `zend_mill'"],
            [
                "released-source-error",
                "/build/mill-2.4.1/src/wheel.cpp:20:10: error: expected ';' before 'spoke'",
            ],
            [
                "dependency-api-changed",
                'src/mill.cu(36): error: name followed by "::" must be a class or namespace name',
                "  auto grind(Grain g) { return fmt::underlying(g); }",
                "                               ^",
            ],
            [
                "cub-version-conflict",
                'src/ggml-cuda/sort.cu(36): error: namespace "cuda" has no member "make_wheel"',
            ],
            [
                "dependency-api-changed",
                "/opt/intel/oneapi/compiler/2024.1/bin/icpx -fsycl -c mill.cpp",
                "mill.hpp:18:10: fatal error: 'syclcompat/math.hpp' file not found",
            ],
            [
                "dependency-api-changed",
                "mill.hip:3:21: error: no matching function for call to 'grind_sync'",
                "/opt/rocm/lib/llvm/bin/../../../include/rocsluice/gate.hpp:3:9: note: candidate",
            ],
            [
                "dependency-api-changed",
                "ERROR: LoadError: UndefVarError: `grind` not defined in `Sluice`",
            ],
            [
                "dependency-api-changed",
                'File "mill.ml", line 3, characters 2-20:',
                "Error: Unbound value Sluice.grind",
            ],
            ["dependency-api-changed", "rake aborted!", "uninitialized constant Sluice::Gate"],
            [
                "dependency-api-changed",
                "ModuleNotFoundError: No module named 'sluice.gates.upper'",
            ],
            ["language-package-missing", "Error in mill() : there is no package called 'sluice'"],
            ["docker-context-file-missing", FAILED_TO_SOLVE],
            ["dockerfile-invalid", "ERROR: failed to solve: dockerfile parse error on line 3: x y"],
            [
                "missing-include-new-gcc",
                "  4229:\t/b/mill.h:5:1: error: 'array' in namespace 'std' does not name a type",
                "  4249:\t/b/mill.cpp:44:1: error: no declaration matches 'Mill::Mill(int)'",
            ],
        ]
    )
]


@pytest.mark.parametrize(("cause", "log"), REASONS)
def test_the_reason_is_the_same_for_all_names(cause: str, log: list[str]) -> None:
    found = diagnosis(*log, "make: *** [Makefile:3: mill] Error 1").findings
    assert [one.cause for one in found][:1] == [cause]


@pytest.mark.parametrize(
    "log",
    [
        "/usr/bin/ld: mill.o: in function `main':\nmill.c:(.text+0x7): undefined reference to `gr'",
        "/usr/include/c++/15/bits/mill.h:20:10: error: expected primary-expression before 'spoke'",
        "src/mill.cpp:20:10: error: expected primary-expression before 'spoke'",
        "C:\\a b\\mill.cu(3): error: the wheel must be round, and three spokes are required here",
    ],
)
def test_what_may_have_many_reasons_is_unknown(log: str) -> None:
    assert diagnosis(log, "make: *** [Makefile:3: mill] Error 1").status is Status.UNKNOWN

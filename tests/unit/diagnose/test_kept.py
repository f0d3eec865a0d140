"""Runs that failed are kept: bounded, without secrets, and the newest ones only."""

import msgspec
import pytest

from governed_steps import run_summary
from stoker.diagnose import kept
from stoker.diagnose.diagnosing import diagnose_what
from stoker.diagnose.run_diagnoses import keep_run
from stoker.diagnose.sieve import Sieve
from stoker.diagnose.values import FailedRun
from stoker.model.runs import RunSummary
from stoker.outside import folders

MISSING = b"a.cpp:1:10: fatal error: zstd.h: No such file or directory\n"


def summary(run: int) -> RunSummary:
    return msgspec.structs.replace(run_summary(status=2), run=run)


def test_old_outputs_are_removed_and_their_causes_stay() -> None:
    for run in range(1, 31):
        keep_run(MISSING, FailedRun(command="make"), summary(run))
    logs = list((folders.state() / "failed").glob("*.log"))
    assert sorted(int(log.stem) for log in logs) == list(range(11, 31))
    assert len(kept.kept_runs()) == 30
    first = kept.kept_run(1)
    assert first is not None
    assert first.cause == "system-headers-missing"


def test_the_last_run_that_failed_is_the_default() -> None:
    keep_run(MISSING, FailedRun(command="make"), summary(1))
    keep_run(b"nvcc fatal   : Unsupported gpu architecture 'compute_30'\n", FailedRun(), summary(2))
    assert diagnose_what(None).findings[0].cause == "unsupported-gpu-arch-dropped"
    assert diagnose_what("1").findings[0].cause == "system-headers-missing"
    assert diagnose_what("1").run.command == "make"


def test_a_command_with_a_secret_is_not_kept_and_not_offered() -> None:
    failed = FailedRun(command="fetch --token Zq8Xv7Lm2Np4Rt6Wy9Bc")
    found = keep_run(MISSING, failed, summary(1))
    assert "Zq8Xv7Lm2Np4Rt6Wy9Bc" not in str(kept.kept_run(1))
    assert "***" not in str(found.findings[0].advice)


def test_values_of_secret_variables_are_removed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("UPLOAD_PASSWORD", "correct horse")
    text = kept.redacted_output(b"logging in with 'correct horse' now\n")
    assert text == "logging in with '***' now\n"


def test_what_is_kept_is_bounded_and_has_the_error() -> None:
    sieve, line = Sieve(), b"[1/9] Building CXX object a.o\n" * 1000
    for number in range(400):
        sieve.feed(line + (MISSING if number == 200 else b""))
    content = sieve.content()
    assert len(content) < 4_000_000 < 400 * len(line)
    assert MISSING in content
    assert b"bytes left out]" in content

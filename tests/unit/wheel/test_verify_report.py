"""What verify found, as people and as CI see it."""

from xml.etree import ElementTree

from stoker.model.finding import Finding, Severity
from stoker.outside.terminal import rendered
from stoker.wheel.verify.page import (
    verification_json,
    verification_junit,
    verification_page,
    verification_verdict,
)
from stoker.wheel.verify.tested import Verification

FINDINGS = tuple(
    Finding(name=f"check-{severity}", severity=severity, title=f"is {severity}", evidence="a\x1bb")
    for severity in reversed(Severity)
)


def verification(*findings: Finding) -> Verification:
    return Verification(
        wheel="mill.whl", name="mill", version="1.2", variant="cpu", findings=findings
    )


def test_the_page_says_it_all() -> None:
    text = rendered(verification_page(verification(*FINDINGS)), 120)
    assert "mill 1.2, compared with cpu" in text
    assert "ERROR  is error" in text
    assert "This wheel is not sound: 1 error, 1 warning." in text


def test_the_verdict() -> None:
    assert verification_verdict(verification()) == "This wheel is sound."
    warnings = [one for one in FINDINGS if one.severity is Severity.WARNING] * 2
    assert verification_verdict(verification(*warnings)) == "This wheel is sound: 2 warnings."


def test_json_says_whether_it_is_sound() -> None:
    assert verification_json(verification())["ok"] is True
    built = verification_json(verification(*FINDINGS))
    assert built["ok"] is False
    assert built["findings"][0]["name"] == "check-error"


def test_junit_fails_for_errors_and_skips_notes() -> None:
    suite = ElementTree.fromstring(verification_junit(verification(*FINDINGS)))
    counts = {name: suite.get(name) for name in ("tests", "failures", "skipped", "errors")}
    assert counts == {"tests": "4", "failures": "1", "skipped": "1", "errors": "0"}
    (failure,) = suite.iterfind("testcase[@name='check-error']/failure")
    assert failure.get("message") == "is error"
    assert failure.text == "a\N{REPLACEMENT CHARACTER}b"  # XML has no way to write an escape
    assert suite.find("testcase[@name='check-note']/skipped") is not None
    assert suite.find("testcase[@name='check-ok']/failure") is None

"""What `stoker verify` found: as a terminal page, as JSON, as JUnit XML for CI."""

import re
from typing import Any
from xml.etree import ElementTree

import msgspec
from rich.console import Group, RenderableType
from rich.text import Text

from stoker.deliver.verify.case import Verification
from stoker.model.finding import Finding, Severity
from stoker.report.findings import finding_lines

_NOT_XML = re.compile(r"[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def page(verification: Verification) -> RenderableType:
    against = f", asked for {verification.variant}" if verification.variant else ""
    head = Text(f"{verification.name} {verification.version}", style="bold")
    head.append(f"{against}\n", style="not bold")
    lines = [line for finding in verification.findings for line in finding_lines(finding)]
    return Group(head, *lines, Text(), Text(verdict(verification), style="bold"))


def verdict(verification: Verification) -> str:
    severities = [finding.severity for finding in verification.findings]
    counts = [
        f"{number} {severity}{'s' if number > 1 else ''}"
        for severity in (Severity.ERROR, Severity.WARNING)
        if (number := severities.count(severity))
    ]
    word = "This wheel is sound" if verification.ok else "This wheel is not sound"
    return f"{word}: {', '.join(counts)}." if counts else f"{word}."


def as_json(verification: Verification) -> dict[str, Any]:
    built: dict[str, Any] = msgspec.to_builtins(verification)
    return {**built, "ok": verification.ok}


def junit(verification: Verification) -> bytes:
    """A test case for each finding: an error fails, what was not checked is skipped."""
    severities = [finding.severity for finding in verification.findings]
    suite = ElementTree.Element(
        "testsuite",
        name=_clean(f"stoker verify {verification.name} {verification.version}"),
        tests=str(len(severities)),
        failures=str(severities.count(Severity.ERROR)),
        skipped=str(severities.count(Severity.NOTE)),
        errors="0",
    )
    for finding in verification.findings:
        _test_case(suite, finding)
    return bytes(ElementTree.tostring(suite, encoding="utf-8", xml_declaration=True))


def _test_case(suite: ElementTree.Element, finding: Finding) -> None:
    case = ElementTree.SubElement(suite, "testcase", classname="stoker.verify", name=finding.name)
    title, evidence = _clean(finding.title), _clean(finding.evidence)
    if finding.severity is Severity.ERROR:
        ElementTree.SubElement(case, "failure", message=title).text = evidence
    elif finding.severity is Severity.NOTE:
        ElementTree.SubElement(case, "skipped", message=title).text = evidence
    else:
        said = f"{finding.severity}: {title}\n{evidence}"
        ElementTree.SubElement(case, "system-out").text = said


def _clean(text: str) -> str:
    """Programs may print what XML has no way to say."""
    return _NOT_XML.sub("\N{REPLACEMENT CHARACTER}", text)

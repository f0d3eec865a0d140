"""The findings of `stoker verify`: as a terminal page, as JSON, as JUnit XML for CI."""

from collections.abc import Sequence
from typing import Any
from xml.etree import ElementTree

import msgspec

from stoker.model.finding import Finding, Severity, ok
from stoker.model.value import counted
from stoker.outside.streams import xml_text
from stoker.outside.terminal import Group, Page, Text, finding_lines
from stoker.wheel.verify.checks import CHECKS
from stoker.wheel.verify.tested import Verification, shortened_evidence


def verification_page(verification: Verification) -> Page:
    """Return the page: errors, warnings and notes in full, then one line for each topic passed."""
    against = f", compared with {verification.variant}" if verification.variant else ""
    head = Text(f"{verification.name} {verification.version}", style="bold")
    head.append(f"{against}\n", style="not bold")
    grouped = {check.name for checks in CHECKS.values() for check in checks}
    alone = [
        one
        for one in verification.findings
        if one.severity is not Severity.OK or one.name not in grouped
    ]
    findings = [*alone, *_by_topic(verification.findings)]
    lines = [line for finding in findings for line in finding_lines(shortened_evidence(finding))]
    return Group(head, *lines, Text(), Text(verification_verdict(verification), style="bold"))


def _by_topic(findings: Sequence[Finding]) -> list[Finding]:
    """Return one finding for each topic with the titles of all checks that passed."""
    passed = {finding.name for finding in findings if finding.severity is Severity.OK}
    topics = {
        topic: [check.title for check in checks if check.name in passed]
        for topic, checks in CHECKS.items()
    }
    return [
        ok(topic, f"{topic}: {', '.join(titles)}") for topic, titles in topics.items() if titles
    ]


def verification_verdict(verification: Verification) -> str:
    severities = [finding.severity for finding in verification.findings]
    counts = [
        counted(number, severity.value)
        for severity in (Severity.ERROR, Severity.WARNING)
        if (number := severities.count(severity))
    ]
    word = "This wheel is sound" if verification.ok else "This wheel is not sound"
    return f"{word}: {', '.join(counts)}." if counts else f"{word}."


def verification_json(verification: Verification) -> dict[str, Any]:
    built: dict[str, Any] = msgspec.to_builtins(verification)
    return {**built, "ok": verification.ok}


def verification_junit(verification: Verification) -> bytes:
    """Return JUnit XML with a test case for each finding: errors fail, notes are skipped."""
    severities = [finding.severity for finding in verification.findings]
    suite = ElementTree.Element(
        "testsuite",
        name=xml_text(f"stoker verify {verification.name} {verification.version}"),
        tests=str(len(severities)),
        failures=str(severities.count(Severity.ERROR)),
        skipped=str(severities.count(Severity.NOTE)),
        errors="0",
    )
    for finding in verification.findings:
        names = {"classname": "stoker.verify", "name": finding.name}
        case = ElementTree.SubElement(suite, "testcase", names)
        title, evidence = xml_text(finding.title), xml_text(finding.evidence)
        if finding.severity is Severity.ERROR:
            what_to_do = (finding.advice, *finding.fix)
            evidence = "\n".join(filter(None, (evidence, *map(xml_text, what_to_do))))
            ElementTree.SubElement(case, "failure", message=title).text = evidence
        elif finding.severity is Severity.NOTE:
            ElementTree.SubElement(case, "skipped", message=title).text = evidence
        else:
            said = f"{finding.severity}: {title}\n{evidence}"
            ElementTree.SubElement(case, "system-out").text = said
    return bytes(ElementTree.tostring(suite, encoding="utf-8", xml_declaration=True))

"""`stoker verify`: all checks of a wheel, from reading it to showing the findings."""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import msgspec

from stoker.model.artifact import (
    PACKAGE_MEMBER,
    SLIM_MEMBER,
    ArtifactFacts,
    PackageRecord,
    SlimRecord,
)
from stoker.model.errors import ArtifactError, UsageError
from stoker.model.finding import Finding, Severity
from stoker.model.plan import PLAN_MEMBER, PlannedTargets, Variant
from stoker.model.value import UNDECODABLE, Value
from stoker.outside.streams import xml_text
from stoker.outside.terminal import Group, Page, Text, finding_lines
from stoker.plan.grammar import name, parse
from stoker.plan.survey import named_variant
from stoker.wheel.engine import Wheel, open_wheel
from stoker.wheel.inspecting import inspect
from stoker.wheel.verify.checks import CHECKS, examine, with_fix, worst_first
from stoker.wheel.verify.tested import (
    CodeSample,
    PlanRecord,
    SlimNote,
    Verification,
    WheelUnderTest,
    shortened,
    told_apart,
)


class _RecordedBuild(Value, frozen=True, kw_only=True):
    accept_targets: bool = False


class _Recorded(Value, frozen=True, kw_only=True):
    """The part of a wheel's plan that is compared with the wheel."""

    variant: Variant
    targets: PlannedTargets | None = None
    build: _RecordedBuild = _RecordedBuild()


def verify(
    path: Path,
    *,
    variant: str | None = None,
    run: bool = False,
    environment: Mapping[str, str] = os.environ,
) -> Verification:
    """Check a wheel and return all findings; the wheel is only read.

    ``variant`` is the expected variant; without it, the plan in the wheel counts. ``run`` installs
    the wheel in a temporary environment and uses it there, which executes its code.
    """
    return read_and_verify(path, variant=variant, run=run, environment=environment)[1]


def read_and_verify(
    path: Path,
    *,
    variant: str | None = None,
    run: bool = False,
    environment: Mapping[str, str] = os.environ,
) -> tuple[WheelUnderTest, Verification]:
    """Return what was read of a wheel with the result of `verify`."""
    from stoker.wheel.verify.trial import fitting_python

    asked = named_variant(variant) if variant else None
    with open_wheel(path) as wheel:
        tested = _read(wheel, asked)
        python = fitting_python(tested) if run else None
        tested = msgspec.structs.replace(
            tested,
            mismatches=tuple(wheel.mismatches()),
            wrong_hashes=tuple(wheel.wrong_hashes()),
            samples=_samples(wheel, tested),
        )
    record = tested.slim.record if tested.slim else None
    findings = list(told_apart(examine(tested), record))
    if python:
        tried = _tried(path, tested, python, environment)
        findings += [with_fix(tested, finding) for finding in tried]
    return tested, Verification(
        wheel=str(path),
        name=tested.metadata.name,
        version=tested.metadata.version,
        variant=name(tested.expected) if tested.expected else None,
        findings=worst_first(findings),
    )


def _read(wheel: Wheel, asked: Variant | None) -> WheelUnderTest:
    if wheel.path.suffix != ".whl":
        raise UsageError(
            f"'{wheel.path}' is not named like a wheel", hints=["rename it so that it ends in .whl"]
        )
    return under_test(wheel, inspect(str(wheel.path)), asked)


def under_test(wheel: Wheel, facts: ArtifactFacts, asked: Variant | None = None) -> WheelUnderTest:
    """Return a wheel with its metadata and its records, but without what needs all its bytes."""
    assert facts.wheel is not None
    slim = _slim(wheel)
    return WheelUnderTest(
        file_name=wheel.path.name,
        facts=facts,
        metadata=facts.wheel,
        members=tuple(wheel.members.values()),
        plan=_plan(wheel, slim),
        slim=slim,
        asked=asked,
        excluded=_excluded(wheel),
    )


def _excluded(wheel: Wheel) -> tuple[str, ...]:
    member = f"{wheel.dist_info}/{PACKAGE_MEMBER}"
    if member not in wheel.members:
        return ()
    try:
        return msgspec.json.decode(wheel.read(member), type=PackageRecord).excluded
    except (*UNDECODABLE, ArtifactError):
        return ()


def _slim(wheel: Wheel) -> SlimNote | None:
    member = f"{wheel.dist_info}/{SLIM_MEMBER}"
    if member not in wheel.members:
        return None
    try:
        return SlimNote(record=msgspec.json.decode(wheel.read(member), type=SlimRecord))
    except (*UNDECODABLE, ArtifactError) as error:
        return SlimNote(problem=str(error))


def _plan(wheel: Wheel, slim: SlimNote | None) -> PlanRecord | None:
    """Return the plan in the wheel; after slimming, its GPUs are those that were kept."""
    member = f"{wheel.dist_info}/{PLAN_MEMBER}"
    if member not in wheel.members:
        return None
    try:
        recorded = msgspec.json.decode(wheel.read(member), type=_Recorded)
        # The file may contain anything: parsing the variant's name checks every field.
        variant = parse(name(recorded.variant))
        if slim and slim.record:
            variant = msgspec.structs.replace(variant, gpus=slim.record.gpus)
        targets = None if slim and slim.record else recorded.targets
        return PlanRecord(variant=variant, targets=targets, accepted=recorded.build.accept_targets)
    except (*UNDECODABLE, ArtifactError, UsageError) as error:
        return PlanRecord(problem=str(error))


def _samples(wheel: Wheel, tested: WheelUnderTest) -> tuple[CodeSample, ...]:
    from stoker.knowledge.hardware import beyond, cpu_family
    from stoker.wheel.verify.sampling import read_code

    cpu = tested.expected.cpu if tested.expected else None
    if cpu is None:
        return ()
    libraries = [one for one in tested.libraries if one.machine == cpu_family(cpu)]
    return read_code(wheel, libraries, beyond(cpu))


def _tried(
    path: Path, tested: WheelUnderTest, python: str, environment: Mapping[str, str]
) -> list[Finding]:
    from stoker.machine.system import read_gpus
    from stoker.wheel.verify.trial import try_wheel

    notes: list[str] = []
    gpus = [gpu.capability for gpu in read_gpus(notes.append)]
    return list(try_wheel(path, tested, python=python, gpus=gpus, environment=environment))


# -- verify ----------------------------------------------------------------------------------------
# The findings of `stoker verify`: as a terminal page, as JSON, as JUnit XML for CI.


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
    lines = [line for finding in findings for line in finding_lines(shortened(finding))]
    return Group(head, *lines, Text(), Text(verdict(verification), style="bold"))


def _by_topic(findings: Sequence[Finding]) -> list[Finding]:
    """Return one finding for each topic with the titles of all checks that passed."""
    passed = {finding.name for finding in findings if finding.severity is Severity.OK}
    topics = {
        topic: [check.title for check in checks if check.name in passed]
        for topic, checks in CHECKS.items()
    }
    return [
        Finding(name=topic, severity=Severity.OK, title=f"{topic}: {', '.join(titles)}")
        for topic, titles in topics.items()
        if titles
    ]


def verdict(verification: Verification) -> str:
    severities = [finding.severity for finding in verification.findings]
    counts = [
        f"{number} {severity}{'s' if number > 1 else ''}"
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
        _test_case(suite, finding)
    return bytes(ElementTree.tostring(suite, encoding="utf-8", xml_declaration=True))


def _test_case(suite: ElementTree.Element, finding: Finding) -> None:
    case = ElementTree.SubElement(suite, "testcase", classname="stoker.verify", name=finding.name)
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

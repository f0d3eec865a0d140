"""The doctor's page: worst first, then what is fine, then the verdict."""

from rich.console import Group, RenderableType
from rich.text import Text

from stoker.model.finding import Finding, Severity
from stoker.model.plan import Plan
from stoker.report.findings import finding_lines


def doctor_page(plan: Plan, findings: tuple[Finding, ...]) -> RenderableType:
    lines: list[RenderableType] = [Text(f"{plan.name} for {plan.platform}\n", style="bold")]
    lines += [line for finding in findings for line in finding_lines(finding)]
    return Group(*lines, Text(), Text(verdict(findings), style="bold"))


def verdict(findings: tuple[Finding, ...]) -> str:
    errors = sum(finding.severity is Severity.ERROR for finding in findings)
    warnings = sum(finding.severity is Severity.WARNING for finding in findings)
    words = [_count(errors, "error"), _count(warnings, "warning")]
    rest = ", ".join(word for word in words if word)
    if errors:
        return f"This plan cannot run: {rest}."
    return f"This plan can run{': ' + rest if rest else ''}."


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'s' if number > 1 else ''}" if number else ""

"""Findings as lines: readable without colour, the fix ready to paste."""

from rich.console import RenderableType
from rich.text import Text

from stoker.model.finding import Finding, Severity
from stoker.report.console import Indented, whole

_MARKS = {
    Severity.OK: ("ok   ", "green"),
    Severity.NOTE: ("note ", "cyan"),
    Severity.WARNING: ("warn ", "yellow"),
    Severity.ERROR: ("ERROR", "bold red"),
}
_INDENT = 7


def finding_lines(finding: Finding) -> list[RenderableType]:
    mark, style = _MARKS[finding.severity]
    title, evidence = Text(finding.title), Text(finding.evidence, style="dim")
    passed = finding.severity is Severity.OK
    if passed and finding.evidence:
        title = Text.assemble(title, "  ", evidence)
    lines: list[RenderableType] = [Indented(title, _INDENT, Text(mark, style=style))]
    if passed:
        return lines
    if finding.evidence:
        lines.append(Indented(evidence, _INDENT))
    return lines + [whole(" " * _INDENT, ("$ ", "dim"), command) for command in finding.fix]

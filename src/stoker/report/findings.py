"""Findings as lines: readable without colour, the fix ready to paste."""

from rich.text import Text

from stoker.model.finding import Finding, Severity

_MARKS = {
    Severity.OK: ("ok   ", "green"),
    Severity.NOTE: ("note ", "cyan"),
    Severity.WARNING: ("warn ", "yellow"),
    Severity.ERROR: ("ERROR", "bold red"),
}
_INDENT = " " * 7


def finding_lines(finding: Finding) -> list[Text]:
    mark, style = _MARKS[finding.severity]
    line = Text.assemble((mark, style), "  ", finding.title)
    if finding.severity is Severity.OK:
        if finding.evidence:
            line.append(f"  {finding.evidence}", style="dim")
        return [line]
    lines = [line]
    if finding.evidence:
        lines.append(Text(f"{_INDENT}{finding.evidence}", style="dim"))
    lines += [Text.assemble(_INDENT, ("$ ", "dim"), command) for command in finding.fix]
    return lines

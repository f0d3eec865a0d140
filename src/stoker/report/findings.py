"""Findings as lines: readable without colour, the fix ready to paste."""

from rich.console import RenderableType
from rich.padding import Padding
from rich.text import Text

from stoker.model.finding import Finding, Severity

_MARKS = {
    Severity.OK: ("ok   ", "green"),
    Severity.NOTE: ("note ", "cyan"),
    Severity.WARNING: ("warn ", "yellow"),
    Severity.ERROR: ("ERROR", "bold red"),
}
_INDENT = 7


def finding_lines(finding: Finding) -> list[RenderableType]:
    mark, style = _MARKS[finding.severity]
    line = Text.assemble((mark, style), "  ", finding.title)
    if finding.severity is Severity.OK:
        if finding.evidence:
            line.append(f"  {finding.evidence}", style="dim")
        return [line]
    lines: list[RenderableType] = [line]
    if finding.evidence:
        lines.append(_indented(Text(finding.evidence, style="dim")))
    lines += [_indented(Text.assemble(("$ ", "dim"), command)) for command in finding.fix]
    return lines


def _indented(text: Text) -> Padding:
    return Padding(text, (0, 0, 0, _INDENT), expand=False)

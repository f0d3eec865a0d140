"""Findings and commands as the hints of an error."""

from collections.abc import Iterable, Sequence

from stoker.model.finding import Finding


def mending(findings: Sequence[Finding]) -> list[str]:
    """What was found and what mends it; the first one's title is the error's message."""
    lines = [
        line
        for finding in findings
        for line in (finding.title, *finding.evidence.splitlines(), *commands(finding.fix))
    ]
    return lines[1:]


def commands(lines: Iterable[str]) -> list[str]:
    """To be pasted."""
    return [f"  $ {line}" for line in lines]

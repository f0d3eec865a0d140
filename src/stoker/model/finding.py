"""The result of a check: a name, a severity, the evidence and the commands that fix it."""

from collections.abc import Iterable
from enum import StrEnum
from functools import partial

from stoker.model.value import Value


class Severity(StrEnum):
    OK = "ok"
    NOTE = "note"
    WARNING = "warning"
    ERROR = "error"  # the plan cannot run


class Finding(Value, frozen=True, kw_only=True):
    """``name`` is stable and in kebab case; ``fix`` holds commands to paste, one for each line.
    ``advice`` says what to do where no command does it.
    """

    name: str
    severity: Severity
    title: str
    evidence: str = ""
    fix: tuple[str, ...] = ()
    advice: str = ""


def finding(
    severity: Severity,
    name: str,
    title: str,
    evidence: str | Iterable[str] = "",
    fix: tuple[str, ...] = (),
    advice: str = "",
) -> Finding:
    """Return a finding; its evidence is a text, or the lines of one."""
    text = evidence if isinstance(evidence, str) else "\n".join(evidence)
    return Finding(name=name, severity=severity, title=title, evidence=text, fix=fix, advice=advice)


def worst_first(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    order = list(Severity)
    return tuple(sorted(findings, key=lambda finding: -order.index(finding.severity)))


ok = partial(finding, Severity.OK)
note = partial(finding, Severity.NOTE)
warning = partial(finding, Severity.WARNING)
error = partial(finding, Severity.ERROR)

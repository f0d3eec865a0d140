"""The result of a check: a name, a severity, the evidence and the commands that fix it."""

from enum import StrEnum

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


def ok(name: str, title: str, evidence: str = "") -> Finding:
    return Finding(name=name, severity=Severity.OK, title=title, evidence=evidence)


def error(name: str, title: str, evidence: str = "", fix: tuple[str, ...] = ()) -> Finding:
    return Finding(name=name, severity=Severity.ERROR, title=title, evidence=evidence, fix=fix)


def warning(name: str, title: str, evidence: str = "", fix: tuple[str, ...] = ()) -> Finding:
    return Finding(name=name, severity=Severity.WARNING, title=title, evidence=evidence, fix=fix)

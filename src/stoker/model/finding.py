"""What a check found: a name, how bad it is, the evidence and the command that mends it."""

from enum import StrEnum

from stoker.model.value import Value


class Severity(StrEnum):
    OK = "ok"
    NOTE = "note"
    WARNING = "warning"
    ERROR = "error"  # the plan cannot run


class Finding(Value, frozen=True, kw_only=True):
    """``name`` is stable, in kebab case; ``fix`` holds commands that can be pasted, one a line."""

    name: str
    severity: Severity
    title: str
    evidence: str = ""
    fix: tuple[str, ...] = ()

"""What a check is given, and how it says what it found."""

from stoker.knowledge.packages import install_command
from stoker.model.finding import Finding, Severity
from stoker.model.plan import Plan
from stoker.model.value import Value
from stoker.plan.subject import Subject


class Case(Value, frozen=True, kw_only=True):
    subject: Subject
    plan: Plan

    def install(self, what: str) -> tuple[str, ...]:
        """The command that installs something on this machine, where one is known."""
        return install_command(what, self.subject.machine.os, self.subject.cuda_version)


def ok(name: str, title: str, evidence: str = "") -> Finding:
    return Finding(name=name, severity=Severity.OK, title=title, evidence=evidence)


def error(name: str, title: str, evidence: str = "", fix: tuple[str, ...] = ()) -> Finding:
    return Finding(name=name, severity=Severity.ERROR, title=title, evidence=evidence, fix=fix)


def warning(name: str, title: str, evidence: str = "", fix: tuple[str, ...] = ()) -> Finding:
    return Finding(name=name, severity=Severity.WARNING, title=title, evidence=evidence, fix=fix)


def major(version: str | None) -> int:
    return int((version or "0").partition(".")[0])

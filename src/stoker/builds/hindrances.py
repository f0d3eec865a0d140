"""What keeps a build from succeeding, and what to do about it."""

from collections.abc import Iterable, Sequence

from stoker.builds.configured import SwitchedOff
from stoker.builds.work import Task
from stoker.knowledge.features import features
from stoker.knowledge.packages import install_command
from stoker.model.build import Isolation
from stoker.model.errors import MissingError
from stoker.model.finding import Finding, Severity
from stoker.model.source import ProjectKind
from stoker.plan.doctor import examine
from stoker.plan.doctor_tools import requirements_missing, unmet_requirements
from stoker.plan.subject import Subject

# Errors of doctor that do not prevent a build: the governor handles low memory, a full disk is
# reported later, and requirements depend on the isolation.
_NO_HINDRANCE = ("memory", "disk", "requirements")


def hindrances(task: Task, isolation: Isolation | None) -> list[Finding]:
    """Return the reasons why a build cannot succeed. Without a back end ``isolation`` is None."""
    found = [
        finding
        for finding in examine(task.subject, task.plan)
        if finding.severity is Severity.ERROR and not finding.name.startswith(_NO_HINDRANCE)
        if not (finding.name == "torch-of-cpu" and _has_another_torch(task, isolation))
    ]
    # Not all that PyTorch lists is needed to build it.
    if isolation is Isolation.NONE and task.tree.kind is not ProjectKind.PYTORCH:
        python = task.subject.toolbox.python
        unmet = unmet_requirements(task.tree.requirements, python)
        found += [requirements_missing(unmet, python)] if unmet else []
    return found


def _has_another_torch(task: Task, isolation: Isolation | None) -> bool:
    return bool(task.request.torch) or isolation is Isolation.FULL


def refusal(off: Sequence[SwitchedOff], subject: Subject) -> MissingError:
    """Return the error for options that were requested but are off: CMake's messages and packages
    to install.
    """
    hints = [f"CMake: {line}" for one in off for line in one.lines]
    for one in off:
        row = next((row for row in features().values() if row.option == one.name), None)
        wanted = (row.library,) if row and row.library else one.libraries
        lines = [install_command(name, subject.machine.os, subject.cuda_version) for name in wanted]
        hints += pasted_commands(line for command in lines for line in command)
    without = " ".join(f"-D {one.name}=OFF" for one in off)
    hints.append(f"to build without it: {without}")
    names = " and ".join(one.name for one in off)
    return MissingError(f"{names} was requested, but CMake switched it off", hints=hints)


def mending(findings: Sequence[Finding]) -> list[str]:
    """Return findings and their fixes as hints of an error whose message is the first title."""
    lines = [
        line
        for finding in findings
        for line in (finding.title, *finding.evidence.splitlines(), *pasted_commands(finding.fix))
    ]
    return lines[1:]


def pasted_commands(lines: Iterable[str]) -> list[str]:
    """Return shell commands as hints that can be pasted."""
    return [f"  $ {line}" for line in lines]

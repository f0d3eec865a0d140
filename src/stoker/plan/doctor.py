"""Checks whether a plan can run on this machine. Pure: facts in, findings out.

Each check yields what it found, good or bad, with the evidence and the command that fixes it.
"""

from collections.abc import Callable, Iterator

import msgspec

from stoker.model.finding import Finding, Severity
from stoker.model.plan import Plan
from stoker.plan import doctor_compilers, doctor_tools
from stoker.plan.doctor_libraries import check_blas, check_switched_off
from stoker.plan.doctor_resources import check_disk, check_memory, check_unread
from stoker.plan.planning import PlannedBuild
from stoker.plan.subject import Subject

_Check = Callable[[PlannedBuild], Iterator[Finding]]
_OF_THE_TREE: tuple[_Check, ...] = (
    doctor_tools.check_submodules,
    doctor_tools.check_copied_files,
    doctor_tools.check_protobuf,
)
_CHECKS: tuple[_Check, ...] = (
    *_OF_THE_TREE,
    doctor_compilers.check_compiler,
    doctor_compilers.check_cuda,
    doctor_compilers.check_other_toolkit,
    doctor_compilers.check_driver,
    doctor_tools.check_cmake,
    doctor_tools.check_ninja,
    doctor_tools.check_python,
    doctor_tools.check_requirements,
    doctor_tools.check_needs,
    doctor_tools.check_standard,
    check_switched_off,
    check_blas,
    check_memory,
    check_disk,
    check_unread,
)


def examine(subject: Subject, plan: Plan) -> tuple[Finding, ...]:
    """Return every finding, worst first, including the remarks of the plan."""
    planned = PlannedBuild(subject=subject, plan=plan)
    findings = [_escalated(finding) for finding in plan.findings]
    # For another platform, what is installed here does not matter; the tree does.
    for check in _CHECKS if subject.here else _OF_THE_TREE:
        findings += check(planned)
    order = list(Severity)
    return tuple(sorted(findings, key=lambda finding: -order.index(finding.severity)))


def can_run(findings: tuple[Finding, ...]) -> bool:
    return not any(finding.severity is Severity.ERROR for finding in findings)


def _escalated(finding: Finding) -> Finding:
    """Raise the severity of a remark: a plan for another platform can be printed, but not run."""
    if finding.name == "other-platform":
        return msgspec.structs.replace(finding, severity=Severity.ERROR)
    return finding

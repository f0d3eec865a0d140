"""All checks of a wheel, in the order a reader wants them. Pure: facts in, findings out."""

from collections.abc import Callable, Iterator
from typing import NamedTuple

from stoker.deliver.verify import code, contents, linking
from stoker.deliver.verify.case import Case
from stoker.model.finding import Finding, Severity


class Check(NamedTuple):
    """``name`` and ``title`` stand for it where it finds nothing."""

    name: str
    title: str
    findings: Callable[[Case], Iterator[Finding]]


CHECKS = (
    Check("readable", "every library can be read", contents.unreadable),
    Check("record", "every member is what RECORD says", contents.record),
    Check("tags", "name, tags and libraries agree", contents.tags),
    Check("symbols", "the system that its tag promises is enough", contents.symbols),
    Check("portability", "the tag names the systems it runs on", contents.portability),
    Check("closure", "every needed library is brought by somebody", linking.missing_libraries),
    Check("own-libraries", "its own libraries find each other", linking.unreachable_libraries),
    Check("packages", "libraries of required packages are found", linking.unreachable_packages),
    Check("rpath-kind", "NVIDIA's packages are found by DT_RPATH", linking.runpaths),
    Check("rpath-absolute", "no search path is absolute", linking.absolute_paths),
    Check("rpath-origin", "every search path starts at $ORIGIN", linking.relative_paths),
    Check("rpath-inside", "no search path leaves the environment", linking.outside_paths),
    Check("bundled", "nothing of the driver or of glibc is in it", contents.bundled),
    Check("openmp", "there will be one OpenMP runtime", contents.openmp),
    Check("permissions", "nobody else may change its files", contents.permissions),
    Check("plan", "it says what it was built for", contents.plan),
    Check("slimmed", "what it was slimmed for is what it holds", code.slimmed),
    Check("as-asked", "device code, CUDA and Python are those asked for", code.as_asked),
    Check("cpu", "code for every CPU keeps to the level asked for", code.cpu_level),
)


def examine(case: Case) -> tuple[Finding, ...]:
    """Every finding, worst first; a check that finds nothing says so."""
    findings = [finding for check in CHECKS for finding in _run(check, case)]
    return worst_first(findings)


def _run(check: Check, case: Case) -> list[Finding]:
    fine = Finding(name=check.name, severity=Severity.OK, title=check.title)
    return list(check.findings(case)) or [fine]


def worst_first(findings: list[Finding]) -> tuple[Finding, ...]:
    order = list(Severity)
    return tuple(sorted(findings, key=lambda finding: -order.index(finding.severity)))

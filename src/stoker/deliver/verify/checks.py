"""All checks of a wheel, by topic. Pure: facts in, findings out."""

from collections.abc import Callable, Iterator
from typing import NamedTuple

from stoker.deliver.verify import code, contents, linking
from stoker.deliver.verify.tested import WheelUnderTest
from stoker.model.errors import Finding, Severity


class Check(NamedTuple):
    """``name`` and ``title`` become a finding of severity ok if the check finds nothing."""

    name: str
    title: str
    findings: Callable[[WheelUnderTest], Iterator[Finding]]


CHECKS = {
    "files": (
        Check("readable", "all libraries are readable", contents.unreadable),
        Check("record", "all files match RECORD", contents.record),
        Check("permissions", "no file is writable by everyone", contents.permissions),
    ),
    "tags": (
        Check("tags", "file name, metadata and libraries agree", contents.tags),
        Check("symbols", "the system named by the tag has all symbols", contents.symbols),
        Check("portability", "the tag names the supported systems", contents.portability),
    ),
    "libraries": (
        Check("closure", "all required libraries are available", linking.missing_libraries),
        Check("own-libraries", "bundled libraries are found", linking.unreachable_libraries),
        Check("packages", "libraries of packages are found", linking.unreachable_packages),
        Check("bundled", "no part of the driver or glibc is bundled", contents.bundled),
        Check("openmp", "only one OpenMP runtime is loaded", contents.openmp),
    ),
    "search paths": (
        Check("rpath-kind", "NVIDIA's packages are found by DT_RPATH", linking.runpaths),
        Check("rpath-absolute", "none is absolute", linking.absolute_paths),
        Check("rpath-origin", "all start at $ORIGIN", linking.relative_paths),
        Check("rpath-inside", "none leaves the environment", linking.outside_paths),
    ),
    "code": (
        Check("plan", "the plan it was built from is included", contents.plan),
        Check("slimmed", "a slimmed wheel holds what its record says", code.slimmed),
        Check("as-asked", "device code, CUDA and Python are as requested", code.as_asked),
        Check("cpu", "no instruction exceeds the requested CPU level", code.cpu_level),
    ),
}


def examine(wheel: WheelUnderTest) -> tuple[Finding, ...]:
    """Return all findings, worst first; a check that finds nothing gives one of severity ok."""
    checks = (check for topic in CHECKS.values() for check in topic)
    return worst_first([finding for check in checks for finding in _run(check, wheel)])


def _run(check: Check, wheel: WheelUnderTest) -> list[Finding]:
    fine = Finding(name=check.name, severity=Severity.OK, title=check.title)
    return list(check.findings(wheel)) or [fine]


def worst_first(findings: list[Finding]) -> tuple[Finding, ...]:
    order = list(Severity)
    return tuple(sorted(findings, key=lambda finding: -order.index(finding.severity)))

"""All checks of a wheel by topic, and what to do about each error. Facts in, findings out."""

import shlex
from collections.abc import Callable, Iterator
from typing import NamedTuple

import msgspec

from stoker.model.artifact import LibraryOrigin
from stoker.model.finding import Finding, Severity, ok, worst_first
from stoker.wheel.verify import code, contents, cpu_level, linking, loading, placement, tags
from stoker.wheel.verify.surviving import SURVIVING
from stoker.wheel.verify.tested import WheelUnderTest, told_apart


def _always(_: WheelUnderTest) -> bool:
    return True


def _has_search_paths(wheel: WheelUnderTest) -> bool:
    return any(library.rpath or library.runpath for library in wheel.libraries)


def _needs(*origins: LibraryOrigin) -> Callable[[WheelUnderTest], bool]:
    return lambda wheel: any(row.origin in origins for row in wheel.facts.dependencies)


_needs_packages = _needs(LibraryOrigin.PACKAGE)


class Check(NamedTuple):
    """``name`` and ``title`` become a finding of severity ok if the check finds nothing in a wheel
    that it ``applies`` to: nothing is said about what a wheel does not have.
    """

    name: str
    title: str
    findings: Callable[[WheelUnderTest], Iterator[Finding]]
    applies: Callable[[WheelUnderTest], bool] = lambda wheel: bool(wheel.libraries)


CHECKS = {
    "files": (
        Check("readable", "all libraries are readable", contents.unreadable_files),
        Check("record", "all files match RECORD", contents.record, _always),
        Check("permissions", "no file is writable by everyone", contents.permissions, _always),
        Check(
            "start",
            "nothing runs when Python starts",
            placement.starting_code,
            _always,
        ),
        Check(
            "placement",
            "all files are in its own places",
            placement.foreign_files,
            _always,
        ),
        Check(
            "requirements",
            "no package of a requirement gets files",
            placement.files_of_requirements,
            lambda wheel: bool(wheel.metadata.requires),
        ),
    ),
    "tags": (
        Check("tags", "file name, metadata and libraries agree", tags.tags, _always),
        Check(
            "symbols",
            "the system named by the tag has all symbols",
            tags.symbols,
        ),
        Check("portability", "the tag names the supported systems", tags.portability),
    ),
    "libraries": (
        Check(
            "closure",
            "all required libraries are available",
            linking.missing_libraries,
        ),
        Check(
            "own-libraries",
            "bundled libraries are found",
            linking.unreachable_libraries,
            _needs(LibraryOrigin.FOUND, LibraryOrigin.BESIDE),
        ),
        Check(
            "packages",
            "libraries of packages are found",
            linking.unreachable_packages,
            _needs_packages,
        ),
        Check(
            "loads-with",
            "PyTorch exports all symbols that are needed",
            loading.unresolved,
            loading.applies,
        ),
        Check(
            "bundled",
            "no part of the driver or glibc is bundled",
            contents.bundled,
        ),
        Check("copies", "each library has one name", contents.copies),
        Check(
            "openmp",
            "only one OpenMP runtime is loaded",
            contents.openmp,
        ),
    ),
    "search paths": (
        Check(
            "rpath-kind",
            "none that leads to NVIDIA's packages is a DT_RUNPATH",
            linking.runpaths,
            lambda wheel: _needs_packages(wheel) and _has_search_paths(wheel),
        ),
        Check("rpath-absolute", "none is absolute", linking.absolute_paths, _has_search_paths),
        Check(
            "rpath-origin",
            "none depends on the current directory",
            linking.relative_paths,
            _has_search_paths,
        ),
        Check(
            "rpath-inside",
            "none leaves the environment by '..'",
            linking.outside_paths,
            _has_search_paths,
        ),
    ),
    "code": (
        Check(
            "plan",
            "the plan it was built from is included",
            contents.included_plan,
            lambda wheel: wheel.plan is not None,
        ),
        Check(
            "slimmed",
            "a slimmed wheel holds what its record says",
            code.as_slimmed,
            lambda wheel: wheel.slim is not None,
        ),
        Check(
            "as-asked",
            "device code, CUDA and Python are as requested",
            code.as_asked,
            lambda wheel: wheel.expected is not None,
        ),
        Check(
            "cpu",
            "no instruction exceeds the requested CPU level",
            cpu_level.cpu_level,
            lambda wheel: wheel.expected is not None and wheel.expected.cpu is not None,
        ),
    ),
}


def examine_wheel(wheel: WheelUnderTest) -> tuple[Finding, ...]:
    """Return all findings, worst first; a check that finds nothing gives one of severity ok."""
    findings: list[Finding] = []
    record = wheel.slim.record if wheel.slim else None
    for check in (check for topic in CHECKS.values() for check in topic):
        found = [with_fix(wheel, finding) for finding in check.findings(wheel)]
        if check.findings in SURVIVING:
            found = list(told_apart(found, record))
        if not found and check.applies(wheel):
            found = [ok(check.name, check.title)]
        findings += found
    return worst_first(findings)


_AGAIN = "Download the wheel again, or build it again: it was damaged, or changed after its build."
_BUILD = "stoker build SOURCE --variant {variant}"
_PACKAGE = "stoker package {wheel} --mode plain"

# What to do about each error, in words or as a command. Checks that know more give their own fix.
FIXES = {
    "unreadable-library": _AGAIN,
    "wrong-record": _AGAIN,
    "wrong-hash": _AGAIN,
    "world-writable": "Run `chmod -R o-w` in the source tree, and build the wheel again.",
    "runs-at-start": "Leave the file out: a package runs code when it is imported.",
    "foreign-files": "Write to own packages, to the scheme `scripts`, or to shared folders.",
    "wrong-tag": _PACKAGE,
    "too-new-symbols": _PACKAGE,
    "bundled-driver": "Leave them out of what the build installs: every machine has its own.",
    "bundled-glibc": "Leave them out of what the build installs: every machine has its own.",
    "second-openmp": "Link with the OpenMP runtime of torch or of the system, and bundle none.",
    "unreadable-plan": "Build the wheel again with `stoker build`, which writes the plan.",
    "other-plan": _BUILD,
    "unreadable-slim-note": "Slim the original wheel again with `stoker slim`.",
    "missing-architecture": _BUILD,
    "extra-architecture": "stoker slim {wheel} --for {gpus}",
    "wrong-cuda": _BUILD,
    "wrong-python": _BUILD,
    "wrong-cpu-family": _BUILD,
    "cpu-level-marked": _BUILD,
    "cpu-level": _BUILD,
    "does-not-load": "Build it with that PyTorch, or install the one that it was built with.",
    "for-another-torch": "Install the PyTorch that it requires, or build it with this one.",
    "trial-install": "Let pip find the requirements (PIP_INDEX_URL, PIP_FIND_LINKS).",
    "trial-gpu": "Build or slim it for this GPU: `stoker inspect WHEEL` lists what it serves.",
    "trial": "`stoker inspect WHEEL` shows what its libraries need and where they search it.",
}


def with_fix(wheel: WheelUnderTest, finding: Finding) -> Finding:
    """Return an error with what to do about it."""
    if finding.severity is not Severity.ERROR or finding.fix:
        return finding
    text = FIXES.get(finding.name) or FIXES[finding.name.partition("-")[0]]
    if not text.startswith("stoker "):
        return msgspec.structs.replace(finding, advice=text)
    gpus = ",".join(gpu.torch_word for gpu in wheel.expected_gpus)
    variant = wheel.expected.name if wheel.expected else "VARIANT"
    path = shlex.quote(wheel.file_name)
    command = text.format(wheel=path, variant=shlex.quote(variant), gpus=gpus or "GPUS")
    return msgspec.structs.replace(finding, fix=(command,))

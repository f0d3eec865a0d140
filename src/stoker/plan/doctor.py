"""Checks whether a plan can run on this machine. Pure: facts in, findings out.

Each check yields what it found, good or bad, with the evidence and the command that fixes it. Here
are those of libraries, memory and disk.
"""

import shlex
from collections.abc import Callable, Iterator

import msgspec

from stoker.knowledge.features import FeatureRow, blas_libraries, features
from stoker.knowledge.libraries import library_table
from stoker.model.finding import Finding, Severity, error, ok, warning, worst_first
from stoker.model.plan import Plan
from stoker.model.setting import is_on
from stoker.model.source import ProjectKind
from stoker.model.value import size
from stoker.plan import doctor_compilers, doctor_tools
from stoker.plan.planning import PlannedBuild
from stoker.plan.subject import Subject

_GIB = 1024**3
_ENOUGH_DISK = 1_000_000_000  # less than this is too little even for a small project


def examine(subject: Subject, plan: Plan) -> tuple[Finding, ...]:
    """Return every finding, worst first, including the remarks of the plan."""
    planned = PlannedBuild(subject=subject, plan=plan)
    # A plan for another platform can be printed, but not run.
    findings = [
        msgspec.structs.replace(finding, severity=Severity.ERROR)
        if finding.name == "other-platform"
        else finding
        for finding in plan.findings
    ]
    # For another platform, what is installed here does not matter; the tree does.
    for check in _CHECKS if subject.here else _OF_THE_TREE:
        findings += check(planned)
    return worst_first(findings)


def can_run(findings: tuple[Finding, ...]) -> bool:
    return not any(finding.severity is Severity.ERROR for finding in findings)


def check_switched_off(planned: PlannedBuild) -> Iterator[Finding]:
    """Yield features whose library is missing: the build switches them off silently."""
    for row in features().values():
        if not _would_be_on(planned, row) or _served(planned, row):
            continue
        asked = planned.subject.feature(row.name) is True
        what = row.library or row.python_package or row.name
        would = "cannot be built" if asked else "would switch itself off"
        evidence = row.help
        fix: tuple[str, ...] = (f"python3 -m pip install {what}",)
        if row.library:
            known = (known for known in library_table().library if known.name == row.library)
            names = (name for each in known for name in each.variables)
            variable = next(names, "CMAKE_PREFIX_PATH")
            elsewhere = f"export {variable}=FOLDER   # if it is installed elsewhere"
            fix = (*planned.install(row.library), elsewhere)
            if found := planned.subject.toolbox.library(row.library):
                half = f"header {found.header}" if found.header else f"library {found.library}"
                evidence += f"; only its {half} was found"
        yield Finding(
            name=f"{row.name}-missing",
            severity=Severity.ERROR if asked else Severity.WARNING,
            title=f"{row.name} {would}: {what} not found",
            evidence=evidence,
            fix=fix,
        )


def _would_be_on(planned: PlannedBuild, row: FeatureRow) -> bool:
    if not (row.library or row.python_package):
        return False
    if row.backends and planned.subject.variant.backend not in row.backends:
        return False
    value = planned.plan.value(row.option)
    if value is not None:
        return is_on(value)
    option = planned.subject.tree.option(row.option) if planned.subject.tree else None
    return planned.subject.is_pytorch and option is not None and option.default == "ON"


def _served(planned: PlannedBuild, row: FeatureRow) -> bool:
    if row.python_package:
        return row.python_package in planned.subject.toolbox.python.packages
    library = planned.subject.toolbox.library(row.library or "")
    if library and library.complete:
        return True
    release = planned.subject.tree.release if planned.subject.tree else None
    if release and row.name in release.fetched:
        return True  # the build fetches and compiles it
    modules = planned.subject.tree.submodules if planned.subject.tree else ()
    return any(module.path == row.submodule and module.present for module in modules)


def check_blas(planned: PlannedBuild) -> Iterator[Finding]:
    if planned.subject.kind is not ProjectKind.PYTORCH:
        return
    value = planned.plan.value("BLAS")
    if value is None and planned.subject.platform.os == "macos":
        return  # Accelerate comes with the system
    rows = [row for row in blas_libraries().values() if row.library]
    if value:
        rows = [row for row in rows if row.value == value]
    toolbox = planned.subject.toolbox
    found = [row for row in rows if (b := toolbox.library(row.library or "")) and b.complete]
    if found:
        yield ok("blas", f"BLAS: {found[0].value}")
    elif rows and planned.subject.variant.blas:
        name = rows[0].library or ""
        yield error("blas-missing", f"{value} not found", fix=planned.install(name))
    elif rows:
        wanted = f"{value} not found: " if value else ""
        yield warning(
            "blas-missing",
            f"{wanted}without a BLAS library matrix products on the CPU are very slow",
            fix=planned.install("openblas"),
        )


def check_memory(planned: PlannedBuild) -> Iterator[Finding]:
    memory, step = planned.subject.machine.memory, planned.plan.estimate.largest_step_bytes
    limit, largest = memory.limit, step.amount
    evidence = f"{limit.kind} ({limit.where}), {size(limit.free)} of it free"
    if largest and limit.limit + memory.swap_free < largest:
        short = max(1, round((largest - limit.limit) / _GIB + 0.5))
        yield error(
            "memory-short",
            f"{size(limit.limit)} of memory, but the largest step needs {size(largest)}",
            evidence=f"{evidence}; {step.basis}",
            fix=(
                f"fallocate -l {short}G /swapfile && chmod 600 /swapfile",
                "mkswap /swapfile",
                "swapon /swapfile",
            ),
        )
    elif largest and limit.free < largest:
        yield warning(
            "memory-busy",
            f"{size(limit.free)} of memory free, but the largest step needs {size(largest)}",
            evidence=evidence,
        )
    else:
        yield ok("memory", f"{size(limit.limit)} of memory", evidence)
    if limit.kills_group:
        yield warning(
            "oom-kills-group",
            "at the memory limit the kernel kills every process of the group, not one compile",
            evidence=f"memory.oom.group is 1 at or above {limit.where}",
            fix=(f"echo 0 > {shlex.quote(limit.where + '/memory.oom.group')}",),
        )
    if planned.subject.machine.oomd:
        yield warning(
            "oomd-active",
            "systemd-oomd kills a whole session when memory stays short",
            fix=("systemd-run --user --scope -p ManagedOOMPreference=omit stoker run -- ...",),
        )


def check_disk(planned: PlannedBuild) -> Iterator[Finding]:
    need = max(planned.plan.estimate.disk_bytes.amount or 0, _ENOUGH_DISK)
    for disk in planned.subject.machine.disks:
        if disk.in_memory:
            continue
        if disk.free < need:
            yield error(
                "disk-short",
                f"{size(disk.free)} free at {disk.path}, at least {size(need)} needed",
                evidence=planned.plan.estimate.disk_bytes.basis,
            )
        else:
            yield ok("disk", f"{size(disk.free)} free", f"{disk.path} ({disk.filesystem})")


def check_unread(planned: PlannedBuild) -> Iterator[Finding]:
    for note in (*planned.subject.machine.notes, *planned.subject.toolbox.notes):
        yield warning("unreadable", note)


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

"""Prepares a build: checks that nothing prevents it, and provides a Python for its back end."""

import shutil
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import msgspec
from msgspec.structs import replace
from packaging.utils import canonicalize_name

from stoker.builds.backend import Execute, Isolated, extra_requirements
from stoker.builds.graph import digest, file_digest
from stoker.builds.repeating import read_recorded
from stoker.builds.route import SwitchedOff
from stoker.builds.stages import StageLog
from stoker.knowledge.packages import install_command
from stoker.knowledge.projects import features
from stoker.model.build import Isolation
from stoker.model.errors import MissingError, StokerError
from stoker.model.finding import Finding, Severity
from stoker.model.plan import PLAN_MEMBER, Plan
from stoker.model.source import ProjectKind, SourceTree
from stoker.outside import files
from stoker.plan.doctor import examine
from stoker.plan.doctor_tools import requirements_missing, unmet_requirements
from stoker.plan.grammar import name, parse
from stoker.plan.subject import Subject
from stoker.wheel.package.packaging import package
from stoker.wheel.package.values import PackageMode, PackageRequest
from stoker.wheel.verify.tested import shortened
from stoker.wheel.verify.verifying import verify

# Errors of doctor that do not prevent a build: the governor handles low memory, a full disk is
# reported later, and requirements depend on the isolation.
_NO_HINDRANCE = ("memory", "disk", "requirements")


def hindrances(
    subject: Subject, plan: Plan, tree: SourceTree, isolation: Isolation | None
) -> list[Finding]:
    """Return the reasons why a build cannot succeed. ``isolation`` is ``None`` without a
    back end.
    """
    found = [
        finding
        for finding in examine(subject, plan)
        if finding.severity is Severity.ERROR and not finding.name.startswith(_NO_HINDRANCE)
    ]
    # Not all that PyTorch lists is needed to build it.
    if isolation is Isolation.NONE and tree.kind is not ProjectKind.PYTORCH:
        python = subject.toolbox.python
        unmet = unmet_requirements(tree.requirements, python)
        found += [requirements_missing(unmet, python)] if unmet else []
    return found


def fitting_isolation(subject: Subject, tree: SourceTree) -> Isolation:
    """Return the isolation: PyTorch and its extensions see the installed packages, others only if
    those suffice.
    """
    needs_torch = any(line.startswith("torch") for line in tree.requirements)
    if tree.kind in (ProjectKind.PYTORCH, ProjectKind.EXTENSION) or needs_torch:
        return Isolation.NONE
    unmet = unmet_requirements(tree.requirements, subject.toolbox.python)
    return Isolation.FULL if unmet else Isolation.NONE


def make_environment(
    folder: Path, subject: Subject, tree: SourceTree, isolation: Isolation, execute: Execute
) -> None:
    """Create the environment of the back end, with all its requirements."""
    isolated = Isolated(folder, execute)
    isolated.make(subject.toolbox.python.executable, isolation)
    isolated.install(tree.requirements)
    isolated.install(extra_requirements(Path(tree.path), python=isolated.python, execute=execute))


def python_digest(subject: Subject, tree: SourceTree, isolation: Isolation | None) -> str:
    """Return a digest of the interpreter and of the packages that the back end sees."""
    python = subject.toolbox.python
    installed = python.packages.items() if isolation is not Isolation.FULL else ()
    # An installed version of the project itself changes nothing.
    own = canonicalize_name(tree.name)
    others = {name: version for name, version in installed if name != own}
    return digest([python.executable, python.version, others])


def refusal(off: Sequence[SwitchedOff], subject: Subject) -> MissingError:
    """Return the error for options that were requested but are off: CMake's messages and packages
    to install.
    """
    hints = [f"CMake: {line}" for one in off for line in one.lines]
    for one in off:
        row = next((row for row in features().values() if row.option == one.name), None)
        wanted = (row.library,) if row and row.library else one.libraries
        lines = [install_command(name, subject.machine.os, subject.cuda_version) for name in wanted]
        hints += commands(line for command in lines for line in command)
    without = " ".join(f"-D {one.name}=OFF" for one in off)
    hints.append(f"to build without it: {without}")
    names = " and ".join(one.name for one in off)
    return MissingError(f"{names} was requested, but CMake switched it off", hints=hints)


def mending(findings: Sequence[Finding]) -> list[str]:
    """Return findings and their fixes as hints of an error whose message is the first title."""
    lines = [
        line
        for finding in findings
        for line in (finding.title, *finding.evidence.splitlines(), *commands(finding.fix))
    ]
    return lines[1:]


def commands(lines: Iterable[str]) -> list[str]:
    """Return shell commands as hints that can be pasted."""
    return [f"  $ {line}" for line in lines]


# -- finishing -------------------------------------------------------------------------------------
# The last stages of a build: add the plan to the wheel, make it portable, verify, deliver.


_OF_MODES = ("missing-library", "library-off-path")  # findings that another --mode fixes
_NEXT = {
    PackageMode.BUNDLE: "next: --mode bundle takes these libraries into the wheel and sets its "
    "search paths; or add the packages that bring them to the project's requirements",
    PackageMode.PYPI: "next: --mode pypi makes the wheel require the packages that have these "
    "libraries, and sets its search paths",
}


def packed(
    wheel: Path, recorded: Mapping[str, object], request: PackageRequest, into: Path, log: StageLog
) -> Path:
    """Make a portable copy of a wheel that carries ``recorded``, alone in the folder ``into``."""
    shutil.rmtree(into, ignore_errors=True)
    page = msgspec.json.format(msgspec.json.encode(recorded)) + b"\n"
    planned, packaged = package(wheel, request, into, notes={PLAN_MEMBER: page})
    for note in planned.notes:
        log.line(f"note: {note}")
    return Path(packaged.path)


def check(wheel: Path, log: StageLog, mode: str) -> None:
    """Verify a wheel; raise an error if it does not match its plan and its tags."""
    verification = verify(wheel)
    for finding in verification.findings:
        log.line(f"{finding.severity}: {finding.title}")
        for line in finding.evidence.splitlines():
            log.line(f"    {line}")
    if not verification.ok:
        wrong = [one for one in verification.findings if one.severity is Severity.ERROR]
        hints = mending(
            [replace(shortened(one), fix=()) for one in wrong]
        )  # the wheel has not been delivered yet
        fixes = " ".join(line for one in wrong if one.name in _OF_MODES for line in one.fix)
        better = (each for each in _NEXT if f"--mode {each}" in fixes and each != mode)
        hints += [_NEXT[each] for each in better][:1] if mode != PackageMode.BUNDLE else []
        raise StokerError(f"{wrong[0].title} (the wheel is {wheel})", hints=hints)


def handed_over(wheel: Path, out: Path) -> Path:
    """Copy a wheel to the folder ``out``, whole or not at all.

    Only a wheel of the same variant is replaced: other variants may have the same file name.
    """
    target = out / wheel.name
    if file_digest(target) != file_digest(wheel):
        _check_same_variant(wheel, target)
        with files.file_made_whole(target) as stream, wheel.open("rb") as source:
            shutil.copyfileobj(source, stream)
    return target


def _check_same_variant(wheel: Path, target: Path) -> None:
    if not target.exists():
        return
    new, old = _variant(wheel), _variant(target)
    if old is None:
        found = "a wheel that stoker did not build"
    elif old != new:
        found = f"the wheel of variant {old}"
    else:
        return
    raise StokerError(
        f"{target} is {found}; the wheel of {new} has the same name and does not replace it",
        hints=[
            "--label auto: put the variant into the version, such as 2.9.1+cu130.sm90",
            "--out DIR: another folder",
            f"or remove {target}; what was built is kept, so the next build only copies it",
        ],
    )


def _variant(wheel: Path) -> str | None:
    """Return the variant in the plan that a wheel carries, or None if it carries none.

    Wheels of the same name are for the same Python, which the variant may name or leave open.
    """
    try:
        return name(replace(parse(read_recorded(wheel).variant), python=None))
    except StokerError:
        return None

"""What keeps a build from succeeding, and the environment of its back end."""

from collections.abc import Iterable, Sequence
from pathlib import Path

from packaging.utils import canonicalize_name

from stoker.builds import named_torch
from stoker.builds.backend import Execute, extra_requirements
from stoker.builds.configured import SwitchedOff
from stoker.builds.digests import digest
from stoker.builds.isolated import Isolated
from stoker.knowledge.features import features
from stoker.knowledge.packages import install_command
from stoker.model.build import Isolation
from stoker.model.errors import MissingError
from stoker.model.finding import Finding, Severity
from stoker.model.plan import Plan
from stoker.model.source import ProjectKind, SourceTree
from stoker.plan.doctor import examine
from stoker.plan.doctor_tools import requirements_missing, unmet_requirements
from stoker.plan.subject import Subject
from stoker.wheel.metadata import required_name

# Errors of doctor that do not prevent a build: the governor handles low memory, a full disk is
# reported later, and requirements depend on the isolation.
_NO_HINDRANCE = ("memory", "disk", "requirements")
# setup.py files of extensions import these, and few declare it.
_OF_EXTENSIONS = ("ninja", "packaging", "psutil", "setuptools", "wheel")


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


def build_requirements(
    tree: SourceTree, torch: str | None, isolation: Isolation | None = None
) -> tuple[str, ...]:
    """Return what the back end needs; ``torch`` is the PyTorch that the user names."""
    if torch is None:
        with_torch = isolation is Isolation.TORCH
        return tuple(dict.fromkeys((*tree.requirements, *(_OF_EXTENSIONS if with_torch else ()))))
    others = [one for one in tree.requirements if required_name(one) != "torch"]
    return tuple(dict.fromkeys((named_torch.requirement(torch), *others, *_OF_EXTENSIONS)))


def fitting_isolation(subject: Subject, tree: SourceTree, *, torch: str | None = None) -> Isolation:
    """Return the isolation: PyTorch and its extensions see the installed packages unless the user
    names another ``torch``, others only if those suffice.
    """
    if torch:
        return Isolation.FULL
    needs_torch = any(line.startswith("torch") for line in tree.requirements)
    if tree.kind in (ProjectKind.PYTORCH, ProjectKind.EXTENSION) or needs_torch:
        return Isolation.NONE
    unmet = unmet_requirements(tree.requirements, subject.toolbox.python)
    return Isolation.FULL if unmet else Isolation.NONE


def make_environment(
    folder: Path,
    subject: Subject,
    tree: SourceTree,
    isolation: Isolation,
    requirements: Sequence[str],
    execute: Execute,
    *,
    torch_index: str | None = None,
) -> None:
    """Create the environment of the back end, with all its requirements; the first one comes from
    ``torch_index``, if that is given.
    """
    isolated = Isolated(folder, execute)
    isolated.make(subject.toolbox.python.executable, isolation)
    if torch_index:
        isolated.install(requirements[:1], index=torch_index)
    isolated.install(requirements)
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

"""The last stages of a build: add the plan to the wheel, make it portable, verify, deliver."""

import shutil
from collections.abc import Mapping
from pathlib import Path

from msgspec.structs import replace

from stoker.builds.digests import file_digest
from stoker.builds.hindrances import mending
from stoker.builds.repeating import read_recorded
from stoker.builds.stages import StageLog
from stoker.model.errors import StokerError
from stoker.model.finding import Severity
from stoker.model.plan import PLAN_MEMBER
from stoker.model.value import indented_json
from stoker.outside import files
from stoker.outside.deleting import remove_tree
from stoker.plan.grammar import name, parse
from stoker.wheel.package.packaging import package
from stoker.wheel.package.values import PackageMode, PackageRequest
from stoker.wheel.verify.tested import shortened_evidence
from stoker.wheel.verify.verifying import verify

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
    remove_tree(into)
    page = indented_json(recorded) + b"\n"
    planned, packaged = package(wheel, request, into, notes={PLAN_MEMBER: page})
    for note in planned.notes:
        log.line(f"note: {note}")
    return Path(packaged.path)


def check_wheel(wheel: Path, log: StageLog, mode: str) -> None:
    """Verify a wheel; raise an error if it does not match its plan and its tags."""
    verification = verify(wheel)
    for finding in verification.findings:
        log.line(f"{finding.severity}: {finding.title}")
        for line in finding.evidence.splitlines():
            log.line(f"    {line}")
    if not verification.ok:
        wrong = [one for one in verification.findings if one.severity is Severity.ERROR]
        hints = mending(
            [replace(shortened_evidence(one), fix=()) for one in wrong]
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

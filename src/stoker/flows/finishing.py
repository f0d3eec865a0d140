"""The last stages of a build: add the plan to the wheel, make it portable, verify, deliver."""

import shutil
from collections.abc import Mapping
from pathlib import Path

import msgspec
from msgspec.structs import replace

from stoker.build.inputs import file_digest
from stoker.build.stages import StageLog
from stoker.flows.preparing import mending
from stoker.flows.repeating import read_recorded
from stoker.model.errors import Severity, StokerError
from stoker.model.plan import PLAN_MEMBER
from stoker.outside import files
from stoker.plan.grammar import name, parse
from stoker.wheel.engine import Content, Edit, open_wheel, rewrite
from stoker.wheel.package.built_wheel import Mode, PackageRequest
from stoker.wheel.package.packaging import package
from stoker.wheel.verify.verifying import verify

_OF_BUNDLES = ("missing-library", "library-off-path")  # findings that bundling fixes
_BUNDLE = (
    "next: --mode bundle takes these libraries into the wheel and sets its search paths; or add "
    "the packages that bring them to the project's requirements"
)


def packed(
    wheel: Path, recorded: Mapping[str, object], request: PackageRequest, into: Path, log: StageLog
) -> Path:
    """Make a portable copy of a wheel that carries ``recorded``, alone in the folder ``into``."""
    shutil.rmtree(into, ignore_errors=True)
    page = msgspec.json.format(msgspec.json.encode(recorded)) + b"\n"
    with open_wheel(wheel) as opened:
        member = f"{opened.dist_info}/{PLAN_MEMBER}"
        edit = Edit(contents={member: Content.of_bytes(page)})
        with_plan = rewrite(opened, edit, into / "with-plan")
    planned, packaged = package(with_plan, request, into)
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
            [replace(one, fix=()) for one in wrong]
        )  # the wheel has not been delivered yet
        if mode != Mode.BUNDLE and any(one.name in _OF_BUNDLES for one in wrong):
            hints.append(_BUNDLE)
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

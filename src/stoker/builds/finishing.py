"""The last stages of a build: add the plan to the wheel, make it portable, verify, deliver."""

import shutil
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from msgspec.structs import replace

from stoker.builds.digests import file_digest
from stoker.builds.hindrances import mending
from stoker.builds.repeating import read_recorded
from stoker.builds.stages import StageLog
from stoker.model.artifact import LibraryOrigin
from stoker.model.errors import MissingError, StokerError, UsageError
from stoker.model.finding import Finding, Severity
from stoker.model.value import indented_json
from stoker.model.variant import PLAN_MEMBER
from stoker.outside import files
from stoker.outside.deleting import remove_tree
from stoker.plan.grammar import parse
from stoker.wheel.inspect.inspecting import inspect
from stoker.wheel.package.packaging import package, plan_package
from stoker.wheel.package.request import PackageMode, PackageRequest
from stoker.wheel.verify.tested import Verification, shortened_evidence
from stoker.wheel.verify.verifying import verify

AUTO = "auto"  # plain, unless `verify` refuses such a wheel and another mode repairs it
_NEXT = {
    PackageMode.BUNDLE: "next: --mode bundle takes these libraries into the wheel and sets its "
    "search paths; or add the packages that bring them to the project's requirements",
    PackageMode.PYPI: "next: --mode pypi makes the wheel require the packages that have these "
    "libraries, and sets its search paths",
}


class PortableWheels:
    """Makes portable copies of a wheel that carry ``recorded``, alone in the folder ``into``."""

    def __init__(self, wheel: Path, recorded: Mapping[str, object], into: Path, log: StageLog):
        self._wheel = wheel
        self._notes = {PLAN_MEMBER: indented_json(recorded) + b"\n"}
        self._into = into
        self._log = log

    def packed(self, request: PackageRequest) -> Path:
        remove_tree(self._into)
        planned, packaged = package(self._wheel, request, self._into, notes=self._notes)
        for note in planned.notes:
            self._log.line(f"note: {note}")
        return Path(packaged.path)

    def repaired(self, plain: Path, request: PackageRequest, say: Callable[[str], None]) -> Path:
        """Return ``plain``, or a wheel of the mode that repairs what `verify` refuses in it."""
        mode = _repairing(wrong := _errors(verify(plain)), PackageMode.PLAIN)
        if mode is None:
            return plain
        rows = inspect(str(plain)).dependencies
        provided = (row.name for row in rows if row.origin is LibraryOrigin.PACKAGE)
        exclude = tuple(provided) if mode is PackageMode.BUNDLE else ()
        better = replace(request, mode=mode, exclude=(*request.exclude, *exclude))
        try:
            plan_package(self._wheel, better)
        except (MissingError, UsageError) as error:
            self._log.line(f"note: --mode {mode} is not possible: {error.message}")
            return plain
        say(f"packaged with --mode {mode}, because otherwise {wrong[0].title}")
        return self.packed(better)


def check_wheel(wheel: Path, log: StageLog, mode: str) -> tuple[Path, ...]:
    """Verify a wheel; raise an error if it does not match its plan and its tags. Makes no file."""
    verification = verify(wheel)
    for finding in verification.findings:
        log.line(f"{finding.severity}: {finding.title}")
        for line in finding.evidence.splitlines():
            log.line(f"    {line}")
    if not verification.ok:
        wrong = _errors(verification)
        # Without their fixes: the wheel has not been delivered yet.
        hints = mending([replace(shortened_evidence(one), fix=()) for one in wrong])
        if better := _repairing(wrong, PackageMode.PLAIN if mode == AUTO else mode):
            hints.append(_NEXT[better])
        raise StokerError(f"{wrong[0].title} (the wheel is {wheel})", hints=hints)
    return ()


def _errors(verification: Verification) -> list[Finding]:
    return [one for one in verification.findings if one.severity is Severity.ERROR]


def _repairing(wrong: Sequence[Finding], mode: str) -> PackageMode | None:
    """Return the mode of packaging that repairs errors of a wheel of another one."""
    fixes = " ".join(line for one in wrong for line in one.fix)
    modes = () if mode == PackageMode.BUNDLE else _NEXT
    return next((each for each in modes if f"--mode {each}" in fixes and each != mode), None)


def handed_over(wheel: Path, out: Path) -> Path:
    """Copy a wheel to the folder ``out``, whole or not at all.

    Only a wheel of the same variant is replaced: other variants may have the same file name.
    """
    target = out / wheel.name
    if file_digest(target) != file_digest(wheel):
        if target.exists():
            _check_same_variant(wheel, target)
        with files.file_made_whole(target) as stream, wheel.open("rb") as source:
            shutil.copyfileobj(source, stream)
    return target


def _check_same_variant(wheel: Path, target: Path) -> None:
    new, old = _variant(wheel), _variant(target)
    if old is not None and old == new:
        return
    found = f"the wheel of variant {old}" if old else "a wheel that stoker did not build"
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
        return replace(parse(read_recorded(wheel).variant), python=None).name
    except StokerError:
        return None

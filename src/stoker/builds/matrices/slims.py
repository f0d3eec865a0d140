"""The jobs of a matrix that slim a wheel: planned, fetched, slimmed, verified, delivered."""

from functools import cache
from pathlib import Path

from msgspec.structs import replace
from packaging.requirements import InvalidRequirement

from stoker import __version__
from stoker.builds.digests import digest, file_digest
from stoker.builds.matrices.decisions import (
    check_same_cuda,
    check_slim,
    completed_label,
    slim_estimate,
    slim_label,
    slim_sharing,
)
from stoker.builds.matrices.matrix import MatrixEnd, MatrixJob, MatrixResult, WheelFrom
from stoker.catalogue.host import read_host
from stoker.catalogue.installing import installer_for
from stoker.knowledge.estimates import estimates
from stoker.knowledge.manylinux import policies
from stoker.machine.installers import install_failure
from stoker.machine.python import target_python
from stoker.machine.system import read_machine
from stoker.model.artifact import TargetKind
from stoker.model.distribution import read_requirement
from stoker.model.errors import MissingError, StokerError, StorageErrors, UsageError
from stoker.model.finding import Severity
from stoker.model.plan import Quantity
from stoker.model.value import Value, minor_release
from stoker.model.variant import Platform, Variant
from stoker.outside import process
from stoker.outside.long_work import Say
from stoker.plan.subject import target_platform
from stoker.plan.survey import chosen_variant
from stoker.settings.user_options import UserOptions
from stoker.wheel.inspect.target import Target
from stoker.wheel.inspect.torch_builds import toolkit_of_wheel
from stoker.wheel.slim.selection import SlimRequest
from stoker.wheel.slim.slimming import OutputOptions, slim
from stoker.wheel.slim.wheel import original_label
from stoker.wheel.verify.verifying import verify
from stoker.wheel.zip import open_wheel
from stoker.wheel.zip.threads import threads

_EXAMPLE = 'for example: wheel = "torch==2.9.1", or the path of a wheel'
_UNKNOWN = Quantity(amount=None, basis="it depends on the wheel")


class Slim(Value, frozen=True, kw_only=True):
    """What to slim: the wheel at ``path``, or ``requirement`` of the package index."""

    variant: Variant
    path: str | None = None
    requirement: str = ""
    python: str = ""  # of the wheel to fetch, like ``platform``
    platform: Platform
    auto_label: bool = True  # the label of the job lacks what the wheel says about itself

    @property
    def source(self) -> str:
        """Identify the wheel: by its content, or by what is asked of the package index."""
        if self.path:
            return file_digest(Path(self.path))
        return f"{self.requirement} {self.python} {self.platform}"


def plan_slim(name: str, python: str | None, chosen: UserOptions) -> tuple[MatrixJob, Slim]:
    """Return a job that slims a wheel. A wheel that is named by its path is opened."""
    given = chosen.text("wheel")
    if not given:
        raise UsageError("there is no wheel to slim", hints=[_EXAMPLE])
    machine = read_machine(())
    variant = chosen_variant(chosen, machine)[0]
    check_slim(variant)
    slim = Slim(
        variant=variant,
        platform=target_platform(variant, machine.platform),
        auto_label=chosen.text("label") in (None, "auto"),
    )
    if _is_requirement(given):
        python = python or variant.python
        version = python or minor_release(read_host(target_python(None)).python)
        slim = replace(slim, requirement=given, python=version)
        before = None
    else:
        path = Path(given)
        with open_wheel(path) as wheel:
            check_same_cuda(variant, toolkit_of_wheel(wheel))
        slim, before = replace(slim, path=str(path.absolute())), path.stat().st_size
    job = MatrixJob(
        name=name,
        variant=variant.name,
        label=slim_label(variant),
        made_from=WheelFrom.SLIM,
        given=given,
        python=python,
        sharing=slim_sharing(variant, given),
        seconds=slim_estimate(before, estimates().slim, threads()),
        wheel_bytes=_UNKNOWN,
    )
    return job, slim


def _is_requirement(given: str) -> bool:
    """Tell NAME==VERSION from a path; a name without a version could be another wheel each day."""
    if given.endswith(".whl"):
        return False
    try:
        pinned = [item for item in read_requirement(given).specifier if item.operator == "=="]
    except InvalidRequirement:
        pinned = []
    if len(pinned) != 1 or "*" in pinned[0].version:
        raise UsageError(f"'{given}' is neither a wheel nor NAME==VERSION", hints=[_EXAMPLE])
    return True


def earlier_seconds(result: MatrixResult) -> Quantity:
    """Estimate a slimming by an earlier one of the same variant."""
    return Quantity(amount=result.wall_s, basis="the last matrix in this folder")


def slim_one(
    job: MatrixJob, slim: Slim, earlier: MatrixResult | None, *, out: Path, aside: Path, say: Say
) -> MatrixResult:
    """Slim one wheel; it appears in ``out`` if `stoker verify` finds no errors in it but those that
    the original has.

    ``aside`` is a temporary folder on the same disk, in which the jobs share their downloads.
    """
    inputs = digest([slim.source, job.label, slim.variant.name, __version__])
    same = earlier and earlier.inputs == inputs and earlier.wheel
    if earlier and same and file_digest(out / same) == earlier.sha256:
        return replace(earlier, end=MatrixEnd.UNCHANGED)
    wheel = Path(slim.path) if slim.path else _fetched(slim, aside, say)
    label = job.label
    if slim.auto_label:
        with open_wheel(wheel) as opened:
            cuda = toolkit_of_wheel(opened)
            check_same_cuda(slim.variant, cuda)
            label = completed_label(label, original=original_label(opened), cuda=cuda)
    made, before = _slimmed(wheel, SlimRequest(gpus=slim.variant.gpus, label=label), aside)
    say(f"verifying {made.name}")
    errors = _errors(made)
    if new := [error for error in errors if error not in _errors(wheel)]:
        hints = [*new[1:], "`stoker slim` writes the wheel, and `stoker verify` says more"]
        raise StokerError(f"{made.name} has errors: {new[0]}", hints=hints)
    result = MatrixResult(
        job=replace(job, label=label),
        end=MatrixEnd.DONE,
        wall_s=0.0,
        wheel=made.name,
        sha256=file_digest(made),
        size_bytes=made.stat().st_size,
        before_bytes=before,
        verified=not errors,
        original_errors=errors,
        inputs=inputs,
    )
    with StorageErrors("write", out / made.name):
        made.replace(out / made.name)
    return result


def _slimmed(wheel: Path, request: SlimRequest, aside: Path) -> tuple[Path, int]:
    target = Target(kind=TargetKind.WHEEL, path=wheel)
    report = slim(target, request, OutputOptions(out=aside / "made", force=True))
    if report.output is None:
        why = [library.skipped_because for library in report.libraries if library.skipped_because]
        raise StokerError(f"{wheel.name}: {report.notes[0]}", hints=filter(None, why))
    return Path(report.output), wheel.stat().st_size


@cache
def _errors(path: Path) -> tuple[str, ...]:
    findings = verify(path).findings
    return tuple(one.title for one in findings if one.severity is Severity.ERROR)


def _fetched(slim: Slim, aside: Path, say: Say) -> Path:
    """Download a wheel, once for all jobs that need it."""
    folder = aside / f"{slim.requirement}-{slim.python}-{slim.platform}".replace("/", "-")
    if not any(folder.glob("*.whl")):
        where = f"for Python {slim.python} on {slim.platform}"
        say(f"downloading {slim.requirement} {where}")
        installer = installer_for(target_python(None), None)
        command = installer.download_wheel(
            folder, slim.requirement, python=slim.python, platforms=_platforms(slim.platform)
        )
        outcome = process.stream(command, lambda _: None)
        if "No matching distribution found" in outcome.stdout:
            hints = ["check the version, and that the project has wheels for this platform"]
            raise MissingError(
                f"the package index has no wheel of {slim.requirement} {where}", hints=hints
            )
        if not outcome.ok:
            raise install_failure(outcome.stdout, "the wheel")
    return next(folder.glob("*.whl"))


def _platforms(platform: Platform) -> list[str]:
    """Return the platform tags whose wheels may be slimmed, newest first."""
    if platform.os != "linux":
        raise UsageError(f"wheels for {platform} hold no CUDA code")
    names = [name for policy in reversed(policies()) for name in (policy.name, *policy.aliases)]
    return [f"{name}_{platform.cpu}" for name in (*names, "linux")]

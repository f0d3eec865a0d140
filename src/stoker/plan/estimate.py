"""Estimates what a build needs, from finished builds or known figures; otherwise it is unknown."""

from stoker.knowledge.projects import BuildFigures, estimates
from stoker.model.build import MeasuredBuild
from stoker.model.plan import Backend, Estimate, HeavyStep, Quantity
from stoker.model.source import ProjectKind
from stoker.plan.subject import Subject

_UNKNOWN = Quantity(amount=None, basis="no similar build has been measured")


def estimate(subject: Subject, measured: MeasuredBuild | None = None) -> Estimate:
    """Estimate a build. ``measured`` is a finished one of the same project and variant."""
    figures = _figures(subject)
    known = Estimate(
        seconds=_seconds(subject, figures),
        largest_step_bytes=_largest_step(figures),
        disk_bytes=_disk(figures),
        wheel_bytes=_wheel(subject),
    )
    return _as_measured(known, measured, subject.machine.cpu.usable) if measured else known


def _as_measured(known: Estimate, measured: MeasuredBuild, cpus: int) -> Estimate:
    basis = f"your build of {measured.date}"
    step, wheel = measured.largest_step_bytes, measured.wheel_bytes
    return Estimate(
        seconds=Quantity(
            amount=measured.cpu_seconds / cpus,
            basis=f"{measured.cpu_seconds:,.0f} CPU seconds on {cpus} CPUs: {basis}",
        ),
        largest_step_bytes=Quantity(amount=step, basis=basis) if step else known.largest_step_bytes,
        disk_bytes=known.disk_bytes,
        wheel_bytes=Quantity(amount=wheel, basis=basis) if wheel else known.wheel_bytes,
    )


def heavy_steps(subject: Subject) -> tuple[HeavyStep, ...]:
    return tuple(
        HeavyStep(pattern=row.pattern, bytes=row.bytes, basis=row.basis)
        for row in estimates().heavy
        if row.project is subject.kind and row.backend in (None, subject.variant.backend)
    )


def _figures(subject: Subject) -> BuildFigures | None:
    if subject.platform_row.mobile:
        return None
    name = subject.tree.name.replace("-", "_") if subject.tree else None
    for row in estimates().build:
        if row.needs_feature and subject.feature(row.needs_feature) is False:
            continue
        same = row.project is subject.kind and row.backend is subject.variant.backend
        if same and row.name in (None, name):
            return row
    return None


def _seconds(subject: Subject, figures: BuildFigures | None) -> Quantity:
    if figures is None or figures.cpu_seconds is None or not subject.here:
        return _UNKNOWN
    cpus = subject.machine.cpu.usable
    basis = f"{figures.cpu_seconds:,.0f} CPU seconds on {cpus} CPUs: {figures.basis}"
    return Quantity(amount=figures.cpu_seconds / cpus, basis=basis)


def _largest_step(figures: BuildFigures | None) -> Quantity:
    if figures is None or figures.largest_step is None:
        return _UNKNOWN
    return Quantity(amount=figures.largest_step, basis=figures.basis)


def _disk(figures: BuildFigures | None) -> Quantity:
    if figures is None or figures.disk is None:
        return _UNKNOWN
    return Quantity(amount=figures.disk, basis=f"object files of {figures.basis}")


def _wheel(subject: Subject) -> Quantity:
    if subject.kind is not ProjectKind.PYTORCH or subject.variant.backend is not Backend.CUDA:
        return _UNKNOWN
    major = (subject.cuda_version or "").partition(".")[0]
    for row in estimates().wheel:
        archs = [target.arch for target in subject.gpus]
        if archs and row.cuda.startswith(f"{major}.") and set(archs) <= set(row.targets):
            amount = row.base + sum(row.targets[arch] for arch in archs)
            return Quantity(amount=amount, basis=row.basis + _other_release(subject, row.torch))
    return _UNKNOWN


def _other_release(subject: Subject, measured: str) -> str:
    release = subject.release
    return f"; yours is {release.version}" if release and release.version != measured else ""

"""Estimates what a build needs, from finished builds or known figures. Pure."""

from stoker.knowledge.estimates import BuildFigures, CompileFigures, estimates
from stoker.model.build import MeasuredBuild
from stoker.model.evidence import AskedBuild
from stoker.model.plan import Estimate, HeavyStep, Quantity
from stoker.model.source import ProjectKind
from stoker.model.value import whole_number
from stoker.model.variant import Backend
from stoker.plan.subject import Subject

_UNKNOWN = Quantity(amount=None, basis="no similar build has been measured")


def estimate(subject: Subject, measured: MeasuredBuild | None = None) -> Estimate:
    """Estimate a build. ``measured`` is a finished one of the same project and variant."""
    figures, asked = _figures(subject), subject.asked
    cpus = subject.machine.cpu.usable
    wall, step, disk, wheel = _seconds(subject, figures), _UNKNOWN, _UNKNOWN, _wheel(subject)
    if figures and figures.largest_step is not None:
        step = Quantity(amount=figures.largest_step, basis=figures.basis)
    elif heavy := max(heavy_steps(subject), key=lambda one: one.peak_bytes, default=None):
        # The text and the list of heavy steps say the same.
        step = Quantity(amount=heavy.peak_bytes, basis=heavy.basis)
    if figures and figures.disk is not None:
        disk = Quantity(
            amount=figures.disk,
            at_least=figures.disk_at_least or _is_other(subject, figures),
            basis=figures.basis + _other_release(subject, figures.release),
        )
    if asked and wall.amount is None and not asked.refusal and subject.here:
        wall = counted_seconds(asked, cpus) or wall
    if asked and step.amount is None:
        step = _counted_bytes(asked) or step
    if measured:
        basis = f"your build of {measured.date}"
        wall = Quantity(
            amount=measured.cpu_seconds / cpus,
            basis=f"{measured.cpu_seconds:,.0f} CPU seconds on {cpus} CPUs: {basis}",
        )
        if measured.largest_step_bytes:
            step = Quantity(amount=measured.largest_step_bytes, basis=basis)
        if measured.wheel_bytes:
            wheel = Quantity(amount=measured.wheel_bytes, basis=basis)
    return Estimate(wall_s=wall, largest_step_bytes=step, disk_bytes=disk, wheel_bytes=wheel)


def heavy_steps(subject: Subject) -> tuple[HeavyStep, ...]:
    return tuple(
        HeavyStep(pattern=row.pattern, peak_bytes=row.bytes, basis=row.basis)
        for row in estimates().heavy
        if row.project is subject.kind
        and row.backend in (None, subject.variant.backend)
        and row.name in (None, subject.project.name if subject.project else None)
    )


def _figures(subject: Subject) -> BuildFigures | None:
    """Return the figures of the nearest release that was measured with such features."""
    name = subject.project.name if subject.project else None
    rows = [
        row
        for row in estimates().build
        if row.project is subject.kind
        and row.backend is subject.variant.backend
        and row.name in (None, name)
        and not (row.needs_feature and subject.feature(row.needs_feature) is False)
        and not subject.platform_row.mobile
    ]
    release = subject.release.version if subject.release else None

    def difference(row: BuildFigures) -> tuple[int, bool]:
        """Return the minor releases between the two, 0 where one is not known; then features."""
        minors = ((text or "").partition(".")[2] for text in (release, row.release))
        one, other = map(whole_number, minors)
        distance = 0 if one is None or other is None else abs(one - other)
        return distance, _leaves_out(subject, row)

    return min(rows, key=difference, default=None)


def _seconds(subject: Subject, figures: BuildFigures | None) -> Quantity:
    if figures is None or figures.cpu_seconds is None or not subject.here:
        return _UNKNOWN
    cpus, targets = subject.machine.cpu.usable, max(1, len(subject.gpus))
    kernels = figures.kernel_seconds or (0.0, 0.0)
    least, most = (
        one + targets * other for one, other in zip(figures.cpu_seconds, kernels, strict=True)
    )
    of = f" for {targets} targets" if figures.kernel_seconds and targets > 1 else ""
    seconds = f"{least:,.0f}" + (f" to {most:,.0f}" if most > least else "")
    basis = f"{seconds} CPU seconds{of} on {cpus} CPUs: {figures.basis}"
    return Quantity(
        amount=least / cpus,
        most=most / cpus,
        at_least=_is_other(subject, figures),
        basis=basis + _other_release(subject, figures.release),
    )


def counted_seconds(asked: AskedBuild, cpus: int) -> Quantity | None:
    """Return a range of time from the compiles that a build answered, if it answered any."""
    counts = _counts(asked)
    if not counts and not asked.known_kernels:
        return None
    targets = max(1, len(asked.cubins) + len(asked.ptx))
    fewest = 1 + (targets - 1) * estimates().further_target
    least = sum(n * row.seconds[0] * (fewest if row.device else 1) for row, n in counts)
    most = sum(n * row.seconds[1] * (targets if row.device else 1) for row, n in counts)
    least += asked.known_kernels_s * fewest
    most += asked.known_kernels_s * targets * estimates().slower_cpu
    # No number of CPUs makes a single compile shorter, and it may take longer than the mean.
    shortest = max(asked.longest_known_s * fewest, *(row.seconds[0] for row, _ in counts), 0.0)
    longest = max(
        asked.longest_known_s * targets * estimates().slower_cpu,
        *(
            max(row.longest_seconds, row.seconds[1]) * (targets if row.device else 1)
            for row, _ in counts
        ),
        0.0,
    )
    cpus = 1 if asked.one_at_a_time else cpus
    such_as = "; ".join(row.basis for row, _ in counts)
    basis = f"{least:,.0f} to {most:,.0f} CPU seconds on {cpus} CPUs: {_described(asked)}"
    basis += f"; such as {such_as}" if such_as else ""
    return _range(asked, max(least / cpus, shortest), max(most / cpus, longest), basis)


def _counted_bytes(asked: AskedBuild) -> Quantity | None:
    counts = _counts(asked)
    if not counts:
        return None
    row = max((row for row, _ in counts), key=lambda row: row.bytes)
    return _range(
        asked,
        row.bytes[0],
        max(row.bytes[1] for row, _ in counts),
        f"{_described(asked)}; as large as {row.bytes_basis}",
    )


def _range(asked: AskedBuild, least: float, most: float, basis: str) -> Quantity:
    """Return a range, or its lower end if the build also compiles files that were not counted."""
    if asked.fetches:
        return Quantity(
            amount=least, at_least=True, basis=f"{basis}; files that it fetches besides"
        )
    return Quantity(amount=least, most=most, basis=basis)


def _counts(asked: AskedBuild) -> list[tuple[CompileFigures, int]]:
    """Return the kinds of compile of a build, and how many of each it has."""
    numbers = {
        (True, True): asked.device_with_torch,
        (True, False): asked.device_compiles - asked.device_with_torch - asked.known_kernels,
        (False, True): asked.host_with_torch,
        (False, False): asked.host_compiles - asked.host_with_torch,
    }
    counts = ((row, numbers[row.device, row.with_torch]) for row in estimates().compiles)
    return [(row, number) for row, number in counts if number]


def _described(asked: AskedBuild) -> str:
    device, host = asked.device_compiles, asked.host_compiles
    text = f"{device} compiles of device code and {host} others, as the build answered"
    if asked.known_kernels:
        text += f"; {asked.known_kernels} of them took {asked.known_kernels_s:,.0f} s elsewhere"
    if with_torch := asked.device_with_torch + asked.host_with_torch:
        text += f"; {with_torch} of them include all of PyTorch's headers"
    return text + ("; it compiles one file at a time" if asked.one_at_a_time else "")


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


def _is_other(subject: Subject, figures: BuildFigures) -> bool:
    return _leaves_out(subject, figures) or bool(_other_release(subject, figures.release))


def _leaves_out(subject: Subject, figures: BuildFigures) -> bool:
    """Return whether the measured build has not all that this one has."""
    left_out = figures.without_feature
    return left_out is not None and subject.feature(left_out) is not False


def _other_release(subject: Subject, measured: str | None) -> str:
    release = subject.release
    differs = measured and release and release.version != measured
    return f"; yours is {release.version}" if differs and release else ""

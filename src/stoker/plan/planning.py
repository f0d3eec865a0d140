"""Makes a plan from a subject: settings, the user's own defines, and an estimate. Pure."""

import re
from collections.abc import Iterator

from stoker.knowledge.packages import install_command
from stoker.knowledge.projects import (
    BuildFigures,
    estimates,
    features,
    forwarding,
    front_end_variables,
)
from stoker.model.build import MeasuredBuild
from stoker.model.errors import UsageError, nearest, unknown
from stoker.model.finding import Finding, Severity
from stoker.model.plan import (
    Backend,
    Estimate,
    HeavyStep,
    Origin,
    OriginKind,
    Plan,
    Quantity,
    Resources,
    Setting,
    SettingPlace,
    SourceSummary,
)
from stoker.model.source import FrontEnd, ProjectKind, SourceTree
from stoker.model.value import Value
from stoker.plan.checks import refuse, remarks
from stoker.plan.grammar import label
from stoker.plan.reading import carried, unread, unset_choices, with_readers
from stoker.plan.recipes import Recipe, prepare_commands, recipe
from stoker.plan.recipes.project import backend_settings
from stoker.plan.subject import Subject, environment
from stoker.plan.targets import planned_targets

# -- defines ---------------------------------------------------------------------------------------
# Checks and places the user's -D options. The tree must know every name.
#
# An option that the front end does not pass to CMake is reported.


_BY_ENVIRONMENT = (ProjectKind.EXTENSION, ProjectKind.PACKAGE)
_MISSPELT = 0.8  # similarity from which a name counts as misspelt


def known_names(subject: Subject) -> frozenset[str]:
    """Return the names for -D: those of the tree and of CMake, and what the front end reads."""
    names: set[str] = set(subject.cmake_variables)
    if subject.kind is ProjectKind.PYTORCH:
        names |= {*forwarding().names, *front_end_variables()}
        for option, variable in forwarding().aliases.items():
            names |= {option, variable}
    if subject.tree:
        names |= {option.name for option in subject.tree.options}
        names |= set(subject.tree.variables)
        names |= {ask.name for ask in subject.tree.asks}
    else:
        names |= {row.option for row in features().values()}
    return frozenset(names)


def check_defines(subject: Subject) -> Iterator[Finding]:
    """Refuse names that nothing reads. Without a tree, refuse only names that look misspelt."""
    known = known_names(subject)
    for setting in subject.defines:
        hint_of_find_package = setting.name.endswith(("_ROOT", "_DIR"))
        if setting.name in known or hint_of_find_package or subject.kind in _BY_ENVIRONMENT:
            continue
        if subject.tree or nearest(setting.name, known, cutoff=_MISSPELT):
            where = str(setting.origin)
            hint = "`stoker options PATTERN` lists what the tree knows"
            raise unknown("option", setting.name, known, where=where, hint=hint)
        yield Finding(
            name="option-unchecked",
            severity=Severity.WARNING,
            title=f"{setting.name} cannot be checked without a source tree",
            advice="Name the source tree with --source DIR.",
        )


def exported_settings(subject: Subject) -> Iterator[Setting]:
    """Yield the environment variables that PyTorch's front end passes to CMake."""
    if subject.kind is not ProjectKind.PYTORCH:
        return
    known = known_names(subject)
    for name, value in sorted(subject.exported.items()):
        if name in known and forwarding().variable(name) == name:
            origin = Origin(kind=OriginKind.ENVIRONMENT, where=name)
            setting = Setting(place=SettingPlace.CMAKE, name=name, value=value, origin=origin)
            yield _placed(setting, subject)


def check_exported(subject: Subject) -> Iterator[Finding]:
    """Refuse a USE_ or BUILD_ variable that looks like a misspelt option.

    Other variables of that form, such as BUILD_NUMBER of a CI system, are left alone.
    """
    if subject.kind is not ProjectKind.PYTORCH or subject.tree is None:
        return
    known = known_names(subject)
    options = [option.name for option in subject.tree.options]
    for name in sorted(subject.exported):
        if name in known or not name.startswith(("USE_", "BUILD_", "CMAKE_")):
            continue
        if near := nearest(name, options, count=1, cutoff=_MISSPELT):
            raise unknown("option", name, near, where=f"environment {name}")
        yield Finding(
            name="variable-unknown",
            severity=Severity.NOTE,
            title=f"the environment variable {name} is passed to CMake, which does not know it",
        )


def placed_defines(subject: Subject) -> Iterator[Setting]:
    """Yield the user's options. Some take effect as variables of the front end."""
    for setting in subject.defines:
        yield _placed(setting, subject)


def _placed(setting: Setting, subject: Subject) -> Setting:
    in_tree = bool(subject.tree and subject.tree.option(setting.name))
    aliases = forwarding().aliases.values()
    variables = {*front_end_variables(), *forwarding().names, *aliases}
    front_end = subject.kind is ProjectKind.PYTORCH and setting.name in variables
    asked = subject.tree is not None and _only_in_environment(setting.name, subject.tree)
    if subject.kind in _BY_ENVIRONMENT or ((front_end or asked) and not in_tree):
        return environment(setting.name, setting.value, setting.origin)
    return setting


def _only_in_environment(name: str, tree: SourceTree) -> bool:
    """Tell whether the build reads a variable in the environment, and CMake has none like it."""
    in_cmake = tree.ask(name, environment=False) is not None
    return not in_cmake and tree.ask(name, environment=True) is not None


def forwarded(settings: list[Setting], recipe: Recipe) -> Iterator[Setting]:
    """Yield the environment variables by which the front end sets each CMake option."""
    for setting in settings:
        if setting.place is SettingPlace.CMAKE and (name := recipe.variable(setting.name)):
            yield environment(name, setting.value, setting.origin, setting.why)


def unforwarded(settings: list[Setting], subject: Subject, recipe: Recipe) -> Iterator[Finding]:
    """Yield a warning for each option that the front end does not pass to CMake."""
    if subject.kind is not ProjectKind.PYTORCH or not subject.has_front_end:
        return
    if subject.tree and subject.tree.front_end is FrontEnd.SCIKIT_BUILD_CORE:
        return  # it takes any option as a setting of the back end
    for setting in settings:
        if setting.place is SettingPlace.CMAKE and recipe.variable(setting.name) is None:
            yield Finding(
                name="option-not-forwarded",
                severity=Severity.WARNING,
                title=f"PyTorch's front end does not pass {setting.name} to CMake",
                evidence="it passes BUILD_*, USE_*, CMAKE_* and a fixed list of names",
                fix=(f"cmake -D {setting.name}={setting.value} build   # once it is configured",),
            )


def define(name: str, value: str, origin: Origin) -> Setting:
    """Return a -D option. CMake's own form ``NAME:TYPE`` is accepted."""
    name = name.partition(":")[0].strip()
    if not re.fullmatch(r"_*[A-Za-z][A-Za-z0-9_]*", name):
        hints = ["for example: -D USE_CUDNN=0"]
        raise UsageError(f"'{name}' is not a name for -D", hints=hints, where=str(origin))
    return Setting(place=SettingPlace.CMAKE, name=name, value=value, origin=origin)


# -- estimate --------------------------------------------------------------------------------------
# Estimates what a build needs, from finished builds or known figures; otherwise it is unknown.


_UNKNOWN = Quantity(amount=None, basis="no similar build has been measured")


def estimate(subject: Subject, measured: MeasuredBuild | None = None) -> Estimate:
    """Estimate a build. ``measured`` is a finished one of the same project and variant."""
    figures = _figures(subject)
    known = Estimate(
        wall_s=_seconds(subject, figures),
        largest_step_bytes=_largest_step(figures),
        disk_bytes=_disk(subject, figures),
        wheel_bytes=_wheel(subject),
    )
    return _as_measured(known, measured, subject.machine.cpu.usable) if measured else known


def _as_measured(known: Estimate, measured: MeasuredBuild, cpus: int) -> Estimate:
    basis = f"your build of {measured.date}"
    step, wheel = measured.largest_step_bytes, measured.wheel_bytes
    return Estimate(
        wall_s=Quantity(
            amount=measured.cpu_seconds / cpus,
            basis=f"{measured.cpu_seconds:,.0f} CPU seconds on {cpus} CPUs: {basis}",
        ),
        largest_step_bytes=Quantity(amount=step, basis=basis) if step else known.largest_step_bytes,
        disk_bytes=known.disk_bytes,
        wheel_bytes=Quantity(amount=wheel, basis=basis) if wheel else known.wheel_bytes,
    )


def heavy_steps(subject: Subject) -> tuple[HeavyStep, ...]:
    return tuple(
        HeavyStep(pattern=row.pattern, peak_bytes=row.bytes, basis=row.basis)
        for row in estimates().heavy
        if row.project is subject.kind and row.backend in (None, subject.variant.backend)
    )


def _figures(subject: Subject) -> BuildFigures | None:
    if subject.platform_row.mobile:
        return None
    name = subject.project.name if subject.project else None
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
    cpus, targets = subject.machine.cpu.usable, max(1, len(subject.gpus))
    kernels = figures.kernel_seconds or (0.0, 0.0)
    least, most = (
        one + targets * other for one, other in zip(figures.cpu_seconds, kernels, strict=True)
    )
    of = f" for {targets} targets" if figures.kernel_seconds and targets > 1 else ""
    basis = f"{least:,.0f} to {most:,.0f} CPU seconds{of} on {cpus} CPUs: {figures.basis}"
    return Quantity(
        amount=least / cpus,
        most=most / cpus,
        at_least=_is_other(subject, figures),
        basis=basis + _other_release(subject, figures.release),
    )


def _largest_step(figures: BuildFigures | None) -> Quantity:
    if figures is None or figures.largest_step is None:
        return _UNKNOWN
    return Quantity(amount=figures.largest_step, basis=figures.basis)


def _disk(subject: Subject, figures: BuildFigures | None) -> Quantity:
    if figures is None or figures.disk is None:
        return _UNKNOWN
    return Quantity(
        amount=figures.disk,
        at_least=figures.disk_at_least or _is_other(subject, figures),
        basis=figures.basis + _other_release(subject, figures.release),
    )


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
    return bool(figures.release and _other_release(subject, figures.release))


def _other_release(subject: Subject, measured: str | None) -> str:
    release = subject.release
    differs = measured and release and release.version != measured
    return f"; yours is {release.version}" if differs and release else ""


# -- planning --------------------------------------------------------------------------------------
# Makes the plan of a subject: refuses contradictions, collects settings, merges them by origin.


class PlannedBuild(Value, frozen=True, kw_only=True):
    """A plan and what it was made from, for checks."""

    subject: Subject
    plan: Plan

    def install(self, what: str) -> tuple[str, ...]:
        """Return the command that installs something on this machine, if one is known."""
        return install_command(what, self.subject.machine.os, self.subject.cuda_version)


def make_plan(subject: Subject, estimate: Estimate) -> Plan:
    """Return the plan. The caller gives the estimate, so that it can use the history of builds."""
    refuse(subject)
    chosen = recipe(subject.kind)
    findings = [*check_defines(subject), *check_exported(subject), *remarks(subject)]
    options = merge(
        [*chosen.settings(subject), *exported_settings(subject), *placed_defines(subject)]
    )
    findings += unforwarded(options, subject, chosen)
    options, lost = carried(options, subject)
    settings = merge([*_jobs(subject, estimate, chosen), *options, *forwarded(options, chosen)])
    settings = with_readers(settings, subject)
    findings += [*lost, *unread(settings, subject), *unset_choices(settings, subject)]
    cmake = tuple(setting for setting in settings if setting.place is SettingPlace.CMAKE)
    return Plan(
        name=subject.name,
        label=label(subject.variant),
        variant=subject.variant,
        variant_origin={
            part: origin
            for part, origin in subject.origins.items()
            if part in subject.variant.__struct_fields__
        },
        platform=subject.platform,
        recipe=subject.kind,
        source=_summary(subject),
        machine=_resources(subject),
        environment=tuple(s for s in settings if s.place is SettingPlace.ENVIRONMENT),
        cmake=cmake,
        commands=(*prepare_commands(subject), *chosen.commands(subject, cmake)),
        heavy=heavy_steps(subject),
        estimate=estimate,
        targets=planned_targets(subject, settings),
        backend_settings=backend_settings(subject),
        findings=tuple(findings),
    )


def merge(settings: list[Setting]) -> list[Setting]:
    """Return one setting for each place and name: the strongest origin, the last one of equals."""
    best: dict[tuple[SettingPlace, str], Setting] = {}
    for setting in settings:
        key = setting.place, setting.name
        held = best.get(key)
        if held is None or setting.origin.kind.rank >= held.origin.kind.rank:
            best[key] = setting
    return [best[key] for key in sorted(best)]


def _jobs(subject: Subject, estimate: Estimate, chosen: Recipe) -> list[Setting]:
    """Return a safe number of jobs for running the plan without the governor."""
    variable = (subject.project.jobs if subject.project else None) or chosen.jobs_variable
    tree = subject.tree
    if tree and tree.front_end is FrontEnd.SETUPTOOLS and tree.ask("MAX_JOBS", environment=True):
        variable = "MAX_JOBS"
    if (own := subject.exported.get(variable)) or not subject.here:
        origin = Origin(kind=OriginKind.ENVIRONMENT, where=variable)
        return [environment(variable, own, origin)] if own else []
    cpus, largest = subject.machine.cpu.usable, estimate.largest_step_bytes.amount
    fitting = cpus if not largest else int(subject.machine.memory.limit.free / largest)
    jobs = max(1, min(cpus, fitting))
    why = f"{cpus} CPUs" + (f", {fitting} of the largest steps fit in memory" if largest else "")
    return [environment(variable, str(jobs), Origin(kind=OriginKind.MACHINE), why)]


def _resources(subject: Subject) -> Resources:
    limit = subject.machine.memory.limit
    return Resources(
        cpus=subject.machine.cpu.usable,
        memory_bytes=limit.limit,
        memory_limit=f"{limit.kind} ({limit.where})",
    )


def _summary(subject: Subject) -> SourceSummary | None:
    tree = subject.tree
    if tree is None:
        return None
    return SourceSummary(
        path=tree.path, name=tree.name, version=tree.version, front_end=tree.front_end
    )

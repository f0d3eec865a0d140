"""Makes the plan of a subject: refuses contradictions, collects settings, merges them by origin.
Pure.
"""

from stoker.knowledge.packages import install_command
from stoker.knowledge.projects import reader_of
from stoker.model.plan import Estimate, Plan, Resources, SourceSummary
from stoker.model.setting import Origin, OriginKind, Setting, SettingPlace
from stoker.model.source import FrontEnd, ProjectKind
from stoker.model.value import Value
from stoker.plan.checks import refuse
from stoker.plan.defines import (
    check_defines,
    check_exported,
    exported_settings,
    forwarded,
    placed_defines,
    unforwarded,
)
from stoker.plan.estimates import heavy_steps
from stoker.plan.grammar import label
from stoker.plan.left_out import staying
from stoker.plan.reading import back_end_unknown, carried, unread, unset_choices, with_readers
from stoker.plan.recipes import Recipe, prepare_commands, recipe
from stoker.plan.recipes.project import backend_settings
from stoker.plan.remarks import remarks
from stoker.plan.statements import answered, statements
from stoker.plan.subject import Subject, environment
from stoker.plan.targets import planned_targets


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
    findings += [*back_end_unknown(subject), *answered(subject)]
    targets = planned_targets(subject, settings)
    findings += staying(subject, targets)
    cmake = tuple(setting for setting in settings if setting.place is SettingPlace.CMAKE)
    tree, limit = subject.tree, subject.machine.memory.limit
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
        source=SourceSummary(
            path=tree.path, name=tree.name, version=tree.version, front_end=tree.front_end
        )
        if tree
        else None,
        machine=Resources(
            cpus=subject.machine.cpu.usable,
            memory_bytes=limit.limit,
            memory_limit=f"{limit.kind} ({limit.where})",
            given=subject.given,
        ),
        environment=tuple(s for s in settings if s.place is SettingPlace.ENVIRONMENT),
        cmake=cmake,
        commands=(*prepare_commands(subject), *chosen.commands(subject, cmake)),
        heavy=heavy_steps(subject),
        estimate=estimate,
        targets=targets,
        backend_settings=backend_settings(subject),
        statements=tuple(statements(subject, targets)),
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
    elif (
        tree
        and tree.kind is ProjectKind.PACKAGE
        and not reader_of(variable, tree.readers, environment=True)
    ):
        return []  # setuptools takes its number of jobs from its own arguments
    if (own := subject.exported.get(variable)) or not subject.here:
        origin = Origin(kind=OriginKind.ENVIRONMENT, where=variable)
        return [environment(variable, own, origin)] if own else []
    cpus, largest = subject.machine.cpu.usable, estimate.largest_step_bytes.amount
    fitting = cpus if not largest else int(subject.machine.memory.limit.free / largest)
    jobs = max(1, min(cpus, fitting))
    why = f"{cpus} CPUs" + (f", {fitting} of the largest steps fit in memory" if largest else "")
    return [environment(variable, str(jobs), Origin(kind=OriginKind.MACHINE), why)]

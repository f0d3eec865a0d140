"""Plans as JSON, plans as recorded in wheels, and the differences between two plans."""

from collections.abc import Mapping
from typing import Any

import msgspec
from msgspec.structs import replace

from stoker.model.plan import Plan
from stoker.model.secrets import HIDDEN, hide, hide_in_word
from stoker.model.setting import Origin, OriginKind, Setting, SettingPlace
from stoker.model.value import Value
from stoker.plan.recipes import recipe
from stoker.plan.subject import Subject

# Parts that depend on the time or the folder. The same plan has the same record everywhere.
_MOMENTARY = ("machine", "estimate", "statements", "findings", "origin", "why", "readers")


def plan_json(plan: Plan) -> dict[str, Any]:
    """Return the plan as JSON objects: name to value, and name to origin."""
    built = msgspec.to_builtins(plan)
    settings = (*plan.environment, *plan.cmake)
    return {
        "variant": {"name": plan.name, **built["variant"]},
        "label": plan.label,
        "platform": str(plan.platform),
        "recipe": plan.recipe,
        "source": built["source"],
        "machine": built["machine"],
        "environment": {setting.name: setting.value for setting in plan.environment},
        "cmake": {setting.name: setting.value for setting in plan.cmake},
        "origin": {part: str(origin) for part, origin in plan.variant_origin.items()}
        | {setting.name: str(setting.origin) for setting in settings},
        "why": {setting.name: setting.why for setting in settings if setting.why},
        "readers": {setting.name: setting.reader for setting in settings if setting.reader},
        "targets": built["targets"],
        "statements": built["statements"],
        "commands": built["commands"],
        "heavy": built["heavy"],
        "estimate": built["estimate"],
        "findings": built["findings"],
    }


def lasting_json(plan: Plan) -> dict[str, Any]:
    """Return the plan without secrets and without what depends on the folder or the time."""
    plan = without_secrets(plan)
    passing = {setting.name for setting in plan.environment if _is_passing(setting)}
    whole = {key: value for key, value in plan_json(plan).items() if key not in _MOMENTARY}
    settings = whole["environment"].items()
    whole["environment"] = {name: value for name, value in settings if name not in passing}
    if whole["targets"]:
        whole["targets"] = {k: value for k, value in whole["targets"].items() if k != "evidence"}
    if whole["source"]:
        whole["source"] = {key: value for key, value in whole["source"].items() if key != "path"}
    return whole


def without_secrets(plan: Plan) -> Plan:
    """Return the plan with secrets hidden, also in its commands."""

    def settings(given: tuple[Setting, ...]) -> tuple[Setting, ...]:
        return tuple(replace(s, value=hide(s.name, s.value)) for s in given)

    return replace(
        plan,
        environment=settings(plan.environment),
        cmake=settings(plan.cmake),
        commands=tuple(replace(c, words=tuple(map(hide_in_word, c.words))) for c in plan.commands),
    )


def as_recorded(
    subject: Subject,
    plan: Plan,
    environment: Mapping[str, str],
    cmake: Mapping[str, str],
    *,
    where: str,
) -> Plan:
    """Return the plan with these settings, except those that depend on the time or were hidden."""
    origin = Origin(kind=OriginKind.FILE, where=where)
    today = {setting.name: setting for setting in (*plan.environment, *plan.cmake)}

    def settings(place: SettingPlace, values: Mapping[str, str]) -> tuple[Setting, ...]:
        return tuple(
            today[name]
            if HIDDEN in value
            else Setting(place=place, name=name, value=value, origin=origin)
            for name, value in values.items()
            if HIDDEN not in value or name in today
        )

    kept = tuple(s for s in plan.environment if _is_passing(s) and s.name not in environment)
    options = settings(SettingPlace.CMAKE, cmake)
    return replace(
        plan,
        environment=(*kept, *settings(SettingPlace.ENVIRONMENT, environment)),
        cmake=options,
        commands=recipe(subject.kind).commands(subject, options),
    )


def _is_passing(setting: Setting) -> bool:
    """Tell whether a setting is the number of jobs, which depends on free memory and CPUs."""
    return setting.origin.kind is OriginKind.MACHINE and setting.name.endswith(("JOBS", "LEVEL"))


class Difference(Value, frozen=True, kw_only=True):
    """A setting that differs. ``None`` means that a plan does not set it."""

    place: SettingPlace
    name: str
    before: str | None
    after: str | None


def compare(before: Plan, after: Plan) -> tuple[Difference, ...]:
    """Return the settings that differ, in order of place and name."""
    old = {(s.place, s.name): s.value for s in (*before.environment, *before.cmake)}
    new = {(s.place, s.name): s.value for s in (*after.environment, *after.cmake)}
    return tuple(
        Difference(
            place=place, name=name, before=old.get((place, name)), after=new.get((place, name))
        )
        for place, name in sorted(old | new)
        if old.get((place, name)) != new.get((place, name))
    )

"""Records: how a plan is written down, and the folders of builds on this machine."""

import glob
import re
import time
from collections.abc import Mapping
from contextlib import ExitStack, suppress
from itertools import count
from pathlib import Path
from typing import Any

import msgspec
from msgspec.structs import replace

from stoker.model.build import BuildRecord, BuildStage, MeasuredBuild
from stoker.model.events import AnyEvent, Overview
from stoker.model.plan import Origin, OriginKind, Plan, Setting, SettingPlace
from stoker.model.secrets import HIDDEN, hide, hide_in_word
from stoker.model.value import Value
from stoker.outside import folders, locks
from stoker.outside.files import read_json, write_whole
from stoker.plan.recipes import recipe
from stoker.plan.subject import Subject

# -- record ----------------------------------------------------------------------------------------
# Plans as JSON, plans as recorded in wheels, and the differences between two plans.


# Parts that depend on the time or the folder. The same plan has the same record everywhere.
_MOMENTARY = ("machine", "estimate", "findings", "origin", "why", "readers")


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


# -- run folder ------------------------------------------------------------------------------------
# The folder of one build: its record, the log of each stage, and the governor's events.


RECORD = "record.json"
RUN_LOCK = "lock"  # held while the build runs


def runs_folder() -> Path:
    return folders.state() / "runs"


def run_name(project: str, variant: str) -> str:
    """Return the part of a run folder's name that builds of one project and variant share."""
    return folders.short_name(f"{project}-{variant}")


def fullest_build(name: str) -> MeasuredBuild | None:
    """Return the figures of the successful build that compiled most, or None without any.

    Later builds compile only what has changed, so the newest one tells little.
    """
    own = re.compile(rf"\d{{8}}-\d{{6}}-{re.escape(name)}(-\d+)?")
    found = [
        record
        for path in runs_folder().glob(f"*-{glob.escape(name)}*/{RECORD}")
        if own.fullmatch(path.parent.name)  # other variants may begin with the same words
        and (record := read_json(path, BuildRecord))
        and not record.error
        and record.summary
        and record.summary.steps
    ]
    record = max(found, key=_cpu_seconds, default=None)
    if record is None:
        return None
    return MeasuredBuild(
        date=time.strftime("%Y-%m-%d", time.gmtime(record.started)),
        cpu_seconds=_cpu_seconds(record),
        largest_step_bytes=record.largest_step_bytes,
        wheel_bytes=record.wheel_bytes,
    )


def _cpu_seconds(record: BuildRecord) -> float:
    return record.summary.cpu_s if record.summary else 0.0


class RunFolder:
    """Use it in a ``with`` block. Logs are numbered in the order in which the stages began."""

    def __init__(self, name: str):
        moment = time.strftime("%Y%m%d-%H%M%S", time.gmtime())
        self.path = runs_folder() / f"{moment}-{folders.short_name(name)}"
        self._begun: list[BuildStage] = []
        self._stack = ExitStack()

    def __enter__(self) -> "RunFolder":
        try:
            self._make()
            self._stack.enter_context(locks.held(self.path / RUN_LOCK))
            self._events = self._stack.enter_context((self.path / "events.jsonl").open("wb", 0))
        except OSError as error:
            raise folders.unwritable(self.path, error, doing="write in") from error
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def _make(self) -> None:
        """Make the folder; a number tells apart builds that begin in the same second."""
        runs_folder().mkdir(parents=True, exist_ok=True)
        first = self.path
        for number in count(2):
            try:
                self.path.mkdir(mode=0o700)  # logs hold what commands print
                break
            except FileExistsError:
                self.path = first.with_name(f"{first.name}-{number}")

    def log(self, stage: BuildStage) -> Path:
        if stage not in self._begun:
            self._begun.append(stage)
        return self.path / f"{self._begun.index(stage) + 1}-{stage}.log"

    def keep(self, event: AnyEvent) -> None:
        """Keep an event, unless it is an overview. An event that cannot be written is dropped."""
        if not isinstance(event, Overview):
            with suppress(OSError):
                self._events.write(msgspec.json.encode(event) + b"\n")

    def write(self, record: BuildRecord) -> None:
        self.attach(RECORD, msgspec.json.format(msgspec.json.encode(record)))

    def attach(self, name: str, content: bytes) -> None:
        write_whole(self.path / name, content, private=True)

"""From a wheel and what was asked for to what is wrong with it."""

import os
from collections.abc import Mapping
from pathlib import Path

import msgspec

from stoker.artifact.engine import Wheel, open_wheel
from stoker.deliver.verify.case import (
    PLAN_MEMBER,
    Case,
    CodeSample,
    PlanRecord,
    SlimNote,
    Verification,
)
from stoker.deliver.verify.checks import examine, worst_first
from stoker.flows.inspecting import inspect
from stoker.flows.planning import named_variant
from stoker.model.errors import ArtifactError, UsageError
from stoker.model.finding import Finding
from stoker.model.slim import SLIM_MEMBER, SlimRecord
from stoker.model.value import UNDECODABLE, Value
from stoker.model.variant import Variant
from stoker.plan.grammar import name, parse


class _Recorded(Value, frozen=True, kw_only=True):
    """What is of interest in the plan that a wheel carries."""

    variant: Variant


def verify(
    path: Path,
    *,
    variant: str | None = None,
    run: bool = False,
    environment: Mapping[str, str] = os.environ,
) -> Verification:
    asked = named_variant(variant) if variant else None
    with open_wheel(path) as wheel:
        case = _read(wheel, asked)
        python = _python_for(case) if run else None
        case = _looked_through(wheel, case)
    findings = list(examine(case))
    if python:
        findings += _tried(path, case, python, environment)
    return Verification(
        wheel=str(path),
        name=case.wheel.name,
        version=case.wheel.version,
        variant=name(case.expected) if case.expected else None,
        findings=worst_first(findings),
    )


def _read(wheel: Wheel, asked: Variant | None) -> Case:
    if wheel.path.suffix != ".whl":
        raise UsageError(f"'{wheel.path}' is not called a wheel", hints=["its name ends with .whl"])
    facts = inspect(str(wheel.path))
    assert facts.wheel is not None
    slim = _slim(wheel)
    return Case(
        file_name=wheel.path.name,
        facts=facts,
        wheel=facts.wheel,
        members=tuple(wheel.members.values()),
        plan=_plan(wheel, slim),
        slim=slim,
        asked=asked,
    )


def _slim(wheel: Wheel) -> SlimNote | None:
    member = f"{wheel.dist_info}/{SLIM_MEMBER}"
    if member not in wheel.members:
        return None
    try:
        return SlimNote(record=msgspec.json.decode(wheel.read(member), type=SlimRecord))
    except (*UNDECODABLE, ArtifactError) as error:
        return SlimNote(problem=str(error))


def _plan(wheel: Wheel, slim: SlimNote | None) -> PlanRecord | None:
    """Of a wheel slimmed after it was built, as if it had been built for fewer GPUs."""
    member = f"{wheel.dist_info}/{PLAN_MEMBER}"
    if member not in wheel.members:
        return None
    try:
        recorded = msgspec.json.decode(wheel.read(member), type=_Recorded)
        # By its name and back: the words in the file may be any.
        variant = parse(name(recorded.variant))
        if slim and slim.record:
            variant = msgspec.structs.replace(variant, gpus=slim.record.gpus)
        return PlanRecord(variant=variant)
    except (*UNDECODABLE, ArtifactError, UsageError) as error:
        return PlanRecord(problem=str(error))


def _looked_through(wheel: Wheel, case: Case) -> Case:
    """With what only the contents of all members tell."""
    return msgspec.structs.replace(
        case,
        mismatches=tuple(wheel.mismatches()),
        wrong_hashes=tuple(wheel.wrong_hashes()),
        samples=_samples(wheel, case),
    )


def _samples(wheel: Wheel, case: Case) -> tuple[CodeSample, ...]:
    from stoker.deliver.verify.sampling import read_code
    from stoker.knowledge.cpus import cpu_family
    from stoker.knowledge.instruction_sets import beyond

    cpu = case.expected.cpu if case.expected else None
    if cpu is None:
        return ()
    libraries = [one for one in case.libraries if one.machine == cpu_family(cpu)]
    return read_code(wheel, libraries, beyond(cpu))


def _python_for(case: Case) -> str:
    from stoker.deliver.verify.trial import fitting_python

    return fitting_python(case)


def _tried(path: Path, case: Case, python: str, environment: Mapping[str, str]) -> list[Finding]:
    from stoker.deliver.verify.trial import try_wheel
    from stoker.machine.gpus import read_gpus

    notes: list[str] = []
    gpus = [gpu.capability for gpu in read_gpus(notes.append)]
    return list(try_wheel(path, case, python=python, gpus=gpus, environment=environment))

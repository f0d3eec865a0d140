"""Reads a wheel, compares it with its metadata and its variant, and tries it if asked to."""

import os
from collections.abc import Mapping
from pathlib import Path

import msgspec

from stoker.artifact.engine import Wheel, open_wheel
from stoker.deliver.verify.checks import examine, worst_first
from stoker.deliver.verify.tested import (
    CodeSample,
    PlanRecord,
    SlimNote,
    Verification,
    WheelUnderTest,
)
from stoker.flows.inspecting import inspect
from stoker.model.errors import ArtifactError, Finding, UsageError
from stoker.model.plan import PLAN_MEMBER, Variant
from stoker.model.slim import SLIM_MEMBER, SlimRecord
from stoker.model.value import UNDECODABLE, Value
from stoker.plan.grammar import name, parse
from stoker.plan.survey import named_variant


class _Recorded(Value, frozen=True, kw_only=True):
    """The part of a wheel's plan that is compared with the wheel."""

    variant: Variant


def verify(
    path: Path,
    *,
    variant: str | None = None,
    run: bool = False,
    environment: Mapping[str, str] = os.environ,
) -> Verification:
    """Check a wheel and return all findings; the wheel is only read.

    ``variant`` is the expected variant; without it, the plan in the wheel counts. ``run`` installs
    the wheel in a temporary environment and uses it there, which executes its code.
    """
    return read_and_verify(path, variant=variant, run=run, environment=environment)[1]


def read_and_verify(
    path: Path,
    *,
    variant: str | None = None,
    run: bool = False,
    environment: Mapping[str, str] = os.environ,
) -> tuple[WheelUnderTest, Verification]:
    """Return what was read of a wheel with the result of `verify`."""
    from stoker.deliver.verify.trial import fitting_python

    asked = named_variant(variant) if variant else None
    with open_wheel(path) as wheel:
        tested = _read(wheel, asked)
        python = fitting_python(tested) if run else None
        tested = msgspec.structs.replace(
            tested,
            mismatches=tuple(wheel.mismatches()),
            wrong_hashes=tuple(wheel.wrong_hashes()),
            samples=_samples(wheel, tested),
        )
    findings = list(examine(tested))
    if python:
        findings += _tried(path, tested, python, environment)
    return tested, Verification(
        wheel=str(path),
        name=tested.metadata.name,
        version=tested.metadata.version,
        variant=name(tested.expected) if tested.expected else None,
        findings=worst_first(findings),
    )


def _read(wheel: Wheel, asked: Variant | None) -> WheelUnderTest:
    if wheel.path.suffix != ".whl":
        raise UsageError(
            f"'{wheel.path}' is not named like a wheel", hints=["rename it so that it ends in .whl"]
        )
    facts = inspect(str(wheel.path))
    assert facts.wheel is not None
    slim = _slim(wheel)
    return WheelUnderTest(
        file_name=wheel.path.name,
        facts=facts,
        metadata=facts.wheel,
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
    """Return the plan in the wheel; after slimming, its GPUs are those that were kept."""
    member = f"{wheel.dist_info}/{PLAN_MEMBER}"
    if member not in wheel.members:
        return None
    try:
        recorded = msgspec.json.decode(wheel.read(member), type=_Recorded)
        # The file may contain anything: parsing the variant's name checks every field.
        variant = parse(name(recorded.variant))
        if slim and slim.record:
            variant = msgspec.structs.replace(variant, gpus=slim.record.gpus)
        return PlanRecord(variant=variant)
    except (*UNDECODABLE, ArtifactError, UsageError) as error:
        return PlanRecord(problem=str(error))


def _samples(wheel: Wheel, tested: WheelUnderTest) -> tuple[CodeSample, ...]:
    from stoker.deliver.verify.sampling import read_code
    from stoker.knowledge.hardware import beyond, cpu_family

    cpu = tested.expected.cpu if tested.expected else None
    if cpu is None:
        return ()
    libraries = [one for one in tested.libraries if one.machine == cpu_family(cpu)]
    return read_code(wheel, libraries, beyond(cpu))


def _tried(
    path: Path, tested: WheelUnderTest, python: str, environment: Mapping[str, str]
) -> list[Finding]:
    from stoker.deliver.verify.trial import try_wheel
    from stoker.machine.system import read_gpus

    notes: list[str] = []
    gpus = [gpu.capability for gpu in read_gpus(notes.append)]
    return list(try_wheel(path, tested, python=python, gpus=gpus, environment=environment))

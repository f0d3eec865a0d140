"""Verifies a wheel: reads it, runs all checks, and tries it if asked to."""

from collections.abc import Sequence
from pathlib import Path

import msgspec

from stoker.knowledge.cpus import beyond, cpu_family
from stoker.model.errors import ArtifactError, UsageError
from stoker.model.finding import worst_first
from stoker.model.slimming import SLIM_MEMBER, SlimRecord
from stoker.model.value import UNDECODABLE, Value
from stoker.model.variant import PLAN_MEMBER, PlannedTargets, Variant
from stoker.plan.grammar import parse
from stoker.plan.survey import named_variant
from stoker.wheel.inspect.inspecting import inspect
from stoker.wheel.verify.checks import examine_wheel, with_fix
from stoker.wheel.verify.cpu_level import read_code
from stoker.wheel.verify.loading import asked_releases
from stoker.wheel.verify.placement import read_placed
from stoker.wheel.verify.tested import (
    PlanRecord,
    SlimNote,
    Verification,
    WheelUnderTest,
)
from stoker.wheel.zip import Wheel, open_wheel
from stoker.wheel.zip.revision import read_excluded, read_record


class _RecordedBuild(Value, frozen=True, kw_only=True):
    accept_targets: bool = False


class _Recorded(Value, frozen=True, kw_only=True):
    """The part of a wheel's plan that is compared with the wheel."""

    variant: Variant
    targets: PlannedTargets | None = None
    build: _RecordedBuild = _RecordedBuild()


class VerifyWishes(Value, frozen=True, kw_only=True):
    """``variant`` is the expected one; without it, the plan in the wheel counts. ``run`` installs
    the wheel in a temporary environment and uses it there, which executes its code. ``against`` is
    a requirement for PyTorch, and ``torch`` names builds of it: the wheel has to load with them.
    """

    variant: str | None = None
    run: bool = False
    against: str | None = None
    torch: tuple[str, ...] = ()


_NOTHING_NAMED = VerifyWishes()


def verify(path: Path, wishes: VerifyWishes = _NOTHING_NAMED) -> Verification:
    """Check a wheel and return all findings; the wheel is only read."""
    return read_and_verify(path, wishes)[1]


def read_and_verify(
    path: Path, wishes: VerifyWishes = _NOTHING_NAMED
) -> tuple[WheelUnderTest, Verification]:
    """Return what was read of a wheel with the result of `verify`."""
    from stoker.wheel.verify.trial import fitting_python

    asked = named_variant(wishes.variant) if wishes.variant else None
    releases = asked_releases(wishes.against) if wishes.against else None
    with open_wheel(path) as wheel:
        tested = msgspec.structs.replace(_read(wheel, asked, wishes.torch), against=releases)
        python = fitting_python(tested) if wishes.run else None
        tested = msgspec.structs.replace(
            tested,
            mismatches=tuple(wheel.mismatches()),
            wrong_hashes=tuple(wheel.wrong_hashes()),
        )
        if tested.expected and (cpu := tested.expected.cpu):
            libraries = [one for one in tested.libraries if one.machine == cpu_family(cpu)]
            samples = read_code(wheel, libraries, beyond(cpu))
            tested = msgspec.structs.replace(tested, samples=samples)
    findings = list(examine_wheel(tested))
    if python:
        from stoker.machine.gpus import nvidia_gpus
        from stoker.wheel.verify.trial import try_wheel

        notes: list[str] = []
        gpus = [gpu.capability for gpu in nvidia_gpus(notes.append)]
        tried = try_wheel(path, tested, python=python, gpus=gpus)
        findings += [with_fix(tested, finding) for finding in tried]
    return tested, Verification(
        wheel=str(path),
        name=tested.metadata.name,
        version=tested.metadata.version,
        variant=tested.expected.name if tested.expected else None,
        findings=worst_first(findings),
    )


def _read(wheel: Wheel, asked: Variant | None, torch: Sequence[str]) -> WheelUnderTest:
    """Return a wheel with its metadata and its records, but without what needs all its bytes."""
    if wheel.path.suffix != ".whl":
        raise UsageError(
            f"'{wheel.path}' is not named like a wheel", hints=["rename it so that it ends in .whl"]
        )
    facts = inspect(str(wheel.path), torch=torch or None)
    assert facts.wheel is not None
    slim = None
    try:
        if record := read_record(wheel, SLIM_MEMBER, SlimRecord):
            slim = SlimNote(record=record)
    except (*UNDECODABLE, ArtifactError) as error:
        slim = SlimNote(problem=str(error))
    return WheelUnderTest(
        file_name=wheel.path.name,
        facts=facts,
        metadata=facts.wheel,
        members=tuple(wheel.members.values()),
        placed=read_placed(wheel),
        plan=_plan(wheel, slim),
        slim=slim,
        asked=asked,
        excluded=read_excluded(wheel),
    )


def _plan(wheel: Wheel, slim: SlimNote | None) -> PlanRecord | None:
    """Return the plan in the wheel; after slimming, its GPUs are those that were kept."""
    try:
        recorded = read_record(wheel, PLAN_MEMBER, _Recorded)
        if recorded is None:
            return None
        # The file may contain anything: parsing the variant's name checks every field.
        variant = parse(recorded.variant.name)
        if slim and slim.record:
            variant = msgspec.structs.replace(variant, gpus=slim.record.gpus)
        targets = None if slim and slim.record else recorded.targets
        return PlanRecord(variant=variant, targets=targets, accepted=recorded.build.accept_targets)
    except (*UNDECODABLE, ArtifactError, UsageError) as error:
        return PlanRecord(problem=str(error))

"""`stoker install` of a project: the wheel that fits, or a build for exactly this machine.

What a build will take is known before it starts: the source is fetched, and the build is planned.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from enum import Enum
from pathlib import Path
from typing import NamedTuple

from msgspec.structs import replace
from packaging.requirements import Requirement

from stoker.ask.asking import ask, is_settled
from stoker.ask.room import RoomError
from stoker.builds.acquire.kept_sources import acquired
from stoker.builds.building import Built
from stoker.builds.toolchains.making import install_toolchain
from stoker.builds.toolchains.request import parse_request
from stoker.catalogue.candidates import SourceDistribution, Supply
from stoker.catalogue.finding import (
    DRY_BYTES,
    DRY_SECONDS,
    Found,
    NothingFitsError,
    find,
    find_source,
    nothing_fits,
)
from stoker.catalogue.judging import Place
from stoker.catalogue.kept import keep, kept_wheels
from stoker.model.build import Isolation
from stoker.model.distribution import read_requirement
from stoker.model.errors import MissingError, UsageError
from stoker.model.machine import TORCH_INCLUDES
from stoker.model.plan import Estimate
from stoker.model.value import Value, counted, duration, size
from stoker.model.variant import Backend
from stoker.outside.long_work import Say, shown, stage
from stoker.outside.package_index import PackageIndex
from stoker.outside.web import Web
from stoker.plan.left_out import named_archs
from stoker.plan.shown import amount
from stoker.plan.subject import Subject
from stoker.plan.survey import plan_of, survey
from stoker.settings.declared import CommandLine
from stoker.wheel.zip.remote import Allowance

Build = Callable[["ObtainedBuild"], Built]


class Building(Enum):
    """When a project is built."""

    IF_NONE = "if no wheel fits"
    ALWAYS = "always"
    NEVER = "never"


class BuildWish(NamedTuple):
    """When and how a project is built, and the function that builds it."""

    when: Building
    isolation: str | None
    keep_targets: bool
    build: Build


class ObtainedBuild(Value, frozen=True, kw_only=True):
    """A build that would give the wheel. ``variant`` is what it is for; ``toolchain`` is installed
    before it, if the machine lacks one.
    """

    source: SourceDistribution
    variant: str
    python: str
    isolation: Isolation | None
    estimate: Estimate
    toolchain: str | None = None
    own_targets: tuple[str, ...] = ()  # GPU targets that the source names itself, if not only ours
    left_out: tuple[str, ...] = ()  # those that the source names itself and that are not compiled
    keep_targets: bool = False

    @property
    def in_words(self) -> str:
        """Return what it will take."""
        figures = (
            ("", self.estimate.wall_s, duration),
            ("largest step ", self.estimate.largest_step_bytes, size),
            ("disk ", self.estimate.disk_bytes, size),
        )
        known = [
            f"{name}{amount(quantity, words)}"
            for name, quantity, words in figures
            if quantity.amount is not None
        ]
        lines = [f"{self.source.requirement} is built from source for {self.variant}"]
        lines += [", ".join(known) or f"time and memory unknown: {self.estimate.wall_s.basis}"]
        if self.own_targets:
            named = ", ".join(self.own_targets)
            lines.append(f"its source names {len(self.own_targets)} GPU targets itself: {named}")
        if self.left_out:
            named = ", ".join(self.left_out)
            lines.append(
                f"{len(self.left_out)} other GPU targets of its source are left out: {named}"
            )
        lines += [f"the toolchain {self.toolchain} is installed for it"] if self.toolchain else []
        return "; ".join(lines)


def obtain(
    wanted: Requirement,
    place: Place,
    supply: Supply,
    python: str,
    wish: BuildWish,
    *,
    dry_run: bool,
    say: Say,
) -> tuple[Found, ObtainedBuild | None]:
    """Return the wheel that fits, if need be one that is built, with the plan of its build. A dry
    run only says what a build would take.
    """
    with shown(), stage(f"looking for {wanted}"):
        if wish.when is Building.ALWAYS:
            found = find_source(wanted, place, supply, say=say)
        else:
            allowance = Allowance(DRY_BYTES, DRY_SECONDS) if dry_run else None
            found = find(wanted, place, supply, say=say, allowance=allowance)
    if found.best is not None:
        best, received = found.best, size(found.downloaded_bytes)
        reason = "any machine can use it" if best.plain else best.reason
        say(
            f"{best.wheel.file}: {reason}; {received} read of {counted(len(found.judged), 'wheel')}"
        )
        if found.source and found.source.is_newer_than(best.wheel.version):
            say(f"{found.source.requirement} has no wheel that fits; name it to build it")
        return found, None
    if wish.when is Building.NEVER or found.source is None or found.torch:
        raise nothing_fits(found)
    if wish.when is Building.IF_NONE:
        say(nothing_fits(found).message)
    plan = _planned(found.source, place, python, wish, say)
    say(plan.in_words)
    return (found if dry_run else _built(plan, found, place, wish.build, say)), plan


def _planned(
    source: SourceDistribution, place: Place, python: str, wish: BuildWish, say: Say
) -> ObtainedBuild:
    """Plan the build of a project for the machine and its PyTorch, which the build sees unless the
    user chose another isolation. With ``keep_targets`` it compiles for all GPU targets that its
    source names.
    """
    chosen = Isolation(wish.isolation) if wish.isolation else None
    variant = _variant(place, place.torch.toolkit if place.torch else None)
    with _without_torch(place, python), acquired(source.requirement, say=say) as tree:

        def surveyed(variant: str) -> Subject:
            options = {"variant": variant, "python": python, "source": tree.path}
            subject = survey(CommandLine(options=options))
            return replace(subject, keep_targets=subject.keep_targets or wish.keep_targets)

        subject = surveyed(variant)
        if _has_no_compiler(subject) and (near := _of_the_same_major(subject)):
            variant = _variant(place, near)
            subject = surveyed(variant)
        plan = plan_of(subject)
        unknown = plan.estimate.wall_s.amount is None
        if not _has_no_compiler(subject) and (unknown or not is_settled(subject, plan)):
            # The answer tells how long it takes; it is kept, so the build does not ask again.
            asked = subject
            with suppress(MissingError, RoomError):
                asked = ask(subject, say=say).subject
            plan = plan_of(asked)
    targets = plan.targets
    names_more = targets and targets.fixed and len(targets.cubins) > len(targets.gpus)
    return ObtainedBuild(
        source=source,
        variant=variant,
        python=python,
        isolation=chosen or (Isolation.TORCH if place.torch else None),
        estimate=plan.estimate,
        toolchain=_missing_toolchain(subject),
        own_targets=targets.cubins if targets and names_more else (),
        left_out=named_archs(targets.left_out) if targets else (),
        keep_targets=wish.keep_targets,
    )


@contextmanager
def _without_torch(place: Place, python: str) -> Iterator[None]:
    """Tell that a build is for CPUs only because of PyTorch, if it is refused as such."""
    try:
        yield
    except UsageError as error:
        if place.torch is not None and place.torch.toolkit:
            raise
        has = "a PyTorch for CPUs" if place.torch else "no PyTorch"
        other = "a PyTorch for CUDA" if place.torch else "PyTorch"
        message = f"{error.message}; it would be built for a CPU, because {python} has {has}"
        hints = (f"install {other} first: stoker install torch", *error.hints)
        raise UsageError(message, hints=hints) from error


def _variant(place: Place, toolkit: str | None) -> str:
    """Return the words for the GPUs of a machine and the CUDA release of PyTorch or a compiler."""
    if toolkit is None:
        return "cpu"
    if not place.host.gpus:
        raise UsageError(
            f"PyTorch here is for CUDA {toolkit}, and this machine has no GPU to build for",
            hints=["name the GPU: --for h100"],
        )
    capabilities = dict.fromkeys(gpu.capability.replace(".", "") for gpu in place.host.gpus)
    targets = "+".join(f"sm{one}" if one.isdigit() else one for one in capabilities)
    return f"cu{toolkit.replace('.', '')}-{targets}"


def _has_no_compiler(subject: Subject) -> bool:
    return subject.variant.backend is Backend.CUDA and subject.toolkit is None


def _missing_toolchain(subject: Subject) -> str | None:
    """Return what to install: a compiler, or one with the headers that the installed one lacks."""
    lacks = subject.toolkit.lacks if subject.toolkit and subject.is_with_torch else ()
    return f"cuda=={subject.cuda_version}" if lacks or _has_no_compiler(subject) else None


def _of_the_same_major(subject: Subject) -> str | None:
    """Return the release of an installed compiler that PyTorch accepts in place of its own."""
    major = str(subject.variant.toolkit).partition(".")[0]
    found = (one.version for one in subject.toolbox.cuda if not one.problem and one.version)
    return next((version for version in found if version.partition(".")[0] == major), None)


def _built(plan: ObtainedBuild, found: Found, place: Place, build: Build, say: Say) -> Found:
    """Build the wheel, keep it, and judge it as any other one; return the result."""
    if plan.toolchain:
        install_toolchain(parse_request(plan.toolchain, tuple(TORCH_INCLUDES)), say=say)
    built = build(plan)
    (wheel,) = built.record.outputs
    keep(Path(wheel), built.record.plan.name, place, plan.source.sha256, say=say)
    kept = kept_wheels()
    assert kept is not None
    supply = Supply(index=PackageIndex(roots=(), links=(), web=Web()), catalogues=(kept,))
    again = find(read_requirement(plan.source.requirement), place, supply, say=say)
    if again.best is None:
        reasons = "; ".join(one.reason for one in again.judged)
        raise NothingFitsError(f"the wheel that was built does not fit this machine: {reasons}")
    return replace(again, wanted=found.wanted, judged=(*found.judged, again.best))

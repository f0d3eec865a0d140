"""`stoker build --from-record`: turn the record of a build into a request to repeat it."""

from pathlib import Path

import msgspec
from msgspec.structs import replace

from stoker.model.build import BuildRecord, BuildRequest, Isolation
from stoker.model.errors import UsageError, unreadable
from stoker.model.plan import Plan
from stoker.model.secrets import HIDDEN
from stoker.model.value import UNDECODABLE, Value, prepared
from stoker.model.variant import PLAN_MEMBER, PlannedTargets
from stoker.plan.records import as_recorded, compare, lasting_json
from stoker.plan.run_folder import RECORD
from stoker.plan.subject import Subject
from stoker.wheel.zip import open_wheel

_HINT = "name a wheel that stoker built, or a run folder or its record.json"


class RecordedBuild(Value, frozen=True, kw_only=True):
    """A recorded build. ``request.source`` is empty if it is meaningless on another machine."""

    file: str
    variant: str
    environment: dict[str, str]
    cmake: dict[str, str]
    request: BuildRequest
    targets: PlannedTargets | None = None

    def applied(self, subject: Subject, plan: Plan) -> tuple[Plan, tuple[str, ...]]:
        """Return the plan with the recorded settings, and how today's settings differ."""
        repeated = as_recorded(subject, plan, self.environment, self.cmake, where=self.file)
        if self.targets and self.targets.left_out:  # the build is not asked again
            repeated = replace(repeated, targets=self.targets)
        recorded = {**self.environment, **self.cmake}
        hidden = tuple(
            f"{name}: hidden in the record and not set; if it is needed, say it again"
            for name, value in recorded.items()
            if HIDDEN in value and repeated.value(name) is None
        )
        return repeated, hidden + tuple(
            f"{change.name}: {change.after or 'not set'} as recorded, "
            f"not {change.before or 'unset'}"
            for change in compare(plan, repeated)
        )


class _Named(Value, frozen=True, kw_only=True):
    name: str


class _How(Value, frozen=True, kw_only=True):
    """The part of a `BuildRequest` that a wheel records; an older stoker recorded less."""

    mode: str = "plain"
    isolation: Isolation | None = None
    label: str | None = None
    torch: str | None = None
    accept_targets: bool = False
    source: str = ""


class _InWheel(Value, frozen=True, kw_only=True):
    """The relevant part of the plan in a wheel."""

    variant: _Named
    environment: dict[str, str]
    cmake: dict[str, str]
    build: _How
    targets: PlannedTargets | None = None


def read_recorded(path: Path) -> RecordedBuild:
    try:
        if path.suffix == ".whl":
            return _of_wheel(path)
        return _of_record(path / RECORD if path.is_dir() else path)
    except OSError as error:
        raise unreadable(path, error, hints=[_HINT]) from error
    except UNDECODABLE as error:
        raise UsageError(f"{path} is not a record of a build: {error}", hints=[_HINT]) from error


def _of_wheel(path: Path) -> RecordedBuild:
    with open_wheel(path) as wheel:
        member = f"{wheel.dist_info}/{PLAN_MEMBER}"
        if member not in wheel.members:
            raise UsageError(f"{path} contains no plan", hints=[_HINT])
        found = msgspec.json.decode(wheel.read(member), type=prepared(_InWheel))
    how = found.build
    return RecordedBuild(
        file=str(path),
        variant=found.variant.name,
        environment=found.environment,
        cmake=found.cmake,
        request=BuildRequest(source="").given(msgspec.structs.asdict(how)),
        targets=found.targets,
    )


def _of_record(path: Path) -> RecordedBuild:
    record = msgspec.json.decode(path.read_bytes(), type=prepared(BuildRecord))
    lasting = lasting_json(record.plan)
    return RecordedBuild(
        file=str(path),
        variant=record.plan.name,
        environment=lasting["environment"],
        cmake=lasting["cmake"],
        request=record.request,
        targets=record.plan.targets,
    )

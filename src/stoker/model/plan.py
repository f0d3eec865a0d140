"""The plan that is made for a variant: settings with their origins, commands and estimates."""

from stoker.model.evidence import Statement
from stoker.model.finding import Finding
from stoker.model.setting import Origin, Setting
from stoker.model.source import FrontEnd, ProjectKind
from stoker.model.value import Bytes, Value
from stoker.model.variant import PlannedTargets, Platform, Variant


class Command(Value, frozen=True, kw_only=True):
    """The command line of a stage."""

    stage: str
    words: tuple[str, ...]


class HeavyStep(Value, frozen=True, kw_only=True):
    """Compiles that need much memory: a pattern of paths, the amount and its basis."""

    pattern: str
    peak_bytes: Bytes
    basis: str


class Quantity(Value, frozen=True, kw_only=True):
    """An amount, or a range from ``amount`` to ``most``, and its basis. No amount means that it is
    unknown. ``at_least`` means that the upper end was never measured.
    """

    amount: float | None
    basis: str
    most: float | None = None
    at_least: bool = False


class Estimate(Value, frozen=True, kw_only=True):
    wall_s: Quantity
    largest_step_bytes: Quantity
    disk_bytes: Quantity
    wheel_bytes: Quantity


class SourceSummary(Value, frozen=True, kw_only=True):
    path: str
    name: str
    version: str | None
    front_end: FrontEnd


class Resources(Value, frozen=True, kw_only=True):
    """The CPUs of this machine, and the memory limit that is reached first. ``given`` are the
    options that describe another machine instead.
    """

    cpus: int
    memory_bytes: Bytes
    memory_limit: str  # "cgroup v2 (/sys/fs/cgroup/...)"
    given: tuple[str, ...] = ()


class Plan(Value, frozen=True, kw_only=True):
    name: str
    label: str
    variant: Variant
    variant_origin: dict[str, Origin]
    platform: Platform
    recipe: ProjectKind
    source: SourceSummary | None
    machine: Resources
    environment: tuple[Setting, ...]
    cmake: tuple[Setting, ...]
    commands: tuple[Command, ...]
    heavy: tuple[HeavyStep, ...]
    estimate: Estimate
    targets: PlannedTargets | None = None
    backend_settings: dict[str, str] = {}  # of the PEP 517 back end, besides CMake's options
    statements: tuple[Statement, ...] = ()  # facts about the build, and how they are known
    findings: tuple[Finding, ...] = ()

    def value(self, name: str) -> str | None:
        """Return the value of a variable or option, wherever it is set."""
        return next((s.value for s in (*self.environment, *self.cmake) if s.name == name), None)

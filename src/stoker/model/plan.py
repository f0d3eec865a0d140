"""The variant that a user asks for, and the plan that is made for it: settings with their origins,
commands and estimates.

The grammar of variants is in ``stoker.plan.grammar``.
"""

from enum import StrEnum

from stoker.model.evidence import Evidence, EvidenceKind, Statement
from stoker.model.finding import Finding
from stoker.model.gpu import Backend, GpuTarget
from stoker.model.machine import Platform
from stoker.model.source import FrontEnd, ProjectKind
from stoker.model.value import Bytes, Value


class BuildType(StrEnum):
    RELEASE = "Release"
    DEBUG = "Debug"
    RELWITHDEBINFO = "RelWithDebInfo"
    MINSIZEREL = "MinSizeRel"


class Sanitizer(StrEnum):
    ADDRESS = "asan"
    UNDEFINED = "ubsan"
    THREAD = "tsan"


class Feature(Value, frozen=True, kw_only=True, order=True):
    """A feature of the project, asked for or refused by name."""

    name: str
    on: bool = True


class Variant(Value, frozen=True, kw_only=True):
    """Everything that makes one build differ from another. ``None`` means the project's own choice.

    ``gpus`` and ``features`` are sorted and without doubles; the grammar sees to that.
    """

    backend: Backend = Backend.CPU
    toolkit: str | None = None
    gpus: tuple[GpuTarget, ...] = ()
    cpu: str | None = None
    blas: str | None = None
    python: str | None = None
    build_type: BuildType = BuildType.RELEASE
    sanitizer: Sanitizer | None = None
    features: tuple[Feature, ...] = ()
    platform: Platform | None = None

    @property
    def runtime(self) -> str:
        """The back end with its release: ``cu130``, ``rocm6.4``, ``cpu``."""
        if self.toolkit and self.backend is Backend.CUDA:
            return "cu" + self.toolkit.replace(".", "")
        return self.backend.value + (self.toolkit or "")

    @property
    def name(self) -> str:
        """Every part that is not the default, in a fixed order: ``cu130-sm90-avx512``."""
        words = [
            self.runtime,
            "+".join(target.word for target in self.gpus),
            self.cpu or "",
            self.blas or "",
            "" if self.python is None else "py" + self.python.replace(".", ""),
            "" if self.build_type is BuildType.RELEASE else self.build_type.value.casefold(),
            self.sanitizer or "",
            *(feature.name if feature.on else f"no{feature.name}" for feature in self.features),
            "" if self.platform is None else f"{self.platform.os}_{self.platform.cpu}",
        ]
        return "-".join(word for word in words if word)


PLAN_MEMBER = "stoker-plan.json"  # in a wheel's dist-info: the Plan that it was built by


class OriginKind(StrEnum):
    """Where a value came from, weakest first: a later one overrides an earlier one."""

    DEFAULT = "default"
    RECIPE = "recipe"
    TREE = "read at"
    MACHINE = "this machine"
    FILE = "file"
    ENVIRONMENT = "environment"
    VARIANT = "variant"
    COMMAND_LINE = "command line"

    @property
    def rank(self) -> int:
        return list(OriginKind).index(self)


class Origin(Value, frozen=True, kw_only=True):
    """``where`` is the exact place: ``stoker.toml:12``, or the name of a variable or variant."""

    kind: OriginKind
    where: str = ""

    def __str__(self) -> str:
        if self.kind is OriginKind.FILE:
            return self.where
        return f"{self.kind} {self.where}".strip()


class SettingPlace(StrEnum):
    ENVIRONMENT = "environment"
    CMAKE = "cmake"


class Setting(Value, frozen=True, kw_only=True):
    """A variable of the build, its origin and the reason for its value."""

    place: SettingPlace
    name: str
    value: str
    origin: Origin
    why: str = ""
    reader: str = ""  # what reads it: "setup.py:74"; empty: nothing is known to


def is_on(value: str) -> bool:
    """Tell whether CMake's if() takes a value for true."""
    false = ("", "0", "OFF", "FALSE", "NO", "N", "IGNORE", "NOTFOUND")
    return value.upper() not in false and not value.upper().endswith("-NOTFOUND")


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


class PlannedTargets(Value, frozen=True, kw_only=True):
    """The GPU targets that a build compiles for, and how it is told them.

    Targets are written ``9.0a`` or ``gfx942``. ``accepted`` are those of single kernels; with
    ``+PTX`` they are PTX only.
    """

    backend: Backend
    gpus: tuple[str, ...] = ()  # those that were asked for
    cubins: tuple[str, ...] = ()  # machine code
    ptx: tuple[str, ...] = ()
    accepted: tuple[str, ...] = ()
    left_out: tuple[str, ...] = ()  # values of -gencode that stoker removes from commands of nvcc
    fixed: bool = False  # the tree names them itself
    compiles: bool = True  # the build must compile device code
    set_by: tuple[str, ...] = ()  # settings of the plan: NAME=VALUE
    choices: tuple[str, ...] = ()  # what the tree reads: NAME (file:line)
    evidence: Evidence | None = None

    @property
    def without_device_code(self) -> bool:
        """Whether it is known, and not only assumed, that the build compiles no device code."""
        assumed = self.evidence is not None and self.evidence.kind is EvidenceKind.ASSUMED
        return not (self.compiles or assumed)


class SourceSummary(Value, frozen=True, kw_only=True):
    path: str
    name: str
    version: str | None
    front_end: FrontEnd


class Resources(Value, frozen=True, kw_only=True):
    """The CPUs of this machine, and the memory limit that is reached first."""

    cpus: int
    memory_bytes: Bytes
    memory_limit: str  # "cgroup v2 (/sys/fs/cgroup/...)"


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

"""A finished or interrupted run, analysed: what `stoker report` shows and exports.

Memory is in bytes, time in seconds since the run began. ``None`` stands for what was not recorded.
"""

from stoker.model.build import StageResult
from stoker.model.govern import Basis, Step
from stoker.model.runs import Attempt, Outcome
from stoker.model.setting import Setting
from stoker.model.simulation import SimulationResult
from stoker.model.value import Value


class AttemptSpan(Attempt, frozen=True, kw_only=True):
    """An attempt of a step on the time axis. Attempts that overlap have different lanes."""

    target: str
    lane: int

    @property
    def step(self) -> Step:
        return self.record.step

    @property
    def ended(self) -> float:
        return self.started + self.record.wall_s

    @property
    def asked(self) -> float | None:
        return self.explanation.asked if self.explanation else None

    @property
    def waited(self) -> float | None:
        return None if self.asked is None else max(0.0, self.started - self.asked)

    @property
    def completed(self) -> bool:
        return self.outcome in (Outcome.DONE, Outcome.FAILED)


class LowerBound(Value, frozen=True, kw_only=True):
    """A time that no schedule of the same steps can beat, and its share of the wall time."""

    name: str  # "CPU", "memory", "critical path"
    seconds: float
    share: float


class CpuTime(Value, frozen=True, kw_only=True):
    """CPUs x wall time, split by what became of it; the parts add up to the whole.

    ``held`` is free CPU time while steps were held back, ``idle`` free CPU time while no step
    waited. Where waits were not recorded, ``held`` is ``None`` and ``idle`` covers both.
    """

    computing: float
    repeated: float  # in attempts that were killed
    stalled: float  # steps held a CPU and did not compute: disk, memory, shared CPUs
    held: float | None
    idle: float


class Total(Value, frozen=True, kw_only=True):
    """Everything that belongs to one name: a target, a language."""

    name: str
    steps: int
    seconds: float
    cpu_seconds: float
    peak: int
    byte_seconds: float


class Accuracy(Value, frozen=True, kw_only=True):
    """How good predictions with one basis were. ``ratio``: median of measured over predicted peak;
    ``above``: share of the steps whose peak was above the prediction.
    """

    basis: Basis
    steps: int
    ratio: float
    above: float


class RunAnalysis(Value, frozen=True, kw_only=True):
    """``path`` holds the spans of the critical path as indices, first step first; without a
    dependency graph it is the longest step.
    """

    id: int
    command: str
    directory: str
    began: float  # seconds since the epoch
    complete: bool  # False: the run was killed, is still running, or was imported
    timed: bool  # False: it was imported, and when its steps ran is not known
    status: int | None
    wall_s: float
    cpu_s: float
    cpus: int | None
    limit: int | None
    peak: int
    steps: int
    failed: int
    lost: int  # attempts that stoker or the kernel killed
    oom_kills: int  # by the kernel's own count
    pauses: int
    policy: str = ""
    cache_hits: int | None = None
    written_bytes: int | None = None
    spans: tuple[AttemptSpan, ...]
    bounds: tuple[LowerBound, ...]
    cpu_time: CpuTime | None
    path: tuple[int, ...]
    path_s: float
    has_graph: bool
    targets: tuple[Total, ...]
    roles: tuple[Total, ...]
    accuracy: tuple[Accuracy, ...]


class WhatIf(Value, frozen=True, kw_only=True):
    """A row of the what-if table. ``result`` is simulated; ``cost`` needs prices."""

    name: str
    result: SimulationResult
    cost: float | None = None


class StepChange(Value, frozen=True, kw_only=True):
    """A step that both runs measured. ``why`` names what differs, as far as it was recorded."""

    before: int  # index of the span in the earlier run
    after: int
    cpu_s: float  # after minus before
    seconds: float
    peak: int
    why: tuple[str, ...]


class Cause(Value, frozen=True, kw_only=True):
    """A difference that several steps have, and the sums of their changes."""

    text: str
    steps: int
    cpu_s: float
    peak: int  # the largest change of a peak


class Comparison(Value, frozen=True, kw_only=True):
    """``added`` and ``removed`` are indices into the spans of the later and the earlier run."""

    changes: tuple[StepChange, ...]
    causes: tuple[Cause, ...]
    added: tuple[int, ...]
    removed: tuple[int, ...]


class LibrarySize(Value, frozen=True, kw_only=True):
    """A library of the result. ``device_code``: bytes by GPU architecture."""

    path: str
    bytes: int
    device_code: dict[str, int] = {}


class Output(Value, frozen=True, kw_only=True):
    """What the build made. Libraries are known only while the file exists."""

    path: str
    bytes: int | None = None
    libraries: tuple[LibrarySize, ...] = ()


class BuildFacts(Value, frozen=True, kw_only=True):
    """What the record of a `stoker build` adds to its run."""

    title: str = ""
    variant: str = ""
    folder: str = ""
    stoker: str = ""
    stages: tuple[StageResult, ...] = ()
    settings: tuple[Setting, ...] = ()
    tools: dict[str, str] = {}
    memory_limit: str = ""  # what enforces the limit
    commit: str = ""
    outputs: tuple[Output, ...] = ()


class ReportedRun(Value, frozen=True, kw_only=True):
    run: RunAnalysis
    build: BuildFacts | None = None


class Report(Value, frozen=True, kw_only=True):
    """Everything on the page. ``before`` is the run that ``shown`` is compared with."""

    stoker: str
    shown: ReportedRun
    what_if: tuple[WhatIf, ...] = ()
    cost: float | None = None
    currency: str = ""
    before: ReportedRun | None = None
    comparison: Comparison | None = None

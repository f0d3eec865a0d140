"""The values of `stoker tune`: what is measured, what was measured, and what follows from it."""

from enum import StrEnum

from stoker.model.govern import CompileMode, Role
from stoker.model.value import Value


class Topic(StrEnum):
    """What is varied; ``report`` has the titles."""

    MEMORY = "memory"
    DEBUG = "debug"
    COMPILER = "compiler"
    CACHE = "cache"
    THREADS = "threads"
    LINKER = "linker"


class TrialKind(StrEnum):
    """What is measured together."""

    COMPILE = "compile"  # of C and C++
    KERNEL = "kernel"  # a compile of CUDA for several targets
    LINK = "link"


class Sampled(Value, frozen=True, kw_only=True):
    """A compile or link of the build folder that is measured."""

    title: str
    role: Role
    directory: str
    command: tuple[str, ...]  # of the compiler itself
    output: str
    wall_s: float | None = None  # that it took before, if that is known
    link: str = ""  # its identity, if it is a link

    @property
    def kind(self) -> TrialKind:
        return {Role.LINK: TrialKind.LINK, Role.CUDA: TrialKind.KERNEL}.get(
            self.role, TrialKind.COMPILE
        )

    @property
    def is_link(self) -> bool:
        return self.kind is TrialKind.LINK


class TuningTrial(Value, frozen=True, kw_only=True):
    """A way to run a step. ``removes`` are patterns of words that are left out first."""

    name: str
    topic: Topic | None = None  # None: as the project does it
    mode: CompileMode = CompileMode.DEFAULT
    adds: tuple[str, ...] = ()
    removes: tuple[str, ...] = ()
    program: str = ""  # replaces the compiler
    wrapper: str = ""  # starts the compiler


BASELINE = TuningTrial(name="as it is")


class Measurement(Value, frozen=True, kw_only=True):
    """One execution. ``problem`` says why there are no figures."""

    step: int
    trial: str
    round: int
    wall_s: float = 0.0
    cpu_s: float = 0.0
    peak_bytes: int = 0
    size_bytes: int = 0  # of the output
    digest: str = ""  # of the output
    problem: str = ""


class RelativeChange(Value, frozen=True, kw_only=True):
    """An amount relative to the baseline, over all steps: the median of the rounds and their
    range. ``noise`` is how much the baseline itself varies from round to round.
    """

    ratio: float
    least: float
    most: float
    noise: float
    rounds: int

    @property
    def is_certain(self) -> bool:
        """Whether all rounds agree, and the difference is larger than the noise."""
        agreed = self.most < 1 or self.least > 1
        return self.rounds > 1 and agreed and abs(self.ratio - 1) > self.noise

    @property
    def is_gain(self) -> bool:
        return self.is_certain and self.ratio < 1


class TrialResult(Value, frozen=True, kw_only=True):
    """What a trial changed. ``time`` is CPU time for compiles of C and C++, else wall time."""

    topic: Topic
    trial: str
    steps: tuple[str, ...]  # that were measured with it
    time: RelativeChange | None = None
    peak: RelativeChange | None = None
    size: RelativeChange | None = None
    same: int | None = None  # steps with the same output or device code; None if it is not known
    differences: tuple[str, ...] = ()  # of links
    problems: tuple[str, ...] = ()

    @property
    def is_same(self) -> bool:
        return self.same == len(self.steps) and bool(self.steps)


class Advice(Value, frozen=True, kw_only=True):
    """A setting that the measurements support. It is a line of ``[defaults]`` in stoker.toml."""

    setting: str
    why: str


class Tuning(Value, frozen=True, kw_only=True):
    """All that `stoker tune` found."""

    folder: str
    seed: int
    rounds: int
    cpus: int
    sample: tuple[Sampled, ...]
    baseline_s: float  # one round of all steps, as they are
    results: tuple[TrialResult, ...]
    advice: tuple[Advice, ...]
    notes: tuple[str, ...] = ()
    measurements: tuple[Measurement, ...] = ()

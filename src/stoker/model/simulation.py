"""The result of a simulated build, and the workers that a simulation assumes."""

from stoker.model.govern import CompileMode
from stoker.model.value import Value


class Bounds(Value, frozen=True, kw_only=True):
    """A time that no schedule of the steps can beat, and what a faster build would need more of."""

    lower_s: float
    limited_by: str


class SimulatedWorkers(Value, frozen=True, kw_only=True):
    """Simulated workers that compile C and C++, each so many jobs at once, and the bytes a second
    that the link of the machine that builds carries.
    """

    workers: int
    jobs: int
    bandwidth: float

    @property
    def places(self) -> int:
        return self.workers * self.jobs


class SimulationResult(Value, frozen=True, kw_only=True):
    """The result of a simulated build on one machine under one policy."""

    policy: str
    cpus: int
    memory_bytes: int
    wall_s: float
    peak_bytes: int
    pauses: int
    preemptions: int
    oom_kills: int
    lost_s: float  # CPU seconds of attempts that were killed
    failed: tuple[str, ...]  # outputs that failed because memory ran out too often
    unfinished: tuple[str, ...] = ()  # outputs that do not exist because the time was over
    bounds: Bounds
    modes: dict[CompileMode, int] = {}  # steps in each mode but the default one
    distribution: SimulatedWorkers | None = None

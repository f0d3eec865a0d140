"""A governed run and its results."""

from enum import StrEnum

from msgspec.structs import replace

from stoker.model.caching import CacheUse
from stoker.model.govern import Basis, CompileMode, ModeEffect, Reason, StepRecord
from stoker.model.value import Bytes, Seconds, Value

_BUILD = "stoker build "


def build_command(run_folder: str) -> str:
    """Return the command by which the history knows a build: it names the build's run folder."""
    return f"{_BUILD}{run_folder}"


def run_folder_of(command: str) -> str | None:
    """Return the name of the run folder of a build, by the command of its run."""
    return command.removeprefix(_BUILD) if command.startswith(_BUILD) else None


class Outcome(StrEnum):
    """How an attempt ended."""

    DONE = "done"
    FAILED = "failed"
    OOM = "out of memory"
    PREEMPTED = "preempted"
    DEADLINE = "ended at the deadline"  # of its run; it took at least what was measured
    REFUSED = "refused"  # the compiler or the linker failed because of the options of a mode


MOST_PAUSES = 20  # of one attempt that the history keeps
LOST = (Outcome.PREEMPTED, Outcome.OOM, Outcome.DEADLINE)  # what the attempt did is lost


class Intervention(Value, frozen=True, kw_only=True):
    """A pause or a kill: when, why, and how much of the limit was in use then."""

    at: Seconds
    reason: Reason
    used_bytes: Bytes
    limit_bytes: Bytes
    wall_s: Seconds = 0.0  # that a pause took

    def since(self, moment: float) -> "Intervention":
        return replace(self, at=max(0.0, self.at - moment))


class Explanation(Value, frozen=True, kw_only=True):
    """Why an attempt waited, and what the governor did to it. Times are as in ``Attempt``."""

    asked: Seconds
    needs_bytes: Bytes  # its predicted peak
    basis: Basis  # of that prediction
    waits: dict[Reason, Seconds] = {}
    pauses: tuple[Intervention, ...] = ()
    killed: Intervention | None = None
    once: str = ""  # why it must not be started twice, so that it is never killed
    mode_reason: Reason | None = None  # why it did not run in the default mode
    # What a mode of gcc's collector changes of it: as measured, else by shipped figures.
    effect: ModeEffect | None = None

    def since(self, moment: float) -> "Explanation":
        return replace(
            self,
            asked=max(0.0, self.asked - moment),
            pauses=tuple(pause.since(moment) for pause in self.pauses),
            killed=self.killed and self.killed.since(moment),
        )


class Attempt(Value, frozen=True, kw_only=True):
    """One attempt of a step, as measured. Times count from when the governor began; in the history
    they count from when the run began.
    """

    record: StepRecord
    started: Seconds
    outcome: Outcome
    status: int = 0
    explanation: Explanation | None = None  # None in histories of earlier versions

    @classmethod
    def elsewhere(cls, record: StepRecord) -> "Attempt":
        """Return the attempt of a step that was measured in a run of another machine."""
        outcome = Outcome.DEADLINE if record.killed else Outcome.DONE
        return cls(record=record, started=0.0, outcome=outcome)

    def since(self, moment: float) -> "Attempt":
        """Return the attempt with its times counted from a moment before it."""
        explanation = self.explanation and self.explanation.since(moment)
        return replace(self, started=max(0.0, self.started - moment), explanation=explanation)


class RunSummary(Value, frozen=True, kw_only=True):
    """What `stoker run --summary` writes."""

    status: int
    steps: int
    wall_s: float
    cpu_s: float
    governor_cpu_s: float
    peak_bytes: int  # the most that the run's steps used at once
    limit_bytes: int  # in force: the cap, or the machine's limit where that is lower
    oom_kills: int
    preemptions: int
    retries: int
    lower_bound_s: float | None  # None where no step was seen, or where not all have ended well
    policy: str
    cpus: int
    governed_s: float | None = None  # in which steps waited or ran, which the bound is about
    remote_steps: int = 0  # of the steps, those that a worker compiled
    pauses: int = 0
    once_cpu_s: dict[str, float] = {}  # of steps that must not be started twice, by the reason
    modes: dict[CompileMode, int] = {}  # finished steps in each mode but the default one
    # What the modes of gcc's collector changed, as estimated: the sum of peaks, and CPU time.
    mode_bytes: dict[CompileMode, int] = {}
    mode_cpu_s: dict[CompileMode, float] = {}
    links: int = 0  # finished steps that link
    linker: CompileMode = CompileMode.DEFAULT  # that was asked for
    # Seconds of links with another linker, and those of the same links with the default one before.
    # A link that the default linker has not made before counts in neither.
    link_s: float = 0.0
    default_link_s: float = 0.0
    threads_saved_s: float = 0.0  # by which threads of nvcc made steps shorter, as estimated
    written_bytes: int | None = None  # to disks; None if the system does not count it
    cache_hits: int | None = None  # compiles whose result a cache had
    cache: CacheUse | None = None  # None if no cache was used
    # CPU time of programs outside the run; None if the system does not count it.
    other_cpu_s: float | None = None
    stolen_cpu_s: float = 0.0  # that the host of a virtual machine gave to others
    commit: str | None = None  # of the git tree that the run's folder is in
    run: int | None = None  # its id in the history; None if the history does not have it


class Run(Value, frozen=True, kw_only=True):
    """A run as it is stored in the history."""

    id: int
    started: Seconds  # since the epoch
    ended: Seconds | None
    command: str
    directory: str
    summary: RunSummary | None
    cause: str = ""  # of a failure, if it is known

"""What happens during a governed run, for the terminal, the log and the JSON lines."""

from stoker.model.govern import CompileMode, Reason
from stoker.model.runs import Intervention, RunSummary
from stoker.model.value import Value


class Event(Value, frozen=True, kw_only=True, tag_field="event", tag=True):
    """An event of a run. ``at`` is in seconds since the governor started."""

    at: float


class StepEvent(Event, frozen=True, kw_only=True):
    step: int
    run: int
    title: str


class StepWaits(StepEvent, frozen=True, kw_only=True, tag="waits"):
    needs: int  # memory it is expected to need


class StepStarts(StepEvent, frozen=True, kw_only=True, tag="starts"):
    waited: float
    needs: int = 0  # its predicted peak
    waits: dict[Reason, float] = {}  # seconds by reason
    mode: CompileMode = CompileMode.DEFAULT
    mode_reason: Reason | None = None  # why it is not the default one
    threads: int = 1  # in the mode


class StepEnds(StepEvent, frozen=True, kw_only=True, tag="ends"):
    """A command ended. ``status`` is its exit status, or 128 plus a signal number, as in a
    shell.
    """

    status: int
    seconds: float
    peak: int
    remote: bool = False  # a distributor ran it; if it compiled here, that is a step of its own


class StepPauses(StepEvent, frozen=True, kw_only=True, tag="pauses"):
    """The step keeps its memory and stops growing until other steps are past their peaks."""

    memory: int
    cause: Intervention | None = None


class StepRepeats(StepEvent, frozen=True, kw_only=True, tag="repeats"):
    """An attempt was lost and the step waits again. ``why`` is "out of memory" or "preempted"."""

    why: str
    seconds: float
    peak: int
    cause: Intervention | None = None


class StepTooLate(StepEvent, frozen=True, kw_only=True, tag="late"):
    """A step was not started, because it would have ended after the deadline of its run, or was
    ended when that was over. ``seconds`` is how long it is expected to take at least; ``fits`` says
    whether that is less than the whole time of the run.
    """

    seconds: float
    fits: bool
    ran_s: float = 0.0  # until it was ended; 0 if it was not started


class RunningStep(Value, frozen=True, kw_only=True):
    step: int
    title: str
    seconds: float
    memory: int
    paused: bool = False


class Overview(Event, frozen=True, kw_only=True, tag="overview"):
    """The state of a run, several times a second.

    ``total`` counts the steps that are done and all that are known to come; ``total_known`` says
    that a graph of the build lists them. ``seconds_left`` is ``None`` while the time left is
    unknown, and a lower bound with ``at_least``. Memory is what the build itself uses, and the
    limit in force for it, here and in every summary.
    """

    run: int
    limit: int  # in force for builds: the cap, or the machine's limit if that is lower
    used: int  # by the steps of the run
    other_usage: int  # the part of the limit that other processes take
    running: tuple[RunningStep, ...]
    waiting: int
    waits: dict[Reason, int] = {}  # the number of waiting steps by reason
    done: int = 0
    repeats: int = 0
    total: int = 0
    total_known: bool = True
    seconds_left: float | None = None
    at_least: bool = False
    cache_hits: int = 0
    stage: str = ""  # of `stoker build`


class Warned(Event, frozen=True, kw_only=True, tag="warning"):
    text: str
    run: int | None = None  # None: every run is concerned


class TargetsDiffer(Event, frozen=True, kw_only=True, tag="targets"):
    """A step was refused because it compiles for other GPU targets than the plan states."""

    run: int
    title: str
    difference: str
    flags: tuple[str, ...] = ()


class KernelStarts(Event, frozen=True, kw_only=True, tag="kernel"):
    """A step compiles device code, for the targets of the plan."""

    run: int
    title: str
    targets: tuple[str, ...]  # as compilers write them: "sm_90", "PTX of 9.0"


class RunBegins(Event, frozen=True, kw_only=True, tag="run"):
    """The first event that `stoker watch` receives. ``at`` is in seconds since the epoch."""

    process: int  # id of the process that runs the build
    command: str
    directory: str


class StageChanges(Event, frozen=True, kw_only=True, tag="stage"):
    """A stage of `stoker build` begins or ends; ``end`` is as in ``StageResult``."""

    stage: str
    end: str
    seconds: float = 0.0


class RunEnds(Event, frozen=True, kw_only=True, tag="run-ends"):
    """The last event that `stoker watch` receives, unless the build was killed."""

    summary: RunSummary | None = None


AnyEvent = (
    StepWaits
    | StepStarts
    | StepEnds
    | StepPauses
    | StepRepeats
    | StepTooLate
    | Overview
    | Warned
    | TargetsDiffer
    | KernelStarts
    | RunBegins
    | StageChanges
    | RunEnds
)

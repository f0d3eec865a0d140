"""The values of the governor: steps, predictions, requests, what runs, what waits, measurements.

Memory is in bytes, time in seconds. ``State`` and ``Decision`` are the two sides of a policy.
"""

from collections.abc import Sequence
from enum import StrEnum
from functools import cached_property
from posixpath import join, normpath

from msgspec.structs import replace

from stoker.model.value import Bytes, ByteSeconds, Count, Factor, Percent, Seconds, Value


class Role(StrEnum):
    """What a command does; with the folder of its source it is the step's rule."""

    C = "compile C"
    CXX = "compile C++"
    CUDA = "compile CUDA"
    FORTRAN = "compile Fortran"
    RUST = "compile Rust"
    LINK = "link"
    ARCHIVE = "archive"
    REMOTE = "compile on a worker"  # what it takes here: the preprocessor and the client
    OTHER = "other"


class CompileMode(StrEnum):
    """What is added to the command of an attempt: parameters of gcc's garbage collector, which
    trade memory for time, threads of nvcc, or another linker.
    """

    DEFAULT = "default"
    FAST = "fast"  # gcc collects its garbage less often, which takes memory and saves time
    LEAN = "lean"  # gcc collects its garbage more often, which saves memory and takes time
    LOW = "low"
    THREADS = "threads"  # nvcc compiles several GPU targets at once
    MOLD = "mold"
    LLD = "lld"
    GOLD = "gold"

    @property
    def is_collector(self) -> bool:
        return self in (CompileMode.FAST, CompileMode.LEAN, CompileMode.LOW)

    @property
    def is_linker(self) -> bool:
        return self in (CompileMode.MOLD, CompileMode.LLD, CompileMode.GOLD)


class Collector(StrEnum):
    """Whether a step can run in another mode."""

    NONE = "none"  # not gcc or nvcc, or a command that must stay as it is
    RECORDED = "recorded"  # gcc, but its output would contain the parameters
    FREE = "free"  # the output is the same in every mode


class ModeEffect(Value, frozen=True, kw_only=True):
    """What a mode changes of a step, as factors of its default mode."""

    mode: CompileMode = CompileMode.DEFAULT
    memory: Factor = 1.0
    seconds: Factor = 1.0
    threads: Count = 1  # CPUs that it keeps busy
    assumed: bool = False  # measured of other projects only

    @property
    def reserved(self) -> float:
        """The factor of memory to rely on: what is only assumed to be saved is not."""
        return max(1.0, self.memory) if self.assumed else self.memory


class Step(Value, frozen=True, kw_only=True):
    """One command of a build, as its command line shows it. Paths are relative to the run's root
    where they lie below it.
    """

    key: str  # of source, flags, compiler and GPU targets: the same command on any machine
    role: Role
    source: str = ""  # a link's or archive's output, since it has many sources
    output: str = ""  # as the command names it
    directory: str = ""  # the build folder, which ``output`` is relative to; "" where not recorded
    dependency_file: str = ""
    compiler: str = ""
    flags: tuple[str, ...] = ()  # without the names of outputs
    archs: tuple[str, ...] = ()
    threads: Count = 1  # nvcc's --threads; 0: as many as there are CPUs
    input_bytes: Bytes = 0  # of the source of a compile, or of all inputs of a link or archive
    collector: Collector = Collector.NONE

    def output_path(self, root: str) -> str:
        """Return the absolute path of its output; ``root`` is the directory of its run."""
        return normpath(join(root, self.directory, self.output))

    @property
    def title(self) -> str:
        """What the step is called in lists: a path, below its build folder where it is there."""
        return (self.source or self.output or self.compiler).removeprefix(f"{self.directory}/")

    @property
    def folder(self) -> str:
        return self.source.rpartition("/")[0]

    @property
    def targets_at_once(self) -> int:
        """GPU targets that nvcc compiles in parallel; 1 for any other step."""
        targets = max(1, len(self.archs))
        return min(self.threads or targets, targets)

    @property
    def rounds(self) -> int:
        """The number of rounds in which nvcc compiles its targets."""
        return -(-max(1, len(self.archs)) // self.targets_at_once)


PARTS = 128  # of a profile
MOST_ROWS = 20_000  # records that predictions rest on: several builds of PyTorch


class StepRecord(Value, frozen=True, kw_only=True):
    """One step as measured: a row of the history, an entry of a trace."""

    step: Step
    wall_s: Seconds
    cpu_s: Seconds
    peak_bytes: Bytes
    # Integral of its memory; None where only the peak is known.
    byte_seconds: ByteSeconds | None = None
    # The most in each equal part of its life, in percent of the peak.
    profile: tuple[Percent, ...] = ()
    needs: tuple[str, ...] = ()  # outputs of the same trace that must be there first
    mode: CompileMode = CompileMode.DEFAULT
    # What the modes of gcc change of it, where that was measured; only traces have it.
    effects: tuple[ModeEffect, ...] = ()
    killed: bool = False  # before its end: the figures are lower bounds

    @property
    def mean(self) -> int | None:
        if self.byte_seconds is None or self.wall_s <= 0:
            return None
        return min(self.peak_bytes, round(self.byte_seconds / self.wall_s))


class Trace(Value, frozen=True, kw_only=True):
    """Every step of a build, in the order the build tool asked for them."""

    what: str
    steps: tuple[StepRecord, ...]
    notes: tuple[str, ...] = ()  # what a reader of results should know about the figures


class Basis(StrEnum):
    """What a prediction rests on, best first."""

    EXACT = "the same command before"
    SOURCE = "the same source with other flags"
    KNOWN = "shipped figures for this source"
    FOLDER = "its folder and rule"
    PRIOR = "shipped figures"
    ATTEMPT = "an earlier attempt in this run"
    LEASE = "steps with the same options in this run"


LEASE_BYTES = 256 << 20  # above that, a step by a lease is governed; the launcher has it too
LEASE_S = 1.0  # the same of its duration
# A constant, because to look up a member of an enum takes longer than the comparison.
ABOUT_THE_STEP = (Basis.EXACT, Basis.SOURCE, Basis.KNOWN)


class Prediction(Value, frozen=True, kw_only=True, cache_hash=True):
    """What a step will need. ``high`` is passed by few steps, ``peak`` by about half of them."""

    peak: int
    high: int
    profile: tuple[int, ...] = ()  # as in StepRecord; if empty, the peak is assumed throughout
    seconds: float | None = None
    at_least: bool = False  # nothing but a lower bound is known of the seconds
    waves: int = 1  # how often its memory climbs to the peak: GPU targets one after another
    basis: Basis = Basis.PRIOR
    raised: bool = False  # by what an earlier attempt of the step used

    @property
    def learned(self) -> bool:
        """Whether the prediction is about this step itself, not about similar steps."""
        return self.basis in ABOUT_THE_STEP


class Request(Value, frozen=True, kw_only=True, dict=True):
    """A step that asks to run. A step that was killed asks again under the same id.

    A policy looks at every waiting step again and again; what that needs is computed once.
    """

    id: int
    asked: float  # when it first asked
    prediction: Prediction
    slots: int = 1  # CPUs it keeps busy; 0: all there are, and nothing may run beside it
    path: float = 0.0  # seconds from its start to the end of the build along the longest path
    preemptions: int = 0
    ooms: int = 0
    restarts: bool = True  # it may be killed and started again
    within: int = 0  # the step that has started this one
    # Of a job that is no compile: how many jobs the user lets run at once, 0 if that is unknown.
    jobs: int | None = None
    # Jobs that all workers together take, 0 if unknown; None for a step that runs here.
    places: int | None = None
    mode: CompileMode = CompileMode.DEFAULT  # the one that ``prediction`` is for
    threads: int = 1  # in that mode
    effects: tuple[ModeEffect, ...] = ()  # of the modes of one CPU, by memory, most first
    faster: tuple[ModeEffect, ...] = ()  # of the modes that use more CPUs, fewest first

    def slots_of(self, cpus: int) -> int:
        """Return the number of slots on a machine with this many CPUs. A remote step has none: the
        distributor itself bounds how many preprocessors run here.
        """
        if self.places is not None:
            return 0
        return self.slots if 0 < self.slots < cpus else cpus

    @cached_property
    def learned(self) -> bool:
        """Whether its prediction is about this step itself."""
        return self.prediction.learned

    @cached_property
    def least_peak(self) -> float:
        """The memory that it needs at least in any mode; no more than the exact figure."""
        least = min((each.reserved for each in self.effects), default=1.0)
        return self.prediction.peak * min(1.0, least) - 1  # figures of modes are rounded

    @property
    def alone(self) -> bool:
        """Whether no other step may run here at the same time."""
        return self.slots == 0 and not self.remote

    @property
    def remote(self) -> bool:
        return self.places is not None

    def has_place(self, taken: int) -> bool:
        """Return whether a worker is free for a remote step if so many of them run."""
        return not self.places or taken < self.places

    def in_mode(self, mode: CompileMode, threads: int = 1) -> "Request":
        """Return the request with the prediction for another mode."""
        if mode is self.mode and threads == self.threads:
            return self
        before, after = self._effect(self.mode, self.threads), self._effect(mode, threads)
        memory, known = after.reserved / before.reserved, self.prediction
        longer = after.seconds / before.seconds
        seconds = known.seconds and known.seconds * longer
        own = self.path if known.seconds is None else known.seconds  # its part of the path
        peak, high = round(known.peak * memory), round(known.high * memory)
        # nvcc climbs to its peak once for each group of targets, so the profile is another one.
        profile = known.profile if threads == self.threads else ()
        return replace(
            self,
            mode=mode,
            threads=threads,
            slots=self.slots * threads // self.threads,
            path=max(0.0, self.path + own * (longer - 1)),
            prediction=replace(known, peak=peak, high=high, profile=profile, seconds=seconds),
        )

    @property
    def effect(self) -> ModeEffect:
        """What its mode changes of it."""
        return self._effect(self.mode, self.threads)

    def _effect(self, mode: CompileMode, threads: int) -> ModeEffect:
        alike = (
            effect
            for effect in (*self.effects, *self.faster)
            if effect.mode is mode and effect.threads == threads
        )
        return next(alike, ModeEffect())


class Running(Value, frozen=True, kw_only=True):
    """A request with a permit, and the last measured memory of its process tree. No memory is
    reserved for a step on trial.
    """

    request: Request
    started: float
    on_trial: bool = False
    current: int = 0
    peak: int = 0  # so far
    stopping: bool = False  # it was told to stop, but has not exited yet
    paused_at: float | None = None  # when it was paused; it keeps its memory
    paused: float = 0.0  # seconds of earlier pauses
    lent: bool = False  # it uses no CPU, or a step inside it runs on its place

    @property
    def id(self) -> int:
        return self.request.id

    @property
    def is_paused(self) -> bool:
        return self.paused_at is not None

    def slots_of(self, cpus: int) -> int:
        """Return the CPUs that it holds now: none while it is paused or has lent its place."""
        return 0 if self.is_paused or self.lent else self.request.slots_of(cpus)

    def paused_for(self, now: float) -> float:
        """Return the seconds since the current pause began."""
        return 0.0 if self.paused_at is None else now - self.paused_at

    def age(self, now: float) -> float:
        """Return the seconds for which the step has run, without pauses."""
        return now - self.started - self.paused - self.paused_for(now)

    def resumed(self, now: float) -> "Running":
        return replace(self, paused_at=None, paused=self.paused + self.paused_for(now))


class Pace(Value, frozen=True, kw_only=True, cache_hash=True):
    """How long steps take now, over what was predicted: the usual ratio, and the factor by which
    single steps differ from it.
    """

    usual: float = 1.0
    spread: float = 1.0


class State(Value, frozen=True, kw_only=True):
    """All that a policy knows. ``limit`` is the binding limit less what is to be kept free."""

    now: float
    cpus: int
    limit: int
    used: int  # of the binding limit, by all processes
    growth: float = 0.0  # of ``used``, in bytes a second
    pressure: float = 0.0  # percent of the last 10 s in which all tasks waited for memory
    contention: float = 0.0  # share of CPUs that lately were idle because steps waited for memory
    work_left: float = 0.0  # seconds of all steps that are left, as far as known
    pace: Pace = Pace()
    distributed: bool = False  # remote steps may be among the running and the waiting ones
    running: tuple[Running, ...] = ()
    waiting: Sequence[Request] = ()  # most urgent first, as a Queue holds them
    placed: frozenset[int] = frozenset()  # waiting steps that need no free CPU
    late: float = 0.0  # seconds by which decisions came late, because the machine is busy
    first_for: float = 0.0  # seconds for which the first of ``waiting`` has been the most urgent
    tight_at: float = 0.0  # of the last decision
    leased: int = 0  # bytes that steps may use which run by leases, beside those in ``cpus``

    @property
    def other_usage(self) -> int:
        """Return the memory in use that no running step accounts for: other processes, tmpfs."""
        return max(0, self.used - sum(step.current for step in self.running))


class Reason(StrEnum):
    """Why the governor lets a step wait, pauses it or kills it; ``report`` has the sentences."""

    CPUS = "cpus"  # no CPU is free, or more urgent steps took those that were
    RUNS = "runs"  # no CPU is free, and other runs use some of them
    MEMORY = "memory"  # its predicted memory does not fit beside the running steps
    UNKNOWN_SIZE = "unknown-size"  # enough steps of unknown size have just started
    WORKERS = "workers"  # the workers have as many jobs as they take
    TURN = "turn"  # a more urgent step has waited so long that no other step may pass it
    DEADLINE = "deadline"  # it would end after the time that its run has
    PRESSURE = "pressure"  # the kernel reports that tasks wait for memory
    GROWTH = "growth"  # memory in use would soon pass the limit
    SHORTAGE = "shortage"  # memory in use has almost reached the limit
    LONG_PAUSE = "long-pause"  # it was paused too long, so its memory is given to others
    OOM = "out-of-memory"  # the kernel killed it
    MEMORY_BOUND = "memory-bound"  # CPUs are idle because steps wait for memory
    IDLE_MEMORY = "idle-memory"  # no step waits for memory, and more of it is free
    TOO_LARGE = "too-large"  # by default it would not fit even alone
    IDLE_CPUS = "idle-cpus"  # too few steps are left to keep all CPUs busy
    REFUSED = "refused"  # the compiler does not know the options of the mode
    LINKER = "linker"  # the user's setting names it
    LINK_FAILED = "link-failed"  # with another linker than the default one


class ModeChoice(Value, frozen=True, kw_only=True):
    """The mode of an attempt, and why it is not the default one."""

    mode: CompileMode
    reason: Reason
    threads: int = 1


class Decision(Value, frozen=True, kw_only=True):
    """Ids of the steps to start (for certain or on trial), to pause, to resume, and to kill so that
    they wait again. ``reason`` is why steps are paused or killed.

    ``held`` has the reason of each step that was considered and has to wait. A step that was not
    considered keeps its last reason; the first one is that no CPU is free.
    """

    admit: tuple[int, ...] = ()
    on_trial: tuple[int, ...] = ()
    pause: tuple[int, ...] = ()
    resume: tuple[int, ...] = ()
    kill: tuple[int, ...] = ()
    reason: Reason = Reason.SHORTAGE
    held: dict[int, Reason] = {}
    modes: dict[int, ModeChoice] = {}  # of admitted steps that do not run in the mode they ask for
    # When memory would be short if one more step started. The next decision looks there first.
    tight_at: float = 0.0


class Timing(Value, frozen=True, kw_only=True):
    """What a step took when it last ran. Only the history has a ``peak``: ninja's log has none."""

    seconds: float
    peak: int | None = None

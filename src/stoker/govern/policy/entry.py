r"""One step from its request to its end: its phase, its attempts, and what is told about both.

Every step is in one phase, and the methods of its entry move it:

    ask -> WAITING -> admit -> RUNNING -> done -> gone
              ^                 |  \
              |                 |   done, out of memory -> WAITING, with a larger reservation
              +- killed <- STOPPING <- kill

A running step may be paused meanwhile, and keeps its permit. Independent of the other steps, and of
what decides: a move that users are told about returns its event.
"""

from collections.abc import Callable
from enum import StrEnum

from msgspec.structs import replace

from stoker.govern.policy.memory_view import MemoryReading
from stoker.govern.policy.modes import forced_by
from stoker.govern.policy.profile import Recorder
from stoker.govern.policy.repeats import Surroundings, ran_out_of_memory
from stoker.govern.policy.waits import BusyCpus, WaitClock
from stoker.govern.protocol import Done, Usage
from stoker.model.events import (
    RunningStep,
    StepEnds,
    StepPauses,
    StepRepeats,
    StepStarts,
    StepWaits,
)
from stoker.model.govern import (
    Basis,
    Collector,
    ModeChoice,
    ModeEffect,
    Reason,
    Request,
    Running,
    Step,
    StepRecord,
)
from stoker.model.runs import MOST_PAUSES, Attempt, Explanation, Intervention, Outcome
from stoker.model.value import size

Connection = int  # what the daemon calls a launcher's socket
NO_CONNECTION: Connection = -1  # of a step whose launcher is gone
# Returns the seconds from a step's start to the end of the build, as far as they are known.
PathLeft = Callable[[], float]


class StepPhase(StrEnum):
    WAITING = "waiting"
    RUNNING = "running"
    STOPPING = "stopping"


class Entry:
    """A step that has asked and has not finished."""

    def __init__(
        self,
        connection: Connection,
        run: int,
        step: Step,
        path: PathLeft,
        request: Request,
        busy: BusyCpus,
        *,
        once: str = "",
        family: int = 0,
    ):
        self.connection = connection
        self.run = run
        self.step = step
        self.path = path
        self.request = request
        self.family = family  # of commands that may run by leases; 0 if it is unknown
        self._once = once
        self.phase = StepPhase.WAITING
        self._busy = BusyCpus() if request.remote else busy  # a worker's CPUs are not ours
        self._wait(request.asked)
        self._mode_reason: Reason | None = None
        self.running = Running(request=request, started=0.0)
        self._idle = False  # its processes use no CPU
        self._compiles_here = False  # a distributor that has lost its worker
        self.inner = 0  # steps that run inside it
        self.inner_cpu_us = 0  # CPU time of those that have ended, which its own usage contains
        self._recorder = Recorder()
        self._kills_before: int | None = None
        self._least_free = 0

    def _wait(self, now: float) -> None:
        """Begin to count what happens to the next attempt."""
        self.clock = WaitClock(now, self._busy)
        self._pauses: list[Intervention] = []
        self.killed: Intervention | None = None

    @property
    def title(self) -> str:
        return self.step.title

    def admit(
        self, choice: ModeChoice | None, reading: MemoryReading, now: float, *, on_trial: bool
    ) -> StepStarts:
        """Start an attempt. ``reading`` is the last one."""
        if choice:
            self.request = self.request.in_mode(choice.mode, choice.threads)
        self._mode_reason = choice.reason if choice else forced_by(self.request)
        self.phase = StepPhase.RUNNING
        self.running = Running(request=self.request, started=now, on_trial=on_trial)
        self._idle = False
        self._recorder = Recorder()
        self.clock.stop(now)
        self._kills_before, self._least_free = reading.oom_kills.get(self.run), reading.free
        return StepStarts(
            at=now,
            step=self.request.id,
            run=self.run,
            title=self.title,
            waited=now - self.clock.began,
            needs=self.request.prediction.peak,
            waits=self.clock.seconds,
            mode=self.request.mode,
            mode_reason=self._mode_reason,
            threads=self.request.threads,
        )

    def grow(self, current: int, peak: int, now: float, *, idle: bool) -> None:
        """Take in the memory of the running attempt, and whether it uses no CPU."""
        self._recorder.add(self.running.age(now), current)
        self.running = replace(self.running, current=current, peak=max(peak, self.running.peak))
        self._idle = idle
        self.lend()

    def lose_worker(self) -> None:
        self._compiles_here = True
        self.lend()

    def lend(self) -> None:
        """Lend its place while it uses no CPU itself. A distributor waits for its worker, whose
        place it has until a compiler runs here.
        """
        lent = self._compiles_here if self.request.remote else self._idle or self.inner > 0
        if lent is not self.running.lent:
            self.running = replace(self.running, lent=lent)

    def read(self, reading: MemoryReading) -> None:
        """Take in a reading of the meter while the attempt runs."""
        self._least_free = min(self._least_free, reading.free)

    def ran_out(self, done: Done, reading: MemoryReading) -> bool:
        """Return whether the attempt has failed because memory ran out."""
        before, now = self._kills_before, reading.oom_kills.get(self.run)
        surroundings = Surroundings(
            oom_kills=None if before is None or now is None else now - before,
            least_free=self._least_free,
            limit=reading.limit,
        )
        return ran_out_of_memory(done.status, done.signal, done.tail, surroundings)

    def pause(self, cause: Intervention, now: float) -> StepPauses:
        self._pauses.append(cause)
        self.running = replace(self.running, paused_at=now)
        return StepPauses(
            at=now,
            step=self.request.id,
            run=self.run,
            title=self.title,
            memory=self.running.current,
            cause=cause,
        )

    def resume(self, now: float) -> None:
        if self._pauses:
            paused = self.running.paused_for(now)
            self._pauses[-1] = replace(self._pauses[-1], wall_s=paused)
        self.running = self.running.resumed(now)

    def kill(self, cause: Intervention) -> bool:
        """End the attempt; return whether its launcher has not been told before."""
        self.killed = cause
        if self.phase is not StepPhase.RUNNING:
            return False
        self.phase = StepPhase.STOPPING
        self.running = replace(self.running, stopping=True)
        return True

    def wait_again(
        self, request: Request, usage: Usage, outcome: Outcome, now: float
    ) -> StepRepeats:
        """End the attempt, and ask for the next one."""
        self.phase, self.request = StepPhase.WAITING, request
        cause = self.killed
        self._wait(now)
        return StepRepeats(
            at=now,
            step=request.id,
            run=self.run,
            title=self.title,
            why=outcome.value,
            seconds=usage.wall_us / 1e6,
            peak=usage.peak,
            cause=cause,
        )

    def waits(self) -> StepWaits:
        return StepWaits(
            at=self.request.asked,
            step=self.request.id,
            run=self.run,
            title=self.title,
            needs=self.request.prediction.high,
        )

    def ends(self, status: int, usage: Usage, peak: int, now: float) -> StepEnds:
        return StepEnds(
            at=now,
            step=self.request.id,
            run=self.run,
            title=self.title,
            status=status,
            seconds=usage.wall_us / 1e6,
            peak=peak,
            remote=self.request.remote,
        )

    def shown(self, now: float) -> RunningStep:
        """Return its line in an overview."""
        return RunningStep(
            step=self.request.id,
            title=self.title,
            seconds=self.running.age(now),
            paused=self.running.is_paused,
            memory=self.running.current,
        )

    def record(self, usage: Usage, *, killed: bool) -> StepRecord:
        """Return what was measured of the attempt. ``killed`` is as in the record."""
        step, threads = self.step, self.request.threads
        return StepRecord(
            step=replace(step, threads=threads) if threads > 1 else step,
            wall_s=usage.wall_us / 1e6,
            cpu_s=usage.cpu_us / 1e6,
            peak_bytes=max(usage.peak, self.running.peak),
            byte_seconds=float(usage.byte_seconds),
            profile=self._recorder.profile(usage.wall_us / 1e6),
            mode=self.request.mode,
            killed=killed,
        )

    def attempt(
        self, record: StepRecord, outcome: Outcome, status: int, effect: ModeEffect | None
    ) -> Attempt:
        """Return the attempt that ends, with its explanation. ``effect`` is that of its mode."""
        prediction = self.request.prediction
        return Attempt(
            record=record,
            started=self.running.started,
            outcome=outcome,
            status=status,
            explanation=Explanation(
                asked=self.clock.began,
                needs_bytes=prediction.peak,
                basis=Basis.ATTEMPT if prediction.raised else prediction.basis,
                waits=self.clock.seconds,
                pauses=tuple(self._pauses[-MOST_PAUSES:]),
                killed=self.killed,
                once=self._once,
                mode_reason=self._mode_reason,
                effect=effect,
            ),
        )

    def hopeless(self, usage: Usage, limit: int) -> str:
        """Return what its launcher prints if it ran out of memory for the last time."""
        attempts = self.request.ooms + 1
        peak = max(usage.peak, self.running.peak)
        # Such a step can only use less memory if its object is allowed to differ a little.
        recorded = self.step.collector is Collector.RECORDED and self.request.effects == ()
        save = "use --gc always (debug information then records it), " if recorded else ""
        return (
            f"stoker: {self.title} ran out of memory {attempts} times, the last time alone: it "
            f"reached {size(peak)} of {size(limit)}. It needs more memory than this "
            f"limit allows: raise the limit, add swap, {save}"
            "or build for fewer GPU targets at once.\n"
        )

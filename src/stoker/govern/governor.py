"""The governor without its sockets: what each message and each reading of the meter changes.

Every step is in one phase, and this module alone moves it:

    ask -> WAITING -> run -> RUNNING -> done -> gone
                      ^         |  \\-> done, out of memory -> WAITING, with a larger reservation
                      |         \\-> kill -> STOPPING -> killed -> WAITING
                      \\---------------------------------------/

A running step may be paused meanwhile, and keeps its permit.

Independent of files, sockets and clocks: the time is passed with each call, messages are sent
through ``send`` and events through ``emit``.
"""

from collections import Counter, deque
from collections.abc import Callable, Mapping
from enum import StrEnum

from msgspec.structs import replace

from stoker.govern.evidence import Surroundings, ran_out_of_memory
from stoker.govern.modes import Modes, failed_by_mode, forced_by, without_modes
from stoker.govern.policy import (
    BusyCpus,
    Contention,
    Policy,
    Queue,
    WaitClock,
    after_oom,
    after_preemption,
)
from stoker.govern.predict import Predictor
from stoker.govern.profile import Recorder
from stoker.govern.protocol import VERSION, Ask, Done, ProtocolError, Usage, encode
from stoker.knowledge.compiler_modes import mode_options
from stoker.knowledge.memory_priors import usual_seconds
from stoker.model.events import (
    AnyEvent,
    Overview,
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
    Decision,
    Gc,
    ModeChoice,
    ModeEffect,
    Prediction,
    Reason,
    Request,
    Running,
    State,
    Step,
    StepRecord,
)
from stoker.model.runs import Attempt, Explanation, Intervention, Outcome
from stoker.model.units import size
from stoker.model.value import Value

_RECONSIDER = 1.0  # seconds between new predictions of waiting steps
_RECONSIDERED = 200  # waiting steps that are predicted again, the most urgent ones
_MOST_PAUSES = 20  # pauses of one attempt that the history keeps

Connection = int  # what the daemon calls a launcher's socket
# Returns the seconds from a step's start to the end of the build, as far as they are known.
PathLeft = Callable[[], float]


class Phase(StrEnum):
    WAITING = "waiting"
    RUNNING = "running"
    STOPPING = "stopping"
    ENCLOSING = "enclosing"  # a custom or remote command whose compiles here are governed


class MemoryReading(Value, frozen=True, kw_only=True):
    """A reading of the meter. ``limit`` is the binding limit less what is to stay free; ``used``
    counts all processes.

    ``oom_kills`` has a counter for each run, since runs that share a limit may be in groups that
    count apart; a run whose counter cannot be read is not in it.
    """

    limit: int
    used: int
    oom_kills: Mapping[int, int]
    pressure: float = 0.0  # percent of the last 10 s in which all tasks waited for memory


class _Entry:
    """A step that has asked and has not finished."""

    def __init__(
        self,
        connection: Connection,
        run: int,
        step: Step,
        path: PathLeft,
        request: Request,
        busy: BusyCpus,
    ):
        self.connection = connection
        self.run = run
        self.step = step
        self.path = path
        self.request = request
        self.busy = BusyCpus() if request.remote else busy  # a worker's CPUs are not ours
        self.clock = WaitClock(request.asked, self.busy)
        self.pauses: list[Intervention] = []
        self.killed: Intervention | None = None
        self.mode_reason: Reason | None = None
        self.phase = Phase.WAITING
        self.running = Running(request=request, started=0.0)
        self.recorder = Recorder()
        self.kills_before: int | None = None
        self.least_free = 0

    @property
    def title(self) -> str:
        return self.step.source or self.step.output or self.step.compiler


class Slope:
    """Measures how fast a reading grows, over one second: long enough to separate growth from
    noise.
    """

    _SPAN = 1.0

    def __init__(self) -> None:
        self._readings: deque[tuple[float, int]] = deque()

    def add(self, now: float, value: int) -> float:
        """Add a reading and return the growth per second."""
        while len(self._readings) > 1 and self._readings[0][0] < now - self._SPAN:
            self._readings.popleft()
        self._readings.append((now, value))
        then, before = self._readings[0]
        return (value - before) / (now - then) if now > then else 0.0


class Governor:
    """Decides which steps run, through its policy, and keeps the phase of every step.

    A step that has asked gets a permit in the end, whatever the policy says about memory: at least
    one step runs at any time. A step that the policy kills, or that runs out of memory, waits again
    and keeps its place. Every attempt that ended is passed to ``keep`` once.
    """

    def __init__(
        self,
        *,
        policy: Policy,
        predictor: Predictor,
        cpus: int,
        cap: int | None,
        send: Callable[[Connection, bytes], None],
        emit: Callable[[AnyEvent], None],
        keep: Callable[[int, Attempt], None],
        gc: Gc = Gc.AUTO,
        nvcc_threads: bool = True,
    ):
        """Prepare a governor. ``cap`` limits the memory of builds whatever the machine has;
        ``keep`` gets every attempt that ended, with its run; ``gc`` says where modes of gcc may be
        used, and ``nvcc_threads`` whether the governor may choose those of nvcc.
        """
        self._policy = policy
        self._predictor = predictor
        self._cpus = cpus
        self._cap = cap
        self._send = send
        self._emit = emit
        self._keep = keep
        self._entries: dict[int, _Entry] = {}
        self._by_connection: dict[Connection, _Entry] = {}
        self._holding: dict[int, _Entry] = {}  # steps with a permit, running or being killed
        self._queue = Queue()
        self._first: tuple[int, float] = (0, 0.0)  # the most urgent step, and since when
        self._next = 1
        self._reading = MemoryReading(limit=0, used=0, oom_kills={})
        self._growth = 0.0
        self._slope = Slope()
        self._contention = Contention()
        self.work_left = 0.0  # seconds of all steps that are left, as far as known
        self._busy = BusyCpus()
        self.modes = Modes(predictor, gc=gc, nvcc_threads=nvcc_threads)
        self._tight_at = 0.0
        self._learned = False
        self._distributed = False
        self._reconsidered = 0.0
        self.changed = True  # whether anything that affects a decision changed since the last one
        self._done: Counter[int] = Counter()  # steps of each run
        self._repeats: Counter[int] = Counter()

    # -- what launchers say ----------------------------------------------------------------------

    def asked(
        self, connection: Connection, ask: Ask, step: Step, path: PathLeft, now: float
    ) -> None:
        if ask.version != VERSION:
            self._send(connection, encode("wrong_version"))
            return
        self._enclose(ask.within, now)
        prediction = self._predictor.predict(step)
        request = Request(
            id=self._next,
            asked=now,
            prediction=prediction,
            slots=step.targets_at_once,
            path=_seconds(path, prediction, step),
            restarts=not ask.custom,
            places=ask.cpus if ask.remote else None,
            mode=self.modes.linker(ask),
            effects=self.modes.effects(step),
            faster=self.modes.faster(step),
        )
        self._next += 1
        self._distributed |= ask.remote
        entry = _Entry(connection, ask.run, step, path, request, self._busy)
        self._entries[request.id] = self._by_connection[connection] = entry
        self._queue.add(request)
        self.changed = True
        self._emit(
            StepWaits(
                at=now, step=request.id, run=ask.run, title=entry.title, needs=prediction.high
            )
        )

    def grown(self, connection: Connection, current: int, peak: int, now: float) -> None:
        entry = self._permitted(connection)
        if entry.phase is Phase.ENCLOSING:
            return  # the steps that it started report the same memory
        entry.recorder.add(entry.running.age(now), current)
        entry.running = replace(entry.running, current=current, peak=max(peak, entry.running.peak))
        self.changed = True

    def ended(self, connection: Connection, done: Done, now: float) -> bool:
        """Take in how a command has ended; return whether its launcher waits for an answer."""
        entry = self._permitted(connection)
        failed = done.status != 0 or done.signal != 0
        if failed and entry.request.restarts and self._ran_out(entry, done):
            self._out_of_memory(entry, done, now)
            return True
        if failed and failed_by_mode(entry.request.mode, done.tail):
            self._refused(entry, done, now)
            return True
        if failed:
            self._send(connection, encode("release"))
        self._close(entry, done, Outcome.FAILED if failed else Outcome.DONE, now)
        return failed

    def stopped(self, connection: Connection, usage: Usage, now: float) -> None:
        """Handle a launcher's report that it has killed its command as ordered: the step waits
        again.
        """
        entry = self._permitted(connection)
        self._record(entry, usage, Outcome.PREEMPTED)
        self._wait_again(entry, after_preemption(entry.running), usage, Outcome.PREEMPTED, now)

    def lost(self, connection: Connection) -> bool:
        """Forget a launcher that is gone; return whether it had a step that had not ended."""
        entry = self._by_connection.get(connection)
        if entry is None:
            return False
        self._forget(entry)
        return True

    def _enclose(self, identity: int, now: float) -> None:
        """Take back the permit of a custom command that has started a governed command, perhaps in
        a run of its own: it waits for that command, which must not wait for its permit. Its memory
        is counted as that of the inner command. A remote command that compiles here has lost its
        worker, and gives its permit back too.
        """
        entry = self._holding.get(identity)
        encloses = entry and (entry.request.remote or not entry.request.restarts)
        if entry and encloses and entry.phase is Phase.RUNNING:
            del self._holding[identity]
            if entry.running.is_paused:
                self._resume(entry, now)
            entry.phase = Phase.ENCLOSING
            entry.running = replace(entry.running, current=0, peak=0)

    def _permitted(self, connection: Connection) -> _Entry:
        """Return the step of a connection; it is a protocol error if the step has no permit."""
        entry = self._by_connection.get(connection)
        if entry is None or entry.phase is Phase.WAITING:
            raise ProtocolError("a report about a step that has no permit")
        return entry

    # -- memory ran out --------------------------------------------------------------------------

    def _ran_out(self, entry: _Entry, done: Done) -> bool:
        before, now = entry.kills_before, self._reading.oom_kills.get(entry.run)
        surroundings = Surroundings(
            oom_kills=None if before is None or now is None else now - before,
            least_free=entry.least_free,
            limit=self._reading.limit,
        )
        return ran_out_of_memory(done.status, done.signal, done.tail, surroundings)

    def _out_of_memory(self, entry: _Entry, done: Done, now: float) -> None:
        entry.killed = self._intervention(Reason.OOM, now)
        alone = len(self._holding) == 1
        request = after_oom(entry.running, done.usage.peak, alone=alone)
        if request is None:
            self._send(entry.connection, encode("fail", self._hopeless(entry, done.usage)))
            self._close(entry, done, Outcome.OOM, now)
            return
        self._record(entry, done.usage, Outcome.OOM)
        self._send(entry.connection, encode("again"))
        self._wait_again(entry, request, done.usage, Outcome.OOM, now)

    def _refused(self, entry: _Entry, done: Done, now: float) -> None:
        """Run the step again as the user wrote it. A compiler that does not know the options of a
        mode gets none from now on.
        """
        links = entry.request.mode.is_linker
        if not links:
            self.modes.refuse(entry.step)
        entry.killed = self._intervention(Reason.LINK_FAILED if links else Reason.REFUSED, now)
        request = without_modes(entry.request)
        self._record(entry, done.usage, Outcome.REFUSED, done.status)
        self._send(entry.connection, encode("again"))
        self._wait_again(entry, request, done.usage, Outcome.REFUSED, now)
        for waiting in list(self._queue):
            modes = waiting.effects or waiting.faster
            if modes and self.modes.refuses(self._entries[waiting.id].step):
                plain = without_modes(waiting)
                self._entries[waiting.id].request = plain
                self._queue.add(plain)

    def _hopeless(self, entry: _Entry, usage: Usage) -> str:
        attempts = entry.request.ooms + 1
        peak = max(usage.peak, entry.running.peak)
        return (
            f"stoker: {entry.title} ran out of memory {attempts} times, the last time alone: it "
            f"reached {size(peak)} of {size(self._reading.limit)}. It needs more memory than this "
            f"limit allows: raise the limit, add swap, {self._or_save(entry)}"
            "or build for fewer GPU targets at once.\n"
        )

    def _or_save(self, entry: _Entry) -> str:
        """Name the setting that may help, if the object would not be quite the same."""
        recorded = entry.step.collector is Collector.RECORDED and entry.request.effects == ()
        return "use --gc always (debug information then records it), " if recorded else ""

    # -- decisions -------------------------------------------------------------------------------

    def read(self, reading: MemoryReading, now: float) -> None:
        """Take in a reading of the meter."""
        self._growth = self._slope.add(now, reading.used)
        self._reading = reading
        self.changed = True
        free = reading.limit - reading.used
        for entry in self._holding.values():
            if free < entry.least_free:
                entry.least_free = free

    def decide(self, now: float) -> None:
        """Ask the policy, and tell the launchers."""
        self.changed = False
        if self._learned and now - self._reconsidered >= _RECONSIDER:
            self._reconsider(now)
        if self._queue and self._queue[0].id != self._first[0]:
            self._first = self._queue[0].id, now
        decision = self._policy.decide(self.state(now))
        self._tight_at = decision.tight_at or self._tight_at
        self._explain(decision, now)
        for identity in decision.pause:
            self._pause(self._entries[identity], now)
        for identity in decision.resume:
            self._resume(self._entries[identity], now)
        for identity in decision.kill:
            self._kill(self._entries[identity])
        for identity in (*decision.admit, *decision.on_trial):
            entry, choice = self._entries[identity], decision.modes.get(identity)
            self._admit(entry, now, choice, on_trial=identity in decision.on_trial)
        free = self._free_slots()
        self._busy.note(now, busy=free <= 0)
        self._contention.note(now, self._idle_for_memory(free))

    def _explain(self, decision: Decision, now: float) -> None:
        """Note why steps wait, and why they are paused or killed now."""
        for identity, reason in decision.held.items():
            self._entries[identity].clock.hold(reason, now)
        if decision.pause or decision.kill:
            cause = self._intervention(decision.reason, now)
            for identity in decision.pause:
                self._entries[identity].pauses.append(cause)
            for identity in decision.kill:
                self._entries[identity].killed = cause

    def _free_slots(self) -> int:
        busy = sum(entry.request.slots_of(self._cpus) for entry in self._holding.values())
        return max(0, self._cpus - busy)

    def _idle_for_memory(self, free: int) -> float:
        """Return the share of CPUs that are idle because the next step waits for memory."""
        first = next(iter(self._queue), None)
        if first is None or self._entries[first.id].clock.reason is not Reason.MEMORY:
            return 0.0
        return free / self._cpus

    def _intervention(self, reason: Reason, now: float) -> Intervention:
        """Return the cause of a pause or kill, with the memory in use. What other processes use
        counts only if it is part of the limit in force.
        """
        ours = sum(entry.running.current for entry in self._holding.values())
        used = max(ours, self._reading.used - (self._reading.limit - self.limit))
        return Intervention(at=now, reason=reason, used=used, limit=self.limit)

    def reconsider(self) -> None:
        """Note that critical-path lengths have arrived: waiting steps are ranked again at the next
        decision.
        """
        self._learned, self._reconsidered = True, -_RECONSIDER
        self.changed = True

    def _reconsider(self, now: float) -> None:
        """Predict the most urgent waiting steps again, with what was learned since they asked."""
        self._learned, self._reconsidered = False, now
        for request in list(self._queue[:_RECONSIDERED]):
            entry, prediction = self._entries[request.id], request.prediction
            fresh = request.preemptions == request.ooms == 0
            if fresh and prediction.basis is not Basis.EXACT:
                prediction = self._predictor.predict(entry.step)
            path = _seconds(entry.path, prediction, entry.step)
            if prediction is not request.prediction or path != request.path:
                entry.request = replace(request, prediction=prediction, path=path)
                self._queue.add(entry.request)

    def _admit(
        self, entry: _Entry, now: float, choice: ModeChoice | None, *, on_trial: bool
    ) -> None:
        self._queue.remove(entry.request.id)
        if choice:
            entry.request = entry.request.in_mode(choice.mode, choice.threads)
        entry.mode_reason = choice.reason if choice else forced_by(entry.request)
        self._holding[entry.request.id] = entry
        entry.phase = Phase.RUNNING
        entry.running = Running(request=entry.request, started=now, on_trial=on_trial)
        entry.recorder = Recorder()
        entry.clock.stop(now)
        entry.kills_before = self._reading.oom_kills.get(entry.run)
        entry.least_free = self._reading.limit - self._reading.used
        options = mode_options(entry.request.mode, entry.request.threads)
        self._send(entry.connection, encode("run", entry.request.id, *options))
        self._emit(
            StepStarts(
                at=now,
                step=entry.request.id,
                run=entry.run,
                title=entry.title,
                waited=now - entry.clock.began,
                needs=entry.request.prediction.peak,
                waits=entry.clock.seconds,
                mode=entry.request.mode,
                mode_reason=entry.mode_reason,
                threads=entry.request.threads,
            )
        )

    def _pause(self, entry: _Entry, now: float) -> None:
        entry.running = replace(entry.running, paused_at=now)
        self._send(entry.connection, encode("pause"))
        self._emit(
            StepPauses(
                at=now,
                step=entry.request.id,
                run=entry.run,
                title=entry.title,
                memory=entry.running.current,
                cause=entry.pauses[-1],
            )
        )

    def _resume(self, entry: _Entry, now: float) -> None:
        if entry.pauses:
            paused = entry.running.paused_for(now)
            entry.pauses[-1] = replace(entry.pauses[-1], seconds=paused)
        entry.running = entry.running.resumed(now)
        self._send(entry.connection, encode("resume"))

    def _kill(self, entry: _Entry) -> None:
        if entry.phase is Phase.RUNNING:
            entry.phase = Phase.STOPPING
            entry.running = replace(entry.running, stopping=True)
            self._send(entry.connection, encode("kill"))

    def state(self, now: float) -> State:
        running = tuple(entry.running for entry in self._holding.values())
        ours = sum(step.current for step in running)
        # A launcher may have reported more since the last reading.
        used = max(self._reading.used, ours)
        limit = self._reading.limit
        if self._cap is not None:
            # Memory of other processes does not count against a cap of the build.
            limit = min(limit, self._cap + used - ours)
        return State(
            now=now,
            cpus=self._cpus,
            limit=limit,
            used=used,
            growth=self._growth,
            pressure=self._reading.pressure,
            contention=self._contention.share,
            work_left=self.work_left,
            pace=self._predictor.pace,
            distributed=self._distributed,
            running=running,
            waiting=self._queue,
            first_for=now - self._first[1],
            tight_at=self._tight_at,
        )

    @property
    def limit(self) -> int:
        """The limit in force for builds, however much of it other processes use."""
        return self._reading.limit if self._cap is None else min(self._reading.limit, self._cap)

    def used_by(self, run: int) -> int:
        """Return the memory of the run's steps."""
        return sum(entry.running.current for entry in self._holding.values() if entry.run == run)

    def overview(self, run: int, now: float) -> Overview:
        state, used = self.state(now), self.used_by(run)
        spare = (
            self._reading.limit - self.limit
        )  # memory that other processes may use without affecting the build
        entries = [entry for entry in self._entries.values() if entry.run == run]
        running = tuple(
            RunningStep(
                step=entry.request.id,
                title=entry.title,
                seconds=entry.running.age(now),
                paused=entry.running.is_paused,
                memory=entry.running.current,
            )
            for entry in entries
            if entry.phase is not Phase.WAITING
        )
        waiting = (entry for entry in entries if entry.phase is Phase.WAITING)
        return Overview(
            at=now,
            run=run,
            limit=self.limit,
            used=used,
            other_usage=max(0, state.used - used - spare),
            running=running,
            waiting=len(entries) - len(running),
            waits=dict(Counter(entry.clock.reason for entry in waiting)),
            done=self._done[run],
            repeats=self._repeats[run],
        )

    def forget(self, run: int) -> None:
        """Forget the counts of a run that ended, because its number may be used again."""
        del self._done[run], self._repeats[run]
        self.modes.forget(run)

    @property
    def busy(self) -> bool:
        return bool(self._entries)

    def steps_of(self, run: int) -> list[Connection]:
        """Return the connections of a run's steps."""
        return [entry.connection for entry in self._entries.values() if entry.run == run]

    # -- entries ---------------------------------------------------------------------------------

    def _wait_again(
        self, entry: _Entry, request: Request, usage: Usage, outcome: Outcome, now: float
    ) -> None:
        entry.phase = Phase.WAITING
        self._holding.pop(request.id, None)
        entry.request = request
        self._queue.add(request)
        self.changed = True
        self._repeats[entry.run] += 1
        self._emit(
            StepRepeats(
                at=now,
                step=request.id,
                run=entry.run,
                title=entry.title,
                why=outcome.value,
                seconds=usage.wall_us / 1e6,
                peak=usage.peak,
                cause=entry.killed,
            )
        )
        entry.clock, entry.pauses, entry.killed = WaitClock(now, entry.busy), [], None

    def _close(self, entry: _Entry, done: Done, outcome: Outcome, now: float) -> None:
        status = 128 + done.signal if done.signal else done.status
        seconds, peak = done.usage.wall_us / 1e6, 0
        if entry.phase is not Phase.ENCLOSING:
            record = self._record(entry, done.usage, outcome, status)
            peak = record.peak
            if outcome is Outcome.DONE:
                self._predictor.learn(record)
                self._learned = True
            self._done[entry.run] += 1
        self._forget(entry)
        self._emit(
            StepEnds(
                at=now,
                step=entry.request.id,
                run=entry.run,
                title=entry.title,
                status=status,
                seconds=seconds,
                peak=peak,
                remote=entry.request.remote,
            )
        )

    def _record(self, entry: _Entry, usage: Usage, outcome: Outcome, status: int = 0) -> StepRecord:
        step, request = entry.step, entry.request
        record = StepRecord(
            step=replace(step, threads=request.threads) if request.threads > 1 else step,
            seconds=usage.wall_us / 1e6,
            cpu_seconds=usage.cpu_us / 1e6,
            peak=max(usage.peak, entry.running.peak),
            byte_seconds=float(usage.byte_seconds),
            profile=entry.recorder.profile(usage.wall_us / 1e6),
            mode=request.mode,
        )
        self._keep(
            entry.run,
            Attempt(
                record=record,
                started=entry.running.started,
                outcome=outcome,
                status=status,
                explanation=Explanation(
                    asked=entry.clock.began,
                    needs=request.prediction.peak,
                    basis=request.prediction.basis,
                    waits=entry.clock.seconds,
                    pauses=tuple(entry.pauses[-_MOST_PAUSES:]),
                    killed=entry.killed,
                    mode_reason=entry.mode_reason,
                    effect=self._effect(request, record),
                ),
            ),
        )
        return record

    def _effect(self, request: Request, record: StepRecord) -> ModeEffect | None:
        """Return what the mode of an attempt has changed: as predicted for gcc, as measured for a
        linker; ``None`` if that is unknown.
        """
        if request.mode.is_collector:
            return request.effect
        before = self._predictor.default_seconds(record.step) if request.mode.is_linker else None
        if not before or not record.seconds:
            return None
        return ModeEffect(mode=request.mode, seconds=record.seconds / before)

    def _forget(self, entry: _Entry) -> None:
        self.changed = True
        self._queue.remove(entry.request.id)
        self._entries.pop(entry.request.id, None)
        self._holding.pop(entry.request.id, None)
        self._by_connection.pop(entry.connection, None)


def _seconds(path: PathLeft, prediction: Prediction, step: Step) -> float:
    """Return the critical-path seconds of a step, never less than its own duration. Without any
    measurement the step that usually takes longest comes first.
    """
    usual = 0.0 if prediction.learned else usual_seconds(step.role, step.source) * step.rounds
    return max(path(), prediction.seconds or 0.0, usual)

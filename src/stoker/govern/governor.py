"""The governor without its sockets: what each message and each reading of the meter changes.

It keeps all steps that have asked, lets its policy decide on them, and tells their launchers. What
happens to a single step is in entry.py.

Independent of files, sockets and clocks: the time is passed with each call, messages are sent
through ``send`` and events through ``emit``.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence

from msgspec.structs import replace

from stoker.govern.deadlines import Deadline, Deadlines
from stoker.govern.entry import NO_CONNECTION, Connection, Entry, PathLeft, StepPhase
from stoker.govern.lease_offers import LeaseOffers, LeasePage
from stoker.govern.memory_view import MemoryReading, MemoryView
from stoker.govern.modes import Modes, failed_by_mode, without_modes
from stoker.govern.policy import Policy
from stoker.govern.predict import Predictor
from stoker.govern.protocol import VERSION, Ask, Done, ProtocolError, Usage, encode
from stoker.govern.queue import Queue
from stoker.govern.repeats import after_oom, after_preemption
from stoker.govern.shares import Shares
from stoker.govern.waits import BusyCpus, Contention
from stoker.knowledge.compiler_modes import mode_options
from stoker.knowledge.steps import prior_of, usual_seconds
from stoker.model.events import AnyEvent, Overview, StepTooLate, Warned
from stoker.model.govern import (
    Basis,
    CompileMode,
    Decision,
    Gc,
    ModeChoice,
    Prediction,
    Reason,
    Request,
    Running,
    RunShare,
    State,
    Step,
    StepRecord,
)
from stoker.model.runs import Attempt, Intervention, Outcome

_PUNCTUAL = 0.3  # seconds between two decisions while steps run, on a machine that is not busy
_FORGIVEN = 0.9  # share of a delay that still counts at the next decision
_RECONSIDER = 1.0  # seconds between new predictions of waiting steps
_RECONSIDERED = 200  # waiting steps that are predicted again, the most urgent ones


class Governor:
    """Decides which steps run, through its policy, and keeps every step that has asked.

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
        leases: LeasePage | None = None,
    ):
        """Prepare a governor. ``cap`` limits the memory of builds whatever the machine has;
        ``keep`` gets every attempt that ended, with its run; ``gc`` says where modes of gcc may be
        used, and ``nvcc_threads`` whether the governor may choose those of nvcc; without
        ``leases`` every step has to ask.
        """
        self._policy = policy
        self._predictor = predictor
        self._cpus = cpus
        self._send = send
        self._emit = emit
        self._keep = keep
        self._entries: dict[int, Entry] = {}
        self._by_connection: dict[Connection, Entry] = {}
        self._holding: dict[int, Entry] = {}  # steps with a permit, running or being killed
        self._queue = Queue()
        self._first: tuple[int, float] = (0, 0.0)  # the most urgent step, and since when
        self._next = 1
        self._memory = MemoryView(cap)
        self._contention = Contention()
        self.work_left = 0.0  # seconds of all steps that are left, as far as known
        self._busy = BusyCpus()
        self.modes = Modes(predictor, gc=gc, nvcc_threads=nvcc_threads)
        self._leases = LeaseOffers(leases)
        self._tight_at = 0.0
        self._decided = self._late = 0.0
        self._learned = False
        self._distributed = False
        self._reconsidered = 0.0
        self.changed = True  # whether anything that affects a decision changed since the last one
        # Whether steps wait for CPUs alone. One more that asks then changes nothing, and most
        # launchers of ninja's wide window do.
        self._full = False
        self._deadlines = Deadlines()
        self._shares = Shares(cpus, cap)
        self._done: Counter[int] = Counter()  # steps of each run
        self._repeats: Counter[int] = Counter()

    def join(self, run: int, share: RunShare) -> None:
        """Take in a run, which has limits of its own."""
        self._shares.add(run, share)
        self._adopt_limits()

    def _adopt_limits(self) -> None:
        self._cpus = self._shares.cpus
        self._memory.limit_to(self._shares.cap)
        self.changed = True

    def _waiting(self) -> Sequence[Request]:
        """Return the waiting steps, most urgent first."""
        if not self._shares.are_several:
            return self._queue
        waiting = (self._entries[request.id] for request in self._queue)
        return tuple(self._shares.in_turn(waiting, self._held()))

    def _held(self) -> Mapping[int, Sequence[Running]]:
        """Return the steps with a permit, by run."""
        held: defaultdict[int, list[Running]] = defaultdict(list)
        for entry in self._holding.values():
            held[entry.run].append(entry.running)
        return held

    def asked(
        self, connection: Connection, ask: Ask, step: Step, path: PathLeft, now: float
    ) -> None:
        if ask.version != VERSION:
            self._send(connection, encode("wrong_version"))
            return
        self._enclose(ask.within, now)
        lease = ask.lease
        started = lease.started if lease else 0.0
        prediction = self._predict(step, restarts=ask.repeatable)
        request = Request(
            id=self._next,
            asked=lease.asked if lease and started else now,
            prediction=prediction,
            slots=step.targets_at_once,
            path=_seconds(path, prediction, step),
            restarts=ask.repeatable,
            places=ask.cpus if ask.remote else None,
            mode=self.modes.linker(ask),
            effects=self.modes.effects(step, prediction.peak) if ask.repeatable else (),
            faster=self.modes.faster(step) if ask.repeatable else (),
        )
        self._next += 1
        self._distributed |= ask.remote
        family = lease.family if lease else 0
        entry = Entry(
            connection, ask.run, step, path, request, self._busy, once=ask.once, family=family
        )
        self._entries[request.id] = self._by_connection[connection] = entry
        self._queue.add(request)
        self.changed = self.changed or not self._full or ask.remote
        self._emit(entry.waits())
        if started:  # by a lease, which it has outgrown
            self._admit(entry, started, None, on_trial=False)

    def reported(self, ask: Ask, step: Step, done: Done, now: float) -> None:
        """Take in a step that has run by a lease, from its start to its end."""
        if (lease := ask.lease) is None:
            return
        self._leases.ended(now)
        self._enclose(ask.within, now)
        prediction = self._leases.prediction(lease.family)
        request = Request(id=self._next, asked=lease.asked, prediction=prediction, restarts=True)
        self._next += 1
        entry = Entry(
            NO_CONNECTION, ask.run, step, lambda: 0.0, request, self._busy, family=lease.family
        )
        self._emit(entry.waits())
        self._emit(entry.admit(None, self._memory.reading, lease.started, on_trial=False))
        failed = done.status != 0 or done.signal != 0
        ended = min(now, lease.started + done.usage.wall_us / 1e6)
        self._close(entry, done, Outcome.FAILED if failed else Outcome.DONE, ended)

    def offer_leases(self, now: float, *, allowed: bool) -> None:
        """Give launchers as many places as no other step waits for. Steps that wait for nothing but
        a place are sent there.
        """
        if self._leases.count(now, wanted=bool(self._queue)):
            self.changed = True
        if not allowed or self._shares.are_several or self._distributed or self._deadlines:
            self._leases.withdraw()
            return
        waiting, ours = list(self._queue), self._used()
        offered = self._leases.offer(
            now,
            [entry.running for entry in self._holding.values()],
            (self._entries[request.id].family for request in waiting),
            cpus=self._cpus,
            free_bytes=self._memory.limit_of_all(ours) - self._memory.used(ours),
        )
        for request in waiting if offered else ():
            entry = self._entries[request.id]
            self._forget(entry)
            self._send(entry.connection, encode("lease"))

    def grown(self, connection: Connection, current: int, peak: int, now: float) -> None:
        entry = self._permitted(connection)
        if entry.phase is StepPhase.ENCLOSING:
            return  # the steps that it started report the same memory
        entry.grow(current, peak, now)
        self.changed = True

    def ended(self, connection: Connection, done: Done, now: float) -> bool:
        """Take in how a command has ended; return whether its launcher waits for an answer."""
        entry = self._permitted(connection)
        failed = done.status != 0 or done.signal != 0
        if failed and entry.request.restarts and entry.ran_out(done, self._memory.reading):
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
        again, unless its run is over.
        """
        entry = self._permitted(connection)
        if entry.killed and entry.killed.reason is Reason.DEADLINE:
            ran = usage.wall_us / 1e6
            self._predictor.learn(self._record(entry, usage, Outcome.DEADLINE))
            self._refuse_late(entry, max(ran, _takes(entry)), now, ran)
            return
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
        if entry and encloses and entry.phase is StepPhase.RUNNING:
            del self._holding[identity]
            self.changed = True  # its CPU is free
            if entry.running.is_paused:
                self._resume(entry, now)
            entry.enclose()

    def _permitted(self, connection: Connection) -> Entry:
        """Return the step of a connection; it is a protocol error if the step has no permit."""
        entry = self._by_connection.get(connection)
        if entry is None or entry.phase is StepPhase.WAITING:
            raise ProtocolError("a report about a step that has no permit")
        return entry

    def _out_of_memory(self, entry: Entry, done: Done, now: float) -> None:
        entry.killed = self._intervention(Reason.OOM, now)
        alone = len(self._holding) == 1
        request = after_oom(entry.running, done.usage.peak, alone=alone)
        if request is None:
            why = entry.hopeless(done.usage, self._memory.reading.limit)
            self._send(entry.connection, encode("fail", why))
            self._close(entry, done, Outcome.OOM, now)
            return
        self._record(entry, done.usage, Outcome.OOM)
        self._send(entry.connection, encode("again"))
        self._wait_again(entry, request, done.usage, Outcome.OOM, now)

    def _refused(self, entry: Entry, done: Done, now: float) -> None:
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

    def read(self, reading: MemoryReading, now: float) -> None:
        """Take in a reading of the meter."""
        self._memory.read(reading, now)
        self.changed = True
        for entry in self._holding.values():
            entry.read(reading)

    def decide(self, now: float) -> None:
        """Ask the policy, and tell the launchers."""
        self.changed = False
        delay = now - self._decided - _PUNCTUAL if self._holding else 0.0
        self._late, self._decided = max(0.0, delay, self._late * _FORGIVEN), now
        if self._learned and now - self._reconsidered >= _RECONSIDER:
            self._reconsider(now)
        if self._deadlines:
            self._respect_deadlines(now)
        state = self.state(now)
        if state.waiting and state.waiting[0].id != self._first[0]:
            self._first = state.waiting[0].id, now
            state = replace(state, first_for=0.0)
        decision = self._policy.decide(state)
        self._tight_at = decision.tight_at or self._tight_at
        self._carry_out(decision, now)
        for_memory = decision.held or decision.pause or decision.resume or decision.kill
        alone = not self._shares.are_several and not self._distributed
        self._full = alone and bool(self._queue) and not for_memory
        free = self._free_slots()
        self._busy.note(now, busy=free <= 0)
        self._contention.note(now, self._idle_for_memory(free))

    def _carry_out(self, decision: Decision, now: float) -> None:
        """Tell the launchers what was decided."""
        for identity, reason in decision.held.items():
            clock = self._entries[identity].clock
            if reason is not clock.held_for:
                clock.hold(reason, now)
        cause = self._intervention(decision.reason, now)
        for identity in decision.pause:
            self._pause(self._entries[identity], cause, now)
        for identity in decision.resume:
            self._resume(self._entries[identity], now)
        for identity in decision.kill:
            self._kill(self._entries[identity], cause)
        for identity in (*decision.admit, *decision.on_trial):
            entry, choice = self._entries[identity], decision.modes.get(identity)
            if self._shares.are_several and not self._shares.allow(
                entry.run, entry.request, self._held().get(entry.run, ())
            ):
                continue  # another one of its run has just started
            self._admit(entry, now, choice, on_trial=identity in decision.on_trial)

    def _free_slots(self) -> int:
        busy = sum(entry.running.slots_of(self._cpus) for entry in self._holding.values())
        return max(0, self._cpus - self._leases.taken - busy)

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
        memory, ours = self._memory, self._used()
        return Intervention(
            at=now, reason=reason, used_bytes=memory.counted(ours), limit_bytes=memory.limit
        )

    def reconsider(self) -> None:
        """Note that critical-path lengths have arrived: waiting steps are ranked again at the next
        decision.
        """
        self._learned, self._reconsidered = True, -_RECONSIDER
        self.changed = True

    def limit_time(self, run: int, left: float, span: float, now: float, *, grace: float) -> None:
        """Start no step of the run that would end in more than ``left`` seconds, and end those that
        run ``grace`` seconds later; ``span`` is the whole time of the run.
        """
        self._deadlines.limit(run, Deadline(at=now + left, span=span, grace=grace))

    def expect(
        self, run: int, seconds: Mapping[str, float], now: float, *, at_least: bool = False
    ) -> None:
        """Warn of steps that can never end in time. ``seconds`` are by output; ``at_least`` says
        that they are lower bounds.
        """
        for text in self._deadlines.too_long(run, seconds, at_least=at_least):
            self._emit(Warned(at=now, run=run, text=text))

    def _respect_deadlines(self, now: float) -> None:
        """Set the steps aside that would end too late, and refuse them when their run is over. When
        its grace is over too, end the running ones that can be repeated.
        """
        deadlines, pace = self._deadlines, self._predictor.pace.usual
        for request in list(self._queue):
            entry = self._entries[request.id]
            if deadlines.is_late(entry.run, seconds := _takes(entry) * pace, now):
                self._queue.remove(request.id)
                entry.clock.hold(Reason.DEADLINE, now)
                deadlines.aside[request.id] = entry
                name = entry.step.output or entry.title
                least = entry.request.prediction.at_least
                self.expect(entry.run, {name: seconds}, now, at_least=least)
        busy = {entry.run for entry in self._holding.values()}
        busy |= {self._entries[request.id].run for request in self._queue}
        for entry in deadlines.over(busy, now):
            self._refuse_late(entry, _takes(entry) * pace, now)
        cause = self._intervention(Reason.DEADLINE, now)
        for entry in self._holding.values():
            if entry.request.restarts and deadlines.is_over(entry.run, now):
                self._kill(entry, cause)

    def _look_aside(self, now: float) -> None:
        """Let steps wait again that turn out to be shorter than they were expected to be."""
        for identity, entry in list(self._deadlines.aside.items()):
            prediction = self._predict(entry.step, restarts=entry.request.restarts)
            entry.request = replace(entry.request, prediction=prediction)
            seconds = _takes(entry) * self._predictor.pace.usual
            if not self._deadlines.is_late(entry.run, seconds, now):
                del self._deadlines.aside[identity]
                self._queue.add(entry.request)

    def _refuse_late(self, entry: Entry, seconds: float, now: float, ran: float = 0.0) -> None:
        """Refuse a step, or end it for good after it ran for so many seconds."""
        self._forget(entry)
        fits = self._deadlines.fits(entry.run, seconds)
        self._emit(
            StepTooLate(
                at=now,
                step=entry.request.id,
                run=entry.run,
                title=entry.title,
                seconds=seconds,
                fits=fits,
                ran_s=ran,
            )
        )
        why = self._deadlines.refusal(entry, seconds, now, ran)
        self._send(entry.connection, encode("fail", why))

    def _reconsider(self, now: float) -> None:
        """Predict the most urgent waiting steps and the running ones again, with what was learned
        since they asked.
        """
        self._learned, self._reconsidered = False, now
        self._look_aside(now)
        for request in list(self._queue[:_RECONSIDERED]):
            entry, prediction = self._entries[request.id], request.prediction
            fresh = request.preemptions == request.ooms == 0
            if fresh and prediction.basis is not Basis.EXACT:
                prediction = self._predict(entry.step, restarts=request.restarts)
            path = _seconds(entry.path, prediction, entry.step)
            if path != request.path or prediction != request.prediction:
                entry.request = replace(request, prediction=prediction, path=path)
                self._queue.add(entry.request)
        for entry in self._holding.values():
            request = entry.running.request
            fresh = request.preemptions == request.ooms == 0 and request.mode is CompileMode.DEFAULT
            if fresh and request.prediction.basis is not Basis.EXACT:
                prediction = self._predict(entry.step, restarts=request.restarts)
                request = replace(request, prediction=prediction)
                entry.running = replace(entry.running, request=request)

    def _predict(self, step: Step, *, restarts: bool) -> Prediction:
        """Return what to expect of a step: if it must not be started twice, the most that it may
        need, from its start to its end. If memory does not suffice for it, nothing can bring it
        back. One that was never measured may need what shipped figures say, whatever similar steps
        needed.
        """
        prediction = self._predictor.predict(step)
        if restarts:
            return prediction
        most = max(prediction.peak, prediction.high)
        if not prediction.learned:
            most = max(most, round(prior_of(step).high))
        return replace(prediction, peak=most, high=most, profile=())

    def _admit(
        self, entry: Entry, now: float, choice: ModeChoice | None, *, on_trial: bool
    ) -> None:
        self._queue.remove(entry.request.id)
        self._holding[entry.request.id] = entry
        self._shares.served(entry.run, now)
        started = entry.admit(choice, self._memory.reading, now, on_trial=on_trial)
        options = mode_options(entry.request.mode, entry.request.threads)
        self._send(entry.connection, encode("run", entry.request.id, *options))
        self._emit(started)

    def _pause(self, entry: Entry, cause: Intervention, now: float) -> None:
        self._send(entry.connection, encode("pause"))
        self._emit(entry.pause(cause, now))

    def _resume(self, entry: Entry, now: float) -> None:
        entry.resume(now)
        self._send(entry.connection, encode("resume"))

    def _kill(self, entry: Entry, cause: Intervention) -> None:
        if entry.kill(cause):
            self._send(entry.connection, encode("kill"))

    def _wait_again(
        self, entry: Entry, request: Request, usage: Usage, outcome: Outcome, now: float
    ) -> None:
        self._release(request.id)
        self._queue.add(request)
        self.changed = True
        self._repeats[entry.run] += 1
        self._emit(entry.wait_again(request, usage, outcome, now))

    def _close(self, entry: Entry, done: Done, outcome: Outcome, now: float) -> None:
        status = 128 + done.signal if done.signal else done.status
        peak = 0
        if entry.phase is not StepPhase.ENCLOSING:
            record = self._record(entry, done.usage, outcome, status)
            peak = record.peak_bytes
            self._leases.note(entry.family, record)
            if outcome is Outcome.DONE:
                self._predictor.learn(record)
                self._learned = True
            self._done[entry.run] += 1
        self._forget(entry)
        self._emit(entry.ends(status, done.usage, peak, now))

    def _record(self, entry: Entry, usage: Usage, outcome: Outcome, status: int = 0) -> StepRecord:
        record = entry.record(usage, killed=outcome is Outcome.DEADLINE)
        effect = self.modes.effect(entry.request, record)
        self._keep(entry.run, entry.attempt(record, outcome, status, effect))
        return record

    def _forget(self, entry: Entry) -> None:
        self.changed = True
        self._queue.remove(entry.request.id)
        self._deadlines.aside.pop(entry.request.id, None)
        self._entries.pop(entry.request.id, None)
        self._release(entry.request.id)
        self._by_connection.pop(entry.connection, None)

    def _release(self, identity: int) -> None:
        """Take back the permit of a step, which uses no memory any more."""
        if entry := self._holding.pop(identity, None):
            self._memory.freed(entry.running)

    def forget(self, run: int) -> None:
        """Forget the counts of a run that ended, because its number may be used again."""
        del self._done[run], self._repeats[run]
        self.modes.forget(run)
        self._deadlines.forget(run)
        if self._shares.remove(run):
            self._adopt_limits()

    def state(self, now: float) -> State:
        running, ours = tuple(entry.running for entry in self._holding.values()), self._used()
        return State(
            now=now,
            cpus=max(1, self._cpus - self._leases.taken),
            leased=self._leases.claimed,
            limit=self._memory.limit_of_all(ours),
            used=self._memory.used(ours),
            growth=self._memory.growth,
            pressure=self._memory.reading.pressure,
            contention=self._contention.share,
            work_left=self.work_left,
            pace=self._predictor.pace,
            distributed=self._distributed,
            running=running,
            waiting=self._waiting(),
            late=self._late,
            first_for=now - self._first[1],
            tight_at=self._tight_at,
        )

    @property
    def limit(self) -> int:
        """The limit in force for builds, however much of it other processes use."""
        return self._memory.limit

    def limit_of(self, run: int) -> int:
        """The limit in force for the steps of a run."""
        cap = self._shares.cap_of(run)
        return self.limit if cap is None else min(self.limit, cap)

    def used_by(self, run: int) -> int:
        """Return the memory of the run's steps."""
        return sum(entry.running.current for entry in self._holding.values() if entry.run == run)

    def _used(self) -> int:
        """Return the memory of all steps."""
        return sum(entry.running.current for entry in self._holding.values())

    def overview(self, run: int, now: float) -> Overview:
        used, of_all = self.used_by(run), self._memory.used(self._used())
        entries = [entry for entry in self._entries.values() if entry.run == run]
        running = tuple(
            entry.shown(now) for entry in entries if entry.phase is not StepPhase.WAITING
        )
        short = self._leases.shown()  # there is one run when there are leases
        used += sum(step.memory for step in short)
        waiting = Counter(e.clock.reason for e in entries if e.phase is StepPhase.WAITING)
        if any(entry.run != run for entry in self._holding.values()) and waiting[Reason.CPUS]:
            waiting[Reason.RUNS] = waiting.pop(Reason.CPUS)
        return Overview(
            at=now,
            run=run,
            limit=self.limit_of(run),
            used=used,
            other_usage=max(0, of_all - used - self._memory.spare),
            running=(*running, *short),
            waiting=len(entries) - len(running),
            waits=dict(+waiting),
            done=self._done[run],
            repeats=self._repeats[run],
        )

    @property
    def busy(self) -> bool:
        return bool(self._entries) or self._leases.are_open

    def steps_of(self, run: int) -> list[Connection]:
        """Return the connections of a run's steps."""
        return [entry.connection for entry in self._entries.values() if entry.run == run]


def _seconds(path: PathLeft, prediction: Prediction, step: Step) -> float:
    """Return the critical-path seconds of a step, never less than its own duration. Without any
    measurement the step that usually takes longest comes first.
    """
    usual = 0.0
    if not prediction.learned:
        usual = usual_seconds(step.role, step.source, step.input_bytes) * step.rounds
    return max(path(), prediction.seconds or 0.0, usual)


def _takes(entry: Entry) -> float:
    """Return the seconds that a step is expected to take, by its prediction or by its kind."""
    if (seconds := entry.request.prediction.seconds) is not None:
        return seconds
    step = entry.step
    return usual_seconds(step.role, step.source, step.input_bytes) * step.rounds

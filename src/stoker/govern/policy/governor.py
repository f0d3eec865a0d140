"""The governor without its sockets: what each message and each reading of the meter changes.

It lets its policy decide on the steps that have asked (open_steps.py), and tells their launchers.
What happens to a single step is in entry.py.

Independent of files, sockets and clocks: the time is passed with each call, messages are sent
through ``send`` and events through ``emit``.
"""

from collections import Counter
from collections.abc import Callable
from itertools import count, islice

from msgspec.structs import replace

from stoker.govern.policy.deadlines import Deadlines
from stoker.govern.policy.entry import NO_CONNECTION, Connection, Entry, PathLeft, StepPhase
from stoker.govern.policy.expectations import Expectations
from stoker.govern.policy.interface import REACTION, Policy
from stoker.govern.policy.lease_offers import LeaseOffers, LeasePage
from stoker.govern.policy.memory_view import MemoryReading, MemoryView
from stoker.govern.policy.modes import Modes, failed_by_mode, without_modes
from stoker.govern.policy.open_steps import OpenSteps
from stoker.govern.policy.places import Places
from stoker.govern.policy.predict import Predictor
from stoker.govern.policy.repeats import after_oom, after_preemption
from stoker.govern.policy.shares import Shares
from stoker.govern.policy.waits import BusyCpus, Contention
from stoker.govern.protocol import VERSION, Ask, Done, Usage, encode
from stoker.knowledge.compiler_modes import mode_options
from stoker.model.events import AnyEvent, Overview
from stoker.model.govern import Decision, ModeChoice, Reason, Request, State, Step, StepRecord
from stoker.model.runs import Attempt, Intervention, Outcome
from stoker.model.terms import Gc, RunShare, RunTerms

_RECONSIDER = 1.0  # seconds between new predictions
_RECONSIDERED = 200  # most urgent steps that are predicted again; all of them take CPU time


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
        self._steps = OpenSteps()
        self._expected = Expectations(predictor)
        self._first: tuple[int, float] = (0, 0.0)  # the most urgent step, and since when
        self._numbers = count(1)
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
        self.deadlines = Deadlines(self._steps, self._expected, emit)
        self._shares = Shares(cpus, cap)

    def join(self, run: int, terms: RunTerms, share: RunShare, now: float) -> None:
        """Take in a run, which may have limits, a deadline and linkers of its own."""
        self.modes.link_with(run, terms.linker)
        if terms.seconds is not None:
            self.deadlines.limit(run, terms.seconds_left, terms.seconds, now, grace=terms.grace)
        self._shares.add(run, share)
        self._adopt_limits()

    def _adopt_limits(self) -> None:
        self._cpus = self._shares.cpus
        self._memory.limit_to(self._shares.cap)
        self.changed = True

    def asked(
        self, connection: Connection, ask: Ask, step: Step, path: PathLeft, now: float
    ) -> None:
        if ask.version != VERSION:
            self._send(connection, encode("wrong_version"))
            return
        outer = self._around(ask.within)
        lease = ask.lease
        started = lease.started if lease else 0.0
        prediction = self._expected.prediction(step, restarts=ask.repeatable)
        request = Request(
            id=next(self._numbers),
            asked=lease.asked if lease and started else now,
            prediction=prediction,
            slots=step.targets_at_once,
            path=self._expected.path(path, prediction, step),
            restarts=ask.repeatable,
            places=ask.cpus if ask.remote else None,
            within=ask.within if outer else 0,
            jobs=ask.cpus if ask.custom else None,
            mode=self.modes.linker(ask),
            effects=self.modes.effects(step, prediction.peak) if ask.repeatable else (),
            faster=self.modes.faster(step) if ask.repeatable else (),
        )
        self._distributed |= ask.remote
        if outer and outer.request.remote:
            outer.lose_worker()
        family = lease.family if lease else 0
        entry = Entry(
            connection, ask.run, step, path, request, self._busy, once=ask.once, family=family
        )
        self._steps.add(entry)
        simple = not (ask.custom or ask.remote or outer)  # a compile that needs a CPU
        self.changed = self.changed or not (self._full and simple)
        self._emit(entry.waits())
        if started:  # by a lease, which it has outgrown
            self._admit(entry, started, None, on_trial=False)
        self._leases.asked(entry)

    def reported(self, ask: Ask, step: Step, done: Done, now: float) -> None:
        """Take in a step that has run by a lease, from its start to its end."""
        if (lease := ask.lease) is None:
            return
        self._leases.ended(now)
        prediction = self._leases.prediction(lease.family)
        request = Request(id=next(self._numbers), asked=lease.asked, prediction=prediction)
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
        if self._leases.count(now, wanted=bool(self._steps.queue or self._steps.jobs)):
            self.changed = True
        if not allowed or self._shares.are_several or self._distributed or self.deadlines:
            self._leases.withdraw()
            return
        waiting, ours = list(self._steps.waiting()), self._used()
        offered = self._leases.offer(
            now,
            self._steps.holding.values(),
            (entry.family for entry in waiting),
            cpus=self._cpus,
            free_bytes=self._memory.limit_of_all(ours) - self._memory.used(ours),
        )
        for entry in waiting if offered else ():
            self._forget(entry)
            self._send(entry.connection, encode("lease"))

    def grown(
        self, connection: Connection, current: int, peak: int, now: float, *, idle: bool = False
    ) -> None:
        self._steps.permitted(connection).grow(current, peak, now, idle=idle)
        self.changed = True

    def ended(self, connection: Connection, done: Done, now: float) -> bool:
        """Take in how a command has ended; return whether its launcher waits for an answer."""
        entry = self._steps.permitted(connection)
        failed = done.status != 0 or done.signal != 0
        if failed and entry.request.restarts and entry.ran_out(done, self._memory.reading):
            self._out_of_memory(entry, done, now)
            return True
        if failed and failed_by_mode(entry.request.mode, done.tail):
            self._refused(entry, done, now)
            return True
        if failed:
            self._send(connection, encode("release"))
        # The launcher of a remote compile that failed compiles it here, as a step of its own.
        outcome = Outcome.REFUSED if entry.request.remote else Outcome.FAILED
        self._close(entry, done, outcome if failed else Outcome.DONE, now)
        return failed

    def stopped(self, connection: Connection, usage: Usage, now: float) -> None:
        """Handle a launcher's report that it has killed its command as ordered: the step waits
        again, unless its run is over.
        """
        entry = self._steps.permitted(connection)
        if entry.killed and entry.killed.reason is Reason.DEADLINE:
            ran = usage.wall_us / 1e6
            self._predictor.learn(self._record(entry, usage, Outcome.DEADLINE))
            self._refuse_late(entry, now, ran)
            return
        self._record(entry, usage, Outcome.PREEMPTED)
        self._wait_again(entry, after_preemption(entry.running), usage, Outcome.PREEMPTED, now)

    def lost(self, connection: Connection) -> bool:
        """Forget a launcher that is gone; return whether it had a step that had not ended."""
        entry = self._steps.of_launcher(connection)
        if entry:
            self._forget(entry)
        return entry is not None

    def _around(self, identity: int) -> Entry | None:
        """Return the running step that has started another one, if it may do so: a job, perhaps of
        another run, or a distributor that compiles here because it has lost its worker.
        """
        entry = self._steps.holding.get(identity)
        starts = entry and (entry.request.remote or entry.request.jobs is not None)
        return entry if starts else None

    def _out_of_memory(self, entry: Entry, done: Done, now: float) -> None:
        entry.killed = self._memory.intervention(Reason.OOM, self._used(), now)
        alone = len(self._steps.holding) == 1
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
        reason = Reason.LINK_FAILED if links else Reason.REFUSED
        entry.killed = self._memory.intervention(reason, self._used(), now)
        request = without_modes(entry.request)
        self._record(entry, done.usage, Outcome.REFUSED, done.status)
        self._send(entry.connection, encode("again"))
        self._wait_again(entry, request, done.usage, Outcome.REFUSED, now)
        for waiting in list(self._steps.waiting()):
            has_modes = waiting.request.effects or waiting.request.faster
            if has_modes and self.modes.refuses(waiting.step):
                self._steps.ask_for(waiting, without_modes(waiting.request))

    def read(self, reading: MemoryReading, now: float) -> None:
        """Take in a reading of the meter."""
        self._memory.read(reading, now)
        self.changed = True
        for entry in self._steps.holding.values():
            entry.read(reading)

    def decide(self, now: float) -> None:
        """Ask the policy, and tell the launchers."""
        self.changed = False
        passed, self._decided = now - self._decided, now
        delay = passed - REACTION if self._steps.holding else 0.0
        self._late = max(0.0, delay, self._late - passed)  # a delay counts for as long as it was
        if self._learned and now - self._reconsidered >= _RECONSIDER:
            self._reconsider(now)
        if self.deadlines:
            self._respect_deadlines(now)
        state = self.state(now)
        if state.waiting and state.waiting[0].id != self._first[0]:
            self._first = state.waiting[0].id, now
            state = replace(state, first_for=0.0)
        decision = self._policy.decide(state)
        self._tight_at = decision.tight_at or self._tight_at
        self._carry_out(decision, now)
        short = decision.held or decision.pause or decision.resume or decision.kill
        alone = not self._shares.are_several and not self._distributed
        waiting = bool(self._steps.queue or self._steps.jobs)
        self._full = alone and waiting and not short
        busy = sum(step.slots_of(self._cpus) for step in self._steps.running())
        free = max(0, self._cpus - self._leases.taken - busy)
        self._busy.note(now, busy=free <= 0)
        first = next(self._steps.waiting(), None)
        for_memory = first is not None and first.clock.reason is Reason.MEMORY
        self._contention.note(now, free / self._cpus if for_memory else 0.0)

    def _carry_out(self, decision: Decision, now: float) -> None:
        """Tell the launchers what was decided."""
        for identity, reason in decision.held.items():
            clock = self._steps[identity].clock
            if reason is not clock.held_for:
                clock.hold(reason, now)
        cause = self._memory.intervention(decision.reason, self._used(), now)
        for identity in decision.pause:
            entry = self._steps[identity]
            self._send(entry.connection, encode("pause"))
            self._emit(entry.pause(cause, now))
        for identity in decision.resume:
            self._resume(self._steps[identity], now)
        for identity in decision.kill:
            self._kill(self._steps[identity], cause)
        for identity in (*decision.admit, *decision.on_trial):
            entry, choice = self._steps[identity], decision.modes.get(identity)
            if not self._has_place(entry):
                continue  # another one of its run has just started
            self._admit(entry, now, choice, on_trial=identity in decision.on_trial)

    def _has_place(self, entry: Entry) -> bool:
        """Return whether the limits of its run allow a step to start."""
        places = Places(self._steps, self._cpus)
        if not places.has_job_left(entry):
            return False
        if not self._shares.are_several:
            return True
        held = self._steps.running(entry.run)
        return self._shares.allow(entry.run, entry.request, held, placed=places.is_lent_to(entry))

    def reconsider(self) -> None:
        """Note that critical-path lengths have arrived: waiting steps are ranked again at the next
        decision.
        """
        self._learned, self._reconsidered = True, -_RECONSIDER
        self.changed = True

    def _respect_deadlines(self, now: float) -> None:
        """Refuse the steps that would end too late when their run is over. When its grace is over
        too, end the running ones that can be repeated.
        """
        for entry in self.deadlines.refused(now):
            self._refuse_late(entry, now)
        cause = self._memory.intervention(Reason.DEADLINE, self._used(), now)
        for entry in self._steps.holding.values():
            if entry.request.restarts and self.deadlines.is_over(entry.run, now):
                self._kill(entry, cause)

    def _refuse_late(self, entry: Entry, now: float, ran: float = 0.0) -> None:
        """Refuse a step, or end it for good after it ran for so many seconds."""
        self._forget(entry)
        self._send(entry.connection, encode("fail", self.deadlines.refusal(entry, now, ran)))

    def _reconsider(self, now: float) -> None:
        """Predict the most urgent waiting steps and the running ones again, with what was learned
        since they asked.
        """
        self._learned, self._reconsidered = False, now
        self.deadlines.look_again(now)
        for entry in list(islice(self._steps.waiting(), _RECONSIDERED)):
            request = self._expected.again(entry, entry.request)
            if request is not entry.request:
                self._steps.ask_for(entry, request)
        for entry in self._steps.holding.values():
            request = self._expected.again(entry, entry.running.request)
            entry.running = replace(entry.running, request=request)

    def _admit(
        self, entry: Entry, now: float, choice: ModeChoice | None, *, on_trial: bool
    ) -> None:
        self._steps.permit(entry)
        self._shares.served(entry.run, now)
        started = entry.admit(choice, self._memory.reading, now, on_trial=on_trial)
        options = mode_options(entry.request.mode, entry.request.threads)
        self._send(entry.connection, encode("run", entry.request.id, *options))
        self._emit(started)

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
        self._steps.wait(request)
        self.changed = True
        self._emit(entry.wait_again(request, usage, outcome, now))

    def _close(self, entry: Entry, done: Done, outcome: Outcome, now: float) -> None:
        status = 128 + done.signal if done.signal else done.status
        record = self._record(entry, done.usage, outcome, status)
        self._leases.note(entry, record, now, self._steps.holding.values())
        if outcome is Outcome.DONE:
            # How long a job takes that has waited for steps inside it says nothing of the pace.
            predicted = entry.connection != NO_CONNECTION and not entry.inner_cpu_us
            self._predictor.learn(record, predicted=predicted)
            self._learned = True
        self._forget(entry)
        self._emit(entry.ends(status, done.usage, record.peak_bytes, now))

    def _record(self, entry: Entry, usage: Usage, outcome: Outcome, status: int = 0) -> StepRecord:
        if outer := self._steps.around(entry):
            outer.inner_cpu_us += usage.cpu_us
        usage = replace(usage, cpu_us=max(0, usage.cpu_us - entry.inner_cpu_us))
        record = entry.record(usage, killed=outcome is Outcome.DEADLINE)
        effect = self.modes.effect(entry.request, record)
        self._keep(entry.run, entry.attempt(record, outcome, status, effect))
        return record

    def _forget(self, entry: Entry) -> None:
        self.changed = True
        self._steps.remove(entry)
        self.deadlines.aside.pop(entry.request.id, None)
        self._release(entry.request.id)

    def _release(self, identity: int) -> None:
        """Take back the permit of a step, which uses no memory any more."""
        if entry := self._steps.release(identity):
            self._memory.freed(entry.running)

    def forget(self, run: int) -> None:
        """Forget a run that ended, because its number may be used again."""
        self.modes.forget(run)
        self.deadlines.forget(run)
        if self._shares.remove(run):
            self._adopt_limits()

    def state(self, now: float) -> State:
        steps, shares, ours = self._steps, self._shares, self._used()
        waiting, placed = Places(steps, self._cpus).startable()
        if shares.are_several:
            entries = (steps[request.id] for request in waiting)
            waiting = tuple(shares.in_turn(entries, steps.running_by_run(), placed))
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
            pace=self._expected.pace,
            distributed=self._distributed,
            running=steps.running(),
            waiting=waiting,
            placed=placed,
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
        return sum(step.current for step in self._steps.running(run))

    def _used(self) -> int:
        """Return the memory of all steps."""
        return sum(step.current for step in self._steps.running())

    def overview(self, run: int, now: float) -> Overview:
        used, of_all = self.used_by(run), self._memory.used(self._used())
        entries = self._steps.of_run(run)
        running = tuple(e.shown(now) for e in entries if e.phase is not StepPhase.WAITING)
        short = self._leases.shown()  # there is one run when there are leases
        used += sum(step.memory for step in short)
        waiting = Counter(e.clock.reason for e in entries if e.phase is StepPhase.WAITING)
        others = any(entry.run != run for entry in self._steps.holding.values())
        if others and waiting[Reason.CPUS]:
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
        )

    @property
    def busy(self) -> bool:
        return bool(self._steps) or self._leases.are_open

    def steps_of(self, run: int) -> list[Connection]:
        """Return the connections of a run's steps."""
        return [entry.connection for entry in self._steps.of_run(run)]

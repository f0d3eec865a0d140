"""The policy `adaptive`: steps run together as long as that is feasible.

It has one quantity, the memory that a step may use at a future time, and one question, whether that
of all running steps stays within the room; `Forecast` has both.

- Admit: with the step it is feasible at every time. A step that was never measured counts with its
  worst case.
- Start on trial: with the step it is feasible if what was never measured counts with what such
  steps reach as a rule.
- Pause: it stops to be feasible within the time that a reaction takes, or the oldest step could not
  end any more with all others paused. As few steps as suffice, those first that lose the least.
- Resume: with the step it is feasible for some seconds.
- Kill: to pause does not suffice, or a pause takes longer than the work of the step.

The oldest step is neither paused nor killed, so the build always makes progress.
"""

from collections.abc import Iterator, Sequence
from itertools import dropwhile
from math import inf

from msgspec.structs import replace

from stoker.govern.policy.forecast import Forecast
from stoker.govern.policy.interface import MOMENT, REACTION
from stoker.govern.policy.mode_choice import ModeChooser
from stoker.govern.policy.upper import reach
from stoker.model.govern import Basis, Decision, Reason, Request, Running, State
from stoker.model.value import Value

_MEMORY = Reason.MEMORY  # to look up a member of an enum takes longer than to note a step


class Adaptive(Value, frozen=True, kw_only=True):
    """Decides by the forecast which steps start, pause, resume and die.

    Brackets behind a figure of the policy, here and in other modules, have a row of
    tests/scenarios.py and how much longer it takes with another figure, by pairs of draws. A figure
    without them is not proven: no row was certain to take longer.
    """

    cushion: float = 0.01  # share of the limit left free [pytorch-2G-first 1.16 with 0]
    foresight: float = MOMENT  # seconds for which memory must suffice for a resumed step
    reserve_after: float = 20.0  # seconds after which a place is kept for the most urgent step
    # Seconds after which no step passes it any more, so that endless trials do not let it starve: a
    # test of the policy. As long as the build takes after its start is too early.
    endurance: float = 120.0
    # Seconds after which the size of an unknown step is evident [kernels-24G-16cpu 1.18 with 20;
    # kernels-x3-16G-8cpu loses more work with 0].
    settling: float = 10.0
    # Percent of time that memory pressure may cost. Simulated machines do not swap: a test of the
    # policy.
    stalled: float = 10.0

    @property
    def name(self) -> str:
        return "adaptive"

    def decide(self, state: State) -> Decision:
        if not state.running:
            decision = self._admit(state)
            started = decision.admit or decision.on_trial
            return decision if started else self._start_first(state)
        paused = _paused(state)
        if paused and (oldest := _oldest(state)) and oldest.is_paused:
            return Decision(resume=(oldest.id,))
        if relief := self._relief(state):
            return relief
        if paused and (resumed := tuple(self._resumed(state))):
            return Decision(resume=resumed)
        if paused and (idle := tuple(self._idle(state))):
            return Decision(kill=idle, reason=Reason.LONG_PAUSE)
        decision = self._admit(state)
        if decision.admit or decision.on_trial or not _is_stuck(state):
            return decision
        return self._start_first(state)

    def _line(self, state: State) -> float:
        """Return the memory in use above which steps are killed."""
        return state.limit * (1 - self.cushion / 2)

    def _relief(self, state: State) -> Decision | None:
        """Return what to pause or to kill; ``None`` if it is feasible to let all steps run."""
        line, short = self._line(state), state.used > self._line(state)
        soon, at_last = self._soon(state) - line, _at_last(state) - line
        reason, held = Reason.SHORTAGE if short else Reason.GROWTH, _all(state, Reason.MEMORY)
        excess = max(soon, at_last)
        if excess <= 0:
            return None
        if not short and (paused := tuple(self._growing(state, excess))):
            return Decision(pause=paused, reason=reason, held=held)
        if soon <= 0:
            return None
        kill = tuple(_cheapest(state, soon))
        # What must not be started twice is paused instead.
        active = [step for step in _by_loss(state) if not step.is_paused]
        pause = () if kill else tuple(step.id for step in active if not step.request.restarts)
        return Decision(kill=kill, pause=pause, reason=reason, held=held)

    def _soon(self, state: State) -> float:
        """Return the memory that may be in use before a pause or a kill takes effect: no more than
        steps may use then, and other processes twice as much as now, and no more than memory in use
        grows to at its present speed.
        """
        within = REACTION + state.late
        growth = max(0.0, state.growth) * within
        if state.used + growth > self._line(state):
            growth = min(growth, state.other_usage + _growth(state, _active(state), within))
        return state.used + growth

    def _growing(self, state: State, excess: float) -> Iterator[int]:
        """Yield the steps that would grow by ``excess`` before the next decision, least work lost
        per byte first: to pause one of them at a time would be too slow where many grow.
        """
        active = [step for step in _by_loss(state) if not step.is_paused]
        for step in active:
            if excess > 0 and (growth := _growth(state, [step], REACTION + state.late)):
                excess -= growth
                yield step.id

    def _idle(self, state: State) -> Iterator[int]:
        """Yield the steps that have been paused so long that others should have their memory:
        longer than it takes to do their work again.
        """
        for step in _paused(state):
            waited = step.paused_for(state.now)
            if step.request.restarts and waited > step.age(state.now):
                yield step.id

    def _resumed(self, state: State) -> Iterator[int]:
        """Yield the paused steps that have a CPU and room to grow again, oldest first."""
        active = _active(state)
        free = state.cpus - sum(step.slots_of(state.cpus) for step in active)
        room = self._line(state) - state.used
        for step in sorted(_paused(state), key=_seniority):
            active.append(step)
            free -= step.request.slots_of(state.cpus)
            if free < 0 or _growth(state, active, self.foresight) > room:
                return
            yield step.id

    def _admit(self, state: State) -> Decision:
        if not state.waiting:
            return Decision()
        forecast = Forecast(state, self._room(state))
        if forecast.free_slots <= 0 and not (state.distributed or state.placed):
            return Decision()
        if state.pressure > self.stalled:
            return Decision(held=_all(state, Reason.PRESSURE))
        held: dict[int, Reason] = {}
        modes = ModeChooser(state, forecast.room)
        admitted = tuple(self._admitted(state, forecast, modes, held))
        on_trial = tuple(self._tried(state, forecast, modes, admitted, held))
        return Decision(
            admit=admitted,
            on_trial=on_trial,
            held=held,
            modes=modes.chosen,
            tight_at=forecast.tight_at,
        )

    def _start_first(self, state: State) -> Decision:
        """Start the most urgent step whatever it needs, so that something always runs: first one
        that another step waits for.
        """
        modes = ModeChooser(state, self._room(state))
        first = [each for each in state.waiting if each.within][:1] or state.waiting[:1]
        for request in first:
            modes.choose(request, modes.saving(request))
        return Decision(admit=tuple(request.id for request in first), modes=modes.chosen)

    def _room(self, state: State) -> float:
        """Return the memory that steps may use."""
        return state.limit * (1 - self.cushion) - state.other_usage - state.leased

    def _startable(
        self, state: State, forecast: Forecast, held: dict[int, Reason]
    ) -> Iterator[Request]:
        """Yield the waiting steps for which a CPU, a place or a worker is free."""
        for request in state.waiting:
            if request.remote and not request.has_place(forecast.remote):
                held[request.id] = Reason.WORKERS
            elif request.remote or forecast.free_slots > 0 or request.id in state.placed:
                yield request

    def _admitted(
        self, state: State, forecast: Forecast, modes: ModeChooser, held: dict[int, Reason]
    ) -> Iterator[int]:
        """Yield the steps that fit, most urgent first. Those that do not are added to ``held``."""
        passed = False  # a more urgent step did not fit
        # The smallest step that did not fit, learned or not: no larger step is tried.
        too_large = {True: inf, False: inf}
        beyond = bool(state.distributed or state.placed)  # steps may start where no CPU is free
        waiting = self._startable(state, forecast, held) if beyond else state.waiting
        for asked in waiting:
            learned = asked.learned
            # Most steps are too large in any mode, so that theirs need not be chosen.
            if asked.least_peak >= too_large[learned]:
                held[asked.id] = _MEMORY
                continue
            request = modes.saving(asked)
            peak = request.prediction.peak
            if peak >= too_large[learned]:
                held[asked.id] = _MEMORY
                continue
            if forecast.fits(request):
                request = modes.faster(request, forecast)
                modes.choose(asked, request)
                forecast.add(request)
                yield asked.id
                if forecast.free_slots <= 0 and not beyond:
                    return
                continue
            if request.slots_of(state.cpus) <= forecast.free_slots:
                too_large[learned] = peak
                held[asked.id] = _MEMORY
            if asked.id == state.waiting[0].id and state.first_for > self.endurance:
                held.update(_all(state, Reason.TURN, after=asked))
                return
            if not passed and state.now - asked.asked > self.reserve_after:
                forecast.reserve(request)
            passed = True

    def _tried(
        self,
        state: State,
        forecast: Forecast,
        modes: ModeChooser,
        admitted: Sequence[int],
        held: dict[int, Reason],
    ) -> Iterator[int]:
        """Yield steps that were never measured and whose usual need fits beside that of the others,
        but whose worst case does not. If one is killed, only idle CPU time is lost. Shipped figures
        may all be wrong in the same direction, so few steps of unknown size run that have not shown
        what they need; what waits for that is added to ``held``.
        """
        if forecast.free_slots <= 0:
            return
        unknown = [
            request
            for request in state.waiting
            if not (request.learned or request.ooms or request.remote)
            and request.restarts  # a trial may end in a kill
            and request.id not in admitted
        ]
        passed = state.waiting[0].id not in admitted and state.first_for > self.endurance
        if passed or not unknown:
            return
        places = max(2, state.cpus // 4) - self._fresh(state) - sum(map(_is_prior, forecast.added))
        usual = Forecast(state, forecast.room, usual=True)
        for request in forecast.added:
            usual.add(request)
        for asked in unknown:
            if usual.free_slots <= 0:
                return
            if places <= 0:
                held[asked.id] = Reason.UNKNOWN_SIZE
                continue
            request = modes.saving(asked)
            if usual.fits(request):
                modes.choose(asked, request)
                usual.add(request)
                places -= 1
                yield request.id

    def _fresh(self, state: State) -> int:
        """Return how many running steps of unknown size have not shown yet what they need."""
        return sum(
            (step.on_trial or _is_prior(step.request)) and step.age(state.now) < self.settling
            for step in state.running
        )


def _all(state: State, reason: Reason, after: Request | None = None) -> dict[int, Reason]:
    """Return the same reason for every waiting step, or for every one behind ``after``."""
    waiting = iter(state.waiting)
    if after is not None:
        waiting = dropwhile(lambda request: request.id != after.id, waiting)
        next(waiting)
    return {request.id: reason for request in waiting}


def _is_prior(request: Request) -> bool:
    """Return whether only shipped figures are known of a step that does not run on a worker."""
    return request.prediction.basis is Basis.PRIOR and not request.remote


def _growth(state: State, steps: Sequence[Running], within: float) -> float:
    """Return the bytes by which steps may grow in so many seconds."""
    forecast = Forecast(replace(state, running=tuple(steps)), inf, usual=True)
    return max(0.0, forecast.highest(within) - sum(step.current for step in steps))


def _at_last(state: State) -> float:
    """Return the memory that will be in use if the oldest step is of unknown size and ends with all
    others paused. Two such steps that climb together would meet the limit together otherwise, and
    one would lose all its work.
    """
    oldest = _oldest(state)
    if oldest is None or oldest.request.learned:
        return state.used
    return state.used + max(0.0, reach(oldest) - oldest.current)


def _cheapest(state: State, excess: float) -> Iterator[int]:
    """Yield the steps to kill so that ``excess`` bytes become free."""
    excess -= sum(step.current for step in state.running if step.stopping)
    for step in _by_loss(state):
        if excess <= 0:
            return
        if step.current and step.request.restarts:
            yield step.id
            excess -= step.current


def _by_loss(state: State) -> list[Running]:
    """Return the steps that may be paused or killed, least work lost per byte first: never the
    oldest. Work lost before counts again, so that the same step is not killed every time.
    """

    def loss_per_byte(step: Running) -> float:
        work = step.age(state.now) * step.request.slots_of(state.cpus)
        return work * (1 + step.request.preemptions) / max(1, step.current)

    oldest = _oldest(state)
    others = [step for step in state.running if not step.stopping and step is not oldest]
    return sorted(others, key=loss_per_byte)


def _active(state: State) -> list[Running]:
    return [step for step in state.running if not step.is_paused]


def _paused(state: State) -> list[Running]:
    return [step for step in state.running if step.is_paused and not step.stopping]


def _oldest(state: State) -> Running | None:
    """Return the step that ran first of those that are not being stopped, and that work."""
    live = [step for step in state.running if not step.stopping]
    working = [step for step in live if not step.lent] or live
    return min(working, key=_seniority, default=None)


def _is_stuck(state: State) -> bool:
    """Return whether all running steps wait, and one of them for a step inside it that waits too:
    it may have what the others wait for, so that nothing would ever end.
    """
    return all(step.lent for step in state.running) and any(each.within for each in state.waiting)


def _seniority(step: Running) -> tuple[float, int]:
    return step.started, step.id

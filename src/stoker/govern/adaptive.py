"""The policy `adaptive`: steps run together if their forecast fits into memory at every time."""

from collections.abc import Iterator, Mapping, Sequence
from heapq import nlargest
from itertools import dropwhile
from math import inf, sqrt

from msgspec.structs import replace

from stoker.govern.allotment import allotments
from stoker.govern.forecast import Forecast
from stoker.model.govern import (
    Basis,
    CompileMode,
    Decision,
    ModeChoice,
    ModeEffect,
    Reason,
    Request,
    Running,
    State,
)
from stoker.model.value import Value

# Memory times duration of a mode, over the default, from which on it saves enough.
_WORTHWHILE = 0.95
_FALLEN = 0.9  # memory of a step over its peak so far, below which it has stopped to grow
_FURTHER = 0.5  # share of its memory by which a growing step of unknown size may still grow
_GAIN = 0.98  # duration of a mode, over the default, from which on it is worth more memory
_MEMORY = Reason.MEMORY  # to look up a member of an enum takes longer than to note a step
_FAST = ModeChoice(mode=CompileMode.FAST, reason=Reason.IDLE_MEMORY)


class Adaptive(Value, frozen=True, kw_only=True):
    """Admits the steps whose predicted memory fits beside that of the running steps at every future
    time, most urgent first. If predictions prove wrong, it pauses steps before memory runs short
    and kills them when it does. It never pauses or kills the oldest step, so the build always
    makes progress.

    If CPUs are idle because steps wait for memory, it lets steps run in a mode that needs less
    memory and more time. A step that would not fit alone runs in the mildest mode in which it does.
    If no step waits for memory, steps run in a mode that needs more of it and less time, as far as
    it fits.
    If too few steps are left for all CPUs, the longest ones use several, as far as memory allows.
    """

    cushion: float = 0.01  # share of the limit that admission leaves free
    reaction: float = 0.5  # seconds until a pause or a kill takes effect
    spurt: float = 0.25  # share of the limit by which steps may grow before one can be paused again
    longest_pause: float = 5.0  # seconds
    foresight: float = 2.0  # seconds for which memory must suffice for a resumed step
    reserve_after: float = 20.0  # seconds after which a place is kept for the most urgent step
    endurance: float = 120.0  # seconds after which no step passes the most urgent one any more
    settling: float = 10.0  # seconds after which the size of an unknown step is evident
    stalled: float = 10.0  # percent of time that memory pressure may cost
    # Share of CPUs that may be idle because steps wait for memory before steps save memory. That is
    # about what it costs in time.
    memory_bound: float = 0.06
    memory_idle: float = 0.01  # the same share, below which steps may take more memory

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
        if excess := self._excess(state):
            return self._relieve(state, excess)
        if crowded := self._crowding(state):
            return Decision(
                pause=(crowded.id,), reason=Reason.GROWTH, held=_all(state, Reason.MEMORY)
            )
        if paused and (resumed := tuple(self._resumed(state))):
            return Decision(resume=resumed)
        if paused and (idle := tuple(self._idle(state))):
            return Decision(kill=idle, reason=Reason.LONG_PAUSE)
        return self._admit(state)

    def _excess(self, state: State) -> float:
        """Return the bytes by which memory in use will pass the limit before a kill can help.

        Steps that were measured before are expected to grow as predicted, others as quickly as
        memory grows now, up to their predicted level; other processes double at most.
        """
        reaction = self.reaction + state.late
        growth = max(0.0, state.growth) * reaction
        if state.used + growth <= self._line(state):
            return 0.0
        active = _active(state)
        to_come = state.other_usage + self._growth(state, active, reaction)
        to_come += sum(map(_not_reached, active))
        return max(0.0, state.used + min(growth, to_come) - self._line(state))

    def _growth(self, state: State, steps: Sequence[Running], within: float) -> float:
        """Return the bytes by which steps are expected to grow in so many seconds."""
        forecast = Forecast(replace(state, running=tuple(steps)), inf)
        return max(0.0, forecast.highest(within) - sum(step.current for step in steps))

    def _line(self, state: State) -> float:
        return state.limit * (1 - self.cushion / 2)

    def _relieve(self, state: State, excess: float) -> Decision:
        """Pause steps that grow, if memory is not short yet, until others are past their peaks or
        have ended. Otherwise kill; those that must not be started twice are paused instead.
        """
        short = state.used > self._line(state)
        reason, held = Reason.SHORTAGE if short else Reason.GROWTH, _all(state, Reason.MEMORY)
        if not short and (paused := tuple(self._growing(state, excess))):
            return Decision(pause=paused, reason=reason, held=held)
        kill = tuple(_cheapest(state, excess))
        active = [step for step in _by_loss(state) if not step.is_paused]
        pause = () if kill else tuple(step.id for step in active if not step.request.restarts)
        return Decision(kill=kill, pause=pause, reason=reason, held=held)

    def _growing(self, state: State, excess: float) -> Iterator[int]:
        """Yield the steps that would grow by ``excess`` before the next decision, least work lost
        per byte first: to pause one of them at a time would be too slow where many grow.
        """
        for step in _by_loss(state):
            if excess <= 0:
                return
            growth = 0.0 if step.is_paused else self._growth(state, [step], self.reaction)
            if growth or (not step.is_paused and _not_reached(step)):
                excess -= growth
                yield step.id

    def _crowding(self, state: State) -> Running | None:
        """Return a step of unknown size to pause while others like it may still grow: two that
        climb together would meet the limit together, and one would lose all its work.
        """
        if state.used + _doubt(_active(state)) <= self._line(state):
            return None
        least = self.cushion * state.limit
        active = (step for step in _by_loss(state) if not step.is_paused)
        return next((step for step in active if _could_grow(step) > least), None)

    def _idle(self, state: State) -> Iterator[int]:
        """Yield the steps that have been paused so long that others should have their memory:
        longer than it takes to do their work again.
        """
        for step in _paused(state):
            waited = step.paused_for(state.now)
            if step.request.restarts and waited > max(self.longest_pause, step.age(state.now)):
                yield step.id

    def _resumed(self, state: State) -> Iterator[int]:
        """Yield the paused steps that have a CPU and room to grow again, oldest first."""
        active = _active(state)
        free = state.cpus - sum(step.slots_of(state.cpus) for step in active)
        room = self._line(state) - state.used - max(0.0, state.growth) * self.reaction
        for step in sorted(_paused(state), key=_seniority):
            growth = self._growth(state, [*active, step], self.foresight)
            growth = max(min(growth, self.spurt * state.limit), _doubt([*active, step]))
            free -= step.request.slots_of(state.cpus)
            if growth > room or free < 0:
                return
            active.append(step)
            yield step.id

    def _admit(self, state: State) -> Decision:
        if not state.waiting:
            return Decision()
        forecast = Forecast(state, self._room(state), spare_trials=True)
        if forecast.free_slots <= 0 and not state.distributed:
            return Decision()
        if state.pressure > self.stalled:
            return Decision(held=_all(state, Reason.PRESSURE))
        held: dict[int, Reason] = {}
        faster: dict[int, ModeChoice] = {}
        admitted = tuple(self._admitted(state, forecast, held, faster))
        on_trial = tuple(self._tried(state, forecast, admitted))
        modes = self._modes(state, (*admitted, *on_trial)) | faster
        return Decision(
            admit=admitted, on_trial=on_trial, held=held, modes=modes, tight_at=forecast.tight_at
        )

    def _start_first(self, state: State) -> Decision:
        """Start the most urgent step whatever it needs, so that something always runs."""
        first = _first(state)
        return Decision(admit=first, modes=self._modes(state, first))

    def _room(self, state: State) -> float:
        """Return the memory that steps may use."""
        return state.limit * (1 - self.cushion) - state.other_usage

    def _modes(self, state: State, admitted: Sequence[int]) -> dict[int, ModeChoice]:
        """Return the modes of the steps that should save memory."""
        if not admitted:
            return {}
        requests = (request for request in state.waiting if request.id in admitted)
        room = self._room(state)
        return {each.id: choice for each in requests if (choice := self._mode(state, each, room))}

    def _mode(self, state: State, request: Request, room: float) -> ModeChoice | None:
        """Return the mode in which the step should save memory now, if it should."""
        if not request.effects or request.ooms:
            return None
        learned = request.prediction.learned
        if learned and request.prediction.peak > room:
            modes = (each.mode for each in request.effects)
            smaller = (mode for mode in modes if request.in_mode(mode).prediction.peak <= room)
            mode = next(smaller, request.effects[-1].mode)
            return ModeChoice(mode=mode, reason=Reason.TOO_LARGE)
        if state.contention <= self.memory_bound:
            return None
        # The size of an unknown step is overrated rather than underrated, so that every mode that
        # saves memory lets more of them run.
        worthwhile = _WORTHWHILE if learned else 1.0
        saving = [each for each in request.effects if _memory_seconds(each) < worthwhile]
        best = min((each for each in saving if not each.assumed), key=_memory_seconds, default=None)
        if best is None and saving and learned and not _is_measured(state):
            # Nothing is known of such steps: one of them shows what the mildest mode changes.
            best = next(iter(saving), None)
        return ModeChoice(mode=best.mode, reason=Reason.MEMORY_BOUND) if best else None

    def _in_its_mode(self, state: State, request: Request, room: float) -> Request:
        """Return the request in the mode in which it would run."""
        has_reason = state.contention > self.memory_bound or request.prediction.peak > room
        choice = self._mode(state, request, room) if request.effects and has_reason else None
        return request.in_mode(choice.mode) if choice else request

    def _startable(
        self, state: State, forecast: Forecast, held: dict[int, Reason]
    ) -> Iterator[Request]:
        """Yield the waiting steps of a distributed build for which a CPU or a worker is free."""
        for request in state.waiting:
            if request.remote and not request.has_place(forecast.remote):
                held[request.id] = Reason.WORKERS
            elif request.remote or forecast.free_slots > 0:
                yield request

    def _admitted(
        self,
        state: State,
        forecast: Forecast,
        held: dict[int, Reason],
        faster: dict[int, ModeChoice],
    ) -> Iterator[int]:
        """Yield the steps that fit, most urgent first. Those that do not are added to ``held``, and
        those that use several CPUs or more memory to ``faster``.
        """
        memory_bound = state.contention > self.memory_bound
        allotted = {} if memory_bound else allotments(state, forecast.room)
        burst = _Burst(self._fresh(state), state.cpus)
        passed = False  # a more urgent step did not fit
        # The smallest step that did not fit, learned or not: no larger step is tried.
        too_large = {True: inf, False: inf}
        waiting = self._startable(state, forecast, held) if state.distributed else state.waiting
        for request in waiting:
            learned = request.learned
            # Most steps are too large in any mode, so that theirs need not be chosen.
            if request.least_peak >= too_large[learned]:
                held[request.id] = _MEMORY
                continue
            request = self._in_its_mode(state, request, forecast.room)
            peak = request.prediction.peak
            if peak >= too_large[learned]:
                held[request.id] = _MEMORY
                continue
            if not burst.allows(request, forecast):
                held[request.id] = Reason.UNKNOWN_SIZE
                continue
            if forecast.fits(request):
                request = self._faster(state, request, forecast, allotted)
                faster |= _choice(request)
                forecast.add(request)
                burst.add(request)
                yield request.id
                if forecast.free_slots <= 0 and not state.distributed:
                    return
                continue
            if request.slots_of(state.cpus) <= forecast.free_slots:
                too_large[learned] = peak
                held[request.id] = _MEMORY
            if request.id == state.waiting[0].id and state.first_for > self.endurance:
                held.update(_all(state, Reason.TURN, after=request))
                return
            if not passed and state.now - request.asked > self.reserve_after:
                forecast.reserve(request)
            passed = True

    def _faster(
        self,
        state: State,
        request: Request,
        forecast: Forecast,
        allotted: Mapping[int, ModeEffect],
    ) -> Request:
        """Return the request with the threads that it should use, or in the mode fast if its size
        is known, no step waits for memory, and it fits in that mode beside some of the largest
        waiting steps.
        """
        if wanted := allotted.get(request.id):
            return _widened(request, wanted.threads, forecast)
        default = request.mode is CompileMode.DEFAULT and request.prediction.learned
        if not default or state.contention >= self.memory_idle or not _gains(request):
            return request
        fast = request.in_mode(CompileMode.FAST)
        known = fast.prediction
        beside = max(1, state.cpus // 4)
        others = sum(nlargest(beside, (each.prediction.high for each in state.waiting)))
        all_of_them = replace(known, peak=known.peak + others, high=known.high + others)
        larger = replace(fast, prediction=all_of_them)
        fits = larger.prediction.high <= forecast.room and forecast.fits(larger)
        return fast if fits else request

    def _tried(self, state: State, forecast: Forecast, admitted: Sequence[int]) -> Iterator[int]:
        """Yield steps that were never measured and whose usual need fits into the memory that is
        free now, but whose worst case does not. If one is killed, only idle CPU time is lost.
        """
        free = forecast.free_slots
        if free <= 0:
            return
        first = state.waiting[0]
        unknown = [
            request
            for request in state.waiting
            if not request.learned and _is_tried(request) and request.id not in admitted
        ]
        passed = first.id not in admitted and state.first_for > self.endurance
        if passed or not unknown:
            return
        new = [
            self._in_its_mode(state, request, forecast.room)
            for request in state.waiting
            if request.id in admitted
        ]
        burst = _Burst((*self._fresh(state), *filter(_of_unknown_size, new)), state.cpus)
        room = state.limit * (1 - self.cushion) - state.used - max(0.0, state.growth)
        room -= sum(request.prediction.peak for request in new)
        room -= sum(map(_still_to_climb, state.running))
        for request in unknown:
            if free <= 0 or burst.places <= 0:
                return
            needs = _usual(self._in_its_mode(state, request, forecast.room))
            slots = request.slots_of(state.cpus)
            if needs <= room and slots <= free:
                free -= slots
                room -= needs
                burst.places -= 1
                yield request.id

    def _fresh(self, state: State) -> list[Request]:
        """Return the running steps of unknown size that have not shown yet what they need."""
        return [
            step.request
            for step in state.running
            if (step.on_trial or _of_unknown_size(step.request))
            and step.age(state.now) < self.settling
        ]


class _Burst:
    """Limits how many steps of unknown size start before the first ones have shown what they need,
    so that a first build has no burst. Shipped figures may all be wrong in the same direction;
    where memory suffices for all of them even so, no step waits for another.
    """

    _WRONG = 2.0  # factor by which all shipped figures may be too low

    def __init__(self, fresh: Sequence[Request], cpus: int) -> None:
        self.places = max(2, cpus // 4) - len(fresh)
        self._more = sum(map(self._beyond, fresh))  # that the fresh steps may need

    def allows(self, request: Request, forecast: Forecast) -> bool:
        if self.places > 0 or not _of_unknown_size(request):
            return True
        return self._more + self._WRONG * request.prediction.high <= forecast.free_at_worst

    def add(self, request: Request) -> None:
        """Count a step that starts now."""
        if _of_unknown_size(request):
            self.places -= 1
            self._more += self._beyond(request)

    def _beyond(self, request: Request) -> float:
        return (self._WRONG - 1) * request.prediction.high


def _all(state: State, reason: Reason, after: Request | None = None) -> dict[int, Reason]:
    """Return the same reason for every waiting step, or for every one behind ``after``."""
    waiting = iter(state.waiting)
    if after is not None:
        waiting = dropwhile(lambda request: request.id != after.id, waiting)
        next(waiting)
    return {request.id: reason for request in waiting}


def _widened(request: Request, most: int, forecast: Forecast) -> Request:
    """Return the request with as many threads as fit, but no more than ``most``."""
    wider = (request.in_mode(each.mode, each.threads) for each in reversed(request.faster))
    fitting = (each for each in wider if each.threads <= most and forecast.fits(each))
    return next(fitting, request)


def _choice(request: Request) -> dict[int, ModeChoice]:
    """Return the choice of a mode that takes less time, by id."""
    if request.mode is CompileMode.FAST:
        return {request.id: _FAST}
    if request.threads == 1:
        return {}
    choice = ModeChoice(mode=request.mode, threads=request.threads, reason=Reason.IDLE_CPUS)
    return {request.id: choice}


def _memory_seconds(effect: ModeEffect) -> float:
    """Return what a mode takes of memory times duration, which is what steps compete for."""
    return effect.memory * effect.seconds


def _is_measured(state: State) -> bool:
    """Return whether a step runs in a mode whose effect on such steps is only assumed."""
    return any(
        step.request.mode is not CompileMode.FAST and step.request.effect.assumed
        for step in state.running
    )


def _gains(request: Request) -> bool:
    """Return whether the step is known to take less time if it takes more memory."""
    unclear = request.ooms or request.preemptions or _of_unknown_size(request)
    effects = () if unclear else request.effects
    return any(each.mode is CompileMode.FAST and each.seconds < _GAIN for each in effects)


def _of_unknown_size(request: Request) -> bool:
    """Return whether only shipped figures are known of a step that does not run on a worker."""
    return request.prediction.basis is Basis.PRIOR and not request.remote


def _is_tried(request: Request) -> bool:
    """Return whether a step that was never measured may start on trial, which may end in a kill."""
    return not request.ooms and request.restarts and not request.remote


def _usual(request: Request) -> int:
    """Return what a step on trial must find free. Shipped figures are wide, a folder's narrow."""
    prediction = request.prediction
    if _of_unknown_size(request):
        return prediction.peak
    return (prediction.peak + prediction.high) // 2


def _still_to_climb(step: Running) -> int:
    """Return by how much a step of unknown size is still expected to grow: to its usual need, until
    its memory has fallen.
    """
    prediction = step.request.prediction
    falling = step.current < _FALLEN * step.peak
    return 0 if prediction.learned or falling else max(0, prediction.peak - step.current)


def _not_reached(step: Running) -> float:
    """Return by how much a step that was never measured may grow at any moment."""
    prediction = step.request.prediction
    return 0 if prediction.learned else max(0, prediction.high - step.current, _could_grow(step))


def _could_grow(step: Running) -> float:
    """Return the bytes by which a step may still grow although no prediction says so: neither it
    nor a similar step was ever measured, or it has exceeded its prediction.
    """
    prediction = step.request.prediction
    known = prediction.learned or (
        step.current <= prediction.high and not _of_unknown_size(step.request)
    )
    falling = step.current < _FALLEN * step.peak
    return 0.0 if known or falling else _FURTHER * step.current


def _doubt(steps: Sequence[Running]) -> float:
    """Return the bytes by which steps of unknown size may still grow together; their errors are
    independent.
    """
    return sqrt(sum(_could_grow(step) ** 2 for step in steps))


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
    oldest.
    """
    oldest = _oldest(state)
    others = [step for step in state.running if not step.stopping and step is not oldest]
    return sorted(others, key=lambda step: _loss_per_byte(step, state))


def _active(state: State) -> list[Running]:
    return [step for step in state.running if not step.is_paused]


def _paused(state: State) -> list[Running]:
    return [step for step in state.running if step.is_paused and not step.stopping]


def _oldest(state: State) -> Running | None:
    """Return the step that ran first of those that are not being stopped."""
    live = (step for step in state.running if not step.stopping)
    return min(live, key=_seniority, default=None)


def _seniority(step: Running) -> tuple[float, int]:
    return step.started, step.id


def _loss_per_byte(step: Running, state: State) -> float:
    """Return the work lost per byte. Work lost before counts again, so that the same step is not
    killed every time.
    """
    work = step.age(state.now) * step.request.slots_of(state.cpus)
    return work * (1 + step.request.preemptions) / max(1, step.current)


def _first(state: State) -> tuple[int, ...]:
    """Return the most urgent step, so that something always runs."""
    return tuple(request.id for request in state.waiting[:1])

"""The policies one can choose from: ``adaptive``, and three usual ways to compare it with."""

from collections.abc import Callable, Iterator, Sequence
from heapq import nsmallest
from math import inf

from stoker.govern.forecast import Forecast
from stoker.govern.policy import Policy, smallest
from stoker.model.errors import UsageError, unknown
from stoker.model.govern import Basis, Decision, Request, Running, State
from stoker.model.value import Value

NAMES = ("adaptive", "fixed", "levels", "two-phase")


def make_policy(text: str, *, cpus: int) -> Policy:
    """By its name; ``fixed`` runs as many steps as there are CPUs, ``fixed:8`` eight."""
    name, _, jobs = text.partition(":")
    if name not in NAMES:
        raise unknown("policy", text, NAMES)
    if jobs and (name != "fixed" or not jobs.isdecimal() or not int(jobs)):
        raise UsageError(f"'{text}' is not a policy", hints=["a number of jobs: fixed:8"])
    if name == "fixed":
        return Fixed(jobs=int(jobs or cpus))
    makers: dict[str, Callable[[], Policy]] = {
        "adaptive": Adaptive,
        "levels": Levels,
        "two-phase": TwoPhase,
    }
    return makers[name]()


class Adaptive(Value, frozen=True, kw_only=True):
    """Admits whoever fits into what is expected to be in use at any time from now on, most urgent
    first; kills when expectations prove wrong.
    """

    cushion: float = 0.01  # share of the limit that admission leaves free
    reaction: float = 0.5  # seconds until a kill has freed its memory
    patience: float = 20.0  # seconds after which a place is kept for the most urgent step
    endurance: float = 300.0  # seconds after which nobody passes the most urgent step
    settling: float = 10.0  # seconds after which a step of unknown size has shown what it is
    stalled: float = 10.0  # percent of time that memory pressure may cost

    @property
    def name(self) -> str:
        return "adaptive"

    def decide(self, state: State) -> Decision:
        if not state.running:
            return self._admit(state) or Decision(admit=_first(state))
        if excess := self._excess(state):
            return Decision(kill=tuple(_cheapest(state, excess)))
        return self._admit(state) or Decision()

    def _excess(self, state: State) -> float:
        """Bytes by which memory in use will pass the limit before a kill could help.

        Growth goes on only as far as the running steps are expected to grow until then, and a
        neighbour to double: a step that climbs quickly to where it was predicted to be is no
        danger.
        """
        line = state.limit * (1 - self.cushion / 2)
        growth = max(0.0, state.growth) * self.reaction
        if state.used + growth <= line:
            return 0.0
        to_come = 2 * state.neighbour + Forecast(state, line).highest(self.reaction) - state.used
        return max(0.0, state.used + min(growth, max(0.0, to_come)) - line)

    def _admit(self, state: State) -> Decision | None:
        busy = sum(step.request.slots_of(state.cpus) for step in state.running)
        if not state.waiting or busy >= state.cpus or state.pressure > self.stalled:
            return None
        room = state.limit * (1 - self.cushion) - state.neighbour
        forecast = Forecast(state, room, spare_trials=True)
        admitted = tuple(self._admitted(state, forecast))
        on_trial = tuple(self._tried(state, admitted, forecast.free_slots))
        return Decision(admit=admitted, on_trial=on_trial) if admitted or on_trial else None

    def _admitted(self, state: State, forecast: Forecast) -> Iterator[int]:
        unsettled = self._unsettled(state)
        passed = False  # somebody more urgent did not fit
        too_large = inf  # the smallest that did not fit: what is no smaller is not tried
        for request in state.waiting:
            if request.prediction.peak >= too_large:
                continue
            unknown_size = _of_unknown_size(request)
            if unknown_size and not unsettled:
                continue
            if forecast.fits(request):
                forecast.add(request)
                unsettled -= unknown_size
                yield request.id
                if forecast.free_slots <= 0:
                    return
                continue
            if request.slots_of(state.cpus) <= forecast.free_slots:
                too_large = request.prediction.peak
            if not passed and state.now - request.asked > self.endurance:
                return
            if not passed and state.now - request.asked > self.patience:
                forecast.reserve(request)
            if not passed and not _any_fits(state, forecast):
                return
            passed = True

    def _tried(self, state: State, admitted: Sequence[int], free: int) -> Iterator[int]:
        """Steps of unknown size whose usual need fits into what is free at this moment, where the
        worst case does not. If one has to be killed, it has cost the time of CPUs without work.
        """
        new = [request for request in state.waiting if request.id in admitted]
        unsettled = self._unsettled(state) - sum(map(_of_unknown_size, new))
        room = state.limit * (1 - self.cushion) - state.used - max(0.0, state.growth)
        room -= sum(request.prediction.peak for request in new)
        for request in state.waiting:
            if free <= 0 or unsettled <= 0:
                return
            known = request.prediction.learned or request.ooms or request in new
            needs = _usual(request)
            if known or needs > room or request.slots_of(state.cpus) > free:
                continue
            free -= request.slots_of(state.cpus)
            room -= needs
            unsettled -= 1
            yield request.id

    def _unsettled(self, state: State) -> int:
        """How many steps of unknown size may be added: without history no burst at the start."""
        fresh = sum(
            (step.on_trial or _of_unknown_size(step.request))
            and state.now - step.started < self.settling
            for step in state.running
        )
        return max(0, max(2, state.cpus // 4) - fresh)


def _of_unknown_size(request: Request) -> bool:
    return request.prediction.basis is Basis.PRIOR


def _usual(request: Request) -> int:
    """What a step on trial should find free. Shipped figures are wide, and a folder's narrow."""
    prediction = request.prediction
    if _of_unknown_size(request):
        return prediction.peak
    return (prediction.peak + prediction.high) // 2


def _any_fits(state: State, forecast: Forecast) -> bool:
    """Where memory is short even for the smallest, thousands who wait need not be asked."""
    least = smallest(state.waiting)
    return least.slots_of(state.cpus) > forecast.free_slots or forecast.fits(least)


def _cheapest(state: State, excess: float) -> Iterator[int]:
    """Steps to kill, those first that lose the least work per byte; never the oldest."""
    excess -= sum(step.current for step in state.running if step.stopping)
    oldest = min(state.running, key=lambda step: (step.started, step.id))
    others = [s for s in state.running if s.current and not s.stopping and s is not oldest]
    for step in sorted(others, key=lambda step: _loss_per_byte(step, state)):
        if excess <= 0:
            return
        yield step.id
        excess -= step.current


def _loss_per_byte(step: Running, state: State) -> float:
    """Work that was lost before counts again, so that the same step is not always the victim."""
    work = (state.now - step.started) * step.request.slots_of(state.cpus)
    return work * (1 + step.request.preemptions) / step.current


class Fixed(Value, frozen=True, kw_only=True):
    """So many at once, in the order they asked, as `ninja -jN` does."""

    jobs: int

    @property
    def name(self) -> str:
        return f"fixed:{self.jobs}"

    def decide(self, state: State) -> Decision:
        return _in_order(state, state.waiting, self.jobs)


class Levels(Value, frozen=True, kw_only=True):
    """Fewer jobs the fuller memory is: a share in use, and the jobs allowed below it."""

    ladder: tuple[tuple[float, int], ...] = ((0.5, 32), (0.65, 16), (0.75, 8), (0.85, 4), (inf, 2))

    @property
    def name(self) -> str:
        return "levels"

    def decide(self, state: State) -> Decision:
        full = state.used / state.limit if state.limit else 1.0
        jobs = next(jobs for share, jobs in self.ladder if full < share)
        return _in_order(state, state.waiting, min(jobs, state.cpus))


class TwoPhase(Value, frozen=True, kw_only=True):
    """Heavy steps first, as many as fit if all were as large as the largest; then the others, as
    many as there are CPUs. Heavy is what needs several CPUs' share of memory.
    """

    shares: float = 2.0

    @property
    def name(self) -> str:
        return "two-phase"

    def decide(self, state: State) -> Decision:
        bar = self.shares * state.limit / state.cpus
        waiting = [request for request in state.waiting if request.prediction.high > bar]
        running = [s.request for s in state.running if s.request.prediction.high > bar]
        if not waiting and not running:
            return _in_order(state, state.waiting, state.cpus)
        largest = max(request.prediction.high for request in (*waiting, *running))
        return _in_order(state, waiting, max(1, min(state.cpus, state.limit // largest)))


def _first(state: State) -> tuple[int, ...]:
    """Whatever happens, somebody runs."""
    return tuple(request.id for request in state.waiting[:1])


def _in_order(state: State, waiting: Sequence[Request], jobs: int) -> Decision:
    free = max(0, jobs - len(state.running))
    first = nsmallest(free, waiting, key=lambda request: (request.asked, request.id))
    return Decision(admit=tuple(request.id for request in first))

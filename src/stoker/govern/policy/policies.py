"""The policies to choose from: ``adaptive``, and three common ones to compare it with.

Pure: the time is in the state, and the same state always gets the same decision.
"""

from collections.abc import Callable, Iterator, Sequence
from heapq import nsmallest
from itertools import takewhile
from math import inf

from stoker.govern.policy.adaptive import Adaptive
from stoker.govern.policy.interface import Policy, parse_policy
from stoker.model.govern import Decision, Request, State
from stoker.model.value import Value


def make_policy(text: str, *, cpus: int) -> Policy:
    """Return the policy of that name; ``fixed`` runs one step per CPU, ``fixed:8`` eight."""
    name, jobs = parse_policy(text)
    if name == "fixed":
        return FixedJobs(jobs=jobs or cpus)
    makers: dict[str, Callable[[], Policy]]
    makers = {"adaptive": Adaptive, "levels": Levels, "two-phase": TwoPhase}
    return makers[name]()


class FixedJobs(Value, frozen=True, kw_only=True):
    """Runs a fixed number of steps in the order in which they asked, like `ninja -jN`."""

    jobs: int

    @property
    def name(self) -> str:
        return f"fixed:{self.jobs}"

    def decide(self, state: State) -> Decision:
        return _in_order(state, state.waiting, self.jobs)


class Levels(Value, frozen=True, kw_only=True):
    """Runs fewer jobs the fuller memory is: each rung has a share in use and the jobs below it."""

    ladder: tuple[tuple[float, int], ...] = ((0.5, 32), (0.65, 16), (0.75, 8), (0.85, 4), (inf, 2))

    @property
    def name(self) -> str:
        return "levels"

    def decide(self, state: State) -> Decision:
        full = state.used / state.limit if state.limit else 1.0
        jobs = next(jobs for share, jobs in self.ladder if full < share)
        return _in_order(state, state.waiting, min(jobs, state.cpus))


class TwoPhase(Value, frozen=True, kw_only=True):
    """Runs heavy steps first, as many as fit if all were as large as the largest, then the others,
    one per CPU. A step is heavy if it needs the memory share of several CPUs.
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


def _in_order(state: State, waiting: Sequence[Request], jobs: int) -> Decision:
    """Admit steps in the order in which they asked, so that ``jobs`` run here. A step that needs
    the whole machine starts when no other step runs here, and no step starts beside it or passes
    it.
    """
    running = [step.request for step in state.running if not (step.request.remote or step.lent)]
    inner = [request for request in state.waiting if request.within and request.id in state.placed]
    here = (each for each in waiting if not each.remote and each not in inner)
    free = 0 if any(request.alone for request in running) else max(0, jobs - len(running))
    first = nsmallest(free, here, key=lambda request: (request.asked, request.id))
    if first and first[0].alone:
        first = [] if running else first[:1]
    first = [*first[:1], *takewhile(lambda request: not request.alone, first[1:])]
    remote = _with_places(state) if state.distributed else ()
    return Decision(admit=tuple(request.id for request in (*inner, *first, *remote)))


def _with_places(state: State) -> Iterator[Request]:
    """Yield the remote steps that workers can take, most urgent first."""
    taken = sum(step.request.remote and not step.lent for step in state.running)
    for request in state.waiting:
        if request.remote and request.has_place(taken):
            taken += 1
            yield request

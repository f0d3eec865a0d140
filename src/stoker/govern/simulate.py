"""A build on a virtual clock: the policy's own code over measured steps, with kills charged.

A step's memory follows a ``Shape``, by default the profile it was recorded with. When all of it
together passes the machine's, the kernel kills the largest step. Steps slow each other down only
where they want more CPUs than there are. Not simulated: caches, disks, memory bandwidth, the time a
kill takes.
"""

from collections import deque
from collections.abc import Callable, Sequence
from random import Random

from msgspec.structs import replace

from stoker.govern.bounds import bounds, paths
from stoker.govern.policy import Policy, Queue, after_oom, after_preemption
from stoker.govern.predict import Predictor
from stoker.govern.profile import PARTS, Recorder, climbed
from stoker.govern.slope import Slope
from stoker.model.govern import Basis, Request, Running, SimulationResult, State, StepRecord

Shape = Callable[[StepRecord, float], float]  # bytes in use when that share of its time has passed

WINDOW = 8  # steps that the build tool is told to start at once, for each CPU
# Mean memory over peak where only the peak was measured: gcc 12 on C++ at -O2 and -O3, 0.76-0.83.
TYPICAL_SHARE = 0.8

_INTERVAL = 0.25  # seconds between two readings of the meter
_REFRESH = 1.0  # seconds after which those who wait are predicted anew
_INSTANTS = 2 * PARTS  # in which a shape is summed up


def recorded(record: StepRecord, share: float) -> float:
    """By its profile; where it has none, as compilers usually climb."""
    if not record.profile:
        return climbing(record, share)
    part = min(int(share * len(record.profile)), len(record.profile) - 1)
    return record.peak * record.profile[part] / 100


def climbing(record: StepRecord, share: float) -> float:
    """Steeply at first, then slowly up to the end, with the measured mean: as compilers do."""
    mean = record.mean or TYPICAL_SHARE * record.peak
    return record.peak * climbed(mean / record.peak, share) if mean else 0.0


def flat(record: StepRecord, share: float) -> float:  # noqa: ARG001 - a shape
    """The peak from first to last: the worst case for anybody who does not reserve it."""
    return record.peak


def scattered(steps: Sequence[StepRecord], *, by: float, seed: int) -> tuple[StepRecord, ...]:
    """The same steps with other peaks, each drawn evenly within a share of its own."""
    random = Random(seed)
    return tuple(_scaled(step, 1 + random.uniform(-by, by)) for step in steps)


def _scaled(step: StepRecord, factor: float) -> StepRecord:
    integral = None if step.byte_seconds is None else step.byte_seconds * factor
    return replace(step, peak=round(step.peak * factor), byte_seconds=integral)


def measured(steps: Sequence[StepRecord], shape: Shape) -> tuple[StepRecord, ...]:
    """The steps with integral and profile of their memory as a governor would have found them."""
    return tuple(_measured(step, shape) for step in steps)


def _measured(step: StepRecord, shape: Shape) -> StepRecord:
    instants = [shape(step, (instant + 0.5) / _INSTANTS) for instant in range(_INSTANTS)]
    recorder = Recorder()
    for number, memory in enumerate(instants):
        recorder.add(step.seconds * number / _INSTANTS, round(memory))
    return replace(
        step,
        byte_seconds=step.seconds * sum(instants) / _INSTANTS,
        profile=recorder.profile(step.seconds),
    )


def simulate(
    steps: Sequence[StepRecord],
    policy: Policy,
    *,
    cpus: int,
    memory: int,
    history: Sequence[StepRecord] = (),
    shape: Shape = recorded,
    window: int | None = None,
) -> SimulationResult:
    """Run the steps to their end. ``history`` is what is known of them before; ``window`` how many
    the build tool starts at once.
    """
    simulation = _Simulation(
        measured(steps, shape),
        policy,
        cpus=cpus,
        memory=memory,
        predictor=Predictor(measured(history, shape)),
        shape=shape,
        window=window or WINDOW * cpus,
    )
    return simulation.run()


class _Attempt:
    """One start of a step; ``done`` counts the seconds of its life that have passed."""

    def __init__(self, running: Running, record: StepRecord):
        self.running = running
        self.record = record
        self.done = 0.0

    @property
    def left(self) -> float:
        return self.record.seconds - self.done

    @property
    def cpu_seconds(self) -> float:
        seconds = self.record.seconds
        return self.record.cpu_seconds * self.done / seconds if seconds else 0.0

    def use(self, memory: float) -> None:
        current = round(memory)
        peak = max(self.running.peak, current)
        self.running = replace(self.running, current=current, peak=peak)


class _Simulation:
    def __init__(
        self,
        steps: Sequence[StepRecord],
        policy: Policy,
        *,
        cpus: int,
        memory: int,
        predictor: Predictor,
        shape: Shape,
        window: int,
    ):
        self._steps = steps
        self._policy = policy
        self._cpus = cpus
        self._memory = memory
        self._predictor = predictor
        self._shape = shape
        self._window = window
        self._tails = self._predicted_tails()
        self._to_come = deque(range(len(steps)))
        self._finished: set[str] = set()
        self._queue = Queue()
        self._running: dict[int, _Attempt] = {}
        self._slope = Slope()
        self._now = 0.0
        self._refreshed = 0.0
        self._used = 0
        self._highest = 0
        self._pauses = 0
        self._preemptions = 0
        self._oom_kills = 0
        self._lost = 0.0
        self._failed: list[str] = []

    def run(self) -> SimulationResult:
        self._ask()
        while self._queue or self._running:
            self._decide()
            self._pass_time()
            self._finish()
            self._use_memory()
            self._kill_for_want_of_memory()
            self._ask()
        return SimulationResult(
            policy=self._policy.name,
            cpus=self._cpus,
            memory=self._memory,
            wall_seconds=self._now,
            peak=self._highest,
            pauses=self._pauses,
            preemptions=self._preemptions,
            oom_kills=self._oom_kills,
            lost_seconds=self._lost,
            failed=tuple(self._failed),
            bounds=bounds(self._steps, cpus=self._cpus, memory=self._memory),
        )

    def _predicted_tails(self) -> list[float]:
        """Seconds of the longest path behind each step, as far as history knows."""
        expected = [
            replace(record, seconds=self._predictor.predict(record.step).seconds or 0.0)
            for record in self._steps
        ]
        longest = paths(expected)
        return [longest[record.step.output] - record.seconds for record in expected]

    def _ask(self) -> None:
        """As the build tool does: in its order, what can be made, as much as its window holds."""
        blocked: list[int] = []
        while self._to_come and len(self._queue) + len(self._running) < self._window:
            index = self._to_come.popleft()
            if self._finished.issuperset(self._steps[index].needs):
                self._queue.add(self._request(index, self._now))
            else:
                blocked.append(index)
        self._to_come.extendleft(reversed(blocked))
        if self._now - self._refreshed >= _REFRESH:
            self._predict_again()

    def _request(self, index: int, asked: float) -> Request:
        step = self._steps[index].step
        prediction = self._predictor.predict(step)
        return Request(
            id=index,
            asked=asked,
            prediction=prediction,
            slots=step.targets_at_once,
            path=(prediction.seconds or 0.0) + self._tails[index],
        )

    def _predict_again(self) -> None:
        """Those who wait profit from what was learned meanwhile."""
        self._refreshed = self._now
        for request in tuple(self._queue):
            untouched = not request.preemptions and not request.ooms
            if untouched and request.prediction.basis is not Basis.EXACT:
                self._queue.add(self._request(request.id, request.asked))

    def _decide(self) -> None:
        state = State(
            now=self._now,
            cpus=self._cpus,
            limit=self._memory,
            used=self._used,
            growth=self._slope.add(self._now, self._used),
            pace=self._predictor.pace,
            running=tuple(attempt.running for attempt in self._running.values()),
            waiting=self._queue,
        )
        decision = self._policy.decide(state)
        for identity in decision.pause:
            attempt = self._running[identity]
            attempt.running = replace(attempt.running, paused_at=self._now)
            self._pauses += 1
        for identity in decision.resume:
            attempt = self._running[identity]
            attempt.running = attempt.running.resumed(self._now)
        for identity in decision.kill:
            self._queue.add(after_preemption(self._stop(identity).running))
            self._preemptions += 1
        for identity in (*decision.admit, *decision.on_trial):
            request = self._queue.remove(identity)
            if request is None:
                raise AssertionError(f"{self._policy.name} admits who does not wait")
            on_trial = identity in decision.on_trial
            running = Running(request=request, started=self._now, on_trial=on_trial)
            self._running[identity] = _Attempt(running, self._steps[identity])
        if not self._running:
            raise AssertionError(f"{self._policy.name} lets nothing run")

    def _stop(self, identity: int) -> _Attempt:
        attempt = self._running.pop(identity)
        self._used -= attempt.running.current
        self._lost += attempt.cpu_seconds
        return attempt

    def _pass_time(self) -> None:
        """To the next reading or the next end, whichever comes first."""
        active = [each for each in self._running.values() if not each.running.is_paused]
        if not active:
            raise AssertionError(f"{self._policy.name} lets nothing go on")
        wanted = sum(attempt.running.request.slots_of(self._cpus) for attempt in active)
        speed = min(1.0, self._cpus / wanted)
        next_end = min(attempt.left for attempt in active) / speed
        passed = max(0.0, min(_INTERVAL, next_end))
        self._now += passed
        for attempt in active:
            attempt.done += passed * speed

    def _finish(self) -> None:
        ended = [key for key, attempt in self._running.items() if attempt.left <= 1e-9]
        for identity in ended:
            record = self._running.pop(identity).record
            self._finished.add(record.step.output)
            self._predictor.learn(record)

    def _use_memory(self) -> None:
        for attempt in self._running.values():
            attempt.use(self._shape(attempt.record, attempt.done / attempt.record.seconds))
        self._used = sum(attempt.running.current for attempt in self._running.values())

    def _kill_for_want_of_memory(self) -> None:
        while self._used > self._memory:
            largest = max(self._running, key=lambda key: self._running[key].running.current)
            attempt = self._stop(largest)
            self._oom_kills += 1
            again = after_oom(attempt.running, attempt.running.peak)
            if again is None:
                self._failed.append(attempt.record.step.output)
                self._finished.add(attempt.record.step.output)
            else:
                self._queue.add(again)
        self._highest = max(self._highest, self._used)

"""A build on a virtual clock: the real governor, with simulated launchers, memory and kernel.

The memory of a step follows its shape (simulated_steps.py). When the steps together
exceed the machine's memory, the kernel kills the largest one. Steps slow each other down only if
they need more CPUs than there are, or send more over the link to the workers than it carries. Not
simulated: caches, disks, memory bandwidth, the time that a kill takes, and the memory of workers.
"""

from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice
from math import inf

from msgspec.structs import replace

from stoker.govern.chain import window as build_window
from stoker.govern.history.remote_steps import StagePlace, Stages, at_workers, seconds_at
from stoker.govern.history.simulated_steps import (
    Effects,
    Shape,
    in_mode,
    measured,
    recorded,
    recorded_effects,
)
from stoker.govern.policy.bounds import bounds, paths
from stoker.govern.policy.governor import Governor
from stoker.govern.policy.interface import Policy
from stoker.govern.policy.memory_view import MemoryReading
from stoker.govern.policy.predict import Predictor
from stoker.govern.protocol import VERSION, Ask, Done, Usage, decode
from stoker.knowledge.compiler_modes import mode_of
from stoker.knowledge.steps import client_costs, usual_seconds
from stoker.model.events import AnyEvent, StepPauses, StepTooLate
from stoker.model.govern import CompileMode, Step, StepRecord
from stoker.model.runs import LOST, Attempt, Outcome
from stoker.model.simulation import SimulatedWorkers, SimulationResult
from stoker.model.terms import Gc

_INTERVAL = 0.25  # seconds between two readings of the meter
_RUN = 1
_HERE = StagePlace.HERE
_ASK = Ask(version=VERSION, run=_RUN, directory="", cpus=1, command=())


def simulate(
    steps: Sequence[StepRecord],
    policy: Policy,
    *,
    cpus: int,
    memory: int,
    history: Sequence[StepRecord] = (),
    shape: Shape = recorded,
    window: int | None = None,
    gc: Gc = Gc.AUTO,
    effects: Effects | None = None,
    distribution: SimulatedWorkers | None = None,
    limit: float | None = None,
    keep: Callable[[StepRecord], object] = lambda _: None,
) -> SimulationResult:
    """Run the steps until all have ended. ``history`` is known about them in advance; ``window`` is
    the number of steps that the build tool starts at once; ``effects`` is what modes really change
    of a step, by default what was recorded of it, else what is shipped. With a ``distribution``,
    workers compile C and C++. With a ``limit``, no step starts that would end after so many
    seconds. ``keep`` gets what the governor records of each step that succeeds, as history does.
    """
    actual = measured(steps, shape)
    known = actual if history is steps else measured(history, shape)
    stages: dict[int, Stages] = {}
    places = distribution.places if distribution else 0
    if distribution:
        known = (*known, *at_workers(known, distribution)[0])
        actual, stages = at_workers(actual, distribution)
    simulation = _Simulation(
        steps=actual,
        policy=policy,
        cpus=cpus,
        memory=memory,
        predictor=Predictor(known),
        shape=shape,
        window=window or build_window(cpus, memory, slots=places),
        gc=gc,
        effects=effects or recorded_effects,
        distribution=distribution,
        stages=stages,
        keep=keep,
    )
    if limit is not None:
        simulation.limit_time(limit)
    return simulation.run()


class _Process:
    """The command of one attempt; ``done`` is how many seconds of its work are done, and ``end``
    when the work at its present place ends.
    """

    def __init__(self, record: StepRecord, stages: Stages = ()):
        self.record = record
        self.seconds = record.wall_s
        self.cpus = record.step.targets_at_once
        self.is_remote = bool(stages)
        self.done = 0.0
        self.paused = False
        self.memory = self.peak = 0
        self._later = iter(stages or ((StagePlace.HERE, record.wall_s),))
        self.end = 0.0
        self.move_on()

    def move_on(self) -> bool:
        """Begin the next stage, if there is one."""
        self.place, seconds = next(self._later, (StagePlace.HERE, 0.0))
        self.end += seconds
        return seconds > 0

    def usage(self) -> Usage:
        """Return what its launcher reports at the end."""
        share = self.done / self.seconds if self.seconds else 0.0
        return Usage(
            wall_us=round(self.done * 1e6),
            cpu_us=round(self.record.cpu_s * share * 1e6),
            peak=self.peak,
            byte_seconds=round((self.record.byte_seconds or 0.0) * share),
        )


@dataclass(kw_only=True)
class _Simulation:
    """The build tool, the launchers, the meter and the kernel around a governor.

    A step is known to the governor by its index, which stands for the launcher's connection.
    """

    steps: Sequence[StepRecord]
    policy: Policy
    cpus: int
    memory: int
    predictor: Predictor
    shape: Shape
    window: int
    gc: Gc
    effects: Effects
    distribution: SimulatedWorkers | None
    stages: Mapping[int, Stages]
    keep: Callable[[StepRecord], object]

    def __post_init__(self) -> None:
        self._seconds = [_expected_seconds(self.predictor, record.step) for record in self.steps]
        self._work_left = sum(self._seconds)
        self._paths = _predicted_paths(self.steps, self._seconds)
        self._governor = Governor(
            policy=self.policy,
            predictor=self.predictor,
            cpus=self.cpus,
            cap=None,
            send=self._obey,
            emit=self._hear,
            keep=self._count_attempt,
            gc=self.gc,
        )
        self._to_come = deque(range(len(self.steps)))
        self._asked = 0  # steps that have asked and not ended
        self._finished: set[str] = set()
        self._processes: dict[int, _Process] = {}
        self._used = 0
        self._to_kill: list[int] = []
        self._now = 0.0
        self._highest = 0
        self._pauses = 0
        self._oom_kills = 0
        self._preemptions = 0
        self._lost = 0.0
        self._modes: Counter[CompileMode] = Counter()
        self._failed: list[str] = []
        self._limited = self._refuses = False
        self._late: set[str] = set()

    def limit_time(self, seconds: float) -> None:
        self._limited = True
        self._governor.deadlines.limit(_RUN, seconds, seconds, 0.0, grace=inf)

    def run(self) -> SimulationResult:
        self._ask()
        while self._asked:
            self._read_meter()
            self._governor.work_left = self._work_left
            self._governor.decide(self._now)
            self._stop_killed()
            self._pass_time()
            self._finish()
            self._use_memory()
            self._kill_largest()
            self._ask()
        return SimulationResult(
            policy=self.policy.name,
            cpus=self.cpus,
            memory_bytes=self.memory,
            wall_s=self._now,
            peak_bytes=self._highest,
            pauses=self._pauses,
            preemptions=self._preemptions,
            oom_kills=self._oom_kills,
            lost_s=self._lost,
            failed=tuple(self._failed),
            unfinished=self._unfinished(),
            modes=dict(self._modes),
            bounds=bounds(
                [self._holding_cpus(index) for index in range(len(self.steps))],
                cpus=self.cpus,
                memory=self.memory,
                others=self._other_bounds(),
            ),
            distribution=self.distribution,
        )

    def _unfinished(self) -> tuple[str, ...]:
        """Return the outputs that do not exist because the time was over."""
        names = (record.step.output for record in self.steps) if self._late else ()
        return tuple(name for name in names if name not in self._finished)

    def _holding_cpus(self, index: int) -> StepRecord:
        """Return a step that computes whenever it holds a CPU, as all do here."""
        record = self.steps[index]
        if index in self.stages:
            return record
        record = replace(record, effects=tuple(self.effects(record)))
        return replace(record, cpu_s=record.wall_s * record.step.targets_at_once)

    def _other_bounds(self) -> dict[str, float]:
        if self.distribution is None:
            return {}
        stages = self.stages.values()
        return {
            "the link": seconds_at(StagePlace.LINK, stages),
            "the workers": seconds_at(StagePlace.WORKER, stages) / self.distribution.places,
        }

    def _obey(self, index: int, message: bytes) -> None:
        """Do what a launcher does when the governor tells it something."""
        word, fields = decode(message.rstrip(b"\n"))
        match word:
            case "run":
                mode, threads = mode_of(field.decode() for field in fields[1:])
                record = in_mode(self.steps[index], mode, self.effects, threads)
                self._processes[index] = _Process(record, self.stages.get(index, ()))
            case "pause":
                self._processes[index].paused = True
            case "resume":
                self._processes[index].paused = False
            case "kill":
                self._to_kill.append(index)
            case "fail" if self._refuses:
                self._late.add(self.steps[index].step.output)
                self._asked -= 1
            case "fail":
                self._failed.append(self.steps[index].step.output)
                self._end(index)

    def _end(self, index: int) -> None:
        self._asked -= 1
        self._work_left -= self._seconds[index]
        self._finished.add(self.steps[index].step.output)

    def _hear(self, event: AnyEvent) -> None:
        self._pauses += isinstance(event, StepPauses)
        self._refuses = isinstance(event, StepTooLate)  # the message to the launcher comes next

    def _count_attempt(self, _: int, attempt: Attempt) -> None:
        self._preemptions += attempt.outcome is Outcome.PREEMPTED
        if attempt.outcome is Outcome.DONE:
            self.keep(attempt.record)
        if attempt.outcome is Outcome.DONE and attempt.record.mode is not CompileMode.DEFAULT:
            self._modes[attempt.record.mode] += 1
        if attempt.outcome in LOST:
            self._lost += attempt.record.cpu_s

    def _ask(self) -> None:
        """Start steps as the build tool does: in its order, once their inputs exist, and no more at
        once than its window holds.
        """
        blocked: list[int] = []
        while self._to_come and not self._late and self._asked < self.window:
            index = self._to_come.popleft()
            record = self.steps[index]
            if self._finished.issuperset(record.needs):
                self._asked += 1
                path = partial(self._paths.__getitem__, record.step.output)
                self._governor.asked(index, self._request(index), record.step, path, self._now)
            else:
                blocked.append(index)
        self._to_come.extendleft(reversed(blocked))

    def _request(self, index: int) -> Ask:
        if self.distribution is None or index not in self.stages:
            return _ASK
        return replace(_ASK, remote=True, cpus=self.distribution.places)

    def _read_meter(self) -> None:
        kills = {_RUN: self._oom_kills}
        reading = MemoryReading(limit=self.memory, used=self._used, oom_kills=kills)
        self._governor.read(reading, self._now)

    def _stop_killed(self) -> None:
        for index in self._to_kill:
            self._governor.stopped(index, self._take_away(index).usage(), self._now)
        self._to_kill.clear()

    def _take_away(self, index: int) -> _Process:
        process = self._processes.pop(index)
        self._used -= process.memory
        return process

    def _pass_time(self) -> None:
        """Advance to the next reading or the next end of a stage, whichever comes first."""
        active = self._active()
        if not active and self._limited:  # steps that would end too late are refused soon
            self._now += _INTERVAL
            return
        if not active:
            raise AssertionError(f"{self.policy.name} lets nothing run")
        speeds = self._speeds(active)
        next_end = min((process.end - process.done) / speeds[process.place] for process in active)
        passed = max(0.0, min(_INTERVAL, next_end))
        self._now += passed
        for process in active:
            process.done += passed * speeds[process.place]

    def _active(self) -> list[_Process]:
        """Return the processes that work. A distributor runs few preprocessors at once; others wait
        for their turn.
        """
        active = [process for process in self._processes.values() if not process.paused]
        if self.distribution is None:
            return active
        here = (each for each in active if each.is_remote and each.place is _HERE)
        waiting = set(islice(here, max(self.cpus, client_costs().preprocessors), None))
        return [process for process in active if process not in waiting]

    def _speeds(self, active: Sequence[_Process]) -> tuple[float, float, float]:
        """Return the speed at each place: CPUs and the link are shared."""
        busy, transfers = 0, 0
        for process in active:
            if process.place is _HERE:
                busy += min(process.cpus, self.cpus)
            elif process.place is StagePlace.LINK:
                transfers += 1
        return min(1.0, self.cpus / max(1, busy)), 1.0 / max(1, transfers), 1.0

    def _finish(self) -> None:
        running = self._processes.items()
        at_end = [index for index, process in running if process.end - process.done <= 1e-9]
        for index in at_end:
            if not self._processes[index].move_on():
                usage = self._take_away(index).usage()
                done = Done(status=0, signal=0, usage=usage, tail=b"")
                self._governor.ended(index, done, self._now)
                self._end(index)

    def _use_memory(self) -> None:
        used, shape, grown, now = 0, self.shape, self._governor.grown, self._now
        for index, process in self._processes.items():
            memory = round(shape(process.record, process.done / process.seconds))
            used += memory
            if memory != process.memory:  # a launcher reports only changes
                process.memory = memory
                if memory > process.peak:
                    process.peak = memory
                grown(index, memory, process.peak, now)
        self._used = used

    def _kill_largest(self) -> None:
        """Kill the largest step while memory is exceeded, as the kernel does."""
        while self._used > self.memory:
            largest = max(self._processes, key=lambda index: self._processes[index].memory)
            process = self._take_away(largest)
            self._oom_kills += 1
            self._read_meter()
            done = Done(status=0, signal=9, usage=process.usage(), tail=b"")
            self._governor.ended(largest, done, self._now)
        self._highest = max(self._highest, self._used)


def _expected_seconds(predictor: Predictor, step: Step) -> float:
    """Return what the graph of a build would say of the step before it runs."""
    prediction = predictor.predict(step)
    if prediction.learned and prediction.seconds is not None:
        return prediction.seconds
    return usual_seconds(step.role, step.source, step.input_bytes)


def _predicted_paths(steps: Sequence[StepRecord], seconds: Sequence[float]) -> dict[str, float]:
    """Return the critical-path seconds from each output to the end, as far as history knows."""
    known = zip(steps, seconds, strict=True)
    return paths([replace(record, wall_s=predicted) for record, predicted in known])

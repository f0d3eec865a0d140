"""The memory that builds may use: the last reading of the meter, its growth, the limit in force.

A cap of the user limits builds alone: memory of other processes does not count against it.
"""

from bisect import bisect_left
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from math import exp
from typing import Protocol, overload

from msgspec.structs import replace

from stoker.model.errors import UsageError, unknown
from stoker.model.govern import CompileMode, Decision, Prediction, Reason, Request, Running, State
from stoker.model.value import Value, whole_number


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

    @property
    def free(self) -> int:
        return self.limit - self.used


class Slope:
    """Measures how fast a reading grows, over one second: long enough to separate growth from
    noise.
    """

    _SPAN = 1.0

    def __init__(self) -> None:
        self._readings: deque[tuple[float, float]] = deque()

    def add(self, now: float, value: float) -> float:
        """Add a reading and return the growth per second."""
        while len(self._readings) > 1 and self._readings[0][0] < now - self._SPAN:
            self._readings.popleft()
        self._readings.append((now, value))
        then, before = self._readings[0]
        return (value - before) / (now - then) if now > then else 0.0

    def take_out(self, value: float, since: float) -> None:
        """Take what has ended out of the readings: it grew from nothing since then. Otherwise its
        end would hide the growth of everything else.
        """
        if not self._readings:
            return
        span = self._readings[-1][0] - since
        if value and span > 0:
            shares = ((at, used, (at - since) / span) for at, used in self._readings)
            kept = ((at, used - value * max(0.0, share)) for at, used, share in shares)
            self._readings = deque(kept)


class MemoryView:
    """Relates what steps use to the last reading and to the limits. In its methods, ``ours`` is the
    memory of all steps, as their launchers have reported it.
    """

    def __init__(self, cap: int | None):
        self.reading = MemoryReading(limit=0, used=0, oom_kills={})
        self.growth = 0.0  # of all memory that is still in use, in bytes a second
        self._cap = cap
        self._slope = Slope()

    def read(self, reading: MemoryReading, now: float) -> None:
        self.reading, self.growth = reading, self._slope.add(now, reading.used)

    def freed(self, step: Running) -> None:
        """Take in that a step has ended."""
        self._slope.take_out(step.current, step.started)

    def limit_to(self, cap: int | None) -> None:
        """Limit builds to so much, whatever the machine has."""
        self._cap = cap

    @property
    def limit(self) -> int:
        """The limit in force for builds, however much of it other processes use."""
        return self.reading.limit if self._cap is None else min(self.reading.limit, self._cap)

    @property
    def spare(self) -> int:
        """Memory that other processes may use without affecting the build."""
        return self.reading.limit - self.limit

    def used(self, ours: int) -> int:
        """Return the memory of all processes."""
        return max(self.reading.used, ours)  # launchers may have reported more since the reading

    def limit_of_all(self, ours: int) -> int:
        """Return the limit for the memory of all processes."""
        if self._cap is None:
            return self.reading.limit
        return min(self.reading.limit, self._cap + self.used(ours) - ours)

    def counted(self, ours: int) -> int:
        """Return the memory in use that counts against the limit in force."""
        return max(ours, self.reading.used - self.spare)


# -- policy ----------------------------------------------------------------------------------------
# What a policy promises, the queue of waiting steps, how long each waits and for what, and what a
# killed step asks for next.
#
# Pure: the time is in the state, and the same state always gets the same decision.


_MOST_DIGITS = 6  # digits of a number of jobs
NAMES = ("adaptive", "fixed", "levels", "two-phase")
MAXIMAL_OOMS = 3
_LARGER = 1.25  # request of a killed step, relative to its prediction


class Policy(Protocol):
    """Decides which steps start, pause, resume and die, and gives the reasons.

    It is asked after every event and every reading, and its decision is carried out before it is
    asked again. A policy admits only waiting steps and kills only running ones. If no step runs and
    some wait, it admits at least one.
    """

    @property
    def name(self) -> str: ...

    def decide(self, state: State) -> Decision: ...


def parse_policy(text: str) -> tuple[str, int | None]:
    """Return the name of a policy and its number of jobs, which only ``fixed:8`` has."""
    name, _, jobs = text.partition(":")
    if name not in NAMES:
        raise unknown("policy", text, NAMES)
    if jobs and (name != "fixed" or not whole_number(jobs, _MOST_DIGITS)):
        raise UsageError(f"'{text}' is not a policy", hints=["a number of jobs: fixed:8"])
    return name, int(jobs) if jobs else None


# A second of waiting counts as this many seconds of critical path, so that no step starves.
_AGING = 0.1


def urgency(request: Request) -> tuple[float, int]:
    """Return a sort key: a long critical path and a long wait come first."""
    return _AGING * request.asked - request.path, request.id


class Queue(Sequence[Request]):
    """The waiting steps, most urgent first. The place of a step is found by bisection."""

    def __init__(self) -> None:
        self._requests: list[Request] = []
        self._keys: list[tuple[float, int]] = []  # of the requests, in the same order
        self._by_id: dict[int, tuple[float, int]] = {}

    def add(self, request: Request) -> None:
        """Add a request, or replace the one with its id."""
        key = urgency(request)
        known = self._by_id.get(request.id)
        if known == key:
            self._requests[bisect_left(self._keys, key)] = request
            return
        if known is not None:
            self.remove(request.id)
        place = bisect_left(self._keys, key)
        self._requests.insert(place, request)
        self._keys.insert(place, key)
        self._by_id[request.id] = key

    def remove(self, identity: int) -> Request | None:
        """Remove and return the request with this id, if there is one."""
        key = self._by_id.pop(identity, None)
        if key is None:
            return None
        place = bisect_left(self._keys, key)
        del self._keys[place]
        return self._requests.pop(place)

    def __len__(self) -> int:
        return len(self._requests)

    def __iter__(self) -> Iterator[Request]:
        return iter(self._requests)

    @overload
    def __getitem__(self, index: int) -> Request: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Request]: ...
    def __getitem__(self, index: int | slice) -> Request | Sequence[Request]:
        return self._requests[index]


class BusyCpus:
    """Adds up how long no CPU was free. Policies do not consider waiting steps then, so the reason
    that each of them had before says nothing about that time.
    """

    def __init__(self) -> None:
        self.now = False  # whether no CPU is free now
        self._total = self._since = 0.0

    def note(self, now: float, *, busy: bool) -> None:
        self._total, self._since, self.now = self.seconds(now), now, busy

    def seconds(self, now: float) -> float:
        """Return the seconds until now in which no CPU was free."""
        return self._total + (max(0.0, now - self._since) if self.now else 0.0)


class Contention:
    """The share of CPUs that were lately idle because steps waited for memory."""

    _SPAN = 30.0  # seconds after which a share counts with a third of its weight

    def __init__(self) -> None:
        self.share = 0.0
        self._idle = 0.0
        self._since = 0.0

    def note(self, now: float, idle: float) -> None:
        """Note the share of CPUs that is idle from now on because memory is short."""
        weight = 1 - exp(-max(0.0, now - self._since) / self._SPAN)
        self.share += (self._idle - self.share) * weight
        self._idle, self._since = idle, now


class WaitClock:
    """Adds up how long a step waits, by reason. ``busy`` is of the CPUs that the step needs."""

    def __init__(self, now: float, busy: BusyCpus) -> None:
        self.began = self._since = now
        self.seconds: dict[Reason, float] = {}
        self.held_for = Reason.CPUS  # while a CPU is free
        self._busy = busy
        self._busy_before = busy.seconds(now)

    @property
    def reason(self) -> Reason:
        """Why the step waits now."""
        return Reason.CPUS if self._busy.now else self.held_for

    def hold(self, reason: Reason, now: float) -> None:
        """Set the reason for which the step waits from now on, while a CPU is free."""
        self.stop(now)
        self.held_for = reason

    def stop(self, now: float) -> None:
        """Count the time until now."""
        busy = self._busy.seconds(now)
        waited = max(0.0, now - self._since)
        without_cpu = min(waited, busy - self._busy_before)
        self._add(Reason.CPUS, without_cpu)
        self._add(self.held_for, waited - without_cpu)
        self._since, self._busy_before = now, busy

    def _add(self, reason: Reason, seconds: float) -> None:
        if seconds > 0:
            self.seconds[reason] = self.seconds.get(reason, 0.0) + seconds


def after_preemption(step: Running) -> Request:
    """Return the next request of a step that the policy has killed.

    It asks for at least what it was seen to use. A step that stayed within its prediction only met
    others at the wrong time, and asks for more if that happens again. If it was paused before the
    kill, its profile cannot be relied on, so its peak is reserved throughout.
    """
    request, known = step.request, step.request.prediction
    if step.peak > known.peak or request.preemptions:
        larger = min(known.high, round(_LARGER * known.peak))
        request = replace(request, prediction=_raised(known, max(larger, step.peak)))
    elif step.is_paused:
        request = replace(request, prediction=_raised(known, known.peak))
    request = replace(request, preemptions=request.preemptions + 1)
    if request.ooms:
        return request
    request = request.in_mode(CompileMode.DEFAULT)  # the policy chooses again
    return replace(request, faster=()) if step.request.threads > 1 else request


def after_oom(step: Running, observed: int, *, alone: bool = False) -> Request | None:
    """Return the next request of a step that ran out of memory: twice as much, then the whole
    machine, then ``None``. ``observed`` is its peak as measured at the end.

    With the whole machine it runs in the mode that needs the least memory, if it has one. A step
    that was ``alone`` when it ran out gets that at once, because more free memory cannot help it. A
    step that ran with several threads or in the mode fast runs without them.
    """
    request, ooms = step.request, step.request.ooms + 1
    if request.threads > 1:  # one thread needs less; what was observed says little about it
        request, observed = replace(request.in_mode(CompileMode.DEFAULT), faster=()), 0
        step = replace(step, peak=0)
    if request.mode is CompileMode.FAST:
        request = request.in_mode(CompileMode.DEFAULT)
    if ooms >= MAXIMAL_OOMS:
        return None
    least = max(2 * request.prediction.high, observed, step.peak)
    request = replace(request, prediction=_raised(request.prediction, least), ooms=ooms)
    if ooms == MAXIMAL_OOMS - 1 or (alone and request.effects):
        smallest = request.effects[-1].mode if request.effects else request.mode
        request = replace(request, slots=0, mode=smallest)
    return request


def _raised(prediction: Prediction, least: int) -> Prediction:
    """Return the prediction with at least this peak throughout, because the step did not follow its
    profile.
    """
    peak = max(prediction.peak, least)
    high = max(prediction.high, peak)
    raised = prediction.raised or peak > prediction.peak
    return replace(prediction, peak=peak, high=high, profile=(), raised=raised)

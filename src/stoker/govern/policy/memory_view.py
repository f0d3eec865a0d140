"""The memory that builds may use: the last reading of the meter, its growth, the limit in force.

A cap of the user limits builds alone: memory of other processes does not count against it.
"""

from collections import deque
from collections.abc import Mapping

from stoker.govern.policy.interface import REACTION
from stoker.model.govern import Reason, Running
from stoker.model.runs import Intervention
from stoker.model.value import Value


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
    """Measures how fast a reading grows, over the time of two reactions: long enough to separate
    growth from noise, which simulated readings do not have.
    """

    def __init__(self) -> None:
        self._readings: deque[tuple[float, float]] = deque()

    def add(self, now: float, value: float) -> float:
        """Add a reading and return the growth per second."""
        while len(self._readings) > 1 and self._readings[0][0] < now - 2 * REACTION:
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

    def intervention(self, reason: Reason, ours: int, now: float) -> Intervention:
        """Return the cause of a pause or kill, with the memory in use. What other processes use
        counts only if it is part of the limit in force.
        """
        used = max(ours, self.reading.used - self.spare)
        return Intervention(at=now, reason=reason, used_bytes=used, limit_bytes=self.limit)

"""How long steps wait, and for what: for a CPU, for memory, or for something else."""

from math import exp

from stoker.model.govern import Reason


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

    # Seconds after which a share counts with a third of its weight.
    _SPAN = 30.0

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

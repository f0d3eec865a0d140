"""Profiles: the most memory a step used in each equal part of its life, in percent of its peak.

Recorded from what a launcher reports, or assumed where only a mean is known. nvcc's is a saw: each
of its programs climbs and ends. gcc climbs steeply while it reads, then slowly until its end.
"""

from collections.abc import Iterator, Sequence
from itertools import zip_longest
from math import ceil

from stoker.model.govern import StepRecord

PARTS = 128
_STRETCHES = 4 * PARTS  # that are kept while a step runs
_FIRST_WIDTH = 0.1  # seconds, as launchers sample
_SHORTEST = 1.0  # seconds of a life that is long enough to have parts

Profile = tuple[int, ...]


class Recorder:
    """Keeps the most of each stretch of time. Stretches double when there are too many of them, so
    that the longest step takes no more room than a short one.
    """

    def __init__(self) -> None:
        self._width = _FIRST_WIDTH
        self._most = [0]
        self._current = 0

    def add(self, age: float, memory: int) -> None:
        """What it uses from that age on; until then it used what was said before."""
        self._reach(age)
        self._current = memory
        self._most[-1] = max(self._most[-1], memory)

    def profile(self, seconds: float) -> Profile:
        """Of a life of so many seconds; empty where that was too short to tell."""
        if seconds < _SHORTEST or not max(self._most):
            return ()
        self._reach(seconds)
        most = max(self._most)
        return tuple(ceil(100 * part / most) for part in _parts(self._most, seconds / self._width))

    def _reach(self, age: float) -> None:
        while age / self._width >= _STRETCHES:
            pairs = zip_longest(self._most[::2], self._most[1::2], fillvalue=0)
            self._most = [max(pair) for pair in pairs]
            self._width *= 2
        while len(self._most) <= int(age / self._width):
            self._most.append(self._current)


def profile_of(record: StepRecord) -> Profile:
    """As recorded, else the climb with the measured mean; empty where there is neither."""
    if record.profile:
        return tuple(_parts(record.profile, len(record.profile)))
    return climb(record.mean / record.peak, record.step.rounds) if record.mean else ()


def _parts(values: Sequence[int], length: float) -> Iterator[int]:
    """The most in each part of so many values; what lies beyond belongs to the last part."""
    each = length / PARTS
    for part in range(PARTS - 1):
        yield max(values[int(part * each) : ceil((part + 1) * each)])
    yield max(values[int((PARTS - 1) * each) :])


def climb(mean: float, waves: int = 1) -> Profile:
    """With that mean. With several waves the first one climbs, and after it the peak may be at any
    time.
    """
    ends = (min(1.0, (part + 1) * waves / PARTS) for part in range(PARTS))
    return tuple(ceil(100 * climbed(mean, end)) for end in ends)


def climbed(mean: float, share: float) -> float:
    """Of the peak, when that share of a life has passed: share ** exponent, whose mean is
    1 / (exponent + 1).
    """
    return float(share ** max(0.0, 1 / mean - 1))

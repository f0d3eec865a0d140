"""The memory of one step over its life: its profile, as recorded or assumed.

A profile is the most memory that a step used in each equal part of its life, in percent of its
peak. It is recorded from the launcher's reports, or assumed where only a mean is known. The profile
of nvcc is a saw: each program that it starts climbs and ends. gcc climbs steeply while it reads its
input, then slowly until it ends.
"""

from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import zip_longest
from math import ceil

from stoker.govern.policy.interface import REACTION
from stoker.govern.protocol import SAMPLING
from stoker.model.govern import PARTS, StepRecord

# Kept while a step runs; with fewer, a change of memory is noted in the part before it
# [test_a_recorder_can_be_asked_before_the_end].
_STRETCHES = 4 * PARTS
SHORTEST = REACTION  # of steps that have a profile, and that say something about the pace
Profile = tuple[int, ...]


class Recorder:
    """Records the most memory in each stretch of time.

    Stretches double in length when there are too many, so a long step needs no more memory than a
    short one.
    """

    def __init__(self) -> None:
        self._width = SAMPLING
        self._most = [0]
        self._current = 0

    def add(self, age: float, memory: int) -> None:
        """Record that the step uses ``memory`` from this age on."""
        self._reach(age)
        self._current = memory
        self._most[-1] = max(self._most[-1], memory)

    def profile(self, seconds: float) -> Profile:
        """Return the profile of a step that ran for ``seconds``; empty if that is too short."""
        if seconds < SHORTEST or not max(self._most):
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
    """Return the recorded profile, or a climb with the measured mean; empty if neither is known."""
    if len(record.profile) == PARTS:
        return record.profile
    if record.profile:
        return tuple(_parts(record.profile, len(record.profile)))
    if not record.mean:
        return ()
    mean = max(1 / PARTS, round(record.mean / record.peak_bytes, 3))  # its peak takes a part
    return climb(mean, record.step.rounds)


def _parts(values: Sequence[int], length: float) -> Iterator[int]:
    """Yield the most in each part of ``length`` values; the last part takes those beyond."""
    each = length / PARTS
    for part in range(PARTS - 1):
        yield max(values[int(part * each) : ceil((part + 1) * each)])
    yield max(values[int((PARTS - 1) * each) :])


@lru_cache(maxsize=4096)
def climb(mean: float, waves: int = 1) -> Profile:
    """Return a climbing profile with this mean. With several waves only the first one climbs; after
    it the peak may come at any time.
    """
    exponent = _exponent(mean)
    return tuple([ceil(100 * share**exponent) for share in _shares(waves)])


@lru_cache(maxsize=64)
def _shares(waves: int) -> tuple[float, ...]:
    """Return which share of the first wave has passed at the end of each part."""
    return tuple(min(1.0, (part + 1) * waves / PARTS) for part in range(PARTS))


def climbed(mean: float, share: float) -> float:
    """Return memory over peak when ``share`` of a life has passed: share ** exponent, the mean of
    which is 1 / (exponent + 1).
    """
    return float(share ** _exponent(mean))


def _exponent(mean: float) -> float:
    return max(0.0, 1 / mean - 1)

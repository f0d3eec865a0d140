"""The memory of one step over its life: its profile as recorded, and what to expect of it.

A profile is the most memory that a step used in each equal part of its life, in percent of its
peak. It is recorded from the launcher's reports, or assumed where only a mean is known. The profile
of nvcc is a saw: each program that it starts climbs and ends. gcc climbs steeply while it reads its
input, then slowly until it ends.

A step that runs is expected to follow its profile, stretched to the expected duration; without a
profile it is expected to use its peak throughout. The longer a step has run, the more its own
measurements count, and the less the prediction counts.
"""

from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from functools import cached_property, lru_cache
from itertools import accumulate, pairwise, zip_longest
from math import ceil, inf

from msgspec.structs import replace

from stoker.model.govern import Pace, Prediction, StepRecord
from stoker.model.value import Value

PARTS = 128
# Mean of a step's memory over its peak, where only the peak is known: gcc 12 on C++, 0.76 to 0.83.
TYPICAL_SHARE = 0.8
_LEAST_MEAN = 0.001  # of a step that idles for long before it reaches its peak
_STRETCHES = 4 * PARTS  # kept while a step runs
SAMPLING = 0.1  # seconds between two samples of the launcher
SHORTEST = 1.0  # seconds; a shorter step gets no profile
# A name in brackets is the scenario of tests/scenarios.py that guards a figure, with its time over
# the stored one if the figure is left out.
# Factor by which predicted durations may be too short [pytorch16th-4cpu-2G-warm-gc-off 1.04].
_OVERTIME = 1.02
# Share of its age that an overdue step is expected to need longer [the same 1.07].
_LATE = 0.1
# Last parts of a profile, in one of which an overdue step may be [24 first builds 1.006].
_TAIL = 16
# Share by which the memory of one command differs from run to run [cuda-16cpu-32G-cold 1.13].
_ALIKE = 0.12
# Seconds by which a measurement may be older than the step's age, and for which memory in use now
# stays in use [cuda-16cpu-32G-cold 1.05].
_DELAY = 0.5
# Share of the spread of durations that a forecast allows for. A step that is early or late can be
# paused for a moment, which costs less than the CPUs that would wait for every such case
# [pytorch16th-4cpu-2G-cold-gc-off 1.19].
_DOUBT = 0.5
# A step that is slower than predicted by more than this does not follow its profile
# [pytorch16th-4cpu-2G-cold-gc-off 1.13].
_SLOWEST = 2.5

Profile = tuple[int, ...]
Ages = tuple[float, float]  # seconds of a predicted life that have passed: at least, at most
# What a step is expected to use: the most bytes between two times, in seconds from now.
Expected = Callable[[float, float], float]


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
    mean = max(_LEAST_MEAN, round(record.mean / record.peak_bytes, 3))
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


@lru_cache(maxsize=16)
def stepped(levels: tuple[tuple[int, int], ...]) -> Profile:
    """Return the profile with these levels, each until a percentage of the step's life."""
    return tuple(
        level
        for (begin, _), (end, level) in pairwise(((0, 0), *levels))
        for _ in range(begin * PARTS // 100, end * PARTS // 100)
    )


def climbed(mean: float, share: float) -> float:
    """Return memory over peak when ``share`` of a life has passed: share ** exponent, the mean of
    which is 1 / (exponent + 1).
    """
    return float(share ** _exponent(mean))


def _exponent(mean: float) -> float:
    return max(0.0, 1 / mean - 1)


def flat(memory: float) -> Expected:
    """Expect the same memory throughout."""
    return lambda begin, end: memory  # noqa: ARG005 - as Expected is called


def delayed(expected: Expected, by: float) -> Expected:
    """Expect the same of a step that starts later."""
    return lambda begin, end: expected(max(0.0, begin - by), end - by)


class Course(Value, frozen=True, kw_only=True, dict=True):
    """What is expected of a step from its start at today's pace: ``prediction`` has its duration
    then, and ``spread`` is the factor by which it may be faster or slower than that.
    """

    prediction: Prediction
    spread: float
    seconds: float  # until it ends, as an overestimate
    memory: Expected

    @cached_property
    def highest(self) -> Profile:
        """Its profile, each part with the highest so far."""
        return _highest_so_far(self.prediction.profile)


@lru_cache(maxsize=1024)  # the same steps run and wait in one decision after another
def course(prediction: Prediction, pace: Pace) -> Course:
    paced = _paced(prediction, pace)
    spread = 1 + _DOUBT * (pace.spread - 1) if prediction.learned else 1.0
    return Course(
        prediction=paced,
        spread=spread,
        seconds=remaining(paced, 0.0),
        memory=expected(paced, spread),
    )


def expected(prediction: Prediction, spread: float = 1.0) -> Expected:
    """Return the expected memory of a step that starts now; ``spread`` is the factor by which it
    may be faster or slower than predicted.
    """
    if not prediction.profile or not prediction.seconds:
        return flat(prediction.peak)
    return _following(prediction, (0.0, 0.0), spread)


def expected_from(
    prediction: Prediction, ages: Ages, current: int, spread: float = 1.0
) -> Expected:
    """Return the expected memory of a step that runs, for as long as it runs."""
    left = to_come(prediction, ages[0])
    if current > prediction.peak:  # it has exceeded its prediction and may grow as much again
        return flat(current + max(0, current - prediction.high) * left)
    if not prediction.profile or not prediction.seconds:
        return flat(prediction.peak)
    least, most = _levels(prediction, *ages)
    scale = 1.0 if current >= least else 1 - (1 - current / least) * (1 - left)
    return _following(prediction, ages, spread, scale, current, inf if current > most else _DELAY)


def _following(
    prediction: Prediction,
    ages: Ages,
    spread: float,
    scale: float = 1.0,
    floor: float = 0.0,
    floor_until: float = 0.0,
) -> Expected:
    """Expect the profile from ages of a step on, times ``scale``, and at least ``floor`` until some
    time.

    The forecast calls the result tens of times for each running step whenever the policy looks for
    a step to admit. Therefore it is a closure without calls of min and max, which take most of
    the time otherwise.
    """
    peak, profile, seconds = prediction.peak, prediction.profile, prediction.seconds or 1.0
    parts, (least, most) = len(profile), ages
    tail, rising = parts - _TAIL, _is_rising(prediction)

    def most_between(begin: float, end: float) -> float:
        begin /= spread
        first, last = (least + begin) / seconds * parts, (most + end * spread) / seconds
        stop = int(last * parts) + 1 if last < 1.0 else parts
        if rising:
            percent = profile[stop - 1]
        else:
            percent = max(profile[int(first) if first < tail else tail : stop])
        level = scale * (peak * (percent / 100))
        return floor if begin < floor_until and level < floor else level

    return most_between


def _paced(prediction: Prediction, pace: Pace) -> Prediction:
    """Return the prediction of a step for a machine with this pace."""
    if pace.usual == 1.0 or prediction.seconds is None or not prediction.learned:
        return prediction
    return replace(prediction, seconds=prediction.seconds * pace.usual)


def lived(course: Course, age: float, peak: int) -> Ages:
    """Return how much of its predicted life a step has behind it.

    That is its age, within the spread, unless its ``peak`` so far says otherwise: a step that has
    not reached a level of its profile yet is slower than predicted, and a step that has reached it
    too early is faster.
    """
    prediction, highest = course.prediction, course.highest
    least, most, seconds = age / course.spread, age * course.spread, prediction.seconds
    if not highest or not seconds or not prediction.learned or not prediction.peak:
        return least, most
    percent, parts = 100 * peak / prediction.peak, len(highest)
    # The first parts of its life that exceed its peak so far, with some doubt about that.
    first = bisect_right(highest, percent / (1 + _ALIKE))
    last = bisect_right(highest, percent / (1 - _ALIKE))
    if first < parts:
        earliest = first * seconds / parts
        least, most = max(least, earliest), max(most, earliest)
    if last == parts:
        return least, most
    bound = max(last * seconds / parts + _DELAY, age / _SLOWEST)
    return min(least, bound), min(most, bound)


@lru_cache(maxsize=1024)  # a prediction knows its hash, a profile does not
def _is_rising(prediction: Prediction) -> bool:
    """Return whether the memory of a step never falls, which is usual of gcc."""
    return prediction.profile == _highest_so_far(prediction.profile)


@lru_cache(maxsize=1024)
def _highest_so_far(profile: Profile) -> Profile:
    return tuple(accumulate(profile, max))


def remaining(prediction: Prediction, age: float) -> float:
    """Return the seconds until the step ends, as an overestimate; infinity if they are unknown."""
    if prediction.seconds is None:
        return inf
    return max(prediction.seconds * _OVERTIME - age, age * _LATE)


def to_come(prediction: Prediction, age: float) -> float:
    """Return the share of its last wave that lies ahead: 1, unless its own duration is known."""
    if not prediction.seconds or not prediction.learned:
        return 1.0
    return min(1.0, max(0.0, (1 - age / prediction.seconds) * prediction.waves))


def _levels(prediction: Prediction, begin: float, end: float) -> tuple[float, float]:
    """Return the least and the most memory between two ages."""
    profile, seconds = prediction.profile, prediction.seconds or 1.0
    parts = len(profile)
    first = int(min(begin / seconds * parts, parts - _TAIL))
    last = int(min(end / seconds * parts, parts))
    seen = profile[first : last + 1]
    return prediction.peak * (min(seen) / 100), prediction.peak * (max(seen) / 100)

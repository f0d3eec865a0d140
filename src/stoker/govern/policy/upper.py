"""How much memory a step may use at a future time: what all decisions about memory ask.

A step that runs is expected to follow its profile, stretched to the expected duration; without a
profile it is expected to use its peak throughout. The longer a step has run, the more its own
measurements count, and the less the prediction counts. Every prediction has a margin. Errors of
learned predictions are independent; shipped figures may all be wrong in the same direction.
"""

from bisect import bisect_right
from collections.abc import Callable
from functools import cached_property, lru_cache
from itertools import accumulate
from math import inf

from msgspec.structs import replace

from stoker.govern.policy.interface import MOMENT, REACTION
from stoker.govern.policy.phases import is_settled
from stoker.govern.policy.profile import Profile
from stoker.model.govern import Basis, Fall, Pace, Prediction, Running
from stoker.model.value import Value

# What brackets mean is in adaptive.py.
# Factor by which durations differ at least: a step may take longer by it, and the spread is never
# less.
LEAST_SPREAD = 1.02
# Share of its age that an overdue step is expected to need longer [pytorch-2G-known-scattered 1.05
# with 0.02].
_LATE = 0.1
_TAIL = 16  # last parts of a profile, in one of which an overdue step may be
_ALIKE = 0.12  # share by which the memory of one command differs from run to run
# Share of the spread of durations that a forecast allows for. A step that is early or late can be
# paused for a moment, which costs less than the CPUs that would wait for every such case
# [pytorch-2G-known-scattered 1.04 with 1].
_DOUBT = 0.5
_SLOWEST = 2.5  # a step that is slower than predicted by more does not follow its profile
# Share of a learned prediction's width that is kept free. Being wrong now and then, and killing the
# youngest step, costs less than idle CPUs [pytorch-2G-known-scattered 1.13 with 0].
_CAUTION = 0.25
# Share of its memory by which a step may still grow if nothing says where it ends
# [tables-2cpu-first 1.09 with 0].
_FURTHER = 0.5

Ages = tuple[float, float]  # seconds of a predicted life that have passed: at least, at most
# What a step is expected to use: the most bytes between two times, in seconds from now.
Expected = Callable[[float, float], float]


class Upper(Value, frozen=True, kw_only=True):
    """The memory that one step may use from now on. ``margin`` is the share of it by which it may
    be wrong; ``independent`` says whether that has nothing to do with the errors of other steps.
    """

    life: float  # seconds until it ends
    until: float  # the same if it is slow
    memory: Expected
    margin: float
    independent: bool
    falls_in: float = 0.0  # seconds until its memory falls for good, at the latest as expected

    def share(self, begin: float, end: float) -> tuple[float, float]:
        """Return the memory and the variance of that between two times."""
        memory = self.memory(begin, end)
        margin = memory * self.margin
        return (memory, margin * margin) if self.independent else (memory + margin, 0.0)


@lru_cache(maxsize=1024)  # the same steps wait in one decision after another
def starting(prediction: Prediction, pace: Pace, *, usual: bool) -> Upper:
    """Return what a step may use that starts now. With ``usual`` a step that was never measured
    counts with its usual need, and not with its worst case.
    """
    known = course(prediction, pace)
    memory, falls_in = known.memory, 0.0
    if prediction.fall:
        memory, falls_in = _climbing(0.0, 0.0, prediction.peak, prediction.fall)
    margin, independent = _margin(prediction, 1.0)
    if usual and not prediction.learned:
        margin, independent = _CAUTION * margin, True
    return Upper(
        life=known.seconds,
        until=known.seconds * known.spread or REACTION,
        memory=memory,
        margin=margin,
        independent=independent,
        falls_in=falls_in,
    )


def running(step: Running, now: float, pace: Pace, *, usual: bool) -> Upper:
    """Return what a running step may use; ``usual`` is as for one that starts."""
    known = course(step.request.prediction, pace)
    prediction = known.prediction
    if prediction.fall:
        return _by_phase(step, prediction, prediction.fall, now, usual=usual)
    ages = lived(known, step.age(now), step.peak)
    margin, independent = _margin(prediction, to_come(prediction, ages[0]))
    memory = expected_from(prediction, ages, step.current, known.spread)
    if is_tried(step, usual=usual):
        memory, margin = flat(reach(step)), 0.0
    life = remaining(prediction, ages[0])
    return Upper(
        life=life,
        until=life * known.spread or REACTION,
        memory=memory,
        margin=margin,
        independent=independent,
    )


def _by_phase(
    step: Running, prediction: Prediction, fall: Fall, now: float, *, usual: bool
) -> Upper:
    """Return what a running step may use whose memory falls once. Before that it is expected to
    climb to its peak, and after it to need what such steps need then.
    """
    age = step.age(now)
    life = remaining(prediction, age)
    margin, independent = _margin(prediction, 1.0)
    if step.fell_at is not None:
        usual_rest, high = fall.rest * step.peak, fall.rest_high * step.peak
        if is_settled(step, now):
            usual_rest, high = step.current, (1 + _ALIKE) * step.rest
        rest = max(usual_rest, step.current, 1)
        memory, falls_in = flat(rest), 0.0
        margin, independent = _CAUTION * max(0.0, high / rest - 1), True
    elif is_tried(step, usual=usual) or step.current > prediction.peak:
        memory, falls_in = _climbing(step.current, age, reach(step), fall)
        margin = 0.0
    else:
        memory, falls_in = _climbing(step.current, age, prediction.peak, fall)
    return Upper(
        life=life,
        until=life or REACTION,
        memory=memory,
        margin=margin,
        independent=independent,
        falls_in=falls_in,
    )


def _climbing(current: float, age: float, top: float, fall: Fall) -> tuple[Expected, float]:
    """Expect a climb in a straight line to ``top``, and what is left after the fall; return also
    the seconds until that. Before any such step has fallen, it may be at its top at any time.
    """
    own = current / age if age > MOMENT else 0.0
    fastest = max(fall.fastest or 0.0, own) * (1 + _ALIKE)
    slowest = min(fall.slowest or 0.0, own or inf) / (1 + _ALIKE)
    if not fastest:
        return flat(top), 0.0
    falls_in = max((top - current) / slowest, _LATE * age, MOMENT) if slowest else inf
    rest = fall.rest_high * top

    def memory(begin: float, end: float) -> float:
        return rest if begin > falls_in else min(top, current + fastest * end)

    return memory, falls_in if slowest else (top - current) / fastest


def is_tried(step: Running, *, usual: bool) -> bool:
    """Return whether a step counts with what it reaches as a rule, not with its worst case."""
    return (usual or step.on_trial) and not step.request.learned


def flat(memory: float) -> Expected:
    """Expect the same memory throughout."""
    return lambda begin, end: memory  # noqa: ARG005 - as Expected is called


def delayed(upper: Upper, by: float) -> Upper:
    """Return what the same step may use if it starts later."""
    memory = upper.memory
    return replace(
        upper,
        until=by + upper.until,
        memory=lambda begin, end: memory(max(0.0, begin - by), end - by),
    )


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
    return _following(prediction, ages, spread, scale, current, inf if current > most else REACTION)


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
    bound = max(last * seconds / parts + REACTION, age / _SLOWEST)
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
    return max(prediction.seconds * LEAST_SPREAD - age, age * _LATE)


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


def _margin(prediction: Prediction, to_come: float) -> tuple[float, bool]:
    """Return the margin as a share of the step's memory, and whether it is independent of other
    steps. The more of a step has been seen, the less is uncertain.
    """
    caution = _CAUTION if prediction.learned else 1.0
    return _width(prediction) * to_come * caution, prediction.basis is not Basis.PRIOR


def _width(prediction: Prediction) -> float:
    """Return by which share few such steps pass the predicted peak."""
    return prediction.high / prediction.peak - 1 if prediction.high > prediction.peak > 0 else 0.0


def reach(step: Running) -> float:
    """Return the memory that a running step of unknown size reaches as a rule: what is predicted,
    or its memory now if that is more, with the caution of a learned prediction. Nothing says
    where it ends if shipped figures are all that is known, or if it has passed its prediction: it
    may need half as much again as it uses.
    """
    prediction, current = step.request.prediction, step.current
    if step.fell_at is not None and prediction.fall:
        return max(step.rest, prediction.fall.rest * step.peak)
    usual = max(current, prediction.peak) * (1 + _CAUTION * _width(prediction))
    ends = prediction.basis is not Basis.PRIOR and current <= prediction.high
    return usual if ends else max(usual, (1 + _FURTHER) * current)


def most_at_start(prediction: Prediction) -> int:
    """Return the most memory of a step that has not started, margin included."""
    return max(prediction.high, prediction.peak)


def most_of(step: Running) -> float:
    """Return the most memory of a running step at any time, margin included."""
    prediction, current = step.request.prediction, step.current
    if current <= prediction.peak:
        return most_at_start(prediction)
    return (current + max(0, current - prediction.high)) * (1 + _margin(prediction, 1.0)[0])

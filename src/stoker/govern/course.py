"""The course of a step's memory: how much it will use at which age, as far as one can tell.

History's profile says so, stretched to the expected lifetime; without one it is the peak from first
to last. The longer a step runs, the more counts what was seen of it, and the less what was
predicted.
"""

from collections.abc import Callable
from math import inf

from msgspec.structs import replace

from stoker.model.govern import Pace, Prediction

_OVERTIME = 1.02  # by which a prediction of time is taken to be too short
_LATE = 0.1  # share of its age for which a step goes on that should have ended
_TAIL = 16  # parts of a profile in which a step may be that should have ended
_MOMENT = 1.0  # seconds for which what is in use now stays in use
_ALIKE = 0.12  # share by which the memory of one command may differ from run to run
_DELAY = 0.5  # seconds by which what was seen of a step may be older than its age
_SLOWEST = 2.5  # times that a step may take longer than expected; then it is another life

Span = Callable[[float, float], float]  # the most bytes in use between two times
Ages = tuple[float, float]  # seconds of a predicted life that have passed: at least, at most


def paced(prediction: Prediction, pace: Pace) -> Prediction:
    """Return the prediction of a step for a machine with this pace."""
    if pace.usual == 1.0 or prediction.seconds is None or not prediction.learned:
        return prediction
    return replace(prediction, seconds=prediction.seconds * pace.usual)


def spread_of(prediction: Prediction, pace: Pace) -> float:
    """Return the factor by which the step may be faster or slower than its paced prediction."""
    return pace.spread if prediction.learned else 1.0


def lived(prediction: Prediction, age: float, peak: int, spread: float) -> Ages:
    """Return how much of its predicted life a step has behind it.

    That is its age, give or take ``spread``, unless ``peak``, the most memory that was seen of it,
    says otherwise: a step that has not reached a level of its profile yet is slower than
    predicted, and one that has reached it too early is faster.
    """
    profile, seconds = prediction.profile, prediction.seconds
    least, most = age / spread, age * spread
    if not profile or not seconds or not prediction.learned or not prediction.peak:
        return least, most
    percent = 100 * peak / prediction.peak
    earliest = _first_above(profile, percent / (1 + _ALIKE)) * seconds / len(profile)
    latest = _first_above(profile, percent / (1 - _ALIKE)) * seconds / len(profile)
    if earliest < seconds:
        least, most = max(least, earliest), max(most, earliest)
    bound = max(latest + _DELAY, age / _SLOWEST)
    return min(least, bound), min(most, bound)


def _first_above(profile: tuple[int, ...], percent: float) -> float:
    """Return the first part of the profile that exceeds the level; infinity where none does."""
    return next((part for part, value in enumerate(profile) if value > percent), inf)


def ahead(prediction: Prediction, ages: Ages, current: int) -> Span:
    """Return the expected memory of a step between two delays from now, if it still runs then."""
    left = to_come(prediction, ages[0])
    if current > prediction.peak:  # beyond what was thought possible it may go as far again
        beyond = current + max(0, current - prediction.high) * left
        return lambda *_: beyond
    expected = span(prediction)
    least, most = (prediction.peak * share for share in _shares(prediction, *ages))
    scale = 1.0 if current >= least else 1 - (1 - current / least) * (1 - left)

    def memory(begin: float, end: float) -> float:
        level = scale * expected(ages[0] + begin, ages[1] + end)
        return max(level, current) if begin < _MOMENT or current > most else level

    return memory


def span(prediction: Prediction) -> Span:
    """Expected memory of a step between two ages."""
    return lambda begin, end: prediction.peak * _shares(prediction, begin, end)[1]


def remaining(prediction: Prediction, age: float) -> float:
    """Seconds until it ends, rather too many; infinite where nobody knows."""
    if prediction.seconds is None:
        return inf
    return max(prediction.seconds * _OVERTIME - age, age * _LATE)


def to_come(prediction: Prediction, age: float) -> float:
    """Share of its last wave that lies ahead: all, unless its own duration was seen before."""
    if not prediction.seconds or not prediction.learned:
        return 1.0
    return min(1.0, max(0.0, (1 - age / prediction.seconds) * prediction.waves))


def _shares(prediction: Prediction, begin: float, end: float) -> tuple[float, float]:
    """Least and most of the peak between two ages."""
    profile, seconds = prediction.profile, prediction.seconds
    if not profile or not seconds:
        return 0.0, 1.0
    parts = len(profile)
    first = int(min(begin / seconds * parts, parts - _TAIL))
    last = int(min(end / seconds * parts, parts))
    seen = profile[first : last + 1]
    return min(seen) / 100, max(seen) / 100

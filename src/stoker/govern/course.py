"""The course of a step's memory: how much it will use at which age, as far as one can tell.

History's profile says so, stretched to the expected lifetime; without one it is the peak from first
to last. The longer a step runs, the more counts what was seen of it, and the less what was
predicted.
"""

from collections.abc import Callable
from math import inf

from stoker.model.govern import Prediction, Running

# A prediction of time is taken to be this much too short, and more when it was passed already.
_OVERTIME = 1.1
_TAIL = 16  # parts of a profile in which a step may be that should have ended
_MOMENT = 1.0  # seconds for which what is in use now stays in use

Span = Callable[[float, float], float]  # the most bytes in use between two times


def ahead(step: Running, now: float) -> Span:
    """Expected memory of a running step between two delays from now, if it still runs then."""
    prediction, age, current = step.request.prediction, step.age(now), step.current
    left = to_come(prediction, age)
    if current > prediction.peak:  # beyond what was thought possible it may go as far again
        beyond = current + max(0, current - prediction.high) * left
        return lambda *_: beyond
    expected = span(prediction)
    least, most = (prediction.peak * share for share in _shares(prediction, age, age))
    scale = 1.0 if current >= least else 1 - (1 - current / least) * (1 - left)

    def memory(begin: float, end: float) -> float:
        level = scale * expected(age + begin, age + end)
        return max(level, current) if begin < _MOMENT or current > most else level

    return memory


def span(prediction: Prediction) -> Span:
    """Expected memory of a step between two ages."""
    return lambda begin, end: prediction.peak * _shares(prediction, begin, end)[1]


def remaining(prediction: Prediction, age: float) -> float:
    """Seconds until it ends, rather too many; infinite where nobody knows."""
    if prediction.seconds is None:
        return inf
    return max(prediction.seconds * _OVERTIME - age, age * (_OVERTIME - 1))


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

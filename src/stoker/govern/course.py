"""The course of a step's memory: how much it will use at which age, as far as one can tell.

A compiler's memory climbs steeply while it reads, then slowly until shortly before its end. One
curve with one parameter follows that well: peak x (age / lifetime) ** exponent. Its mean is
peak / (exponent + 1), so a measured mean gives the exponent. Without one the curve is flat at the
peak. The longer a step runs, the more counts what was seen of it, and the less what was predicted.
"""

from collections.abc import Callable
from math import inf

from stoker.model.govern import Prediction, Running

# A step is past its peak when it came this close to what was predicted and fell this far below.
_REACHED = 0.9
_FALLEN = 0.75
# A prediction of time is taken to be this much too short, and more when it was passed already.
_OVERTIME = 1.1


def level(prediction: Prediction, age: float) -> float:
    """Expected memory of a step of that age; after its first wave the peak may be any time."""
    if not prediction.mean or not prediction.seconds:
        return prediction.peak
    share = age * prediction.waves / prediction.seconds
    if share >= 1:
        return prediction.peak
    return float(prediction.peak * share ** max(0.0, prediction.peak / prediction.mean - 1))


def remaining(prediction: Prediction, age: float) -> float:
    """Seconds until it ends, rather too many; infinite where nobody knows."""
    if prediction.seconds is None:
        return inf
    return max(prediction.seconds * _OVERTIME - age, age * (_OVERTIME - 1))


def reserved(step: Running, now: float) -> float:
    """The most that a running step is expected to use from now on; never less than it uses now."""
    prediction, age = step.request.prediction, now - step.started
    left = to_come(prediction, age)
    if step.current > prediction.peak:  # beyond what was thought possible it may go as far again
        return step.current + max(0, step.current - prediction.high) * left
    if _past_peak(step):  # it may climb again, less likely the later it is
        return step.current + (prediction.peak - step.current) * left
    expected = level(prediction, age)
    if not prediction.mean or step.current >= expected:
        return prediction.peak
    missing = 1 - step.current / expected
    return prediction.peak * (1 - missing * (1 - left))


def ahead(step: Running, now: float) -> Callable[[float], float]:
    """Expected memory of a running step some seconds from now, if it still runs then."""
    prediction, age = step.request.prediction, now - step.started
    most, least = reserved(step, now), step.current
    if least > prediction.peak:
        return lambda _: most
    return lambda delay: min(most, max(least, level(prediction, age + delay)))


def to_come(prediction: Prediction, age: float) -> float:
    """Share of its last wave that lies ahead: all, unless its own duration was seen before."""
    if not prediction.seconds or not prediction.learned:
        return 1.0
    return min(1.0, max(0.0, (1 - age / prediction.seconds) * prediction.waves))


def _past_peak(step: Running) -> bool:
    reached = step.peak >= _REACHED * step.request.prediction.peak
    return reached and step.current < _FALLEN * step.peak

"""The phases of a step of nvcc: its memory climbs to a peak, falls, and stays below it.

cicc climbs in a straight line, gives nearly all of its memory back within seconds, and then takes a
part of it again until it ends; what runs after it is small. So a step whose memory has fallen has
its peak behind it. How fast steps climb and what they need after the fall is much the same within a
folder, and is learned from those that have fallen while they still run. Compilers of C++ grow to
their end, and a step with several GPU targets climbs once for each: neither has a fall.
"""

from collections import defaultdict
from collections.abc import Iterator
from statistics import median

from msgspec.structs import replace

from stoker.govern.policy.interface import REACTION
from stoker.model.govern import Fall, Role, Running, Step
from stoker.model.value import Value

# Share of its peak below which the memory of a step has fallen, and above which that was no fall.
# cudafe++ runs before cicc and gives its memory back too: a fall from less than so much is none.
_FALLEN, _CLIMBS_AGAIN = 1 / 3, 0.9
_LEAST_PEAK = 1 << 30
# Share of its age at the fall after which a step has shown what it needs from then on: cicc takes
# memory again for about half as long as it climbed.
_SETTLED = 1.0
# What steps need after their fall, as a share of their peak, before others have shown it. It counts
# as so many of them.
_ASSUMED_REST = 0.6
_ENOUGH = 4
_MOST = 0.9  # share of what was seen that the high figure covers


def has_fall(step: Step) -> bool:
    """Return whether the memory of a step falls once, after its peak."""
    return step.role is Role.CUDA and step.rounds == 1


def grown(step: Step, running: Running, current: int, peak: int, now: float) -> Running:
    """Return a running step with its measured memory, and with its fall if that shows one."""
    running = replace(running, current=current, peak=max(peak, running.peak))
    if running.fell_at is not None and current > _CLIMBS_AGAIN * running.peak:
        return replace(running, fell_at=None, rest=0)
    if running.fell_at is not None:
        return replace(running, rest=max(running.rest, current))
    fallen = running.peak >= _LEAST_PEAK and current < _FALLEN * running.peak
    return replace(running, fell_at=running.age(now)) if fallen and has_fall(step) else running


def is_settled(running: Running, now: float) -> bool:
    """Return whether a step has fallen so long ago that it has shown what it needs from then on."""
    fell_at = running.fell_at
    return fell_at is not None and running.age(now) >= fell_at * (1 + _SETTLED)


def folders(source: str) -> Iterator[str]:
    """Yield the folder of a source and its parents, innermost first; the last is the root."""
    folder = source.rpartition("/")[0]
    while folder:
        yield folder
        folder = folder.rpartition("/")[0]
    yield ""


class _Seen(Value, frozen=True, kw_only=True):
    """A step that has fallen: how fast it climbed, and the share of its peak it has used since."""

    peak: int
    speed: float
    rest: float
    settled: bool


class Falls:
    """What the steps of this run that have fallen say about others of their folder."""

    def __init__(self) -> None:
        self._seen: defaultdict[str, dict[str, _Seen]] = defaultdict(dict)
        self.count = 0

    def see(self, step: Step, running: Running, now: float) -> None:
        """Take in a running step that has fallen."""
        if running.fell_at is None:
            return
        seen = _Seen(
            peak=running.peak,
            speed=running.peak / max(running.fell_at, REACTION),
            rest=running.rest / running.peak,
            settled=is_settled(running, now),
        )
        self.count += step.key not in self._seen[""]
        for folder in folders(step.source):
            self._seen[folder][step.key] = seen

    def peaks(self, step: Step) -> list[int]:
        """Return the peaks of the steps nearest to this one that have fallen."""
        return [seen.peak for seen in self._near(step)] if has_fall(step) else []

    def expected(self, step: Step) -> Fall | None:
        """Return what to expect of a step; ``None`` if its memory does not fall."""
        if not has_fall(step):
            return None
        near = self._near(step)
        speeds = [seen.speed for seen in near]
        rests = sorted(seen.rest for seen in near if seen.settled)
        high = rests[min(len(rests) - 1, int(len(rests) * _MOST))] if rests else _ASSUMED_REST
        weight = _ENOUGH / (len(rests) + _ENOUGH)
        return Fall(
            fastest=max(speeds, default=None),
            slowest=min(speeds, default=None),
            rest=median(rests) if rests else _ASSUMED_REST,
            rest_high=high * (1 - weight) + max(high, _ASSUMED_REST) * weight,
        )

    def _near(self, step: Step) -> list[_Seen]:
        found = (self._seen[folder] for folder in folders(step.source) if folder in self._seen)
        return list(next(found, {}).values())

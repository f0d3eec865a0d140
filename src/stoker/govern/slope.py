"""How fast a reading grows."""

from collections import deque


class Slope:
    """Over the last second: long enough to tell growth from noise, short enough to act on it."""

    _SPAN = 1.0

    def __init__(self) -> None:
        self._readings: deque[tuple[float, int]] = deque()

    def add(self, now: float, value: int) -> float:
        """Units a second, with this reading as the latest."""
        while len(self._readings) > 1 and self._readings[0][0] < now - self._SPAN:
            self._readings.popleft()
        self._readings.append((now, value))
        then, before = self._readings[0]
        return (value - before) / (now - then) if now > then else 0.0

"""Shows on standard error how far long work has come: the amount done, the total and the time left.

Work announces itself with `stage`; nothing is shown unless the command has switched it on with
`shown`. A terminal gets one line that is overwritten, any other stream a line now and then. Nothing
is said about work that ends at once.
"""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Event, Lock, Thread
from typing import TextIO

from stoker.model.value import duration, size
from stoker.model.visible import visible
from stoker.outside.streams import columns, write_own
from stoker.outside.terminal import tell

_TICK_S = 0.25
_QUIET_S = {True: 0.5, False: 2.0}  # of a stage, on a terminal and elsewhere
_BETWEEN_S = {True: 0.25, False: 10.0}  # from one line to the next
_GUESS_S = 1.0  # before there is an estimate
_LEFT_OUT = "..."

Advance = Callable[[int], None]
Say = Callable[[str], None]  # told a line for the user


class ProgressStage:
    """A part of the work. A total of zero means that the amount is unknown."""

    def __init__(self, title: str, total: int, now: float):
        self.title = title
        self.total = total
        self.start = self.told = now
        self.done = 0


def amount_line(title: str, done: int, total: int, elapsed_s: float) -> str:
    """Return a line such as ``unpacking: 1.2 GiB of 2.9 GiB (41 %), 8 s so far, 12 s left``. The
    time so far changes every second, also if the amount takes longer to change.
    """
    if not total:
        return f"{title}: {duration(elapsed_s)}"
    done = min(done, total)
    amount = f"{size(done)} of {size(total)} ({100 * done // total} %)"
    line = f"{title}: {amount}, {duration(elapsed_s)} so far"
    if not done or elapsed_s < _GUESS_S:
        return line
    return f"{line}, {duration(elapsed_s * (total - done) / done)} left"


def fitted_line(line: str, columns: int) -> str:
    """Return a line that fits into one of the terminal: one that wraps cannot be overwritten. The
    middle of what is worked on is left out, not the figures after it.
    """
    if len(line) < columns:
        return line
    title, colon, figures = line.partition(": ")
    room = max(0, columns - 1 - len(colon) - len(figures) - len(_LEFT_OUT))
    half = room // 2
    short = title[: room - half] + _LEFT_OUT + title[len(title) - half :]
    return f"{short}{colon}{figures}"[: columns - 1]


class _Meter:
    """Writes about the innermost stage; a thread of its own notices when nothing advances."""

    def __init__(self, stream: TextIO):
        self._stream = stream
        self._live = stream.isatty()
        self._stages: list[ProgressStage] = []
        self._drawn = False
        self._lock = Lock()
        self._over = Event()
        self._thread = Thread(target=self._tick, daemon=True, name="stoker-progress")

    def start(self) -> None:
        self._thread.start()

    def close(self) -> None:
        self._over.set()
        self._thread.join()
        with self._lock:
            self._erase()

    def begin(self, title: str, total: int) -> ProgressStage:
        stage = ProgressStage(title, total, time.monotonic())
        with self._lock:
            self._stages.append(stage)
        return stage

    def end(self, stage: ProgressStage) -> None:
        with self._lock:
            self._stages.remove(stage)
            self._erase()

    def advance(self, stage: ProgressStage, amount: int) -> None:
        with self._lock:  # several threads work on one stage
            stage.done += amount

    def say(self, text: str) -> None:
        with self._lock:
            self._erase()
            tell(text)

    def _tick(self) -> None:
        while not self._over.wait(_TICK_S):
            with self._lock:
                self._tell(time.monotonic())

    def _tell(self, now: float) -> None:
        if not self._stages:
            return
        stage = self._stages[-1]
        elapsed = now - stage.start
        if elapsed < _QUIET_S[self._live]:
            return
        if stage.told > stage.start and now - stage.told < _BETWEEN_S[self._live]:
            return
        stage.told = now
        line = amount_line(visible(stage.title), stage.done, stage.total, elapsed)
        if self._live:
            self._erase()
            self._drawn = True
            self._write(fitted_line(line, columns(self._stream)))
        else:
            self._write(f"{line}\n")

    def _erase(self) -> None:
        if self._drawn:
            self._write("\r\033[K")
            self._drawn = False

    def _write(self, text: str) -> None:
        write_own(self._stream, text)
        self._stream.flush()


_meter: _Meter | None = None  # of this process: there is one standard error


@contextmanager
def shown() -> Iterator[None]:
    """Show the stages of the work inside on standard error."""
    global _meter  # noqa: PLW0603
    if _meter is not None or sys.stderr is None:
        yield
        return
    _meter = _Meter(sys.stderr)
    _meter.start()
    try:
        yield
    finally:
        _meter.close()
        _meter = None


@contextmanager
def stage(title: str, total: int = 0) -> Iterator[Advance]:
    """Announce work of ``total`` bytes; yield the function that counts those that are done."""
    meter = _meter
    if meter is None:
        yield lambda _: None
        return
    begun = meter.begin(title, total)
    try:
        yield lambda amount: meter.advance(begun, amount)
    finally:
        meter.end(begun)


def say(text: str) -> None:
    """Print a line to standard error that stays, also while a stage is shown."""
    if _meter is not None:
        _meter.say(text)
    else:
        tell(text)

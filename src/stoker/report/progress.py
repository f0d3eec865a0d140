"""Shows a governed run: in lines at the bottom of a terminal, as a plain log, or as JSON lines.

The command's own output has the rest of the screen: the bottom lines are outside the part that
scrolls, like a package manager's progress bar. Everything goes to stderr.
"""

import os
from collections.abc import Callable
from contextlib import suppress
from enum import StrEnum
from pathlib import Path
from typing import TextIO

import msgspec

from stoker.model.events import (
    AnyEvent,
    Overview,
    RunningStep,
    StepEnds,
    StepRepeats,
    Warned,
)
from stoker.model.runs import RunSummary
from stoker.model.units import duration, size

_ROWS = 2
_LEAST_LINES = 6  # of a window; a smaller one is left to the command
_LOG_EVERY = 30.0
_MUCH = 0.1  # share of the limit from which the memory of other processes is shown
_PROBE = "CMakeFiles/CMakeScratch/"  # where CMake checks what compiles, and failures are expected
_NO_NEWS = (0, 130, 143)  # done, or interrupted by the user


class Progress(StrEnum):
    AUTO = "auto"
    LIVE = "live"
    LOG = "log"
    JSON = "json"
    QUIET = "quiet"


class View:
    """Shows every event that it is given; ``close`` restores the terminal."""

    def __init__(self, stream: TextIO):
        self._stream = stream

    def show(self, event: AnyEvent) -> None: ...

    def close(self) -> None: ...

    def write(self, text: str) -> None:
        """Write in one piece, because the command writes there too. A closed pipe does not stop the
        build.
        """
        try:
            self._stream.write(text)
            self._stream.flush()
        except OSError:
            _silence(self._stream)


def _silence(stream: TextIO) -> None:
    """Redirect the stream to /dev/null, so that flushing what is left does not fail at exit."""
    with suppress(OSError), Path(os.devnull).open("w") as nowhere:
        os.dup2(nowhere.fileno(), stream.fileno())


class JsonView(View):
    def show(self, event: AnyEvent) -> None:
        self.write(msgspec.json.encode(event).decode() + "\n")


class LogView(View):
    """Logs lost attempts and warnings as they happen, and the state of the run every 30 seconds."""

    def __init__(self, stream: TextIO):
        super().__init__(stream)
        self._logged = 0.0

    def show(self, event: AnyEvent) -> None:
        text = notable(event)
        if isinstance(event, Overview) and event.at - self._logged >= _LOG_EVERY:
            self._logged = event.at
            text = status_line(event)
        if text:
            self.write(f"stoker: {plain(text)}\n")


class LiveView(View):
    """Shows two lines at the bottom of the terminal. Lost attempts are listed at the end."""

    def __init__(self, stream: TextIO):
        super().__init__(stream)
        self._size = os.terminal_size((0, 0))  # of the window the rows are kept in
        self._notes: list[str] = []
        self._rows = ["", ""]

    def show(self, event: AnyEvent) -> None:
        if text := notable(event):
            self._notes.append(text)
        if isinstance(event, Overview):
            self._rows = [status_line(event), steps_line(event)]
        elif isinstance(event, Warned):
            self._rows[1] = event.text
        if self._in_foreground() and self._keep_rows():
            self._draw(self._rows)

    def close(self) -> None:
        if self._size.lines:
            self._draw(["", ""])
            self.write("\x1b7\x1b[r\x1b8")
        self._size = os.terminal_size((0, 0))
        self.write("".join(f"stoker: {plain(note)}\n" for note in self._notes))
        self._notes.clear()

    def _in_foreground(self) -> bool:
        """Return whether we may draw: a build in the background leaves the terminal alone."""
        try:
            return os.tcgetpgrp(self._stream.fileno()) == os.getpgrp()
        except OSError:
            return False

    def _keep_rows(self) -> bool:
        """Exclude the bottom rows from scrolling; again after the window was resized."""
        now = os.get_terminal_size(self._stream.fileno())
        if now.lines < _LEAST_LINES:
            return False
        if now != self._size:
            self._size = now
            # Scroll first, so that no line of the command is covered; the column stays.
            room = "\x1bD" * _ROWS + f"\x1b[{_ROWS}A"
            self.write(f"{room}\x1b7\x1b[1;{now.lines - _ROWS}r\x1b8")
        return True

    def _draw(self, lines: list[str]) -> None:
        first, width = self._size.lines - _ROWS + 1, self._size.columns
        rows = (f"\x1b[{first + i};1H\x1b[2K{plain(line)[:width]}" for i, line in enumerate(lines))
        # Some characters are two columns wide, so wrapping is off meanwhile.
        self.write(f"\x1b7\x1b[?7l{''.join(rows)}\x1b[?7h\x1b8")


def make_view(progress: Progress, stream: TextIO) -> View:
    if progress is Progress.AUTO:
        live = stream.isatty() and os.environ.get("TERM", "dumb") != "dumb"
        progress = Progress.LIVE if live else Progress.LOG
    makers: dict[Progress, Callable[[TextIO], View]] = {
        Progress.LIVE: LiveView,
        Progress.LOG: LogView,
        Progress.JSON: JsonView,
        Progress.QUIET: View,
    }
    return makers[progress](stream)


def notable(event: AnyEvent) -> str:
    """Return the line for the log; empty for events that are not logged."""
    match event:
        case StepRepeats():
            took = f"after {duration(event.seconds)} at {size(event.peak)}"
            return f"{event.title}: {event.why} {took}; it will be run again"
        case StepEnds(status=status) if status not in _NO_NEWS and _PROBE not in event.title:
            return f"{event.title}: failed with status {status}"
        case Warned():
            return event.text
        case _:
            return ""


def plain(text: str) -> str:
    """Replace control characters, which a file name may contain and a terminal would obey."""
    return "".join(letter if letter.isprintable() else "?" for letter in text)


def bar(part: float, whole: float, width: int) -> str:
    """Return a bar: ``bar(1, 4, 8)`` is ``##......``."""
    filled = 0 if whole <= 0 else max(0, min(width, round(part / whole * width)))
    return "#" * filled + "." * (width - filled)


def status_line(view: Overview) -> str:
    """Return stage, memory, steps and time left in one line."""
    # The build tool starts more steps than there are CPUs: the governor chooses among them.
    queued = f", {view.waiting} queued" if view.waiting else ""
    hits = f", {view.cache_hits} from the cache" if view.cache_hits else ""
    repeats = f", {view.repeats} repeated" if view.repeats else ""
    left = ""
    if view.seconds_left is not None:
        left = f" | {duration(view.seconds_left)} left"
    elif view.done < view.total:
        left = " | time left unknown"
    others = f", others {size(view.other_usage)}" if view.other_usage > view.limit * _MUCH else ""
    memory = f"{size(view.used)} of {size(view.limit)}{others}"
    stage = f"{view.stage} | " if view.stage else ""
    return (
        f"{stage}memory {bar(view.used, view.limit, 20)} {memory} | "
        f"{view.done} of {view.total} done, {len(view.running)} running"
        f"{queued}{hits}{repeats}{left}"
    )


def steps_line(view: Overview) -> str:
    """Return the running steps, largest first."""
    largest = sorted(view.running, key=lambda step: -step.memory)
    return "  ".join(map(_step_text, largest))


def _step_text(step: RunningStep) -> str:
    text = f"{step.title.rpartition('/')[2]} {size(step.memory)}"
    return f"{text} (paused)" if step.paused else text


def unseen_text(cpu_seconds: float) -> str:
    return (
        f"stoker: {duration(cpu_seconds)} of CPU time went to programs that it did not govern.\n"
        "  If they were compilers that a static program starts: configure the build with "
        "`stoker run --via launcher -- cmake ...`\n"
    )


def summary_text(summary: RunSummary) -> str:
    """Return the summary of a run as a few lines."""
    took = f"{summary.steps} steps in {duration(summary.wall_s)} on {summary.cpus} CPUs"
    limit = size(summary.limit_bytes)
    # If no step asked for a permit, the memory of the build is unknown.
    memory = (
        f"peak {size(summary.peak_bytes)} of {limit}" if summary.peak_bytes else f"limit {limit}"
    )
    lost = (
        f"{summary.oom_kills} OOM kills, {summary.preemptions} preemptions, "
        f"{summary.retries} attempts repeated"
    )
    if summary.pauses:
        lost += f", {summary.pauses} pauses"
    lines = [f"stoker: {took} ({summary.policy})", f"  memory: {memory}; {lost}"]
    if summary.written_bytes is not None:
        lines.append(f"  disk: {size(summary.written_bytes)} written")
    if summary.lower_bound_s and summary.wall_s:
        share = summary.lower_bound_s / summary.wall_s
        bound = duration(summary.lower_bound_s)
        lines.append(f"  theoretical minimum {bound} ({share:.0%} of the actual time)")
    return "\n".join(lines) + "\n"

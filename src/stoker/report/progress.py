"""A governed run as it goes: lines at the bottom of a terminal, a plain log, or JSON lines.

The command's own output keeps the rest of the screen: the bottom lines lie outside the part that
scrolls, as in a package manager's progress bar. Everything goes to stderr.
"""

import os
import sys
from collections.abc import Callable
from enum import StrEnum
from typing import TextIO

import msgspec

from stoker.model.events import AnyEvent, Overview, StepEnds, StepRepeats, Warned
from stoker.model.runs import RunSummary
from stoker.model.units import duration, size

_ROWS = 2
_LOG_EVERY = 30.0


class Progress(StrEnum):
    AUTO = "auto"
    LIVE = "live"
    LOG = "log"
    JSON = "json"
    QUIET = "quiet"


class View:
    """Gets every event; ``close`` leaves the terminal as it was."""

    def __init__(self, stream: TextIO = sys.stderr):
        self._stream = stream

    def show(self, event: AnyEvent) -> None: ...

    def close(self) -> None: ...


class JsonView(View):
    def show(self, event: AnyEvent) -> None:
        self._stream.write(msgspec.json.encode(event).decode() + "\n")
        self._stream.flush()


class LogView(View):
    """What was lost and why, and now and then how it stands."""

    def __init__(self, stream: TextIO = sys.stderr):
        super().__init__(stream)
        self._logged = 0.0

    def show(self, event: AnyEvent) -> None:
        text = notable(event)
        if isinstance(event, Overview) and event.at - self._logged >= _LOG_EVERY:
            self._logged = event.at
            text = status_line(event, width=100)
        if text:
            self._stream.write(f"stoker: {text}\n")
            self._stream.flush()


class LiveView(View):
    """Two lines below everything that scrolls."""

    def __init__(self, stream: TextIO = sys.stderr):
        super().__init__(stream)
        self._size = os.terminal_size((0, 0))

    def show(self, event: AnyEvent) -> None:
        if isinstance(event, Overview):
            self._reserve()
            width = self._size.columns - 1
            self._draw([status_line(event, width), steps_line(event, width)])

    def _reserve(self) -> None:
        """Keep the bottom rows out of the scrolling part; again when the window was resized."""
        now = os.get_terminal_size(self._stream.fileno())
        if now == self._size:
            return
        self._size = now
        # Make room first, so that no line of the command is covered.
        room = "\n" * _ROWS + f"\x1b[{_ROWS}A"
        self._write(f"{room}\x1b7\x1b[1;{max(1, now.lines - _ROWS)}r\x1b8")

    def _draw(self, lines: list[str]) -> None:
        first = self._size.lines - _ROWS + 1
        rows = "".join(f"\x1b[{first + i};1H\x1b[2K{line}" for i, line in enumerate(lines))
        self._write(f"\x1b7{rows}\x1b8")

    def close(self) -> None:
        if self._size.lines:
            self._draw(["", ""])
            self._write("\x1b7\x1b[r\x1b8")

    def _write(self, text: str) -> None:
        # In one piece: the command writes to the same terminal.
        self._stream.write(text)
        self._stream.flush()


def make_view(progress: Progress, stream: TextIO = sys.stderr) -> View:
    if progress is Progress.AUTO:
        progress = Progress.LIVE if stream.isatty() else Progress.LOG
    makers: dict[Progress, Callable[[TextIO], View]] = {
        Progress.LIVE: LiveView,
        Progress.LOG: LogView,
        Progress.JSON: JsonView,
        Progress.QUIET: View,
    }
    return makers[progress](stream)


def notable(event: AnyEvent) -> str:
    """What belongs in a log as it happens."""
    match event:
        case StepRepeats():
            took = f"after {duration(event.seconds)} at {size(event.peak)}"
            return f"{event.title}: {event.why} {took}; it will be run again"
        case StepEnds(status=status) if status != 0:
            return f"{event.title}: failed with status {status}"
        case Warned():
            return event.text
        case _:
            return ""


def bar(part: float, whole: float, width: int) -> str:
    """``bar(1, 4, 8)`` is ``##......``."""
    filled = 0 if whole <= 0 else max(0, min(width, round(part / whole * width)))
    return "#" * filled + "." * (width - filled)


def status_line(view: Overview, width: int) -> str:
    repeats = f", {view.repeats} repeated" if view.repeats else ""
    text = (
        f"memory {bar(view.used, view.limit, 20)} {size(view.used)} of {size(view.limit)} | "
        f"{len(view.running)} running, {view.waiting} waiting, {view.done} done{repeats}"
    )
    return text[:width]


def steps_line(view: Overview, width: int) -> str:
    """The largest of those that run."""
    largest = sorted(view.running, key=lambda step: -step.memory)
    texts = (f"{step.title.rpartition('/')[2]} {size(step.memory)}" for step in largest)
    return "  ".join(texts)[:width]


def summary_text(summary: RunSummary) -> str:
    """The end of a run in three lines."""
    took = f"{summary.steps} steps in {duration(summary.wall_s)} on {summary.cpus} CPUs"
    memory = f"peak {size(summary.peak_bytes)} of {size(summary.limit_bytes)}"
    lost = (
        f"{summary.oom_kills} OOM kills, {summary.preemptions} preemptions, "
        f"{summary.retries} attempts repeated"
    )
    lines = [f"stoker: {took} ({summary.policy})", f"  memory: {memory}; {lost}"]
    if summary.lower_bound_s and summary.wall_s:
        share = summary.lower_bound_s / summary.wall_s
        bound = duration(summary.lower_bound_s)
        lines.append(f"  no schedule could take less than {bound}, {share:.0%} of that")
    return "\n".join(lines) + "\n"

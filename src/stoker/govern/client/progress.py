"""Shows a governed run: in lines at the bottom of a terminal, as a plain log, or as JSON lines.

The command's own output has the rest of the screen: the bottom lines are outside the part that
scrolls, like a package manager's progress bar. Everything goes to stderr.
"""

import os
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from enum import StrEnum
from math import inf
from pathlib import Path
from textwrap import wrap
from typing import TextIO

import msgspec
from msgspec.structs import replace

from stoker.model.events import (
    AnyEvent,
    Overview,
    RunBegins,
    RunningStep,
    StageChanges,
    StepEnds,
    StepRepeats,
    Warned,
)
from stoker.model.govern import Reason
from stoker.model.value import duration, size
from stoker.model.visible import visible
from stoker.outside.streams import write_own

_ROWS = 3
_LEAST_LINES = 6  # of a window; a smaller one is left to the command
_LOG_EVERY = 30.0
_MUCH = 0.1  # share of the limit from which the memory of other processes is shown
_PROBE = "CMakeFiles/CMakeScratch/"  # where CMake checks what compiles, and failures are expected
_NO_NEWS = (0, 130, 143)  # done, or interrupted by the user
_BAR, _SHORT_BAR = 20, 8  # columns
_NOTES = 5  # the latest warnings and lost attempts that a page shows
_WAITS_FOR = {
    Reason.CPUS: "for a CPU",
    Reason.RUNS: "for CPUs that other runs use",
    Reason.MEMORY: "for memory",
    Reason.UNKNOWN_SIZE: "for steps of unknown size",
    Reason.WORKERS: "for a worker",
    Reason.DEADLINE: "for the next job",
    Reason.TURN: "for their turn",
    Reason.PRESSURE: "for less memory pressure",
}


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
        self.write_own(visible(text))

    def write_own(self, text: str) -> None:
        """Write text that may contain control sequences: ours, or those of a command."""
        try:
            write_own(self._stream, text)
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
    """Shows three lines at the bottom of the terminal. Lost attempts are listed at the end."""

    def __init__(self, stream: TextIO):
        super().__init__(stream)
        self._size = os.terminal_size((0, 0))  # of the window the rows are kept in
        self._notes: list[str] = []
        self._latest: Overview | None = None
        self._warning = ""  # shown in place of the steps until the next overview

    def show(self, event: AnyEvent) -> None:
        if text := notable(event):
            self._notes.append(text)
        if isinstance(event, Overview):
            self._latest, self._warning = event, ""
        elif isinstance(event, Warned):
            self._warning = event.text
        if self._in_foreground() and self._keep_rows():
            self._draw(self._rows())

    def _rows(self) -> list[str]:
        width, view = self._size.columns, self._latest
        if view is None:
            return ["", "", self._warning]
        last = self._warning or steps_line(view, width)
        return [progress_line(view, width), memory_line(view, width), last]

    def close(self) -> None:
        if self._size.lines:
            self._draw([""] * _ROWS)
            self.write_own("\x1b7\x1b[r\x1b8")
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
            self.write_own(f"{room}\x1b7\x1b[1;{now.lines - _ROWS}r\x1b8")
        return True

    def _draw(self, lines: list[str]) -> None:
        first, width = self._size.lines - _ROWS + 1, self._size.columns
        rows = (f"\x1b[{first + i};1H\x1b[2K{plain(line)[:width]}" for i, line in enumerate(lines))
        # Some characters are two columns wide, so wrapping is off meanwhile.
        self.write_own(f"\x1b7\x1b[?7l{''.join(rows)}\x1b[?7h\x1b8")


class PageView(View):
    """Fills the whole terminal, on its alternate screen, which ``close`` leaves."""

    def __init__(self, stream: TextIO):
        super().__init__(stream)
        self._open = False
        self._begins: RunBegins | None = None
        self._stage = ""
        self._latest: Overview | None = None
        self._notes: list[str] = []

    def show(self, event: AnyEvent) -> None:
        if text := notable(event):
            self._notes.append(text)
        match event:
            case RunBegins():
                self._begins = event
            case StageChanges():
                self._stage = f"{event.stage} {event.end}"
                if self._latest:  # stages without steps have no overviews of their own
                    self._latest = replace(self._latest, stage=event.stage)
            case Overview():
                self._latest = event
        self._draw()

    def close(self) -> None:
        if self._open:
            self.write_own("\x1b[?25h\x1b[?1049l")
        self._open = False
        self.write("".join(f"stoker: {plain(note)}\n" for note in self._notes))
        self._notes.clear()

    def _draw(self) -> None:
        known = os.get_terminal_size(self._stream.fileno())
        columns, lines = known.columns or 80, known.lines or 24
        page = [*begin_lines(self._begins, time.time()), ""] if self._begins else []
        notes = [line for note in self._notes[-_NOTES:] for line in wrap(plain(note), columns)]
        room = lines - len(page) - len(notes) - 1
        if self._latest:
            page += page_lines(self._latest, columns, room)
        else:
            page.append(self._stage or "waiting for the first step")
        # A line is cleared before it is written: after a full line the cursor is still on its last
        # column. The last line also clears what is below.
        rows = [shortened(plain(line), columns) for line in [*page, "", *notes][:lines]]
        text = "".join(f"\x1b[2K{row}\r\n" for row in rows[:-1]) + f"\x1b[J{rows[-1]}"
        start = "" if self._open else "\x1b[?1049h\x1b[?25l"
        self._open = True
        self.write_own(f"{start}\x1b[H\x1b[?7l{text}\x1b[?7h")


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


def fitted(lines: Sequence[Sequence[str]], width: float) -> str:
    """Return the first line that has at most ``width`` columns; the last one is cut if none has.

    A line is a list of parts, of which empty ones are left out.
    """
    joined = ["  ".join(part for part in parts if part) for parts in lines]
    return next((line for line in joined if len(line) <= width), None) or (
        shortened(joined[-1], int(min(width, len(joined[-1]))))
    )


def shortened(text: str, width: int) -> str:
    """Cut a text to ``width`` columns; an ellipsis replaces the rest."""
    return text if len(text) <= width else f"{text[: max(0, width - 1)]}…"[: max(0, width)]


def status_line(view: Overview) -> str:
    """Return everything about a run in one line of any length, for a log."""
    return f"{progress_line(view, inf)} | {memory_line(view, inf)}"


def progress_line(view: Overview, width: float) -> str:
    """Return stage, steps that are done, and the time left: none if no step runs or waits, because
    commands without steps, such as those that make a wheel, take an unknown time.
    """
    active = bool(view.running or view.waiting)
    left = "time left unknown" if active and view.total_known and view.done < view.total else ""
    if active and view.seconds_left is not None:
        left = f"{'at least ' if view.at_least else ''}{duration(view.seconds_left)} left"
    stage, done, count = view.stage or "build", f"{view.done} done", str(view.done)
    repeats = f"{view.repeats} repeated" if view.repeats else ""
    hits = f"{view.cache_hits} from the cache" if view.cache_hits else ""
    whole = short = ""
    if view.total_known:
        done, count = f"{view.done} of {view.total} done", f"{view.done}/{view.total}"
        whole, short = (_bar_text(view.done, view.total, each) for each in (_BAR, _SHORT_BAR))
    return fitted(
        [
            [stage, whole, done, left, repeats, hits],
            [stage, short, done, left, repeats, hits],
            [stage, done, left, repeats, hits],
            [stage, short, done, left],
            [stage, done, left],
            [stage, count, left],
            [stage, count],
        ],
        width,
    )


def memory_line(view: Overview, width: float) -> str:
    """Return memory against the limit, how many steps run, and why the others wait."""
    used, limit = size(view.used), size(view.limit)
    short = used.removesuffix(limit.partition(" ")[2]).strip()  # the unit is written once
    others = f"others {size(view.other_usage)}" if view.other_usage > view.limit * _MUCH else ""
    # The build tool starts more steps than there are CPUs: the governor chooses among them.
    running = f"{len(view.running)} running"
    queued = f"{running}, {view.waiting} queued" if view.waiting else running
    why = f"{queued} ({waiting_text(view)})" if view.waits else queued
    memory = f"{used} of {limit}"
    whole, bar_short = (_bar_text(view.used, view.limit, each) for each in (_BAR, _SHORT_BAR))
    return fitted(
        [
            ["memory", whole, memory, others, why],
            ["memory", bar_short, memory, others, why],
            ["memory", memory, others, why],
            ["memory", memory, why],
            ["memory", bar_short, memory, queued],
            ["memory", memory, queued],
            [f"{short}/{limit}", queued],
            [f"{short}/{limit}", f"{len(view.running)} run, {view.waiting} wait"],
            [f"{short}/{limit}"],
        ],
        width,
    )


def waiting_text(view: Overview) -> str:
    """Return "12 for memory, 3 for a CPU"."""
    most = sorted(view.waits.items(), key=lambda each: -each[1])
    return ", ".join(f"{count} {_WAITS_FOR.get(why, why.value)}" for why, count in most)


def _bar_text(part: float, whole: float, width: int) -> str:
    return f"[{bar(part, whole, width)}]"


def steps_line(view: Overview, width: float) -> str:
    """Return the running steps that fit, largest first; the first one is cut if it is too long."""
    steps = _largest_first(view)
    texts = [f"{_name(step)} {size(step.memory)}{_paused(step)}" for step in steps]
    for shown in range(len(texts), 0, -1):
        more = f"  and {len(texts) - shown} more" if shown < len(texts) else ""
        line = "  ".join(texts[:shown]) + more
        if len(line) <= width:
            return line
    return shortened(texts[0], int(width)) if texts else ""


def begin_lines(begins: RunBegins, now: float) -> list[str]:
    """Return what runs, for how long, and where. ``now``: seconds since the epoch."""
    age = duration(max(0.0, now - begins.at))
    return [begins.command, f"for {age}, process {begins.process}, in {begins.directory}"]


def page_lines(view: Overview, columns: int, lines: int) -> list[str]:
    """Return a page of at most ``lines`` lines: progress, memory, and a line for each step."""
    steps = _largest_first(view)
    room = max(1, lines - 4)
    shown = steps if len(steps) <= room else steps[: max(0, room - 1)]
    page = [progress_line(view, columns), memory_line(replace(view, waits={}), columns), ""]
    for step in shown:
        start, end = f"{size(step.memory):>9} {duration(step.seconds):>10}  ", _paused(step)
        title = _shortened_title(step.title, columns - len(start) - len(end))
        page.append(shortened(f"{start}{title}{end}", columns))
    if len(shown) < len(steps):
        page.append(shortened(f"and {len(steps) - len(shown)} more running steps", columns))
    if view.waits:
        page.append(shortened(_waits_line(view), columns))
    return page[:lines]


def _waits_line(view: Overview) -> str:
    """Return "14 steps wait for memory", or how many wait for what."""
    steps = "1 step waits" if view.waiting == 1 else f"{view.waiting} steps wait"
    text = waiting_text(view)
    if list(view.waits.values()) == [view.waiting]:
        return f"{steps} {text.partition(' ')[2]}"
    return f"{steps}: {text}"


def _shortened_title(title: str, width: int) -> str:
    """Cut a title to ``width`` columns: the end of a command, the beginning of a path."""
    if " " in title or len(title) <= width:
        return shortened(title, width)
    return f"…{title[len(title) - max(0, width - 1) :]}"


def _largest_first(view: Overview) -> list[RunningStep]:
    return sorted(view.running, key=lambda step: -step.memory)


def _name(step: RunningStep) -> str:
    """Return a title without folders; that of a custom command has several words."""
    return " ".join(word.rpartition("/")[2] for word in step.title.split(" "))


def _paused(step: RunningStep) -> str:
    return " (paused)" if step.paused else ""

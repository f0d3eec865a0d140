"""Standard output and standard error for any text, error messages, and CI systems. Every command
imports this module, so it imports little.

A character that the encoding lacks, or that a terminal would obey, is written as an escape that is
valid in JSON; standard output to a pipe or a file is data, and has the latter as they are. Output
that cannot be written is an error that is raised once; what is written to standard error then is
lost, since there is no other place to tell it.
"""

import codecs
import io
import os
import re
import sys
from collections.abc import Mapping
from enum import StrEnum
from functools import cache
from typing import Any, TextIO

from stoker.model.errors import CommandError, OutputClosed, StokerError, StorageError
from stoker.model.visible import escape, visible

# Compiled at first use, by re itself: it takes longer than all imports of this module.
_NOT_XML = r"[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]"


def error_text(error: StokerError) -> str:
    """Return the message, and each hint on a line of its own."""
    from stoker.model.secrets import redact  # only errors need it

    lines = [f"stoker: {error}"]
    if isinstance(error, CommandError) and error.output:
        lines += [f"    {line}" for line in error.output.splitlines()]
    lines += [f"  {hint}" for hint in error.hints]
    return "\n".join(map(redact, lines)) + "\n"


# What each colour means, for all that is printed at a terminal.
STYLES = {
    "ok": "green",
    "note": "cyan",
    "warning": "yellow",
    "error": "bold red",
    "added": "green",
    "removed": "red",
    "bar": "cyan",
}
_USUAL_COLUMNS = 80
_CODES = {"bold": 1, "dim": 2, "red": 31, "green": 32, "yellow": 33, "cyan": 36}


def shows_colours(stream: TextIO) -> bool:
    """Return whether a stream is a terminal that shows colours, or FORCE_COLOR says so."""
    forced = bool(os.environ.get("FORCE_COLOR"))
    terminal = os.environ.get("TERM", "" if forced else "dumb").lower()
    if os.environ.get("NO_COLOR") or terminal in ("dumb", "unknown"):
        return False
    return forced or stream.isatty()


def columns(stream: TextIO) -> int:
    """Return the width of a terminal now: its user may have changed it."""
    try:
        return os.get_terminal_size(stream.fileno()).columns or _USUAL_COLUMNS
    except (OSError, ValueError):  # it is none
        return _USUAL_COLUMNS


def styled(text: str, style: str, stream: TextIO) -> str:
    """Return a text in a style, if the stream shows colours."""
    return coloured(text, style) if shows_colours(stream) else text


def coloured(text: str, style: str) -> str:
    codes = ";".join(map(str, _codes(style)))
    return f"\033[{codes}m{text}\033[0m" if codes else text


@cache
def _codes(style: str) -> tuple[int, ...]:
    """Return the codes of a style: names of STYLES, ``bold`` and ``dim``, or ``not bold`` within a
    bold text.
    """
    codes: dict[int, None] = {}
    words = iter(" ".join(STYLES.get(word, word) for word in style.split()).split())
    for word in words:
        if word == "not":
            codes.pop(_CODES[next(words)], None)
        else:
            codes[_CODES[word]] = None
    return tuple(sorted(codes))


def write_own(stream: TextIO, text: str) -> None:
    """Write text with control sequences of our own. What it contains from outside is ``visible``
    already.
    """
    stream.write_own(text) if isinstance(stream, _Text) else stream.write(text)


def xml_text(text: str) -> str:
    """Replace characters that XML cannot contain; programs may print them."""
    return visible(re.sub(_NOT_XML, "\N{REPLACEMENT CHARACTER}", text))


# What was printed as JSON; an error is printed as JSON only if nothing else was.
results: list[str] = []
# What a command has said of the settings in force; it says it once.
told: list[tuple[str | None, ...]] = []

_ESCAPED = "stoker-escaped"
_BLOCKS = range(0x2580, 0x25A0)  # characters that bars are made of


class CiSystem(StrEnum):
    """A CI system that reads the log of its jobs."""

    GITHUB = "GitHub Actions"
    GITLAB = "GitLab CI"


def ci_system(environment: Mapping[str, str]) -> CiSystem | None:
    """Return the CI system that sets these variables; None on any other machine."""
    if environment.get("GITHUB_ACTIONS") == "true":
        return CiSystem.GITHUB
    return CiSystem.GITLAB if environment.get("GITLAB_CI") == "true" else None


def prepare_streams() -> None:
    """Replace both streams. Those that something else has replaced, such as a test, are left."""
    codecs.register_error(_ESCAPED, _escaped)
    # Where a stream is closed, Python has none.
    if sys.stdout is None:
        sys.stdout = io.StringIO()
    elif sys.stdout is sys.__stdout__:
        sys.stdout = output = _text(sys.stdout, _Output)
        output.is_data = not output.isatty()
    if sys.stderr is None:
        sys.stderr = io.StringIO()
    elif sys.stderr is sys.__stderr__:
        sys.stderr = _text(sys.stderr, _Errors)


def finish_output() -> None:
    """Write out what is left; raise the error of an earlier write if a library has caught it."""
    sys.stdout.flush()
    raw = getattr(sys.stdout, "buffer", None)
    raw = getattr(raw, "raw", raw)
    if isinstance(raw, _Output) and raw.problem:
        raise raw.problem


class _Text(io.TextIOWrapper):
    """Text of which people see all characters, unless it is data for another program."""

    is_data = False

    def write(self, text: str, /) -> int:
        super().write(text if self.is_data else visible(text))
        return len(text)

    def write_own(self, text: str) -> None:
        super().write(text)


def _text(stream: Any, kind: type[io.FileIO]) -> _Text:
    raw = kind(stream.fileno(), "w", closefd=False)
    return _Text(
        raw if stream.write_through else io.BufferedWriter(raw),
        encoding=stream.encoding,
        errors=_ESCAPED,
        line_buffering=stream.line_buffering,
        write_through=stream.write_through,
    )


class _Output(io.FileIO):
    """Raises an error for the first write that fails and drops the rest, also when Python ends."""

    problem: BaseException | None = None

    def write(self, data: Any) -> int:
        if self.problem or not data:
            return len(data)
        rest = memoryview(data).cast("B")
        try:
            # What is not buffered has to be written whole; a disk that is almost full takes a part.
            while rest and (written := super().write(rest)):
                rest = rest[written:]
            return len(data) - len(rest)
        except BrokenPipeError:
            self.problem = OutputClosed()
        except OSError as error:
            self.problem = StorageError(f"cannot write the output: {error.strerror}")
        raise self.problem


class _Errors(io.FileIO):
    def write(self, data: Any) -> int:
        try:
            return super().write(data)
        except OSError:
            return len(data)


def _escaped(error: UnicodeError) -> tuple[str, int]:
    """Return what is written in the place of characters that the encoding does not have."""
    assert isinstance(error, UnicodeEncodeError)
    wrong = error.object[error.start : error.end]
    return "".join("#" if ord(one) in _BLOCKS else escape(one) for one in wrong), error.end

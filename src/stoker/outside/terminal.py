"""The terminal: standard streams for any text, tables, JSON, error messages and CI systems."""

import codecs
import io
import os
import re
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from enum import StrEnum
from itertools import zip_longest
from typing import Any

from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment
from rich.text import Text

from stoker.model.errors import (
    CommandError,
    Finding,
    OutputClosed,
    Severity,
    StokerError,
    StorageError,
)
from stoker.model.secrets import redact

# -- report ----------------------------------------------------------------------------------------
# Renders values as terminal pages, JSON, shell lines and error messages. Decides nothing.


_NOT_XML = re.compile(r"[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def error_text(error: StokerError) -> str:
    """Return the message, and each hint on a line of its own."""
    lines = [f"stoker: {error}"]
    if isinstance(error, CommandError) and error.output:
        lines += [f"    {line}" for line in error.output.splitlines()]
    lines += [f"  {hint}" for hint in error.hints]
    return "\n".join(map(redact, lines)) + "\n"


def xml_text(text: str) -> str:
    """Replace characters that XML cannot contain; programs may print them."""
    return _NOT_XML.sub("\N{REPLACEMENT CHARACTER}", text)


# -- console ---------------------------------------------------------------------------------------
# Prepares standard output and standard error for any text.
#
# A character that the encoding lacks is written as an escape that is valid in JSON. Output that
# cannot be written is an error that is raised once; what is written to standard error then is lost,
# since there is no other place to tell it.


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
        sys.stdout = _text(sys.stdout, _Output)
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


def _text(stream: Any, kind: type[io.FileIO]) -> io.TextIOWrapper:
    raw = kind(stream.fileno(), "w", closefd=False)
    return io.TextIOWrapper(
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
        try:
            return super().write(data)
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
    return "".join("#" if ord(one) in _BLOCKS else _escape(one) for one in wrong), error.end


def _escape(character: str) -> str:
    number = ord(character)
    if number < 0x10000:
        return f"\\u{number:04x}"
    number -= 0x10000
    return f"\\u{0xD800 + (number >> 10):04x}\\u{0xDC00 + (number & 0x3FF):04x}"


# -- console ---------------------------------------------------------------------------------------
# Prints pages and JSON to standard output, and lays out lists so that they stay readable.
#
# Lines are as wide as the terminal, or as COLUMNS says; output to a pipe or file has no limit. Text
# breaks between words only: a path or a command is never broken, so that it can be copied.


_UNLIMITED = 1_000_000  # columns where nothing limits a line
_GAP = 2  # blanks between columns
_LEAST = 30  # columns below which a last column is not wrapped, but put on lines of its own
_INDENT = 4
_WORD = re.compile(r"\s*\S+\s*")


def show(page: RenderableType) -> None:
    """Print a page to standard output."""
    console = _Console(highlight=False)
    if not console.is_terminal and not os.environ.get("COLUMNS", "").isdigit():
        console = _Console(highlight=False, width=_UNLIMITED)
    console.print(page, crop=False)


class _Console(Console):
    """Breaks text between words only; rich would also break words that are too long."""

    def render(
        self, renderable: RenderableType, options: ConsoleOptions | None = None
    ) -> Iterable[Segment]:
        if isinstance(renderable, Text) and not renderable.no_wrap:
            renderable = Indented(renderable, 0)
        return super().render(renderable, options)


def print_json(value: Any) -> None:
    """Print a value to standard output as indented JSON."""
    import click
    import msgspec

    click.echo(msgspec.json.format(msgspec.json.encode(value)).decode())


def whole(*parts: str | tuple[str, str]) -> Text:
    """Return a line that is never wrapped, such as a command. A part may be (text, style)."""
    return Text.assemble(*parts, no_wrap=True, overflow="ignore")


class Indented:
    """Text that is indented in all its lines. The first line may hold a mark before the text."""

    def __init__(self, text: str | Text, indent: int, mark: str | Text = "") -> None:
        self._text = Text(text) if isinstance(text, str) else text
        self._mark = Text.assemble(mark)
        self._indent = indent

    def __rich_console__(self, _: Console, options: ConsoleOptions) -> Iterator[Text]:
        width = max(1, options.max_width - self._indent)
        start = self._mark
        for part in _wrapped(self._text, width):
            line = whole() + start
            line.pad_right(self._indent - start.cell_len)
            line.append(part)
            line.rstrip()
            yield line
            start = Text()


class Listing:
    """Rows in columns. Where the columns do not fit, each row becomes a block of lines.

    ``>`` before the name of a column aligns it to the right, as for numbers. The last column may
    wrap: it is the place for sentences and lists of names.
    """

    def __init__(self, *columns: str, title: str = "", indent: int = 0) -> None:
        self._names = [Text(name.removeprefix(">"), style="dim") for name in columns]
        self._right = [name.startswith(">") for name in columns]
        self._title = title
        self._indent = indent
        self._rows: list[list[Text]] = []

    def add(self, *cells: str | Text) -> None:
        """Add a row. A string is shown as it is; use a Text for a style."""
        self._rows.append([Text(cell) if isinstance(cell, str) else cell for cell in cells])

    def __rich_console__(self, _: Console, options: ConsoleOptions) -> Iterator[Text | Indented]:
        if self._title:
            yield whole((self._title, "bold"))
        rows = [self._names, *self._rows] if any(name.plain for name in self._names) else self._rows
        columns = list(zip_longest(*rows, fillvalue=Text()))
        widths = [max(cell.cell_len for cell in column) for column in columns]
        start = self._indent + sum(width + _GAP for width in widths[:-1])
        space = options.max_width - start
        if rows and not _fits(columns[-1], space):
            yield from (line for row in self._rows for line in self._block(row, options.max_width))
        else:
            yield from (self._line(row, widths) for row in rows)

    def _line(self, row: Sequence[Text], widths: Sequence[int]) -> Indented:
        mark = Text(" " * self._indent)
        for cell, width, right in zip(row, widths, self._right, strict=False):
            aligned = Text(" " * (width - cell.cell_len) if right else "") + cell
            if cell is row[-1]:
                return Indented(aligned, mark.cell_len, mark)
            aligned.pad_right(width + _GAP - aligned.cell_len)
            mark.append(aligned)
        return Indented("", 0, mark)

    def _block(self, row: Sequence[Text], width: int) -> Iterator[Indented]:
        """Put the first cell on a line and the others below it, as many on a line as fit."""
        yield Indented(row[0], self._indent)
        indent = self._indent + _INDENT
        line = Text()
        for name, cell in zip(self._names[1:], row[1:], strict=False):
            item = Text.assemble(name, " ", cell) if name.plain else cell
            if line and cell and indent + line.cell_len + _GAP + item.cell_len > width:
                yield Indented(line, indent)
                line = Text()
            if cell:
                line = Text.assemble(line, " " * _GAP if line else "", item)
        if line:
            yield Indented(line, indent)


def _fits(column: Sequence[Text], space: int) -> bool:
    """Return whether the cells of the last column fit, complete or wrapped between words."""
    longest_word = max(len(word) for cell in column for word in ["", *cell.plain.split()])
    return max(cell.cell_len for cell in column) <= space or max(_LEAST, longest_word) <= space


def _wrapped(text: Text, width: int) -> Iterator[Text]:
    """Break a text at its line ends, and between words where a line is too long."""
    for line in text.split("\n", allow_blank=True):
        breaks, used = [], 0
        for word in _WORD.finditer(line.plain):
            if used and used + cell_len(word[0].rstrip()) > width:
                breaks.append(word.start())
                used = 0
            used += cell_len(word[0])
        yield from line.divide(breaks)


_MARKS = {
    Severity.OK: ("ok   ", "green"),
    Severity.NOTE: ("note ", "cyan"),
    Severity.WARNING: ("warn ", "yellow"),
    Severity.ERROR: ("ERROR", "bold red"),
}
_FINDING_INDENT = 7


def finding_lines(finding: Finding) -> list[RenderableType]:
    mark, style = _MARKS[finding.severity]
    title, evidence = Text(finding.title), Text(finding.evidence, style="dim")
    passed = finding.severity is Severity.OK
    if passed and finding.evidence:
        title = Text.assemble(title, "  ", evidence)
    lines: list[RenderableType] = [Indented(title, _FINDING_INDENT, Text(mark, style=style))]
    if passed:
        return lines
    if finding.evidence:
        lines.append(Indented(evidence, _FINDING_INDENT))
    return lines + [whole(" " * _FINDING_INDENT, ("$ ", "dim"), command) for command in finding.fix]

"""Prints pages and JSON to standard output, and lays out lists so that they stay readable.

Lines are as wide as the terminal, or as COLUMNS says; output to a pipe or file has no limit. Text
breaks between words only: a path or a command is never broken, so that it can be copied.
"""

import os
import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import zip_longest
from typing import Any

from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment
from rich.text import Text

from stoker.model.errors import Finding, Severity, StokerError
from stoker.outside import streams

_UNLIMITED = 1_000_000  # columns where nothing limits a line
_GAP = 2  # blanks between columns
_LEAST = 30  # columns below which a last column is not wrapped, but put on lines of its own
_INDENT = 4
_WORD = re.compile(r"\s*\S+\s*")


def show(page: RenderableType) -> None:
    """Print a page to standard output."""
    _console().print(page, crop=False)


def tell(text: str) -> None:
    """Print lines to standard error, broken between words as the terminal requires."""
    _console(stderr=True).print(Text(text), crop=False)


def _console(*, stderr: bool = False) -> "_Console":
    console = _Console(highlight=False, stderr=stderr)
    if not console.is_terminal and not os.environ.get("COLUMNS", "").isdigit():
        return _Console(highlight=False, stderr=stderr, width=_UNLIMITED)
    return console


class _Console(Console):
    """Breaks text between words only; rich would also break words that are too long."""

    def render(
        self, renderable: RenderableType, options: ConsoleOptions | None = None
    ) -> Iterable[Segment]:
        if isinstance(renderable, Text) and not renderable.no_wrap:
            renderable = Indented(renderable, 0)
        return super().render(renderable, options)


JSON_VERSION = 1  # of all that commands print; it grows when a key changes its name or meaning


def print_json(value: Any, named: str = "items") -> None:
    """Print a value to standard output as a JSON object with its version. ``named`` is the key of a
    list.
    """
    import click
    import msgspec

    from stoker.model.value import json_bytes

    streams.results.append(type(value).__name__)
    built = msgspec.to_builtins(value, str_keys=True)
    document = built if isinstance(built, dict) else {named: built}
    encoded = json_bytes({"json_version": JSON_VERSION, **document})
    click.echo(msgspec.json.format(encoded).decode())


def print_error_json(error: StokerError) -> None:
    """Print an error to standard output as JSON."""
    told = {"message": str(error), "hints": error.hints, "status": int(error.status)}
    print_json({"error": told})


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
    if finding.advice:
        lines.append(Indented(finding.advice, _FINDING_INDENT))
    return lines + [whole(" " * _FINDING_INDENT, ("$ ", "dim"), command) for command in finding.fix]

"""Prints pages and JSON to standard output, and lays out lists so that they stay readable.

Lines are as wide as the terminal, or as COLUMNS says; output to a pipe or file has no limit. Text
breaks between words only: a path, or a command in backquotes, is never broken, so that it can be
copied.
"""

import os
import re
import sys
from collections.abc import Iterable, Iterator, Sequence
from itertools import zip_longest
from typing import Any, Protocol, TextIO

from stoker.model.errors import StokerError
from stoker.model.finding import Finding, Severity
from stoker.model.visible import visible
from stoker.outside import streams

_UNLIMITED = 1_000_000  # columns where nothing limits a line
_GAP = 2  # blanks between columns
_LEAST = 30  # columns below which a last column is not wrapped, but put on lines of its own
_INDENT = 4
_TAB = 8
_WORD = re.compile(r"\s*(?:`[^`\n]*`|\S)+\s*")
_CONTROLS = dict.fromkeys(map(ord, "\a\b\v\f\r"))  # they would move the cursor
JSON_VERSION = 1  # of all that commands print; it grows when a key changes its name or meaning
_MARKS = {
    Severity.OK: ("ok   ", "ok"),
    Severity.NOTE: ("note ", "note"),
    Severity.WARNING: ("warn ", "warning"),
    Severity.ERROR: ("ERROR", "error"),
}
_FINDING_INDENT = 7


class Page(Protocol):
    """Anything that can be shown: it has lines that fit a width."""

    def lines(self, width: int) -> Iterable["Text"]: ...


class Group:
    """Pages one below the other."""

    def __init__(self, *pages: Page) -> None:
        self.pages = pages

    def lines(self, width: int) -> Iterator["Text"]:
        for page in self.pages:
            yield from page.lines(width)


class Text:
    """Text in parts, each with its style: words such as ``bold`` and ``error``, or ``not bold``
    within a bold text.
    """

    def __init__(self, text: str = "", style: str = "", *, no_wrap: bool = False) -> None:
        self.style = style
        self.no_wrap = no_wrap
        self.parts: list[tuple[str, str]] = []
        self.append(text)

    @classmethod
    def assemble(cls, *parts: "str | tuple[str, str] | Text", no_wrap: bool = False) -> "Text":
        """Return the parts as one text. A part may be (text, style)."""
        whole = cls(no_wrap=no_wrap)
        for part in parts:
            whole.append(*part) if isinstance(part, tuple) else whole.append(part)
        return whole

    @property
    def plain(self) -> str:
        return "".join(text for text, _ in self.parts)

    @property
    def cell_len(self) -> int:
        """The columns that it takes in a terminal."""
        return sum(cell_len(text) for text, _ in self.parts)

    def __len__(self) -> int:
        return sum(len(text) for text, _ in self.parts)

    def __add__(self, other: "Text") -> "Text":
        return Text.assemble(self, other, no_wrap=self.no_wrap)

    def append(self, text: "str | Text", style: str = "") -> "Text":
        added = [(visible(text.translate(_CONTROLS)), "")] if isinstance(text, str) else text.parts
        base = f"{self.style} {style}"
        self.parts += [(part, f"{base} {own}".strip()) for part, own in added if part]
        return self

    def pad_right(self, count: int) -> None:
        self.append(" " * count)

    def rstrip(self) -> None:
        while self.parts:
            text, style = self.parts.pop()
            if text := text.rstrip():
                self.parts.append((text, style))
                return

    def divide(self, offsets: Iterable[int]) -> Iterator["Text"]:
        """Yield the pieces between some offsets, which are in order."""
        begin = 0
        for end in (*offsets, len(self)):
            yield self._piece(begin, end)
            begin = end

    def split(self) -> Iterator["Text"]:
        """Yield its lines."""
        begin = 0
        for line in self.plain.split("\n"):
            yield self._piece(begin, begin + len(line))
            begin += len(line) + 1

    def _piece(self, begin: int, end: int) -> "Text":
        piece, at = Text(no_wrap=self.no_wrap), 0
        for text, style in self.parts:
            piece.append(text[max(0, begin - at) : max(0, end - at)], style)
            at += len(text)
        return piece

    def lines(self, width: int) -> Iterator["Text"]:
        return self.split() if self.no_wrap else Indented(self, 0).lines(width)

    def shown(self, *, styled: bool) -> str:
        """Return a line as a terminal takes it."""
        if not styled:
            return self.plain.expandtabs(_TAB)
        shown, column = "", 0
        for text, style in self.parts:
            # Tabs count from the beginning of the line, and not from that of the part.
            expanded = (" " * column + text).expandtabs(_TAB)[column:]
            column += len(expanded)
            shown += streams.coloured(expanded, style)
        return shown


def cell_len(text: str) -> int:
    """Return the columns that a text takes in a terminal."""
    if text.isascii():
        return len(text)
    from unicodedata import category, east_asian_width

    return sum(
        0 if category(one) in ("Mn", "Me", "Cf") else 1 + (east_asian_width(one) in "WF")
        for one in text
    )


def show(page: Page) -> None:
    """Print a page to standard output."""
    _print(page, sys.stdout)


def tell(text: str) -> None:
    """Print lines to standard error, broken between words as the terminal requires."""
    _print(_indented(text), sys.stderr)


def tell_error(error: StokerError) -> None:
    """Print the message of an error to standard error, then its hints."""
    first, _, rest = streams.error_text(error).rstrip("\n").partition("\n")
    _print(Group(Text(first, style="error"), *([_indented(rest)] if rest else [])), sys.stderr)


def _indented(text: str) -> Page:
    """Return lines that keep their indentation where they are broken."""
    lines = ((line, line.lstrip(" ")) for line in text.split("\n"))
    return Group(*(Indented(words, len(line) - len(words)) for line, words in lines))


def rendered(page: Page, width: int = _UNLIMITED, *, styled: bool = False) -> str:
    """Return the lines of a page as one text."""
    return "".join(f"{line.shown(styled=styled)}\n" for line in page.lines(width))


def _print(page: Page, stream: TextIO) -> None:
    styled = streams.shows_colours(stream)
    streams.write_own(stream, rendered(page, _width(stream), styled=styled))


def _width(stream: TextIO) -> int:
    wanted = os.environ.get("COLUMNS", "")
    if wanted.isdigit():
        return int(wanted)
    return streams.columns(stream) if stream.isatty() else _UNLIMITED


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
    return Text.assemble(*parts, no_wrap=True)


class Indented:
    """Text that is indented in all its lines. The first line may hold a mark before the text."""

    def __init__(self, text: str | Text, indent: int, mark: str | Text = "") -> None:
        self._text = Text(text) if isinstance(text, str) else text
        self._mark = Text.assemble(mark)
        self._indent = indent

    def lines(self, width: int) -> Iterator[Text]:
        width = max(1, width - self._indent)
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

    def lines(self, width: int) -> Iterator[Text]:
        for part in self._parts(width):
            yield from part.lines(width)

    def _parts(self, width: int) -> Iterator[Page]:
        if self._title:
            yield whole((self._title, "bold"))
        rows = [self._names, *self._rows] if any(name.plain for name in self._names) else self._rows
        columns = list(zip_longest(*rows, fillvalue=Text()))
        widths = [max(cell.cell_len for cell in column) for column in columns]
        start = self._indent + sum(width + _GAP for width in widths[:-1])
        space = width - start
        if rows and not _fits(columns[-1], space):
            yield from (line for row in self._rows for line in self._block(row, width))
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
    words = (word[0].strip() for cell in column for word in _WORD.finditer(cell.plain))
    longest_word = max(map(len, words), default=0)
    return max(cell.cell_len for cell in column) <= space or max(_LEAST, longest_word) <= space


def _wrapped(text: Text, width: int) -> Iterator[Text]:
    """Break a text at its line ends, and between words where a line is too long."""
    for line in text.split():
        breaks, used = [], 0
        for word in _WORD.finditer(line.plain):
            if used and used + cell_len(word[0].rstrip()) > width:
                breaks.append(word.start())
                used = 0
            used += cell_len(word[0])
        yield from line.divide(breaks)


def finding_lines(finding: Finding) -> list[Page]:
    mark, style = _MARKS[finding.severity]
    title, evidence = Text(finding.title), Text(finding.evidence, style="dim")
    passed = finding.severity is Severity.OK
    if passed and finding.evidence:
        title = Text.assemble(title, "  ", evidence)
    lines: list[Page] = [Indented(title, _FINDING_INDENT, Text(mark, style=style))]
    if passed:
        return lines
    if finding.evidence:
        lines.append(Indented(evidence, _FINDING_INDENT))
    if finding.advice:
        lines.append(Indented(finding.advice, _FINDING_INDENT))
    return lines + [whole(" " * _FINDING_INDENT, ("$ ", "dim"), command) for command in finding.fix]

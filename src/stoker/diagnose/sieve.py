"""Reads a log of any size once and keeps the parts worth reading: its start, its end, its errors.

A log of a few megabytes is kept whole. What an error means is not known here, only the bytes that
lines about errors have in common.
"""

import re
from collections import Counter, deque
from collections.abc import Iterator, Sequence
from typing import BinaryIO

from stoker.diagnose.cleaned import LONGEST, clean, said_in_json, shared_prefix, unfolded
from stoker.model.value import Value

_CHUNK = 512 * 1024  # the first one and the last two are kept whole
_AROUND = 8 * 1024  # bytes kept before and after an error in the others
_MOST_MARKED = 3 * 512 * 1024  # bytes kept of them in all
# Looked for one after another: `bytes.find` is many times quicker than any alternation. Each is
# rare in the lines of a build that goes well, such as `-Wno-error` or `ErrorReport.cpp`.
_WORDS = (
    b"rror:",  # of compilers, linkers, make's and Python's exceptions
    b" error C",
    b" error LNK",
    b"Error at ",
    b"ERROR",
    b"FAILED",
    b"fatal ",
    b"fatal:",
    b"*** ",
)
_ESCAPED = b"\\n"
_QUOTED = (b"\\nFAILED: ", b"\\nninja: ", b"(most recent call last):\\n", b"\\nmake: *** ")
_RECENT = 2  # parts at the end that are kept whole
_MOST_PIECES = 32  # of a very long line, at either end
_MOST_LINES = 30_000  # of a part: a megabyte of usual lines has a third of that
_FEW_LINES = 5
_FIRST_LINES = 2000  # in which a prefix is looked for
# A terminal shows the place of an error, and the name that it is about, in lines of their own.
_ONLY_A_PLACE = re.compile(r"\s{0,24}\S[^'\"\n]{0,300}(?::\d{1,7}|\(\d{1,7}(?:,\d{1,5})?\)):$")
_BEFORE_A_NAME = re.compile(
    r"\berror: (?:[^'\"\u2018\u2019`]*[^'\"\u2018\u2019`.;:)]|.{1,300} in (?:namespace)?)$"
)
_ERROR_RESUMES = re.compile(r"\s*(?:fatal )?error(?: [A-Z]{1,3}\d{4})?: ")
_HEADER_LACKS = re.compile(r"fatal error: [\w./+-]{2,120}:$")
_LACKS = re.compile(r"\s*(?:No such file or directory|File or directory not found)\b")
_NAME_RESUMES = re.compile(r"\s{2,12}['\"\u2018]")
_CONSOLE = range(78, 260)  # characters of a line
_FEWEST_BROKEN = 3
_OF_WINDOWS = re.compile(r"[A-Za-z]:\\[\w. -]+\\\S")
_SHORTEST = 32  # bytes that a line counts as where it is shorter, since each takes its time
_UTF16 = b"\xff\xfe"  # how Windows shells write what they redirect


class Line(Value, frozen=True, kw_only=True):
    """A line as its tool printed it, without colours, time stamps and prefixes of other tools.
    ``said`` is what a tool printed in another language, where ``text`` has it in English.
    """

    number: int
    text: str
    said: str = ""


class Log(Value, frozen=True, kw_only=True):
    """The lines that were kept, and the total number of lines."""

    lines: tuple[Line, ...]
    total: int


class _Part(Value, frozen=True, kw_only=True):
    """Bytes of the log from offset ``start`` on; ``line`` is the number of its first line."""

    start: int
    line: int
    content: bytes

    @property
    def cost(self) -> int:
        return max(len(self.content), _SHORTEST * self.content.count(b"\n"))

    def cut(self, begin: int, end: int) -> "_Part":
        line = self.line + self.content.count(b"\n", 0, begin)
        return _Part(start=self.start + begin, line=line, content=self.content[begin:end])


class Sieve:
    """Keeps the relevant parts of a log that arrives in pieces. Apart from the line numbers, memory
    does not grow with the log.
    """

    def __init__(self) -> None:
        self._kept: list[_Part] = []
        self._recent: deque[_Part] = deque()
        self._marked = 0
        self._start, self._line, self._rest, self._utf16 = 0, 1, b"", False

    def feed(self, chunk: bytes) -> None:
        """Add the next piece of the log."""
        self._utf16 = self._utf16 or (not self._start and not self._rest and chunk[:2] == _UTF16)
        self._rest += chunk.replace(b"\0", b"") if self._utf16 else chunk
        if len(self._rest) >= _CHUNK:
            self._cut()

    def feed_all(self, stream: BinaryIO) -> None:
        """Add the rest of a stream."""
        while chunk := stream.read(_CHUNK):
            self.feed(chunk)

    def log(self) -> Log:
        """Return the lines that were kept so far."""
        parts = self._parts()
        total = parts[-1].line + _line_count(parts[-1].content) - 1 if parts else 0
        lines = [line for part in _each_once(parts) for line in _lines(part)]
        if total <= _FEW_LINES:  # perhaps a log that was pasted as one line
            lines = [
                Line(number=line.number, text=text)
                for line in lines
                for text in said_in_json(line.text) or unfolded(line.text)
            ]
        return Log(lines=tuple(_rejoined(_unbroken([*_without_wrapping(lines)]))), total=total)

    def content(self) -> bytes:
        """Return what was kept so far as one text; a line says where something was left out."""
        pieces: list[bytes] = []
        reached = 0
        for part in _each_once(self._parts()):
            if part.start > reached:
                pieces.append(b"[stoker: %d bytes left out]\n" % (part.start - reached))
            pieces.append(part.content)
            reached = part.start + len(part.content)
        return b"".join(pieces)

    def _parts(self) -> list[_Part]:
        last = _Part(start=self._start, line=self._line, content=self._rest)
        return [*self._kept, *self._recent, *([last] if self._rest else [])]

    def _cut(self) -> None:
        """Make a part of the complete lines. Each part repeats the end of the previous one, so that
        one of them contains an error with its context. A line longer than a chunk is split.
        """
        content = self._rest
        end = content.rfind(b"\n") + 1 or len(content)
        self._recent.append(_Part(start=self._start, line=self._line, content=content[:end]))
        repeated = content.find(b"\n", max(0, end - _AROUND), end - 1) + 1 or end
        self._line += content.count(b"\n", 0, repeated)
        self._start += repeated
        self._rest = content[repeated:]
        if len(self._recent) > _RECENT:
            self._let_go(self._recent.popleft())

    def _let_go(self, oldest: _Part) -> None:
        """Keep of a part that is no longer recent only its errors; the first is kept whole."""
        if not self._kept:
            self._kept.append(oldest)
        elif self._marked < _MOST_MARKED:
            spans = [oldest.cut(*span) for span in _spans(oldest.content)]
            self._marked += sum(span.cost for span in spans)
            self._kept += spans


def read_log(stream: BinaryIO) -> Log:
    """Return the relevant parts of a log."""
    sieve = Sieve()
    while chunk := stream.read(_CHUNK):
        sieve.feed(chunk)
    return sieve.log()


def _line_count(content: bytes) -> int:
    return content.count(b"\n") + (not content.endswith(b"\n"))


def _spans(content: bytes) -> list[tuple[int, int]]:
    """Yield where the errors are, with their context: complete lines, in order, each once."""
    spans: list[tuple[int, int]] = []
    for begin, end in sorted(_marks(content)):
        begin = content.rfind(b"\n", 0, max(0, begin - _AROUND)) + 1
        end = content.find(b"\n", min(end + _AROUND, len(content))) + 1 or len(content)
        if spans and begin <= spans[-1][1]:
            spans[-1] = (spans[-1][0], max(end, spans[-1][1]))
        else:
            spans.append((begin, end))
    return spans


def _marks(content: bytes) -> Iterator[tuple[int, int]]:
    for word in _WORDS:
        found = content.find(word)
        while found >= 0:
            after = found + len(word)
            yield found, after
            found = content.find(word, content.find(b"\n", after) + 1 or len(content))


def _without_wrapping(lines: Sequence[Line]) -> Iterator[Line]:
    """Yield the lines without what another tool wrapped them in: records, or a common prefix."""
    prefix = re.compile(shared_prefix([line.text for line in lines[:_FIRST_LINES]]))
    for line in lines:
        text = line.text
        if prefix.pattern and (found := prefix.match(text)):
            text = text[found.end() :]
        for said in said_in_json(text) or [text]:
            yield line if said == line.text else Line(number=line.number, text=said)


def _unbroken(lines: list[Line]) -> list[Line]:
    """Return the lines as they were before a console of Windows broke them at its width, if several
    have the same length and none is longer; what was joined leaves an empty line.
    """
    widths = Counter(len(line.text) for line in lines[:_FIRST_LINES])
    width = max(widths, default=0)
    if width not in _CONSOLE or widths[width] < _FEWEST_BROKEN or len(lines) > _FIRST_LINES:
        return lines
    if not any(_OF_WINDOWS.search(line.text) for line in lines):
        return lines
    for place in range(len(lines) - 2, -1, -1):
        line, below = lines[place], lines[place + 1]
        if len(line.text) == width and not _OF_WINDOWS.match(below.text):
            lines[place] = Line(number=line.number, text=f"{line.text}{below.text}")
            lines[place + 1] = Line(number=below.number, text="")
    return lines


def _rejoined(lines: list[Line]) -> list[Line]:
    """Return the lines with errors as compilers print them where no width is set; what was joined
    leaves an empty line.
    """
    for place in range(len(lines) - 2, -1, -1):
        text, below = lines[place].text, lines[place + 1].text
        if (
            text.endswith(":")
            and (
                (_ERROR_RESUMES.match(below) and _ONLY_A_PLACE.match(text))
                or (_LACKS.match(below) and _HEADER_LACKS.search(text))
            )
        ) or (_NAME_RESUMES.match(below) and _BEFORE_A_NAME.search(text)):
            lines[place] = Line(number=lines[place].number, text=f"{text} {below.lstrip()}")
            lines[place + 1] = Line(number=lines[place + 1].number, text="")
    return lines


def _each_once(parts: list[_Part]) -> Iterator[_Part]:
    reached = 0
    for part in parts:
        done = reached - part.start
        yield part.cut(done, len(part.content)) if done > 0 else part
        reached = max(reached, part.start + len(part.content))


def _lines(part: _Part) -> Iterator[Line]:
    for end in _ends(part):
        for number, state in _states(end):
            for piece in _pieces(state):
                yield Line(number=number, text=clean(piece.decode("utf-8", "replace")))


def _ends(part: _Part) -> Iterator[_Part]:
    """Return the part, or only its first and last lines if it has very many."""
    content = part.content.replace(b"\r", b"\n")
    half = _MOST_LINES // 2
    first = len(content) - len(content.split(b"\n", half)[-1])
    last = len(content.rsplit(b"\n", half + 1)[0]) + 1
    if content.count(b"\n") <= _MOST_LINES or first >= last:
        yield part
    else:
        yield part.cut(0, first)
        yield part.cut(last, len(content))


def _states(part: _Part) -> Iterator[tuple[int, bytes]]:
    """Yield each state of a progress bar as a line: a carriage return starts the line again."""
    number = part.line
    for raw in part.content.removesuffix(b"\n").split(b"\n") if part.content else ():
        for state in raw.split(b"\r") if b"\r" in raw else (raw,):
            for text in state.split(_ESCAPED) if _has_escaped(state) else (state,):
                yield number, text
        number += 1


def _has_escaped(text: bytes) -> bool:
    """Return whether a line quotes the output of a build with its line breaks written as \\n."""
    return _ESCAPED in text and any(mark in text for mark in _QUOTED)


def _pieces(text: bytes) -> Iterator[bytes]:
    most = _MOST_PIECES * LONGEST
    if len(text) > 2 * most:
        text = text[:most] + text[-most:]
    for begin in range(0, max(len(text), 1), LONGEST):
        yield text[begin : begin + LONGEST]

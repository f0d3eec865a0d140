"""The lines of a log, the messages of CMake among them, and quick searches in all of them."""

import re
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from itertools import accumulate, islice

from stoker.diagnose.sieve import Line
from stoker.knowledge.failures import literals

# -- search ----------------------------------------------------------------------------------------
# Compiling every pattern takes a second, and most logs contain the literals of few of them.


_SHORT = 50_000  # characters of a text in which a literal is found sooner than its words
_WORDS = re.compile(r"\w{4,}", re.ASCII)


class Texts:
    """Texts that are searched for patterns. A pattern is compiled and tried only where the
    literals occur that each of its matches has.
    """

    def __init__(self, texts: Sequence[str]):
        self._texts = texts
        self._whole = "\n".join(texts)
        self._starts = list(accumulate((len(text) + 1 for text in texts), initial=0))
        self._vocabulary: str | None = None
        self._having: dict[str, list[int]] = {}
        self._found: dict[tuple[str, int | None], dict[int, re.Match[str]]] = {}

    def __len__(self) -> int:
        return len(self._texts)

    def having(self, literal: str) -> list[int]:
        """Return the indices of the texts that contain a literal, in order."""
        if literal not in self._having:
            self._having[literal] = list(self._places(literal)) if self._may_have(literal) else []
        return self._having[literal]

    def search(self, pattern: str, most: int | None = None) -> dict[int, re.Match[str]]:
        """Return the matches of a pattern by the indices of their texts, in order and at most
        ``most``. The result is kept, because several signs need the same lines.
        """
        if (pattern, most) not in self._found:
            found = self._matches(pattern)
            self._found[pattern, most] = dict(found if most is None else islice(found, most))
        return self._found[pattern, most]

    def _matches(self, pattern: str) -> Iterator[tuple[int, re.Match[str]]]:
        if candidates := self._candidates(pattern):
            search = compiled(pattern).search
            for index in candidates:
                if match := search(self._texts[index]):
                    yield index, match

    def _candidates(self, pattern: str) -> Sequence[int]:
        """Return the indices of the texts that contain a literal of each group."""
        groups = literals(pattern)
        if not groups:
            return range(len(self._texts))
        found = self._having_any(groups[0])
        for words in groups[1:]:
            found = [at for at in found if any(word in self._texts[at] for word in words)]
        return found

    def _having_any(self, words: Sequence[str]) -> list[int]:
        if len(words) == 1:
            return self.having(words[0])
        return sorted({index for word in words for index in self.having(word)})

    def _may_have(self, literal: str) -> bool:
        """Return whether a literal may occur. A long log has few different words, so that looking
        for the longest word of the literal among them is quicker.
        """
        if len(self._whole) < _SHORT:
            return literal in self._whole
        if self._vocabulary is None:
            self._vocabulary = "\n".join(set(_WORDS.findall(self._whole)))
        longest = max(_WORDS.findall(literal), key=len, default="")
        return longest in self._vocabulary

    def _places(self, literal: str) -> Iterator[int]:
        found = self._whole.find(literal)
        while found >= 0:
            index = bisect_right(self._starts, found) - 1
            yield index
            found = self._whole.find(literal, self._starts[index + 1])


@cache
def compiled(pattern: str) -> re.Pattern[str]:
    return re.compile(pattern)


# -- messages --------------------------------------------------------------------------------------
# Joins the lines of CMake's messages, which CMake breaks near column 77 at any place.
#
# Knows no causes and no errors, only how such a message is laid out.


_CMAKE = "CMake "
_HEAD = re.compile(
    r"^(?P<indent>\s{0,24})CMake (?:\w{1,12} )?(?P<kind>Error|Warning)\b(?P<at> at |.{0,20} in )?"
)
_LONGEST = 30  # lines
_LONGEST_MESSAGE = 100  # lines of all its paragraphs
_LONGEST_PLAIN = 12  # lines of a message that names no place: they are not indented
_CALLERS = "Call Stack"
_UV_MARKS = ("\u00d7 ", "├─▶ ", "╰─▶ ")
_OF_UV = re.compile(r"[ │]{3,24}(?!hint:|help:|\[|\u00d7|├|╰)\S").match
_ENDS_PLAIN = re.compile(r"\s{0,24}(?:-- |CMake |$)").match


def paragraphs(lines: Sequence[Line], texts: Texts) -> Iterator[range]:
    """Yield the lines of each paragraph of CMake's messages that have more than one."""
    for index in texts.having(_CMAKE):
        if head := _HEAD.match(lines[index].text):
            yield from _within(lines, index + 1, head["indent"] + "  ")


def uv_messages(lines: Sequence[Line], texts: Texts) -> Iterator[range]:
    """Yield the lines of each message of uv that has more than one; uv wraps them at the width of
    the terminal.
    """
    for index in sorted({at for mark in _UV_MARKS for at in texts.having(mark)}):
        end = index + 1
        while end < min(index + _LONGEST, len(lines)) and _OF_UV(lines[end].text):
            end += 1
        if end - index > 1:
            yield range(index, end)


def messages(lines: Sequence[Line], texts: Texts) -> Mapping[str, Sequence[range]]:
    """Return the lines of each complete message of CMake, by its kind: Error or Warning."""
    found: dict[str, list[range]] = {"Error": [], "Warning": []}
    for index in texts.having(_CMAKE):
        if head := _HEAD.match(lines[index].text):
            end = _end(lines, index + 1, head["indent"]) if head["at"] else 0
            found[head["kind"]].append(range(index, end or _plain_end(lines, index + 1)))
    return found


def joined(lines: Sequence[Line], span: Iterable[int]) -> str:
    """Return the text of some lines as one."""
    return " ".join(lines[index].text.strip(" \t│") for index in span)


def _plain_end(lines: Sequence[Line], begin: int) -> int:
    end = begin
    while end < min(begin + _LONGEST_PLAIN, len(lines)) and not _ENDS_PLAIN(lines[end].text):
        end += 1
    return end


def _end(lines: Sequence[Line], begin: int, indent: str) -> int:
    end = begin
    for index in range(begin, min(begin + _LONGEST_MESSAGE, len(lines))):
        text = lines[index].text
        if text and not text.startswith((f"{indent}  ", f"{indent}{_CALLERS}")):
            break
        end = index + 1 if text else end
    return end


def _within(lines: Sequence[Line], begin: int, indent: str) -> Iterator[range]:
    start = begin
    for index in range(begin, min(begin + _LONGEST, len(lines)) + 1):
        text = lines[index].text if index < len(lines) else ""
        if text.startswith(indent):
            continue
        if index - start > 1:
            yield range(start, index)
        if text:
            return
        start = index + 1

"""Messages of several lines in a log, of CMake and uv, as they were before they were wrapped."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence

from stoker.diagnose.lines import Texts
from stoker.diagnose.sieve import Line

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


def joined_lines(lines: Sequence[Line], span: Iterable[int]) -> str:
    """Return the text of some lines as one."""
    return " ".join(lines[index].text.strip(" \t│") for index in span)


def message_text(lines: Sequence[Line], span: range) -> str:
    """Return the text of a complete message of CMake, without its head and the call stack."""
    body = [index for index in span[1:] if lines[index].text.strip()]
    callers = (index for index in body if lines[index].text.lstrip().startswith(_CALLERS))
    end = next(callers, span.stop)
    return joined_lines(lines, (index for index in body if index < end))


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
    return end if end > begin else _end_without_indent(lines, begin)


def _end_without_indent(lines: Sequence[Line], begin: int) -> int:
    """Return the end of a message whose lines lost their indentation when they were pasted: it is
    followed by who called it.
    """
    near = range(begin, min(begin + _LONGEST_PLAIN, len(lines)))
    callers = (index for index in near if lines[index].text.startswith(_CALLERS))
    end = next(callers, begin)
    return begin if any(_ENDS_PLAIN(lines[one].text) for one in range(begin, end)) else end


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

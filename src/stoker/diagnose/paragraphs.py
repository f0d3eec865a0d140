"""Joins the lines of CMake's messages, which CMake breaks near column 77 at any place.

Knows no causes and no errors, only how such a message is laid out.
"""

import re
from collections.abc import Iterator, Sequence

from stoker.diagnose.values import Line

_HEAD = re.compile(
    r"^(?P<indent>\s{0,24})CMake (?:\w{1,12} )?(?P<kind>Error|Warning)\b(?P<at> at |.{0,20} in )?"
)
_LONGEST = 30  # lines
_LONGEST_MESSAGE = 100  # lines of all its paragraphs
_LONGEST_PLAIN = 12  # lines of a message that names no place: they are not indented
_CALLERS = "Call Stack"
_ENDS_PLAIN = re.compile(r"\s{0,24}(?:-- |CMake |$)").match


def paragraphs(lines: Sequence[Line]) -> Iterator[range]:
    """Yield the lines of each paragraph of CMake's messages that have more than one."""
    for index, line in enumerate(lines):
        if "CMake " in line.text and (head := _HEAD.match(line.text)):
            yield from _within(lines, index + 1, head["indent"] + "  ")


def messages(lines: Sequence[Line], kind: str) -> Iterator[range]:
    """Yield the lines of each complete message of CMake: ``kind`` is Error or Warning."""
    for index, line in enumerate(lines):
        head = _HEAD.match(line.text) if "CMake " in line.text else None
        if head and head["kind"] == kind:
            end = _end(lines, index + 1, head["indent"]) if head["at"] else 0
            yield range(index, end or _plain_end(lines, index + 1))


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

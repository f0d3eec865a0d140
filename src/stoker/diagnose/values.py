"""The values of a diagnosis, with the names of its JSON."""

import re
from collections.abc import Iterator, Sequence
from enum import StrEnum

from stoker.knowledge.failures import Fix, Stage
from stoker.model.value import Value


class Status(StrEnum):
    FAILED = "failed"
    NOTHING_FAILED = "nothing-failed"
    UNKNOWN = "unknown"  # it failed, and no known cause fits


class Line(Value, frozen=True, kw_only=True):
    """A line as its tool printed it, without colours, time stamps and prefixes of other tools."""

    number: int
    text: str


class Evidence(Value, frozen=True, kw_only=True):
    """``line`` counts from 1; it is 0 for what was measured, or recorded in a ``file``. ``file`` is
    empty for stdin.
    """

    line: int
    text: str
    file: str = ""


class FoundCause(Value, frozen=True, kw_only=True):
    """A cause with its evidence and its fixes, with all parameters filled in."""

    cause: str
    title: str
    stage: Stage
    confidence: float
    evidence: tuple[Evidence, ...]
    why: str
    fix: tuple[Fix, ...]
    links: tuple[str, ...]
    misled_by: tuple[str, ...]


class Diagnosis(Value, frozen=True, kw_only=True):
    """The result. ``findings`` are best first; ``unexplained`` is the first error without a known
    cause.
    """

    status: Status
    findings: tuple[FoundCause, ...] = ()
    unexplained: tuple[Evidence, ...] = ()
    lines: int = 0


# -- paragraphs ------------------------------------------------------------------------------------
# Joins the lines of CMake's messages, which CMake breaks near column 77 at any place.
#
# Knows no causes and no errors, only how such a message is laid out.


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

"""CMake breaks its messages near column 77, wherever a path happens to end: what belongs together.

Knows no causes and no errors, only how such a message is laid out.
"""

import re
from collections.abc import Iterator, Sequence

from stoker.diagnose.values import Line

_HEAD = re.compile(r"^(?P<indent>\s{0,24})CMake (?:\w{1,12} )?(?:Error|Warning)\b")
_LONGEST = 30  # lines


def paragraphs(lines: Sequence[Line]) -> Iterator[range]:
    """The lines of each paragraph of each message of CMake, where it has more than one."""
    for index, line in enumerate(lines):
        if "CMake " in line.text and (head := _HEAD.match(line.text)):
            yield from _within(lines, index + 1, head["indent"] + "  ")


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

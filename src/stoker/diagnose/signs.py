"""Finds the signs of causes in a log. It does not rank them."""

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from itertools import islice

from stoker.diagnose.paragraphs import paragraphs
from stoker.diagnose.steps import Steps
from stoker.diagnose.values import Line
from stoker.knowledge.failures import Failure, Sign, any_of, failures, literals
from stoker.model.value import Value

_MOST_HITS = 1000  # of one sign that are looked into
_MOST_PARAGRAPHS = 1000  # of CMake's messages: each is put together many times
_Hits = Mapping[str, Mapping[int, re.Match[str]]]  # by pattern, then by line

# A message continues in the next line: clang does so after `error:`, CMake and nvcc near column 78.
_WRAPS = range(55, 86)  # characters of a line that may have been wrapped
_CONTINUES = re.compile(r"\s{1,24}(?!\d{1,6} \|)[\w'\"`(/<]").match  # and quotes no source


class Match(Value, frozen=True, kw_only=True):
    """A sign that was found: where, with which other lines, and the groups of its match."""

    cause: Failure
    sign: Sign
    line: int
    with_lines: tuple[int, ...]
    groups: dict[str, str]


def find_matches(lines: Sequence[Line], steps: Steps) -> list[Match]:
    """Yield every place where a sign has all that it requires."""
    hits = _hits(lines)
    anywhere = _Anywhere(lines)
    return [
        match
        for cause in failures().values()
        for sign in cause.sign
        if hits.get(sign.match) and _is_possible(sign, anywhere)
        for line, found in hits[sign.match].items()
        if (match := _match(cause, sign, line, found, lines, steps, anywhere))
    ]


class _Anywhere:
    """The first place of a pattern in the whole log, searched once."""

    def __init__(self, lines: Sequence[Line]):
        self._lines = lines
        self._found: dict[str, int | None] = {}

    def first(self, pattern: str) -> int | None:
        if pattern not in self._found:
            self._found[pattern] = _first(pattern, self._lines, range(len(self._lines)))
        return self._found[pattern]

    def has(self, pattern: str) -> bool:
        return self.first(pattern) is not None


def _hits(lines: Sequence[Line]) -> _Hits:
    """Yield what each sign's pattern finds; a pattern is tried only where one of its literals
    occurs.
    """
    literal, patterns = _table()
    hits: dict[str, dict[int, re.Match[str]]] = defaultdict(dict)
    for index, text, end in _texts(lines):
        candidates = {one for there in literal.finditer(text) for one in patterns[there[1]]}
        for pattern in candidates:
            here = hits[pattern.pattern]
            found = pattern.search(text) if len(here) < _MOST_HITS else None
            if found and found.start() <= end:
                here.setdefault(index, found)
    return hits


def _texts(lines: Sequence[Line]) -> Iterator[tuple[int, str, int]]:
    """Yield every line, and again with the next lines if a tool wrapped its message."""
    for index, line in enumerate(lines):
        yield index, line.text, len(line.text)
        if _may_wrap(line.text) and index + 1 < len(lines):
            rest = lines[index + 1].text
            if _CONTINUES(rest):
                yield index, f"{line.text} {rest.lstrip()}", len(line.text)
    for paragraph in islice(paragraphs(lines), _MOST_PARAGRAPHS):
        for begin in paragraph[:-1]:
            whole = " ".join(lines[i].text.strip() for i in range(begin, paragraph.stop))
            yield begin, whole, len(lines[begin].text.strip())


def _may_wrap(text: str) -> bool:
    return text.endswith("error:") or (len(text) in _WRAPS and text[-1] not in ".:;)]}>|^~")


@cache
def _table() -> tuple[re.Pattern[str], Mapping[str, frozenset[re.Pattern[str]]]]:
    """Return a pattern that finds the longest literal at a place, and the signs that use it or a
    prefix of it.
    """
    owners: dict[str, set[re.Pattern[str]]] = defaultdict(set)
    for cause in failures().values():
        for sign in cause.sign:
            for literal in literals(sign.match):
                owners[literal].add(re.compile(sign.match))
    patterns = {
        literal: frozenset(
            pattern for word in owners if literal.startswith(word) for pattern in owners[word]
        )
        for literal in owners
    }
    return re.compile(f"(?=({any_of(owners)}))"), patterns


def _is_possible(sign: Sign, anywhere: _Anywhere) -> bool:
    if sign.project and not anywhere.has(re.escape(sign.project)):
        return False
    return all(map(anywhere.has, sign.anywhere)) and not any(map(anywhere.has, sign.excludes))


def _match(
    cause: Failure,
    sign: Sign,
    line: int,
    found: re.Match[str],
    lines: Sequence[Line],
    steps: Steps,
    anywhere: _Anywhere,
) -> Match | None:
    beside = [_first(pattern, lines, steps.near(line)) for pattern in sign.needs]
    beside += [anywhere.first(pattern) for pattern in sign.anywhere]
    if None in beside:
        return None
    if found.end() > len(lines[line].text):
        beside.insert(0, line + 1)
    return Match(
        cause=cause,
        sign=sign,
        line=line,
        with_lines=tuple(index for index in beside if index is not None),
        groups={name: text for name, text in found.groupdict().items() if text},
    )


def _first(pattern: str, lines: Sequence[Line], where: range) -> int | None:
    search = re.compile(pattern).search
    return next((index for index in where if search(lines[index].text)), None)

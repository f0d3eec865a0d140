"""Which signs of which causes a log holds. Knows the entries and the steps, and ranks nothing."""

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from functools import cache

from stoker.diagnose.steps import Steps
from stoker.diagnose.values import Line
from stoker.knowledge.failures import Failure, Sign, failures
from stoker.knowledge.patterns import any_of, literals
from stoker.model.value import Value

_MOST_HITS = 1000  # of one pattern that are remembered

_Hits = Mapping[str, Sequence[int]]  # of each pattern, in order


class Match(Value, frozen=True, kw_only=True):
    """A sign that holds: where, with which lines besides, and what the groups of its match took."""

    cause: Failure
    sign: Sign
    line: int
    with_lines: tuple[int, ...]
    groups: dict[str, str]


def find_matches(lines: Sequence[Line], steps: Steps) -> list[Match]:
    """Of each sign every place where all that it asks for holds."""
    hits = _hits(lines)
    return [
        match
        for cause in failures().values()
        for sign in cause.sign
        if _is_possible(sign, lines, hits)
        for match in _matches(cause, sign, lines, steps, hits)
    ]


def _hits(lines: Sequence[Line]) -> _Hits:
    """Patterns are tried only on lines that have one of their literals."""
    table = _patterns_by_literal()
    maybe = re.compile(any_of(table)) if table else re.compile(r"(?!)")
    found: dict[str, list[int]] = defaultdict(list)
    for index, line in enumerate(lines):
        if maybe.search(line.text):
            for pattern in _found_in(line.text, table):
                if len(found[pattern]) < _MOST_HITS:
                    found[pattern].append(index)
    return found


def _found_in(text: str, table: Mapping[str, Iterable[re.Pattern[str]]]) -> set[str]:
    candidates = {one for literal, some in table.items() if literal in text for one in some}
    return {pattern.pattern for pattern in candidates if pattern.search(text)}


@cache
def _patterns_by_literal() -> Mapping[str, frozenset[re.Pattern[str]]]:
    table: dict[str, set[re.Pattern[str]]] = defaultdict(set)
    for cause in failures().values():
        for pattern in {text for sign in cause.sign for text in sign.patterns}:
            for literal in literals(pattern):
                table[literal].add(re.compile(pattern))
    return {literal: frozenset(patterns) for literal, patterns in table.items()}


def _is_possible(sign: Sign, lines: Sequence[Line], hits: _Hits) -> bool:
    if sign.match not in hits or any(pattern in hits for pattern in sign.excludes):
        return False
    if sign.project and not any(sign.project in line.text for line in lines):
        return False
    return all(pattern in hits for pattern in (*sign.anywhere, *sign.needs))


def _matches(
    cause: Failure, sign: Sign, lines: Sequence[Line], steps: Steps, hits: _Hits
) -> Iterable[Match]:
    for line in hits[sign.match]:
        near = steps.near(line)
        beside = [_nearest(hits[pattern], line, near) for pattern in sign.needs]
        found = re.search(sign.match, lines[line].text)
        if found is None or None in beside:
            continue
        yield Match(
            cause=cause,
            sign=sign,
            line=line,
            with_lines=(
                *(index for index in beside if index is not None),
                *(hits[pattern][0] for pattern in sign.anywhere),
            ),
            groups={name: text for name, text in found.groupdict().items() if text},
        )


def _nearest(hits: Sequence[int], line: int, near: range) -> int | None:
    return min((hit for hit in hits if hit in near), key=lambda hit: abs(hit - line), default=None)

"""Checks regular expressions without running them: that they end soon, and which literals every
match contains.

That needs the parser of Python's re, which is private: that is why it is used here and not when
stoker runs.
"""

import re
import re._constants as op  # private, but the only parser that is sure to agree with re
import re._parser as parser
from collections.abc import Iterable, Iterator
from typing import Any

_FEW = 4  # times that a group may repeat something unbounded, as in (?:\d+\.){1,3}
_SHORTEST = 3  # letters of a literal that is worth looking for; of Chinese and others, two
_MOST_RUNS = 40  # literals that alternatives may make of one literal
_MOST_SETS = 3  # sets of literals that alternatives may require
_REPEATS = (op.MAX_REPEAT, op.MIN_REPEAT, op.POSSESSIVE_REPEAT)
_GROUPS = (op.SUBPATTERN, op.ATOMIC_GROUP)

_Items = Iterable[tuple[Any, Any]]


def problem(pattern: str) -> str | None:
    """Return why a pattern must not be searched for in a log; ``None`` if it is valid."""
    try:
        tree = parser.parse(pattern)
    except re.error as error:
        return f"does not compile: {error}"
    if tree.state.flags & (re.IGNORECASE | re.VERBOSE):
        return "flags are not taken: write [Nn]o for both cases"
    if any(_is_wild(body, most) for _, most, body in _repeats(tree)):
        return "'.*' reads whole lines again and again: write .{0,200}"
    if any(most > _FEW and _unbounded_within(body) for _, most, body in _repeats(tree)):
        return "an unbounded repetition inside another one may never end"
    return None


def literals(pattern: str) -> list[frozenset[str]]:
    """Return sets of literals; every match contains one literal of each. The rarest is first."""
    return _best(_required(parser.parse(pattern)))


def _repeats(items: _Items) -> Iterator[tuple[int, int, Any]]:
    for kind, argument in items:
        if kind in _REPEATS:
            yield argument
        for inner in _inside(kind, argument):
            yield from _repeats(inner)


def _inside(kind: Any, argument: Any) -> list[Any]:
    if kind in _REPEATS:
        return [argument[2]]
    if kind is op.BRANCH:
        return list(argument[1])
    if kind is op.SUBPATTERN:
        return [argument[-1]]
    if kind is op.ATOMIC_GROUP:
        return [argument]
    if kind in (op.ASSERT, op.ASSERT_NOT):
        return [argument[1]]
    return []


def _is_wild(body: _Items, most: int) -> bool:
    return most == op.MAXREPEAT and [kind for kind, _ in body] == [op.ANY]


def _unbounded_within(body: _Items) -> bool:
    return any(most == op.MAXREPEAT for _, most, _ in _repeats(body))


def _required(items: _Items) -> list[frozenset[str]]:
    """Return sets of literals; a match contains one of each set."""
    found: list[frozenset[str]] = []
    runs = frozenset([""])
    for kind, argument in _flat(items):
        words = _words(kind, argument)
        if words and len(runs) * len(words) <= _MOST_RUNS:
            runs = frozenset(run + word for run in runs for word in words)
            continue
        found.append(runs)
        runs = frozenset([""])
        if kind is op.BRANCH:
            found += _of_each([_best(_required(branch)) for branch in argument[1]])
        elif kind in _REPEATS and argument[0] > 0:
            found += _required(argument[2])
    return [*found, runs]


def _words(kind: Any, argument: Any) -> list[str]:
    """Return the texts that an item matches, if it is a letter or alternatives of letters."""
    if kind is op.LITERAL:
        return [chr(argument)]
    branches = argument[1] if kind is op.BRANCH else []
    plain = [all(one is op.LITERAL for one, _ in branch) for branch in branches]
    return ["".join(chr(letter) for _, letter in one) for one in branches] if all(plain) else []


def _of_each(branches: list[list[frozenset[str]]]) -> Iterator[frozenset[str]]:
    """Yield sets of literals that hold for a choice of branches: the best of each branch, then the
    second; a branch without a second has its first again.
    """
    if all(branches):
        for rank in range(min(_MOST_SETS, max(map(len, branches)))):
            yield frozenset().union(*(one[min(rank, len(one) - 1)] for one in branches))


def _flat(items: _Items) -> Iterator[tuple[Any, Any]]:
    """Yield the items with groups opened, so that their content joins the items around them."""
    for kind, argument in items:
        if kind in _GROUPS:
            yield from _flat(_inside(kind, argument)[0])
        elif kind is not op.AT:
            yield kind, argument


def _best(sets: list[frozenset[str]]) -> list[frozenset[str]]:
    """Return the sets that are worth looking for, those whose shortest literal is long first."""
    return sorted(filter(_is_usable, dict.fromkeys(sets)), key=_rarity, reverse=True)


def _is_usable(words: frozenset[str]) -> bool:
    return bool(words) and min(map(_length, words)) >= _SHORTEST


def _length(word: str) -> int:
    return len(word.encode())


def _rarity(words: frozenset[str]) -> tuple[int, int]:
    return min(map(_length, words)), -len(words)

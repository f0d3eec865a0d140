"""Checks regular expressions without running them: that they end soon, and what they contain."""

import re
import re._constants as op  # private, but the only parser that is sure to agree with re
import re._parser as parser
from collections.abc import Iterable, Iterator
from typing import Any

_FEW = 4  # times that a group may repeat something unbounded, as in (?:\d+\.){1,3}
_SHORTEST = 3  # letters of a literal that is worth looking for
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


def literals(pattern: str) -> frozenset[str]:
    """Return literals of which every match contains one; empty if there are none."""
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
    run = ""
    for kind, argument in _flat(items):
        if kind is op.LITERAL:
            run += chr(argument)
            continue
        found.append(frozenset([run]))
        run = ""
        if kind is op.BRANCH:
            branches = [_best(_required(branch)) for branch in argument[1]]
            found.append(frozenset().union(*branches) if all(branches) else frozenset())
        elif kind in _REPEATS and argument[0] > 0:
            found += _required(argument[2])
    return [*found, frozenset([run])]


def _flat(items: _Items) -> Iterator[tuple[Any, Any]]:
    """Yield the items with groups opened, so that their content joins the items around them."""
    for kind, argument in items:
        if kind in _GROUPS:
            yield from _flat(_inside(kind, argument)[0])
        elif kind is not op.AT:
            yield kind, argument


def _best(sets: list[frozenset[str]]) -> frozenset[str]:
    """Return the set whose shortest literal is the longest."""
    usable = [one for one in sets if one and min(map(len, one)) >= _SHORTEST]
    return max(usable, key=lambda one: (min(map(len, one)), -len(one)), default=frozenset())


def any_of(words: Iterable[str]) -> str:
    """Return a pattern for the longest of many words; words with the same prefix share it."""
    tree: dict[str, Any] = {}
    for word in words:
        node = tree
        for letter in word:
            node = node.setdefault(letter, {})
        node[""] = {}
    return _spelt(tree)


def _spelt(node: dict[str, Any]) -> str:
    """Return the pattern of a subtree; if a word ends here, the last alternative is empty."""
    letters = [letter for letter in node if letter]
    branches = [re.escape(letter) + _spelt(node[letter]) for letter in letters]
    branches += [""] if "" in node else []
    return branches[0] if len(branches) == 1 else f"(?:{'|'.join(branches)})"

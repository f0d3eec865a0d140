"""Checks the files of causes: that their patterns are valid and end soon, and their texts."""

import re
import re._constants as op  # private, but the only parser that is sure to agree with re
import re._parser as parser
from collections.abc import Iterable, Iterator
from typing import Any

import msgspec

from stoker.knowledge.failures import Failure, literals, parameters

_FEW = 4  # times that a group may repeat something unbounded, as in (?:\d+\.){1,3}
_REPEATS = (op.MAX_REPEAT, op.MIN_REPEAT, op.POSSESSIVE_REPEAT)

_Items = Iterable[tuple[Any, Any]]


def checked(content: bytes, name: str) -> Failure:
    """Return the entry ``<name>.toml``; raise a ``ValueError`` that says what is wrong and
    where.
    """
    try:
        failure = msgspec.toml.decode(content, type=Failure)
    except msgspec.DecodeError as error:
        raise ValueError(f"{name}: {error}") from None
    if wrong := _problems(failure, name):
        raise ValueError("\n".join(f"{name}: {text}" for text in wrong))
    return failure


def _problems(failure: Failure, name: str) -> list[str]:
    wrong = [] if failure.name == name else [f"calls itself '{failure.name}'"]
    wrong += _problems_of_texts(failure)
    wrong += _problems_of_parameters(failure)
    for sign in failure.sign:
        if not 0 < sign.strength <= 1:
            wrong.append(f"strength {sign.strength} is not in 0 to 1")
        faults = [f"{text}: {why}" for text in sign.patterns if (why := problem(text))]
        if not faults and not literals(sign.match):
            faults.append(f"{sign.match}: no three letters that every match has")
        wrong += faults
    return wrong


def _problems_of_texts(failure: Failure) -> list[str]:
    wrong = []
    if "\n" in failure.title or not failure.title or failure.title.endswith("."):
        wrong.append("the title is one line without a full stop")
    if not failure.why.strip():
        wrong.append("why is empty")
    if not failure.sign or not failure.fix:
        wrong.append("without a sign, or without a fix")
    if any(fix.text.startswith("Or ") for fix in failure.fix):
        wrong.append("a fix does not begin with 'Or': the report adds it")
    links = [*failure.threads, *(example.source for example in failure.example)]
    wrong += [f"not a link: {link}" for link in links if not link.startswith("https://")]
    return wrong


def _problems_of_parameters(failure: Failure) -> list[str]:
    used: set[str] = set()
    for fix in failure.fix:
        for text in (fix.text, *fix.commands):
            try:
                used |= parameters(text)
            except ValueError as error:
                return [f"{text}: {error}; a brace of its own is doubled"]
    missing = [f"{{{name}}} has no default" for name in sorted(used - failure.defaults.keys())]
    return missing + [f"default '{name}' unused" for name in sorted(failure.defaults.keys() - used)]


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

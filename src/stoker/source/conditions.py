"""CMake conditions as text: conjunctions, negations, and the names they read."""

import re
from collections.abc import Iterable, Iterator

from stoker.source.cmake import Argument

_COMPARISONS = {
    f"{kind}{comparison}"
    for kind in ("", "STR", "VERSION_")
    for comparison in ("LESS", "GREATER", "EQUAL", "LESS_EQUAL", "GREATER_EQUAL")
}
_NO_VARIABLE_NEXT = _COMPARISONS | {"COMMAND", "MATCHES", "PATH_EQUAL", "POLICY", "TARGET", "TEST"}
_OPERATORS = {
    "AND",
    "OR",
    "NOT",
    "DEFINED",
    "EXISTS",
    "IN_LIST",
    "IS_ABSOLUTE",
    "IS_DIRECTORY",
    "IS_NEWER_THAN",
    "IS_SYMLINK",
}
_CONSTANTS = {"ON", "YES", "TRUE", "Y", "OFF", "NO", "FALSE", "N", "IGNORE", "NOTFOUND"}
_NO_VARIABLE = _NO_VARIABLE_NEXT | _OPERATORS | _CONSTANTS
_WORD = re.compile(r"[^\s();\"]+")


def condition_text(arguments: Iterable[Argument]) -> str:
    """Return a condition on one line, as it is written."""
    text = ""
    for argument in arguments:
        glued = not text or text.endswith("(") or argument.source == ")"
        text += argument.source if glued else f" {argument.source}"
    return text


def conjunction(parts: Iterable[str]) -> str:
    """Return the condition that all parts are true. AND binds more tightly than OR."""
    first, *others = dict.fromkeys(" ".join(part.split()) for part in parts if part) or ["TRUE"]
    if not others:
        return first
    return " AND ".join(f"({part})" if " OR " in part else part for part in (first, *others))


def negation(condition: str) -> str:
    match condition.split():
        case [_]:
            return f"NOT {condition}"
        case ["NOT", name] if not name.startswith("("):
            return name
        case _:
            return f"NOT ({condition})"


def names_read(words: Iterable[str]) -> Iterator[str]:
    """Return the words of a condition that CMake reads as variables, if such variables exist."""
    previous = ""
    for word in words:
        if word not in _NO_VARIABLE and previous not in _NO_VARIABLE_NEXT:
            yield word
        previous = word


def condition_words(condition: str) -> list[str]:
    """Return the words of a condition that is one argument, as the source writes it."""
    return _WORD.findall(condition)

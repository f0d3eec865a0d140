"""CMake conditions as text: conjunctions, negations, the names they read, and the blocks that
contain a command.
"""

import re
from collections.abc import Iterable, Iterator, Sequence

from stoker.model.value import Value
from stoker.source.cmake import Argument, CMakeCommand

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
_OPENING = {"foreach", "function", "macro", "while"}
_CLOSING = {f"end{name}" for name in _OPENING}
_BRANCHING = {"if", "elseif", "else", "endif"}
# Characters of a condition, and what each part counts besides: of very deep nesting only the outer
# part is told.
_LONGEST, _COST_OF_PART = 1000, 20
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


def compared(words: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Yield the variables that a condition compares with words: ``X STREQUAL "CUDA"``."""
    for name, comparison, word in zip(words, words[1:], words[2:], strict=False):
        if comparison == "STREQUAL" and "$" not in word:
            yield name.removeprefix("${").removesuffix("}"), word


def condition_words(condition: str) -> list[str]:
    """Return the words of a condition that is one argument, as the source writes it."""
    return _WORD.findall(condition)


class Enclosed(Value, frozen=True, kw_only=True):
    """A command and the if() blocks that contain it, in the same file."""

    command: CMakeCommand
    within: str | None = None  # the condition of these blocks, outermost first
    conditional: bool = False  # also true in a function or a loop


def enclosed(commands: Iterable[CMakeCommand]) -> Iterator[Enclosed]:
    """Yield the commands that are no part of an if() themselves, with the blocks around them."""
    # For each open if(), the conditions of its branches so far; an else() has none of its own.
    blocks: list[list[str]] = []
    others = 0
    within: str | None = None  # the condition of the blocks, once a command needs it
    changed = False
    for command in commands:
        changed = changed or command.name in _BRANCHING
        match command.name:
            case "if":
                blocks.append([_limited(command)])
            case "elseif" if blocks:
                blocks[-1].append(_limited(command))
            case "else" if blocks:
                blocks[-1].append("")
            case "endif" if blocks:
                blocks.pop()
            case name if name in _OPENING:
                others += 1
            case name if name in _CLOSING:
                others = max(0, others - 1)
            case _:
                if changed:
                    within, changed = _within(blocks), False
                conditional = bool(blocks or others)
                yield Enclosed(command=command, within=within, conditional=conditional)


def _limited(command: CMakeCommand) -> str:
    text = condition_text(command.arguments)
    return text if len(text) <= _LONGEST else "..."


def _within(blocks: Sequence[Sequence[str]]) -> str | None:
    """Return the condition under which the innermost branch is reached."""
    parts: list[str] = []
    room = _LONGEST
    for part in _conditions(blocks):
        room -= len(part) + _COST_OF_PART
        if room < 0:
            parts.append("...")
            break
        parts.append(part)
    return conjunction(parts) if parts else None


def _conditions(blocks: Sequence[Sequence[str]]) -> Iterator[str]:
    """Return the conditions from the outermost block to the innermost."""
    for branches in blocks:
        for passed in branches[:-1]:
            yield negation(passed)
        if branches[-1]:
            yield branches[-1]

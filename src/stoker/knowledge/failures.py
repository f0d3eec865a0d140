"""Causes of failed builds, and the patterns that recognize them."""

import re
import re._constants as op  # private, but the only parser that is sure to agree with re
import re._parser as parser
from collections.abc import Iterable, Iterator
from enum import StrEnum
from functools import cache
from importlib import resources
from string import Formatter
from typing import Any

import msgspec

from stoker.knowledge import Row

# -- patterns --------------------------------------------------------------------------------------
# Checks regular expressions without running them: that they end soon, and what they contain.


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


# -- failures --------------------------------------------------------------------------------------
# The causes of failed builds: one file each in ``failures/``, with its signs, fixes and examples.
#
# ``docs/how-to/add-a-cause.md`` explains the fields. What a log looks like is not known here.


class Stage(StrEnum):
    FETCH = "fetch"
    CONFIGURE = "configure"
    CODEGEN = "codegen"
    COMPILE = "compile"
    LINK = "link"
    PACKAGE = "package"
    INSTALL = "install"
    IMPORT = "import"
    RUN = "run"


class Sign(Row, frozen=True, kw_only=True):
    """One way to recognise a cause. Patterns are searched for in single lines."""

    match: str
    strength: float  # how sure it is alone, up to 1
    needs: tuple[str, ...] = ()  # each near it, in the same failing block
    anywhere: tuple[str, ...] = ()  # each somewhere in the log
    excludes: tuple[str, ...] = ()  # none of them anywhere in the log
    project: str | None = None  # which the log must name
    quiet: bool = False  # successful builds print it too: counts only where something failed

    @property
    def patterns(self) -> tuple[str, ...]:
        return (self.match, *self.needs, *self.anywhere, *self.excludes)


class Fix(Row, frozen=True, kw_only=True):
    """``{name}`` in either is a group of the match, a fact of the machine, or the default."""

    text: str
    commands: tuple[str, ...] = ()


class Example(Row, frozen=True, kw_only=True):
    log: str
    source: str


class Failure(Row, frozen=True, kw_only=True):
    """A named cause of failed builds."""

    name: str
    title: str
    stage: Stage
    why: str
    sign: tuple[Sign, ...]
    fix: tuple[Fix, ...]
    misled_by: tuple[str, ...] = ()
    threads: tuple[str, ...] = ()
    defaults: dict[str, str] = {}
    example: tuple[Example, ...] = ()


@cache
def failures() -> dict[str, Failure]:
    """Return the causes by name, in alphabetical order. The tests check each entry."""
    folder = resources.files(__package__).joinpath("failures")
    files = sorted(folder.iterdir(), key=lambda file: file.name)
    found = [_decoded(file.read_bytes()) for file in files if file.name.endswith(".toml")]
    return {failure.name: failure for failure in found}


def checked(content: bytes, name: str) -> Failure:
    """Return the entry ``<name>.toml``; raise a ``ValueError`` that says what is wrong and
    where.
    """
    try:
        failure = _decoded(content)
    except msgspec.DecodeError as error:
        raise ValueError(f"{name}: {error}") from None
    if wrong := _problems(failure, name):
        raise ValueError("\n".join(f"{name}: {text}" for text in wrong))
    return failure


def _decoded(content: bytes) -> Failure:
    return msgspec.toml.decode(content, type=Failure)


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


def parameters(template: str) -> frozenset[str]:
    """Return the names in braces."""
    return frozenset(name for _, name, _, _ in Formatter().parse(template) if name is not None)

"""Causes of failed builds, and the patterns that recognize them."""

import re
from collections.abc import Iterable
from enum import StrEnum
from functools import cache
from importlib import resources
from string import Formatter
from typing import Any

import msgspec

from stoker.knowledge import Row

# -- patterns --------------------------------------------------------------------------------------
# What every match of a regular expression contains, read from its text. The tests check that the
# patterns are valid and end soon.


_SHORTEST = 3  # letters of a literal that is worth looking for
_TOKEN = re.compile(
    r"""\((?P<group>\?(?:P<\w+>|[:>])|(?!\?))  # of alternatives, which are read
    | \((?P<look>\?<?[=!])                     # around the match, not part of it
    | (?P<end>\)) | (?P<bar>\|)
    | (?P<set>\[\^?\]?(?:\\.|[^\]\\])*\])
    | \\(?P<escaped>[^\w\s]) | (?P<anchor>\\[bBAZ]|[$^]) | (?P<wild>\\.|\.)
    | (?P<letter>.)""",
    re.VERBOSE | re.DOTALL,
)
_TIMES = re.compile(r"(?:[*+?]|\{\d*(?:,\d*)?\})[?+]?")


def literals(pattern: str) -> frozenset[str]:
    """Return literals of which every match contains one; empty if there are none."""
    scanner = _Scanner(pattern)
    alternatives = scanner.alternatives()
    return _best(alternatives[0] if len(alternatives) == 1 else _either(alternatives))


class _Scanner:
    """Reads a valid pattern once, from left to right."""

    def __init__(self, pattern: str):
        self._pattern = pattern
        self._at = 0

    def alternatives(self) -> list[list[frozenset[str]]]:
        """Return the literals of each alternative, up to the end of the group or of the pattern.

        A match of an alternative contains one literal of each of its sets.
        """
        found = [[frozenset([""])]]
        while token := _TOKEN.match(self._pattern, self._at):
            self._at = token.end()
            if token["end"]:
                break
            if token["bar"]:
                found.append([frozenset([""])])
            elif not token["anchor"]:
                self._add(found[-1], self._literals(token))
        return found

    def _literals(self, token: re.Match[str]) -> list[frozenset[str]]:
        """Return what a match of the token and of its quantifier contains."""
        inner: list[frozenset[str]] = [frozenset([""]), frozenset([""])]  # anything
        if letter := token["escaped"] or token["letter"]:
            inner = [frozenset([letter])]
        elif token["group"] is not None or token["look"]:
            alternatives = self.alternatives()
            if token["look"]:
                return [frozenset([""])]
            inner = alternatives[0] if len(alternatives) == 1 else _either(alternatives)
        times = _TIMES.match(self._pattern, self._at)
        if times is None:
            return inner
        self._at = times.end()
        if times[0][0] in "*?" or re.match(r"\{0*[,}]", times[0]):
            return [frozenset([""]), frozenset([""])]
        return [frozenset([""]), *inner, frozenset([""])]

    @staticmethod
    def _add(found: list[frozenset[str]], more: list[frozenset[str]]) -> None:
        """Append literals; texts that follow each other directly become one."""
        first, *rest = more
        if len(found[-1]) == len(first) == 1:
            found[-1] = frozenset(["".join((*found[-1], *first))])
        else:
            found.append(first)
        found += rest


def _either(alternatives: list[list[frozenset[str]]]) -> list[frozenset[str]]:
    best = [_best(sets) for sets in alternatives]
    one = frozenset().union(*best) if all(best) else frozenset()
    return [frozenset([""]), one, frozenset([""])]


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


def _decoded(content: bytes) -> Failure:
    return msgspec.toml.decode(content, type=Failure)


def parameters(template: str) -> frozenset[str]:
    """Return the names in braces."""
    return frozenset(name for _, name, _, _ in Formatter().parse(template) if name is not None)

"""What is known of precompiled headers: which commands can use one, and what it costs."""

import re
from collections.abc import Callable
from fnmatch import translate
from functools import cache

from stoker.knowledge import Row, load
from stoker.model.headers import HeaderSharing


class Cost(Row, frozen=True, kw_only=True):
    use: float
    make: float
    file: float


class Limits(Row, frozen=True, kw_only=True):
    users: int
    seconds: float
    bytes: int
    memory: float


class Tolerance(Row, frozen=True, kw_only=True):
    """How far what a source includes may differ from a shared header, and how many of those a group
    of compiles may have.
    """

    headers: int
    displaced: int
    project: int
    system: int


class _Language(Row, frozen=True, kw_only=True):
    header: str
    suffixes: tuple[str, ...]


class _Options(Row, frozen=True, kw_only=True):
    valued: frozenset[str]
    own: frozenset[str]
    excluded: tuple[str, ...]
    harmless: frozenset[str]


class _Unstable(Row, frozen=True, kw_only=True):
    names: frozenset[str]


class HeaderRules(Row, frozen=True, kw_only=True):
    cost: Cost
    limits: Limits
    tolerance: dict[HeaderSharing, Tolerance]
    language: tuple[_Language, ...]
    options: _Options
    unstable: _Unstable

    def language_of(self, suffix: str) -> str | None:
        """Return the value of -x for a header of such sources; ``None`` for other files."""
        return next((row.header for row in self.language if suffix in row.suffixes), None)

    def excludes(self, word: str) -> bool:
        """Return whether a compile with this option is left alone."""
        return bool(_excluding()(word)) and word not in self.options.harmless


@cache
def header_rules() -> HeaderRules:
    return load("shared_headers", HeaderRules)


@cache
def _excluding() -> Callable[[str], re.Match[str] | None]:
    return re.compile("|".join(map(translate, header_rules().options.excluded))).match

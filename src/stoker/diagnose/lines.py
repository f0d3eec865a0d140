"""Quick searches in all lines of a log.

Compiling every pattern takes a second, and most logs contain the literals of few of them.
"""

import re
from bisect import bisect_right
from collections.abc import Collection, Iterator, Sequence
from functools import cache
from itertools import accumulate, islice

from stoker.knowledge.failures import literals

_SHORT = 8_000  # characters of a text in which a literal is found sooner than its words
_LONG = 300_000  # characters up to which a literal is also looked for as a whole
_LEAST = 4  # letters of a word of the vocabulary
_WORDS = re.compile(rf"[A-Za-z]{{{_LEAST},}}")  # without numbers, so that there are few of them

# How compilers name a place: gcc and clang, nvcc, Microsoft's.
COMPILER_ERRORS = (
    (
        r"^\s{0,24}(?P<file>[^\s:'\"][^:'\"\n]{0,300}\.\w{1,5}):(?P<line>\d{1,7})(?::\d{1,5})?"
        r": (?:fatal )?error: (?P<message>\S.{0,300})"
    ),
    (
        r"^\s{0,24}(?P<file>[^\s('\"][^('\"\n]{0,300}\.\w{1,5})\((?P<line>\d{1,7})(?:,\d{1,5})?\)"
        r": (?:fatal )?error(?: [A-Z]{0,3}#?[\d-]{1,7}D?)?\s?: (?P<message>\S.{0,300})"
    ),
)


class Texts:
    """Texts that are searched for patterns. A pattern is compiled and tried only where the
    literals occur that each of its matches has.
    """

    def __init__(self, texts: Sequence[str]):
        self._texts = texts
        self._whole = "\n".join(texts)
        self._starts = list(accumulate((len(text) + 1 for text in texts), initial=0))
        self._vocabulary: str | None = None
        self._known: dict[str, bool] = {}
        self._having: dict[str, list[int]] = {}
        self._found: dict[tuple[str, int | None], dict[int, re.Match[str]]] = {}

    def __len__(self) -> int:
        return len(self._texts)

    def having(self, literal: str) -> list[int]:
        """Return the indices of the texts that contain a literal, in order."""
        if literal not in self._having:
            self._having[literal] = list(self._places(literal)) if self._may_have(literal) else []
        return self._having[literal]

    def search(self, pattern: str, most: int | None = None) -> dict[int, re.Match[str]]:
        """Return the matches of a pattern by the indices of their texts, in order and at most
        ``most``. The result is kept, because several signs need the same lines.
        """
        if (found := self._found.get((pattern, most))) is None:
            candidates = self._candidates(pattern)
            found = dict(islice(self._matches(pattern, candidates), most)) if candidates else {}
            self._found[pattern, most] = found
        return found

    def may_match(self, pattern: str) -> bool:
        """Return whether the texts have the literals of a pattern, without compiling it."""
        return all(any(map(self._may_have, words)) for words in literals(pattern))

    def occurring(self, literals: Collection[str]) -> list[str]:
        """Return those of the literals that may occur."""
        if len(self._whole) < _SHORT:
            return [literal for literal in literals if literal in self._whole]
        possible = [literal for literal in literals if self._may_have(literal)]
        if len(self._whole) < _LONG:
            possible = [literal for literal in possible if literal in self._whole]
        return possible

    def _matches(
        self, pattern: str, candidates: Sequence[int]
    ) -> Iterator[tuple[int, re.Match[str]]]:
        search = compiled(pattern).search
        for index in candidates:
            if match := search(self._texts[index]):
                yield index, match

    def _candidates(self, pattern: str) -> Sequence[int]:
        """Return the indices of the texts that contain a literal of each group."""
        groups = literals(pattern)
        if not groups:
            return range(len(self._texts))
        if not self.may_match(pattern):
            return ()
        found = self._having_any(groups[0])
        for words in groups[1:]:
            found = [at for at in found if any(word in self._texts[at] for word in words)]
        return found

    def _having_any(self, words: Sequence[str]) -> list[int]:
        if len(words) == 1:
            return self.having(words[0])
        return sorted({index for word in words for index in self.having(word)})

    def _may_have(self, literal: str) -> bool:
        """Return whether a literal may occur."""
        if literal not in self._known:
            self._known[literal] = self._is_known(literal)
        return self._known[literal]

    def _is_known(self, literal: str) -> bool:
        """A long log has few different words, so that looking for the longest word of the literal
        among them is quicker.
        """
        if len(self._whole) < _SHORT:
            return literal in self._whole
        if self._vocabulary is None:
            self._vocabulary = "\n".join(set(_WORDS.findall(self._whole)))
        return _longest_word(literal) in self._vocabulary

    def _places(self, literal: str) -> Iterator[int]:
        found = self._whole.find(literal)
        while found >= 0:
            index = bisect_right(self._starts, found) - 1
            yield index
            found = self._whole.find(literal, self._starts[index + 1])


def _longest_word(literal: str) -> str:
    if literal.isalpha() and literal.isascii() and len(literal) >= _LEAST:
        return literal
    return max(_WORDS.findall(literal), key=len, default="")


@cache
def compiled(pattern: str) -> re.Pattern[str]:
    return re.compile(pattern)

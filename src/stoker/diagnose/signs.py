"""Finds the signs of known causes in a log. Ranks nothing."""

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from itertools import chain, islice

from stoker.diagnose.ages import Versions, may_show
from stoker.diagnose.lines import Texts
from stoker.diagnose.messages import (
    joined_lines,
    message_text,
    messages,
    paragraphs,
    uv_messages,
)
from stoker.diagnose.sieve import Line
from stoker.diagnose.steps import LogSteps
from stoker.knowledge.failures import Failure, Sign, failure, possible_failures
from stoker.model.value import Value

_MOST_HITS = 1000  # of one sign that are looked into
MOST_OF_A_KIND = 200  # failures of one kind that are looked into
_LONGEST = 160  # characters of a message that is repeated in a headline
_MOST_PARAGRAPHS = 1000  # of messages of CMake and uv: each is put together many times
_Hits = Mapping[int, re.Match[str]]  # by line

# A message continues in the next line: clang does so after `error:`, CMake and nvcc near column 78.
_WRAPS = range(55, 86)  # characters of a line that may have been wrapped
_CONTINUES = re.compile(r"\s{1,24}(?!\d{1,6} \|)[\w'\"`(/<]").match  # and quotes no source
# Terminals and writers of logs wrap at any width: an error resumes in words, which are no source.
_ERROR = re.compile(r"\berror: \S.{10,2000}[\w:,'\"\u2019]$").search
_RESUMES = re.compile(
    r"(?!\s*(?:in instantiation|candidate|required |note\b|compilation |from |at ))"
    r"(?:\s{1,8}(?!\d{1,6} \|)(?:[A-Za-z]{1,20}|\d{1,3}-\w{2,10})|[a-z]{2,20})"
    r"(?: [^;{}=#|\\:]{2,300})$"
).match
_UNDERLINE = re.compile(r"[\s^~]*\^[\s^~]*$").match
_MOST_WRAPPED = 3  # lines in which it resumes

Given = Callable[[str], bool]


class Match(Value, frozen=True, kw_only=True):
    """A sign that was found: where, with which other lines, and the groups of its match."""

    cause: Failure
    sign: str  # its pattern
    strength: float
    line: int
    with_lines: tuple[int, ...] = ()
    groups: dict[str, str] = {}
    quiet: bool = False


class LogSearch(Value, frozen=True, kw_only=True):
    """A log and all that is known of its lines. ``given`` tells whether a fact has a value, and
    ``versions`` the version of a product that the log shows. ``settled`` are steps whose cause is
    known, so that no symptom in them counts.
    """

    lines: Sequence[Line]
    texts: Texts
    steps: LogSteps
    given: Given
    versions: Versions
    settled: frozenset[int] = frozenset()

    def hits(
        self, patterns: Iterable[str], most: int = MOST_OF_A_KIND
    ) -> Iterator[tuple[int, dict[str, str]]]:
        """Yield the lines that match a pattern, with what its groups are."""
        for pattern in patterns:
            for line, match in self.texts.search(pattern, most=most).items():
                yield line, {name: text for name, text in match.groupdict().items() if text}


def symptom(name: str, line: int, strength: float, groups: Mapping[str, str]) -> Match:
    """Return a match of a cause that is recognized by its kind, without a sign of its own."""
    short = {group: text.strip()[:_LONGEST] for group, text in groups.items()}
    return Match(cause=failure(name), sign=name, strength=strength, line=line, groups=short)


def find_matches(search: LogSearch) -> list[Match]:
    """Return every place where a sign has all that it requires."""
    wrapped = _Wrapped(search.lines, search.texts)
    return [
        match
        for cause in possible_failures(wrapped.occurring)
        for sign in cause.sign
        if all(map(search.texts.may_match, sign.anywhere))
        and (hits := wrapped.search(sign.match))
        and _is_possible(sign, search)
        and (not cause.product or may_show(cause.since, search.versions(cause.product)))
        for line, found in hits.items()
        if (match := _match(cause, sign, line, found, search))
    ]


class _Wrapped:
    """The lines of a log, and those that a tool has wrapped once more as it meant them."""

    def __init__(self, lines: Sequence[Line], texts: Texts):
        self._texts = texts
        self._whole = list(_whole_messages(lines, texts))
        self._more = Texts([text for _, text, _ in self._whole])

    def occurring(self, literals: Collection[str]) -> list[str]:
        """Return those of the literals that may occur in a line, or in two."""
        return [*self._texts.occurring(literals), *self._more.occurring(literals)]

    def search(self, pattern: str) -> _Hits:
        found = self._texts.search(pattern, most=_MOST_HITS)
        if not self._whole:
            return found
        hits = dict(found)
        for number, match in self._more.search(pattern, most=_MOST_HITS).items():
            line, _, end = self._whole[number]
            if match.start() <= end:
                hits.setdefault(line, match)
        return hits


def _whole_messages(lines: Sequence[Line], texts: Texts) -> Iterator[tuple[int, str, int]]:
    """Yield the first line of each message that was wrapped, its text, and the length of the first
    line.
    """
    for index, line in enumerate(lines[:-1]):
        if _may_wrap(line.text) and _CONTINUES(rest := lines[index + 1].text):
            yield index, f"{line.text} {rest.lstrip()}", len(line.text)
    for index in texts.having("error: "):
        if _ERROR(lines[index].text) and (end := _end_of_error(lines, index)) > index + 1:
            whole = joined_lines(lines, range(index, end))
            yield index, whole, len(lines[index].text.strip(" \t│"))
    for span in messages(lines, texts)["Error"]:
        whole = message_text(lines, span)
        yield span.start, whole, len(whole)
    wrapped = chain(paragraphs(lines, texts), uv_messages(lines, texts))
    for paragraph in islice(wrapped, _MOST_PARAGRAPHS):
        for begin in paragraph[:-1]:
            whole = joined_lines(lines, range(begin, paragraph.stop))
            yield begin, whole, len(lines[begin].text.strip(" \t│"))


def _end_of_error(lines: Sequence[Line], begin: int) -> int:
    """Return the end of an error that was wrapped; a line with a mark below it is source."""
    end = begin + 1
    while end < min(begin + 1 + _MOST_WRAPPED, len(lines)) and _RESUMES(lines[end].text):
        end += 1
    below = lines[end].text if end < len(lines) else ""
    return end - 1 if end > begin + 1 and _UNDERLINE(below) else end


def _may_wrap(text: str) -> bool:
    return text.endswith("error:") or (len(text) in _WRAPS and text[-1] not in ".:;)]}>|^~")


def _is_possible(sign: Sign, search: LogSearch) -> bool:
    """Return whether the log has what a sign needs anywhere, and the machine what it is about."""
    if sign.project and not search.texts.having(sign.project):
        return False
    return (
        all(search.texts.search(pattern, most=1) for pattern in sign.anywhere)
        and not any(search.texts.search(pattern, most=1) for pattern in sign.excludes)
        and all(map(search.given, sign.given))
    )


def _match(
    cause: Failure, sign: Sign, line: int, found: re.Match[str], search: LogSearch
) -> Match | None:
    near = search.steps.near(line)
    beside = [_first_within(search.texts.search(pattern), near) for pattern in sign.needs]
    beside += [min(search.texts.search(pattern, most=1)) for pattern in sign.anywhere]
    if None in beside:
        return None
    if found.end() > len(search.lines[line].text):
        beside.insert(0, line + 1)
    return Match(
        cause=cause,
        sign=sign.match,
        strength=sign.strength,
        line=line,
        with_lines=tuple(index for index in beside if index is not None),
        groups={name: text for name, text in found.groupdict().items() if text},
        quiet=sign.quiet,
    )


def _first_within(hits: _Hits, near: range) -> int | None:
    return next((index for index in hits if index in near), None)

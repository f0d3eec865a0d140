"""Restores the English words of tools that spoke another language, so that all signs find them.

The words are those of the catalogues of gcc, ld and make and of the C library
(knowledge/translations.tsv). A line keeps what the tool said.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from functools import cache, partial
from typing import NamedTuple

import msgspec

from stoker.diagnose.lines import compiled
from stoker.diagnose.sieve import Line
from stoker.knowledge import file_content

_QUOTES = "`'\"\u2018\u2019\u201a\u201c\u201d\u201e\u00ab\u00bb\u300c\u300d\u300e\u300f"
_QUOTED_VALUE = rf"[{_QUOTES}]\s?(.{{1,300}}?)\s?[{_QUOTES}]"
_VALUE = r"<(\d)>|\{(\d)\}"
_WORD = r"[^\s{}<>\[\]*:.,()]{2,}"
_COLON = r"\s?\uff1a\s?|(?<=\S)[ \u00a0]: "  # as Chinese and French write it


class _Phrase(NamedTuple):
    pattern: re.Pattern[str]
    english: str


def in_english(lines: Sequence[Line]) -> Sequence[Line]:
    """Return the lines in English words, as far as they are known; the same ones if nothing in them
    is of another language.
    """
    whole = "\n".join(line.text for line in lines)
    phrases = [phrase for name in _languages(whole) for phrase in _phrases(name, whole)]
    return [_translated(line, phrases) for line in lines] if phrases else lines


@cache
def _table() -> tuple[str, ...]:
    """Return the rows of translations.tsv; the first one has the words for an error by language."""
    rows = file_content("translations.tsv").decode().splitlines()
    return tuple(row for row in rows if not row.startswith("#"))


def _languages(whole: str) -> list[str]:
    """Return the languages of which a log has the words for an error."""
    found = (mark.partition("=") for mark in _table()[0].split("\t"))
    return list(dict.fromkeys(name for name, _, said in found if said in whole))


def _phrases(language: str, whole: str) -> Iterator[_Phrase]:
    """Yield the messages of a language that may be in a log, the longest first."""
    rows = [row.split("\t") for row in _table()[1:] if row.startswith(f"{language}\t")]
    for _, english, said in sorted(rows, key=lambda row: -len(row[2])):
        words = compiled(_WORD).findall(compiled(_VALUE).sub(" ", said))
        if all(word in whole for word in words):
            yield _Phrase(pattern=_pattern(said), english=english)


def _pattern(said: str) -> re.Pattern[str]:
    """Return what finds a message; its values are groups, and a space may be any or none."""
    parts, end = [], 0
    for value in compiled(_VALUE).finditer(said):
        parts.append(_literal(said[end : value.start()]))
        number = value[1] or value[2]
        content = _QUOTED_VALUE if value[1] else r"(.{0,300}?)"
        parts.append(content.replace("(", f"(?P<v{number}>", 1))
        end = value.end()
    last = "$" if said.endswith("}") else ""
    return re.compile("".join([*parts, _literal(said[end:])]).rstrip() + last)


def _literal(text: str) -> str:
    spaced = re.sub(r"\s*[:\uff1a]\s*", " : ", text)
    loose = re.sub(r"(?:\\\s)+", lambda _: r"\s{0,3}", re.escape(spaced))
    return loose.replace(":", "[:\uff1a]")


def _translated(line: Line, phrases: Iterable[_Phrase]) -> Line:
    text = line.text
    for phrase in phrases:
        text = phrase.pattern.sub(partial(_filled, phrase.english), text)
    if text != line.text:
        text = re.sub(_COLON, ": ", text)
    said = line.said or line.text
    return line if text == line.text else msgspec.structs.replace(line, text=text, said=said)


def _filled(english: str, found: re.Match[str]) -> str:
    values = found.groupdict()

    def value(place: re.Match[str]) -> str:
        said = values.get(f"v{place[1] or place[2]}") or ""
        return f"\u2018{said}\u2019" if place[1] else said

    return compiled(_VALUE).sub(value, english)

"""Restores the English words of tools that spoke another language, so that all signs find them.

The words are those of the tools' own catalogues (knowledge/translations.tsv). Messages of
Microsoft's compiler are known by their code in any language, and those of Xcode's list of issues by
how they begin. A line keeps what the tool said.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from typing import NamedTuple

import msgspec

from stoker.diagnose.lines import compiled
from stoker.diagnose.sieve import Line
from stoker.knowledge.translations import (
    microsoft_messages,
    translations,
    windows_messages,
)

_QUOTES = "`'\"\u2018\u2019\u201a\u201c\u201d\u201e\u00ab\u00bb\u300c\u300d\u300e\u300f"
_QUOTED_VALUE = rf"[{_QUOTES}]\s?(.{{1,300}}?)\s?[{_QUOTES}]"
_VALUE = r"<(\d)>|\{(\d)\}"
_WORD = r"[^\s{}<>\[\]*:.,()]{2,}"
_COLON = r"\s?\uff1a\s?|(?<=\S)[ \u00a0]: "  # as Chinese and French write it
# A message of Microsoft's tools, by its code.
_BY_CODE = r"(?<![A-Za-z])(?P<code>C\d{4}|LNK\d{4}):? ?(?P<message>.{1,600})"
# A quote after a letter is an apostrophe.
_VALUES = rf"(?<![A-Za-z\u00c0-\u024f])[{_QUOTES}](?P<value>[^{_QUOTES}]{{1,400}})[{_QUOTES}]"
# What the list of errors of Visual Studio has in columns, and a linker's line that lost its code.
_LISTED = (
    r"\s*(?:[^\t]{1,40}\t)?(?P<code>C\d{4}|LNK\d{4}|MSB\d{4})\t(?P<message>[^\t]{1,600})"
    r"(?:\t(?P<project>[^\t]{0,200}))?(?:\t(?P<file>[^\t]{0,300}))?(?:\t(?P<line>\d{1,7}))?"
)
_WITHOUT_CODE = r"\.(?:obj|lib|exe|dll)\)? ?: (?=unresolved external symbol )"
# What the list of issues of Xcode has: no word `error`, and a capital letter. Warnings look the
# same, so that only beginnings of messages that are errors count.
_OF_XCODE = (
    r"(?m)^\s{0,8}(?P<place>/[^:\n]{1,300}"
    r"(?:\.(?:swift|mm?|[ch]|cc|cpp|cxx|hpp|hh|metal)|/c\+\+/v1/\w{2,40}):\d{1,7}:\d{1,5}):? "
    r"(?P<message>(?:Implicit instantiation of"
    r"|No (?:member|type|such|matching|viable|visible|known)"
    r"|Use of undeclared|Unknown (?:type|receiver)|Undeclared|Cannot |Redefinition of"
    r"|Typedef redefinition|Reference to|Call to|Expected |Value of (?:type|optional)"
    r"|Type ['\u2018\"]|Could not (?:build|find)|Module ['\u2018\"]|Too (?:few|many) arguments"
    r"|Missing (?:argument|return)|Extra argument|Static assertion|Static_assert|Incomplete "
    r"|Field has incomplete|Variable has incomplete|Member access into|Member reference"
    r"|Invalid operands|Incompatible |Ambiguous |Allocating an object"
    r"|['\u2018\"][^'\u2019\"\n]{1,120}['\u2019\"] (?:file not found|is unavailable|is not a"
    r"|is inaccessible|has been (?:explicitly|renamed)|was not)).{0,600})$"
)
_APPLE_FOLDERS = ("/Users/", "/Applications/", "/Volumes/", "/Library/")
# What Python says before a message of Windows, which is then of no other tool.
_OF_WINDOWS = ("DLL load failed", "[WinError ")
_NOT_FOUND = "File or directory not found"  # of a C library that was translated back
_OF_MICROSOFT = ("LNK", " C1", " C2", " C3", " C4", "\tC", "\tMSB", "unresolved external")


class _Phrase(NamedTuple):
    pattern: re.Pattern[str]
    english: str


def in_english(lines: Sequence[Line]) -> Sequence[Line]:
    """Return the lines in English words, as far as they are known; the same ones if nothing in them
    is of another language.
    """
    whole = "\n".join(line.text for line in lines)
    phrases = [phrase for name in _languages(whole) for phrase in _phrases(name, whole)]
    by_microsoft = any(mark in whole for mark in _OF_MICROSOFT)
    if any(mark in whole for mark in _APPLE_FOLDERS) and compiled(_OF_XCODE).search(whole):
        lines = list(map(_of_xcode, lines))
    if any(mark in whole for mark in (*_OF_WINDOWS, _NOT_FOUND)):
        lines = [_of_system(line) for line in lines]
    if not phrases and not by_microsoft:
        return lines
    return [_translated(line, phrases, by_microsoft=by_microsoft) for line in lines]


def _of_xcode(line: Line) -> Line:
    """Return a line of Xcode's list of issues as the compiler prints it."""
    if not (found := compiled(_OF_XCODE).match(line.text)):
        return line
    message = f"{found['message'][:1].lower()}{found['message'][1:]}"
    text = f"{found['place']}: error: {message}"
    return msgspec.structs.replace(line, text=text, said=line.text)


def _languages(whole: str) -> list[str]:
    """Return the languages of which a log has the words for an error."""
    found = (mark.partition("=") for mark in translations()[0].split("\t"))
    return list(dict.fromkeys(name for name, _, said in found if said in whole))


def _phrases(language: str, whole: str) -> Iterator[_Phrase]:
    """Yield the messages of a language that may be in a log, the longest first."""
    rows = [row.split("\t") for row in translations()[1:] if row.startswith(f"{language}\t")]
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


def _of_system(line: Line) -> Line:
    """Return a line with the English words of what Windows or the C library says in it."""
    text = line.text.replace(_NOT_FOUND, "No such file or directory")
    if any(mark in text for mark in _OF_WINDOWS) and not text.isascii():
        messages = windows_messages()
        begin = next((text.find(one) for one in messages.begins if one in text), len(text))
        for english, said in messages.said.items():
            found = next((one for one in said if one in text[begin:]), None)
            if found:
                at = text.index(found, begin)
                rest = text[at + len(found) :].lstrip(".\u3002")
                text = f"{text[:at].rstrip()} {english}{rest}"
                break
    return line if text == line.text else msgspec.structs.replace(line, text=text, said=line.text)


def _translated(line: Line, phrases: Iterable[_Phrase], *, by_microsoft: bool) -> Line:
    text = line.text
    for phrase in phrases:
        text = phrase.pattern.sub(partial(_filled, phrase.english), text)
    if text != line.text:
        text = re.sub(_COLON, ": ", text)
    if by_microsoft and any(mark in text for mark in _OF_MICROSOFT):
        text = _of_microsoft(text)
    said = line.said or line.text
    return line if text == line.text else msgspec.structs.replace(line, text=text, said=said)


def _filled(english: str, found: re.Match[str]) -> str:
    values = found.groupdict()

    def value(place: re.Match[str]) -> str:
        said = values.get(f"v{place[1] or place[2]}") or ""
        return f"\u2018{said}\u2019" if place[1] else said

    return compiled(_VALUE).sub(value, english)


def _of_microsoft(text: str) -> str:
    if listed := compiled(_LISTED).fullmatch(text):
        place = listed["file"] or listed["project"] or "file"
        place += " " if listed["code"].startswith("LNK") else f"({listed['line'] or 1})"
        text = f"{place}: error {listed['code']}: {listed['message'].strip()}"
    text = compiled(_WITHOUT_CODE).sub(lambda found: f"{found[0]}error LNK2019: ", text)
    found = compiled(_BY_CODE).search(text)
    known = microsoft_messages().get(found["code"]) if found else None
    if not found or not known or _is_english(found["message"], known):
        return text
    values = [value["value"] for value in compiled(_VALUES).finditer(found["message"])]
    needed = {int(number) for number in re.findall(r"\{(\d)\}", known)}
    if needed and max(needed) > len(values):
        return text
    message = re.sub(r"\{(\d)\}", lambda place: values[int(place[1]) - 1], known)
    number = re.search(r"(?<!\w)\d{1,3}(?!\w)", compiled(_VALUES).sub(" ", found["message"]))
    message = message.replace("{#}", number[0] if number else "1")
    return f"{text[: found.start()]}{found['code']}: {message}"


def _is_english(message: str, known: str) -> bool:
    """Return whether a message has one of the first words of the English one, outside of what it
    quotes.
    """
    plain = compiled(_VALUES).sub(" ", message)
    words = re.findall(r"[A-Za-z]{3,}", compiled(_VALUES).sub(" ", known))
    return any(word in plain for word in words[:2])

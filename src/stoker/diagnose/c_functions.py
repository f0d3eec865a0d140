"""Errors about functions of libraries that a source in C calls: unknown ones, without their header,
or with other parameters. Ranks nothing.
"""

import re
from collections.abc import Iterator

from stoker.diagnose.interfaces import OTHER_ARGUMENT, as_member
from stoker.diagnose.lines import compiled
from stoker.diagnose.signs import LogSearch
from stoker.knowledge.owners import owner_of_name, owner_of_path

_MOST = 40  # errors that are looked into
_OPEN, _CLOSE = r"['\"`\u2018]", r"['\"`\u2019]"
_NAME = rf"{_OPEN}(?P<name>[\w:]{{2,100}})"

_UNDECLARED = rf"error: (?:implicit declaration of function|call to undeclared function) {_NAME}"
_MEANT = rf"did you mean {_NAME}"
# A type in an error about something else.
_TYPE_OF_C = rf"(?:type|to) {_OPEN}(?:const )?(?:(?:struct|union|enum) )?(?P<name>\w{{3,80}}) \*"
# A function or a macro that a source in C uses without its header.
_UNDECLARED_IN_C = (
    (
        r"\.[ch]:\d{1,7}:\d{1,5}: error: (?:implicit declaration of function"
        rf"|call to undeclared (?:library )?function) {_OPEN}(?P<function>\w{{2,40}}){_CLOSE}"
    ),
    (
        r"\.[ch]:\d{1,7}:\d{1,5}: error: "
        rf"(?:{_OPEN}(?P<function>[A-Z]\w{{2,40}}){_CLOSE} undeclared"
        rf"|use of undeclared identifier {_OPEN}(?P<other>[A-Z]\w{{2,40}}){_CLOSE})"
    ),
)
_ARGUMENT = (
    r"error: (?:passing argument|incompatible type for argument) (?P<number>\d{1,2}) of "
    r"['\"\u2018](?P<name>\w{3,80})['\"\u2019]"
)
_MANY_ARGUMENTS = 3  # of one function that are wrong, so that it has others now
_SUGGESTED = 6  # lines in which the compiler suggests a name
PATTERNS = (_UNDECLARED, *_UNDECLARED_IN_C)


def removed_functions(search: LogSearch) -> Iterator[int]:
    """Yield the lines about a function that is not declared although other names of its library
    are: the compiler suggests one of them, or names one in an error about something else.
    """
    undeclared = search.texts.search(_UNDECLARED, most=_MOST)
    names = {found["name"] for found in undeclared.values()}
    for line, found in undeclared.items():
        owner = owner_of_name(found["name"])
        if not owner:
            continue
        text = " ".join(one.text for one in search.lines[line : line + _SUGGESTED])
        meant = compiled(_MEANT).search(text)
        others = {one["name"] for one in compiled(_TYPE_OF_C).finditer(text)} - names
        is_known = any(owner_of_name(one) == owner for one in others)
        if is_known or (meant and owner_of_name(meant["name"]) == owner):
            yield line


def without_include(search: LogSearch) -> Iterator[tuple[int, str]]:
    """Yield the lines about a function or macro of the C library that a source in C uses without
    its header, and the name.
    """
    for pattern in _UNDECLARED_IN_C:
        for line, found in search.texts.search(pattern, most=_MOST).items():
            name = next(filter(None, found.groups()))
            if _is_of_c(name) or is_hidden_without_gnu(name):
                yield line, name


def is_hidden_without_gnu(name: str) -> bool:
    """Return whether the headers of C declare a function only with _GNU_SOURCE."""
    from stoker.knowledge.tools import is_gnu_function  # its tables take 15 ms

    return is_gnu_function(name)


def _is_of_c(name: str) -> bool:
    from stoker.knowledge.tools import declaring_header_of_c  # its tables take 15 ms

    return bool(declaring_header_of_c(name))


def shifted_calls(search: LogSearch) -> Iterator[tuple[int, dict[str, str]]]:
    """Yield the errors about an argument of a function of an installed library, where several
    arguments of one call are of other types: the library gave the function other parameters.
    """
    calls: dict[str, dict[str, int]] = {}
    for line, found in search.texts.search(_ARGUMENT, most=_MOST).items():
        calls.setdefault(found["name"], {}).setdefault(found["number"], line)
    if not calls:
        return
    notes = search.texts.search(OTHER_ARGUMENT, most=_MOST)
    owners = [owner_of_path(note["file"]) for note in notes.values()]
    owner = next(filter(None, owners), None)
    types = ((note["aka"] or note["name"], note["given"]) for note in notes.values())
    others = any(_is_other_kind(wanted, given) for wanted, given in types)
    for name, lines in calls.items():
        if owner and (others or len(lines) >= _MANY_ARGUMENTS):
            for line in lines.values():
                yield line, as_member(owner.name, f"{name} with these arguments", str(owner))


def _is_other_kind(wanted: str, given: str) -> bool:
    """Return whether of two types in C one is a pointer and the other a number with a fraction or
    a structure, between which no compiler ever converted.
    """
    plain = r"(?:float|double|struct \w+)$"
    return any(
        pointer.endswith("*") and bool(re.match(plain, other))
        for pointer, other in ((wanted, given), (given, wanted))
    )

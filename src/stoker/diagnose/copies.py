"""Explains functions that two objects of one target define: the object of a renamed source is left.

Which of the two sources is still there is not known from a log.
"""

import re
from collections.abc import Iterator

from stoker.diagnose.lines import compiled
from stoker.diagnose.signs import LogSearch, Match, symptom

_TWICE = (
    r"(?P<one>[^\s:;`']{1,300}\.(?:o|obj))\)?:.{0,300}multiple definition of "
    r"[`'\u2018](?P<symbol>[^'\u2019\n]{1,300})['\u2019];? {0,3}"
    r"(?P<other>[^\s:;`']{1,300}\.(?:o|obj))\)?:"
)
# The object of a function stands in the line above, where the linker names it first.
_ABOVE = r"(?P<one>[^\s:;`']{1,300}\.(?:o|obj))\)?: in function"
_FIRST = (
    r"multiple definition of [`'\u2018](?P<symbol>[^'\u2019\n]{1,300})['\u2019];? {0,3}"
    r"(?P<other>[^\s:;`']{1,300}\.(?:o|obj))\)?:"
)
_LINES_ABOVE = 3
_SUFFIXES = r"(?:\.(?:c|cc|cpp|cxx|cu|hip|m|mm|f90|S|asm))?\.(?:o|obj)$"
_SHORTEST = 3  # letters that two names have in common at least
PATTERNS = (_FIRST,)


def stale_objects(search: LogSearch) -> Iterator[Match]:
    """Yield the functions that two objects define whose sources are called almost alike, if no
    other two objects of the log define one.
    """
    found = [
        (line, one, first)
        for line, first in search.texts.search(_FIRST, most=50).items()
        if (one := _object(search, line))
    ]
    pairs = {(one, first["other"]) for _, one, first in found}
    if len(pairs) != 1:
        return
    line, one, first = found[0]
    if _is_renamed(one, first["other"]) and "(" in first["symbol"]:
        groups = {"symbol": first["symbol"], "one": _name(one), "other": _name(first["other"])}
        yield symptom("stale-objects-linked", line, 0.92, groups)


def _object(search: LogSearch, line: int) -> str:
    """Return the object that defines a function for the second time."""
    if whole := compiled(_TWICE).search(search.lines[line].text):
        return whole["one"]
    above = search.lines[max(0, line - _LINES_ABOVE) : line]
    named = [found["one"] for one in above if (found := compiled(_ABOVE).search(one.text))]
    return named[-1] if named else ""


def _is_renamed(one: str, other: str) -> bool:
    """Return whether two objects are of one target, and one name only adds to the other."""
    folders = one.rpartition("/")[0], other.rpartition("/")[0]
    names = sorted((_stem(one), _stem(other)), key=len)
    return (
        _target(folders[0]) == _target(folders[1])
        and names[0] != names[1]
        and len(names[0]) >= _SHORTEST
        and names[1].replace("_", "").replace("-", "").startswith(names[0])
    )


def _target(folder: str) -> str:
    return re.sub(r"(\.dir)(?:/.*)?$", r"\1", folder)


def _stem(path: str) -> str:
    return re.sub(_SUFFIXES, "", path.rpartition("/")[2])


def _name(path: str) -> str:
    return path.rpartition("/")[2]

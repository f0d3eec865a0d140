"""Errors that show parts of different ages: a standard library that is newer than the compiler, a
copy of a library in the source tree that is older than it, a header that no longer brings another.

Also a name that two libraries declare, of which the notes of Visual C++ tell the places. Ranks
nothing.
"""

from collections.abc import Iterator
from itertools import pairwise

from stoker.diagnose.lines import COMPILER_ERRORS, compiled
from stoker.diagnose.signs import LogSearch, Match, symptom
from stoker.knowledge.failures import products
from stoker.knowledge.owners import owner_of_name

_MOST = 60  # errors that are looked into
_BELOW = 12  # lines of an error in which its notes are
_YEARS_APART = (
    1.5  # by which a standard library is newer than a compiler that it no longer supports
)
_MONTHS = 12
_OPEN, _CLOSE = r"['\"`\u2018]", r"['\"`\u2019]"
_FUNCTION = (
    r"^\s{0,24}(?P<file>[^\s:'\"][^:'\"\n]{0,300}\.[chm]):\d{1,7}:\d{1,5}: error: "
    rf"(?:implicit declaration of function|call to undeclared function) {_OPEN}(?P<name>\w{{3,80}})"
)
_OTHER = (
    (
        r"^\s{0,24}(?P<file>[^\s:'\"][^:'\"\n]{0,300}\.[chm]):\d{1,7}:\d{1,5}: error: "
        rf"(?:use of undeclared identifier|unknown type name) {_OPEN}(?P<name>\w{{3,80}})"
    ),
    (
        r"^\s{0,24}(?P<file>[^\s:'\"][^:'\"\n]{0,300}\.[chm]):\d{1,7}:\d{1,5}: error: "
        rf"{_OPEN}(?P<name>\w{{3,80}}){_CLOSE} undeclared"
    ),
)
_MEANT = rf"did you mean {_OPEN}(?P<name>\w{{2,80}})"
_FAMILY = r"_*([A-Z]{2,}(?=[A-Z][a-z]|_|\d|$)|[A-Z]?[a-z]{2,})"  # the first word of a name
# First words of names of any library.
_COMMON = (
    "get", "set", "is", "has", "do", "my", "new", "max", "min", "init", "the", "to", "no", "on",
    "add", "num", "str", "open", "close", "read", "write", "free", "create", "make", "find",
    "print",
)  # fmt: skip
_AMBIGUOUS = rf"error C2872\s?: [{_OPEN[1:-1]}\u201c](?P<name>[\w:]{{2,80}})"
_PLACED_NOTE = (
    r"^\s{0,24}(?P<file>(?:[A-Za-z]:)?[^:\n]{2,300}\.\w{1,5}|(?:[A-Za-z]:)?[^:(\n]{2,300})"
    r"\(\d{1,7}[^)]{0,8}\): ?(?:note|message)\s?: "
    r".{0,60}?['\"\u201c\u00ab](?P<what>[^'\"\u201d\u00bb\n]{2,200})"
)
_BUNDLED = (
    r"(?:^|/)(?:third[_-]?party|3rd[_-]?party|extern(?:al)?s?|vendor(?:ed)?|submodules|deps)/"
    r"(?P<library>[A-Za-z][\w+.-]{2,40})/(?:\S{0,200}/)?[\w.-]{1,80}\.(?:h|hpp|cuh|inl|hxx)$"
)
_UNKNOWN = (
    r"^(?P<mark>name followed by \"::\" must be a class or namespace name)"
    r"|^identifier \"(?P<name>\w{3,80})\" is undefined"
    r"|^namespace \"(?P<space>[\w:]{2,60})\" has no member \"(?P<member>\w{2,60})\""
)
_OF_OTHERS = r"__|u?int\w*_t$|size_t$|std$|(?:bfloat16|half|float)|assert$|printf$|nullptr$"
_LAST_NAME = r"(\w{2,60})\s?::"
# A header of a standard library, with the release of gcc that it is of, or of libc++.
_LIBRARY = (
    r"(?:/include/(?:g\+\+-v|c\+\+/)(?P<gcc>\d{1,2})[\d.]{0,6}/|/libcxx-(?P<libcxx>\d{1,2})[\d.+]"
    r"|/llvm(?:@|-)(?P<llvm>\d{1,2})\S{0,60}/c\+\+/v1/)"
)
_AT_FAULT = (
    r":\d{1,6}:\d{1,5}: (?:error: (?:use of undeclared|unknown type name|no (?:type|template) named"
    r"|no member named .{1,60} in namespace|expected |constraints not satisfied|definition of"
    r"|missing ['\"]typename|a (?:space|type) |type constraint|invalid |cannot use|redefinition of"
    r"|explicit specialization|unsupported|unknown |friend |function template|requires)"
    r"|note: definition of .{1,200} is not complete)"
)
_BY_CLANG = r"clang|\d errors? generated"
PATTERNS = (_FUNCTION, *_OTHER, _AMBIGUOUS, _LIBRARY)


def headers_not_included(search: LogSearch) -> Iterator[tuple[int, dict[str, str]]]:
    """Yield the lines about a function that is not declared where other things of its family are
    unknown too: the line, the function, another one, and the library if the name tells it.
    """
    functions = search.texts.search(_FUNCTION, most=_MOST)
    if not functions:
        return
    others: dict[tuple[str, str], str] = {}
    for pattern in _OTHER:
        for found in search.texts.search(pattern, most=_MOST).values():
            if family := _family(found["name"]):
                others.setdefault((found["file"], family), found["name"])
    for line, found in functions.items():
        family = _family(found["name"])
        other = others.get((found["file"], family))
        meant = compiled(_MEANT).search(search.lines[line].text)
        if other and not (meant and _family(meant["name"]) == family):
            library = owner_of_name(found["name"]) or owner_of_name(other)
            named = {"library": library} if library else {}
            yield line, {"function": found["name"], "other": other} | named


def _family(name: str) -> str:
    """Return the first word of a name in small letters; empty if it may be of any library."""
    found = compiled(_FAMILY).match(name)
    word = found[1].lower() if found else ""
    return "" if word in _COMMON else word


def mixed_ages(search: LogSearch) -> Iterator[Match]:
    """Yield what this module finds that is not about functions of C."""
    yield from _ambiguous(search)
    yield from _bundled(search)
    yield from _newer_libraries(search)


def _ambiguous(search: LogSearch) -> Iterator[Match]:
    for line, found in search.texts.search(_AMBIGUOUS, most=_MOST).items():
        below = search.lines[line + 1 : line + 1 + _BELOW]
        notes = [note for one in below if (note := compiled(_PLACED_NOTE).match(one.text))][:2]
        groups = {"name": found["name"]}
        for which, note in zip(("first", "second"), notes, strict=False):
            groups |= {which: note["what"], f"{which}_place": _short(note["file"])}
        yield symptom("name-ambiguous", line, 0.88 if len(notes) > 1 else 0.74, groups)


def _short(file: str) -> str:
    """Return the end of a path, which tells whose file it is."""
    return "/".join(file.replace("\\", "/").split("/")[-4:])


def _bundled(search: LogSearch) -> Iterator[Match]:
    for line, found in search.texts.search(COMPILER_ERRORS[1], most=_MOST).items():
        bundled = compiled(_BUNDLED).search(found["file"].replace("\\", "/"))
        unknown = compiled(_UNKNOWN).match(found["message"]) if bundled else None
        if not bundled or not unknown:
            continue
        name = unknown["name"] or unknown["member"] or _marked(search, line)
        is_of_others = compiled(_OF_OTHERS).match(name) or owner_of_name(name)
        if not name or is_of_others or search.steps.step[line] in search.settled:
            continue
        groups = {"library": bundled["library"], "name": name, "file": found["file"]}
        yield symptom("bundled-copy-too-old", line, 0.76, groups)


def _marked(search: LogSearch, line: int) -> str:
    """Return the name before the double colon to which a mark below the source points."""
    below = [one.text for one in search.lines[line + 1 : line + 1 + _BELOW]]
    for quoted, mark in pairwise(below):
        at = mark.find("^")
        found = compiled(_LAST_NAME).search(quoted, max(at, 0))
        if at >= 0 and not mark.strip(" ^~") and found:
            return found[1]
    quoted = next((text for text in below if "::" in text and "error" not in text), "")
    found = compiled(_LAST_NAME).search(quoted)
    return found[1] if found else "a namespace"


def _newer_libraries(search: LogSearch) -> Iterator[Match]:
    """Yield the errors in headers of a standard library that came long after the clang."""
    version = search.versions("clang") if search.texts.search(_BY_CLANG, most=1) else None
    clang = _month("clang", version.partition(".")[0]) if version else None
    if not version or clang is None:
        return
    for line, found in search.texts.search(_LIBRARY, most=_MOST).items():
        at_fault = compiled(_AT_FAULT).search(search.lines[line].text, found.end())
        if not at_fault:
            continue
        product = "gcc" if found["gcc"] else "clang"
        release = found["gcc"] or found["libcxx"] or found["llvm"]
        library = _month(product, release)
        if library is not None and library - clang >= _YEARS_APART:
            name = "libstdc++" if product == "gcc" else "libc++"
            groups = {"library": f"{name} {release}", "clang": f"clang {version}"}
            yield symptom("clang-older-than-library", line, 0.9, groups)


def _month(product: str, release: str) -> float | None:
    """Return when a release came, in years."""
    row = next((one for one in products() if one.name == product), None)
    month = row.released(release) if row and release else None
    if not month:
        return None
    year, _, number = month.partition("-")
    return int(year) + int(number) / _MONTHS

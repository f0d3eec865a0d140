"""Explains links that failed for lack of a library: one that is not installed, or not linked.

A name leads to its library, or to the system (knowledge/owners.py and providers.py). Ranks nothing.
"""

import re
from collections.abc import Iterator

from stoker.diagnose.lines import compiled
from stoker.diagnose.signs import LogSearch, Match, symptom
from stoker.knowledge.owners import library_of_system
from stoker.knowledge.providers import ProvidedKind, library_of, provider

_UNDEFINED = (
    r"undefined reference to [`'\u2018](?P<symbol>[^'\u2019\n]{1,400})['\u2019]",
    r"undefined symbol: (?P<symbol>[^\s'\"][^\n]{0,2000}?)(?: \(|$)",
    r"^\s{2,24}\"_?(?P<symbol>[^\"\n]{1,300})\", referenced from:",
    (
        r"error LNK20(?:01|19): .{1,80}?\b"
        r"(?P<symbol>\w{2,40}::[\w:~]{2,200}|__imp_\w{2,80}(?:@\d{1,3})?)"
    ),
    (
        r"error LNK20(?:01|19): unresolved external symbol "
        r"(?P<symbol>[A-Za-z]\w{2,80})(?= referenced in|\W{0,3}$)"
    ),
)
# The type that a template returns, before its name: it tells nothing of the library that lacks.
_RETURNED = r"^[\w:]{1,100}::\w{1,100}[ *&]{1,4}(?=[\w:]{1,100}::\w)"
_NOT_NAMED = r"/lib(?P<library>[\w+-]{1,60})\.so[\d.]{0,12}: error adding symbols: DSO missing"
_NEEDS_SYMBOL = r"undefined reference to symbol [`'\u2018](?P<symbol>[^'\u2019@\n]{1,200})"
# A finished library of the system or of an environment: it was linked elsewhere.
_FINISHED = (
    r"(?:^|\s)(?:/usr|/lib|/opt|/nix|/home/\S{1,200}conda|/\S{1,200}/envs)\S{0,300}/"
    r"lib[\w.+-]{1,80}?\.(?:so[\d.]{0,12}|dylib): undefined reference"
)
_NO_LIBRARY = (
    r"cannot find -l:?(?P<library>[\w.+-]{1,60})(?::|\s|$)",
    r"unable to find library -l(?P<library>[\w.+-]{1,60})",
    r"library (?:not found for -l|')(?P<library>[\w.+-]{1,60})(?:' not found|\s|$)",
    r"mold: (?:fatal|error): library not found: (?P<library>[\w.+-]{1,60})",
)
# What the linkers for Windows do not find, where no folder is named.
_NO_INPUT = (
    r"(?:LNK11(?:04|81): cannot open (?:input )?file|lld-link: error: could not open) ['\"]"
    r"(?P<library>[^'\"\n\\/]{1,100})\.lib['\"]"
)
# What compilers link without being told.
_OF_COMPILER = ("stdc++", "c++", "c++abi", "unwind", "gcc", "gcc_s")
PATTERNS = (_NOT_NAMED, *_UNDEFINED, *_NO_LIBRARY, _NO_INPUT)


def failed_links(search: LogSearch) -> Iterator[Match]:
    """Yield the libraries that a link lacks."""
    for line, groups in search.hits(_NO_LIBRARY):
        if "warning: " not in search.lines[line].text:
            yield symptom("system-library-missing", line, 0.88, groups)
    for line, groups in search.hits([_NO_INPUT]):
        if _is_known(groups["library"]):
            yield symptom("system-library-missing", line, 0.86, groups)
    for line, groups in search.hits([_NOT_NAMED]):
        needed = compiled(_NEEDS_SYMBOL).search(search.lines[max(line - 1, 0)].text)
        symbol = needed["symbol"] if needed else groups["library"]
        yield symptom("library-not-linked", line, 0.85, {"symbol": symbol} | groups)
    for line, groups in search.hits(_UNDEFINED):
        text, symbol = search.lines[line].text, compiled(_RETURNED).sub("", groups["symbol"])
        library = library_of_system(symbol, text) or library_of(symbol)
        if library and not compiled(_FINISHED).search(text) and not _is_linked(search, library):
            yield symptom("library-not-linked", line, 0.8, {"symbol": symbol, "library": library})


def _is_known(name: str) -> bool:
    """Return whether a library of this name is one that other projects install."""
    plain = name.lower().removesuffix("_static").removesuffix("static")
    names = {name, plain, plain.removeprefix("lib")}
    return any(provider(ProvidedKind.LIBRARY, one) for one in names)


def _is_linked(search: LogSearch, library: str) -> bool:
    """Return whether a command links a library, or the linker speaks of an object of it. What the
    compiler links by itself lacks a symbol only if it is of another release.
    """
    name = re.escape(library)
    member = rf"(?:^|[\\/\s>])(?:lib)?{name}d?(?:[-_][\w.]{{1,12}})?\.(?:lib|a)\(\w"
    linked = rf"(?:^|\s)-l{name}(?:\s|$)|/lib{name}\.(?:so|a|dylib|tbd)\b"
    is_named = (search.texts.search(one, most=1) for one in (member, linked))
    return library in _OF_COMPILER or any(is_named)

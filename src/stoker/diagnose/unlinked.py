"""Explains links that failed by their kind: libraries that are missing, names that nothing defines.

A name leads to its library, to the system, or to the project itself (knowledge/owners.py and
providers.py).
"""

import re
from collections.abc import Iterator

from stoker.diagnose.lines import compiled
from stoker.diagnose.signs import LogSearch, Match, symptom
from stoker.diagnose.two_releases import mixed_releases
from stoker.knowledge.owners import android_level, library_of_system, owner_of_name
from stoker.knowledge.providers import ProvidedKind, library_of, provider

UNDEFINED = (
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
    (
        r"error LNK20(?:01|19): unresolved external symbol "
        r"\"(?!__declspec)(?P<symbol>[^\":\n]{3,300})\""
    ),
)
# The type that a template returns, before its name: it tells nothing of the library that lacks.
_RETURNED = r"^[\w:]{1,100}::\w{1,100}[ *&]{1,4}(?=[\w:]{1,100}::\w)"
_NOT_NAMED = (r"/lib(?P<library>[\w+-]{1,60})\.so[\d.]{0,12}: error adding symbols: DSO missing",)
_NEEDS_SYMBOL = r"undefined reference to symbol [`'\u2018](?P<symbol>[^'\u2019@\n]{1,200})"
# A finished library of the system or of an environment that needs a symbol.
_FINISHED = (
    r"(?:^|\s)(?:/usr|/lib|/opt|/nix|/home/\S{1,200}conda|/\S{1,200}/envs)\S{0,300}/"
    r"(?P<library>lib[\w.+-]{1,80}?)\.(?:so[\d.]{0,12}|dylib): undefined reference"
)
_IN_FUNCTION = r"in function [`'\u2018](?P<user>[^\n]{1,400}?)['\u2019]:?$"
_IN_BUNDLED = (
    r"(?:^|[\s/])(?:third[_-]?party|vendor|externals?|subprojects|submodules)/\S{1,200}\.a\("
)
# What ld.lld says below an undefined symbol: the object, and the function that uses it.
_BELOW = r"^\s{0,24}>>> .{1,1000}?\.(?:o|obj)(?: in archive \S{1,300})?:\((?P<user>[^\n]{2,400})"
_BELOW_LINES = 4
_CONVENTION = (
    r"^(?:__declspec\(dll(?:im|ex)port\) )?(?:(?:public|private|protected): )?"
    r"(?:[\w:*& ]{1,60} |[\w:*&<>, ]{1,1000}?[>*&] )?"
    r"__(?:cdecl|thiscall|stdcall|vectorcall) "
)
_ANONYMOUS = "`anonymous namespace'"
_GLOBAL = r"\w{3,80}\(.{1,300}\)(?: const)?$"  # C has no parameters in names, libraries namespaces
_NAMES_USER = 6  # lines above an undefined symbol in which the function that uses it is named
# What Microsoft's linker says below an undefined symbol if the libraries have others of its name.
_HINT = "Hint on symbols that are defined and could potentially match"
_HINT_BELOW = 12  # lines, as other steps print between
_FROM_DLL = r"^__imp_{1,2}|@\d{1,3}$"
_SHORTEST = 2  # letters of a namespace, or of the beginning of names of C
_NO_LIBRARY = (
    r"cannot find -l:?(?P<library>[\w.+-]{1,60})(?::|\s|$)",
    r"cannot find /[^\s:]{1,300}/lib(?P<library>[\w+-]{1,60})\.(?:a|so)\b",
    r"unable to find library -l(?P<library>[\w.+-]{1,60})",
    r"library (?:not found for -l|')(?P<library>[\w.+-]{1,60})(?:' not found|\s|$)",
    r"mold: (?:fatal|error): library not found: (?P<library>[\w.+-]{1,60})",
)
# What the linkers for Windows do not find.
_NO_INPUT = (
    r"(?:LNK11(?:04|81): cannot open (?:input )?file|lld-link: error: could not open) ['\"]"
    r"(?P<file>(?P<folder>[^'\"\n]{0,260}[\\/])?(?P<name>[^'\"\n\\/]{1,100})\.(?P<kind>lib|obj|res|o))['\"]"
)
_DRIVE = r"[A-Za-z]:[\\/]|[\\/]"  # with which a whole path begins
# A link for WebAssembly, for which no package of this system has a library.
_OF_WASM = (
    r"\bwasm-ld\b|\bemcc\b|may need to be added to EXPORTED_FUNCTIONS"
    r"|use `-sERROR_ON_UNDEFINED_SYMBOLS"
)
# A compiler for Android, which names the system in its target.
_OF_ANDROID = r"\b(?:aarch64|armv7a?|arm|i686|x86_64|riscv64)-(?:unknown-|none-)?linux-android"
PATTERNS = (_OF_WASM, _OF_ANDROID, *_NOT_NAMED, *UNDEFINED, *_NO_LIBRARY, _NO_INPUT)


def failed_links(search: LogSearch) -> Iterator[Match]:
    yield from _missing_libraries(search)
    yield from _missing_inputs(search)
    yield from _undefined_symbols(search)


def _missing_inputs(search: LogSearch) -> Iterator[Match]:
    """Yield the files that Microsoft's linker does not find: a library that is known by its name,
    one at a place that was written down elsewhere, or what an earlier step of the build makes.
    """
    for line, groups in search.hits([_NO_INPUT]):
        folder, name = groups.get("folder", ""), groups["name"]
        is_library = groups["kind"] == "lib"
        if is_library and not folder and _is_known(name):
            yield symptom("system-library-missing", line, 0.86, {"library": name})
        elif is_library and not folder:
            yield symptom("link-input-missing", line, 0.7, {"input": groups["file"]})
        elif is_library and compiled(_DRIVE).match(folder):
            named = {"input": groups["file"], "place": folder}
            yield symptom("link-input-missing", line, 0.76, named)
        else:
            named = {"input": groups["file"], "made": f"{name}.{groups['kind']}"}
            yield symptom("link-input-missing", line, 0.74, named)


def _is_known(name: str) -> bool:
    """Return whether a library of this name is one that other projects install."""
    plain = name.lower().removesuffix("_static").removesuffix("static")
    names = {name, plain, plain.removeprefix("lib")}
    return any(provider(ProvidedKind.LIBRARY, one) for one in names)


def _missing_libraries(search: LogSearch) -> Iterator[Match]:
    for line, groups in search.hits(_NO_LIBRARY):
        if "warning: " in search.lines[line].text:
            continue
        yield symptom("system-library-missing", line, 0.88, groups)


def _undefined_symbols(search: LogSearch) -> Iterator[Match]:
    for line, groups in search.hits(_NOT_NAMED):
        needed = compiled(_NEEDS_SYMBOL).search(search.lines[max(line - 1, 0)].text)
        symbol = needed["symbol"] if needed else groups["library"]
        yield symptom("library-not-linked", line, 0.85, {"symbol": symbol} | groups)
    undefined = list(search.hits(UNDEFINED))
    for line, groups in mixed_releases(search, sorted({line for line, _ in undefined})):
        yield symptom("library-release-mismatch", line, 0.93, groups)
    of_android = bool(undefined and search.texts.search(_OF_ANDROID, most=1))
    own = {
        _beginning(name)
        for at, one in undefined
        if _is_of_user_below(search, at, name := _plain_name(one["symbol"]))
    }
    of_wasm = bool(undefined and search.texts.search(_OF_WASM, most=1))
    for line, groups in undefined:
        symbol = _plain_name(groups["symbol"])
        text = search.lines[line].text
        if of_system := library_of_system(symbol, text):
            groups = {"symbol": symbol, "library": of_system}
            yield symptom("library-not-linked", line, 0.86, groups)
            continue
        if of_android and (level := android_level(symbol)):
            named = {"function": symbol, "level": level}
            is_absent = level == "none"
            cause = "android-function-missing" if is_absent else "android-api-level"
            yield symptom(cause, line, 0.9, named)
            continue
        finished = compiled(_FINISHED).search(text)
        if _has_others_of_its_name(search, line):
            yield symptom("function-not-exported", line, 0.84, {"symbol": symbol})
        elif finished:
            needs = {"symbol": symbol, "library": finished["library"]}
            yield symptom("library-needs-other-library", line, 0.76, needs)
        elif imported := _imported(symbol):
            named = {"symbol": symbol, "library": imported}
            yield symptom("library-of-other-kind", line, 0.86, named)
        elif (library := library_of(symbol)) and (
            (of_wasm and library != "stdc++") or _is_linked(search, library)
        ):
            named = {"symbol": symbol, "library": library}
            yield symptom("library-symbol-missing", line, 0.76, named)
        elif library:
            yield symptom("library-not-linked", line, 0.8, {"symbol": symbol, "library": library})
        elif (
            (owner := owner_of_name(symbol))
            and _beginning(symbol) not in own
            and not _is_its_own(search, line, owner, symbol)
        ):
            groups = {"symbol": symbol, "library": owner}
            yield symptom("library-symbol-missing", line, 0.74, groups)
        elif owner or _is_of_user(search, line, symbol):
            yield symptom("own-symbol-not-linked", line, 0.72, {"symbol": symbol})
        else:
            yield symptom("undefined-reference", line, 0.6, {"symbol": symbol})


def _plain_name(symbol: str) -> str:
    """Return the name of a symbol without its convention of calls and the type that it returns."""
    return compiled(_RETURNED).sub("", compiled(_CONVENTION).sub("", symbol))


def _has_others_of_its_name(search: LogSearch, line: int) -> bool:
    """Return whether Microsoft's linker says that the libraries have other functions of a name."""
    for one in search.lines[line + 1 : line + 1 + _HINT_BELOW]:
        if _HINT in one.text:
            return True
        if "error LNK" in one.text:
            return False
    return False


def _imported(symbol: str) -> str | None:
    """Return the library of a function that was compiled to be taken from a DLL."""
    plain = compiled(_FROM_DLL).sub("", symbol)
    return library_of(plain) or owner_of_name(plain) if plain != symbol else None


def _is_linked(search: LogSearch, library: str) -> bool:
    """Return whether the linker speaks of an object of a library, which it read therefore."""
    name = re.escape(library)
    member = rf"(?:^|[\\/\s>])(?:lib)?{name}d?(?:[-_][\w.]{{1,12}})?\.(?:lib|a)\(\w"
    return bool(search.texts.search(member, most=1))


def _is_its_own(search: LogSearch, line: int, owner: str, symbol: str) -> bool:
    """Return whether a line is about a file of the library itself."""
    place = search.lines[line].text.partition("undefined")[0].partition("unresolved")[0]
    return owner.lower() in place.lower() or _is_of_user_below(search, line, symbol)


def _is_of_user_below(search: LogSearch, line: int, symbol: str) -> bool:
    """Return whether the function that uses a symbol is in the namespace of it, as ld.lld says."""
    mine = _beginning(symbol)
    if not mine or "::" not in symbol:
        return False
    for one in search.lines[line + 1 : line + 1 + _BELOW_LINES]:
        if found := compiled(_BELOW).match(one.text):
            user = compiled(_CONVENTION).sub("", found["user"]).replace(_ANONYMOUS, "anonymous")
            return _beginning(user.partition("(")[0].split(" ")[-1]) == mine
    return False


def _is_of_user(search: LogSearch, line: int, symbol: str) -> bool:
    """Return whether a symbol is of the project that uses it: both names begin alike, an archive in
    a folder of bundled projects uses it, or it is a function of C++ in no namespace.
    """
    if compiled(_IN_BUNDLED).search(search.lines[line].text) or compiled(_GLOBAL).match(symbol):
        return True
    if _is_of_user_below(search, line, symbol):
        return True
    above = search.lines[max(0, line - _NAMES_USER) : line + 1]
    users = [found["user"] for one in above if (found := compiled(_IN_FUNCTION).search(one.text))]
    mine = _beginning(symbol)
    return bool(mine and users) and mine in {_beginning(word) for word in _words(users[-1])}


def _words(user: str) -> list[str]:
    """Return the names in a declaration: its own, and those of its parameters."""
    return compiled(r"[A-Za-z_][\w:]*").findall(user)


def _beginning(name: str) -> str:
    """Return the namespace of a name of C++, or what comes before the first underline in C."""
    plain = name.lstrip("_").partition("(")[0]
    first = plain.partition("::")[0] if "::" in plain else plain.partition("_")[0]
    return first if first != plain and len(first) >= _SHORTEST else ""

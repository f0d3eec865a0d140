"""Explains why a header is not found: its package is not installed, or is of another release.

Only a header that a known package has leads to an answer. Ranks nothing.
"""

from collections.abc import Iterator

from stoker.diagnose.interfaces import as_member
from stoker.diagnose.signs import MOST_OF_A_KIND, LogSearch, Match, symptom
from stoker.knowledge.owners import owner_of_name
from stoker.knowledge.providers import ProvidedKind, Provider, library_of_namespace, provider

_NO_HEADER = (
    r"(?:fatal error: ['\"\u2018]?|error: '(?=[\w./+-]{2,120}' file not found))"
    r"(?P<header>[\w./+-]{2,120}?)['\"\u2019]?"
    r"(?:: No such file or directory| file not found)"
    r"|Cannot open include file: '(?P<opened>[\w./+-]{2,120})'"
    r"|(?:cannot|could not) open source file \\?\"(?P<quoted>[\w./+-]{2,120})(?:\\?\"|\\$)"
)
# What CMake, Meson and configure say of a library that is there.
_IS_FOUND = (
    r"--\s{1,4}Found (?P<name>[A-Za-z][\w+.-]{1,40})",
    r"[Dd]ependency (?P<name>[A-Za-z][\w+.-]{1,40}) found: YES",
    r"checking for (?P<name>[A-Za-z][\w+.-]{1,40})(?: [<>=]{1,2} \S{1,20})?\.\.\. yes",
)
_OF_APPLE = (
    "/opt/homebrew/", "/Library/", "apple-darwin", ".sdk/", "/usr/local/opt/", "/usr/local/Cellar/",
    "AppleClang", "Apple clang",
)  # fmt: skip
_INTERNAL = ("/detail/", "/details/", "/internal/", "/impl/")  # that no other project should use
PATTERNS = (_NO_HEADER, *_IS_FOUND)


def missing_headers(search: LogSearch) -> Iterator[Match]:
    """Yield the headers of known packages that are not found."""
    for line, groups in search.hits([_NO_HEADER]):
        header = next(iter(groups.values()))
        folder = header.partition("/")[0]
        library = library_of_namespace(folder) or owner_of_name(f"{folder}::")
        known = provider(ProvidedKind.HEADER, header)
        if library and any(part in header for part in _INTERNAL):
            yield symptom("dependency-api-changed", line, 0.78, as_member(library, header))
        elif known and known.is_c_library:
            if any(map(search.texts.having, _OF_APPLE)):
                yield symptom("macos-sdk-missing", line, 0.86, {})
        elif known and not _names(known, folder) & _found(search):
            yield symptom("system-headers-missing", line, 0.84, {"header": header})


def _names(known: Provider, folder: str) -> set[str]:
    """Return how a configure may name the library of a header."""
    package = known.packages.get("apt", "").removeprefix("lib").partition("-")[0]
    names = {package, folder.partition(".")[0]}
    return {name.lower().rstrip("0123456789.") for name in names}


def _found(search: LogSearch) -> set[str]:
    """Return the names of the libraries that a configure says it found, without their versions."""
    return {
        match["name"].removeprefix("lib").partition("-")[0].lower().rstrip("0123456789.")
        for pattern in _IS_FOUND
        for match in search.texts.search(pattern, most=MOST_OF_A_KIND).values()
    }

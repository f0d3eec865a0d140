"""Finds libraries of which two releases are used at once: in a link, and among installed headers.

Some libraries put their release into their names, so that the lines about undefined symbols show
which release each object was compiled with. A header that does not know a name of its own library
is of another release than the header beside it. Ranks nothing.
"""

import re
from collections.abc import Iterator, Sequence

from stoker.diagnose.interfaces import unknown_names
from stoker.diagnose.lines import compiled
from stoker.diagnose.signs import LogSearch
from stoker.knowledge.failures import owner_table
from stoker.knowledge.owners import owner_of_name

_MOST = 200  # lines that are looked into
_LONGEST = 4000  # characters of a line
_USER = r"(?:^|[\s/\\>])(?P<user>(?:lib)?[\w.+-]{2,60}?\.(?:lib|a|so|dylib))(?:[\s.:(]|$)"
# A header that was installed, and what its place is called below the folder of headers.
_INSTALLED = (
    r"^(?:/|[A-Za-z]:[\\/]).{0,300}?[\\/](?:[Ii]nclude|include-\w{1,20})[\\/](?P<below>.{1,200}"
    r"\.(?:h|hpp|hh|hxx|inl|cuh))$"
)
_SOURCES = r"[\\/](?:third_?party|vendor|externals?|subprojects|_deps|src)[\\/]"
_LEAST_WORD = 2


def mixed_releases(search: LogSearch, lines: Sequence[int]) -> Iterator[tuple[int, dict[str, str]]]:
    """Yield the libraries that ``lines`` name in two releases: the line of the second one, the
    library and both releases, and the archive that was compiled with the second one.
    """
    texts = [(line, search.lines[line].text[:_LONGEST]) for line in lines[:_MOST]]
    for library, pattern in owner_table().inline_versions.items():
        first = ""
        for line, text in texts:
            found = [one["version"] for one in compiled(pattern).finditer(text) if one["version"]]
            other = next((one for one in found if first and one != first), "")
            if other:
                user = compiled(_USER).search(text)
                named = {"archive": user["user"]} if user else {}
                releases = {"first": first, "second": other}
                yield line, {"mixed": library, "symbol": library} | releases | named
                break
            first = first or next(iter(found), "")


def mixed_headers(search: LogSearch) -> Iterator[tuple[int, dict[str, str]]]:
    """Yield the errors in an installed header about an unknown name of its own library: the line,
    the library, the header and the name.
    """
    for line, file, owner, name in unknown_names(search):
        header = compiled(_INSTALLED).match(file.rpartition("] ")[2])  # without progress
        if not header or owner or not name or "::" in name or compiled(_SOURCES).search(file):
            continue
        library = owner_of_name(name)
        if library and is_header_of(library, header["below"]):
            yield line, {"library": library, "header": header["below"], "name": name}


def is_header_of(library: str, below: str) -> bool:
    """Return whether a header is of a library, as its own name or that of its folder tells."""
    word = re.split(r"[^a-z]", library.lower())[0]
    for part in re.split(r"[\\/]", below):
        plain = part.removeprefix("lib")
        if len(word) >= _LEAST_WORD and plain.lower().startswith(word):
            return True
        if library in {owner_of_name(plain), owner_of_name(f"{plain}_")}:
            return True
    return False

"""Finds in failed links the libraries of which two releases are used at once.

Some libraries put their release into their names, so that the lines about undefined symbols show
which release each object was compiled with. Ranks nothing.
"""

from collections.abc import Iterator, Sequence

from stoker.diagnose.lines import compiled
from stoker.diagnose.signs import LogSearch
from stoker.knowledge.failures import owner_table

_MOST = 200  # lines that are looked into
_LONGEST = 4000  # characters of a line
_USER = r"(?:^|[\s/\\>])(?P<user>(?:lib)?[\w.+-]{2,60}?\.(?:lib|a|so|dylib))(?:[\s.:(]|$)"


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

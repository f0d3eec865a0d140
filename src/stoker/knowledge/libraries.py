"""The libraries that a build may link. ``stoker.machine.tools`` finds them."""

import re
from functools import cache

from stoker.knowledge import Row, table


class LibraryRow(Row, frozen=True, kw_only=True):
    name: str
    headers: tuple[str, ...]
    libraries: tuple[str, ...] = ()
    variables: tuple[str, ...] = ()
    places: tuple[str, ...] = ()
    versions: tuple[tuple[str, ...], ...] = ()
    version_files: tuple[str, ...] = ()

    def version(self, text: str) -> str | None:
        """Return the version that a header's text defines."""
        for patterns in self.versions:
            found = [_define(pattern).search(text) for pattern in patterns]
            if all(found):
                numbers = (number for match in found if match for number in match.groups())
                # One part of a number such as 3021012 comes with zeros before it.
                return ".".join(re.sub(r"^0+(?=\d)", "", number) for number in numbers)
        return None


class LibrarySearch(Row, frozen=True, kw_only=True):
    """The folders in which all libraries are searched."""

    includes: tuple[str, ...]
    libraries: tuple[str, ...]
    prefix_variables: tuple[str, ...]
    packages: tuple[str, ...]
    prefixes: tuple[str, ...]


class LibraryTable(Row, frozen=True, kw_only=True):
    search: LibrarySearch
    library: tuple[LibraryRow, ...]


library_table = table("libraries", LibraryTable)


@cache
def _define(pattern: str) -> re.Pattern[str]:
    spaced = pattern.replace(" ", r"\s+")
    return re.compile(rf"^\s*#\s*define\s+{spaced}", re.MULTILINE | re.ASCII)

"""Names that releases of common libraries added, moved to another header, or removed.

The table, library_names.tsv, is made by release/library_names.py of the headers and modules of the
releases. It is searched as text, because a diagnosis looks up a few of its thousands of rows; of a
class, module or namespace that came or went as a whole, it has only the name of the whole.
"""

from collections.abc import Iterable, Iterator
from functools import cache

from stoker.knowledge import Row, file_content
from stoker.model.value import version_numbers

_LIBRARY = "library"  # the first word of a row about a library
_HEAD = """
# Names that releases of libraries added, moved or removed; made by release/library_names.py.
# Rows `library`: its name, how its names begin, what else shows that it is there, the requirement
# of pip that pins it, a pattern of other numbers of a release, and the releases with their months.
# Other rows: the name, the library, the releases that added it and that removed it, and the one
# that moved it to another header, or the header that has most of what a removed one had.
"""


class NamedLibrary(Row, frozen=True, kw_only=True):
    """A library in the table. ``releases`` are the versions that were compared, the oldest first,
    with the year and month of each, if known; ``numbered`` is a pattern of other numbers that a
    release has, with its number here as the group.
    """

    name: str
    begins: tuple[str, ...]
    shown: tuple[str, ...] = ()
    pip: str = ""
    numbered: str = ""
    releases: dict[str, str]

    def before(self, release: str) -> str:
        """Return the release before another one; empty if there is none in the table."""
        versions = list(self.releases)
        place = versions.index(release) if release in versions else 0
        return versions[place - 1] if place else ""


class NameRow(Row, frozen=True, kw_only=True):
    """What happened to a name. Empty are ``added`` if the oldest release has it, ``removed`` if the
    newest has it, and ``moved`` if it stayed in its header; else that is a release and a header.
    """

    name: str
    library: str
    added: str = ""
    removed: str = ""
    moved: str = ""

    def is_in(self, version: str) -> bool:
        """Return whether a release has the name."""
        number = version_numbers(version)
        after = not self.added or number >= version_numbers(self.added)
        return after and (not self.removed or number < version_numbers(self.removed))


def library_names_table(libraries: Iterable[NamedLibrary], names: Iterable[NameRow]) -> str:
    """Return the content of the table."""
    lines = [*_HEAD.strip().splitlines()]
    for one in libraries:
        releases = " ".join(f"{version}={month}" for version, month in one.releases.items())
        words = (" ".join(one.begins), " ".join(one.shown), one.pip, one.numbered)
        lines.append("\t".join((_LIBRARY, one.name, *words, releases)))
    for row in sorted(names, key=lambda row: (row.name, row.library)):
        fields = (row.name, row.library, row.added, row.removed, row.moved)
        lines.append("\t".join(fields).rstrip("\t"))
    return "".join(f"{line}\n" for line in lines)


def rows_of(name: str) -> tuple[NameRow, ...]:
    """Return what happened to a name with its namespaces, a header or a module."""
    return tuple(_rows(_table(), f"\n{name}\t"))


def rows_ending(name: str) -> tuple[NameRow, ...]:
    """Return what happened to all names that are this one in some namespace or class."""
    return tuple(_rows(_table(), f"::{name}\t"))


def named_library(name: str) -> NamedLibrary:
    """Return a library of the table."""
    return _libraries()[name]


def rows_in(table: str) -> Iterator[NameRow]:
    """Yield the rows about names in the text of a table."""
    for line in table.splitlines():
        if line and not line.startswith(("#", f"{_LIBRARY}\t")):
            yield _row(line)


def libraries_in(table: str) -> Iterator[NamedLibrary]:
    """Yield the rows about libraries in the text of a table."""
    for line in table.splitlines():
        if line.startswith(f"{_LIBRARY}\t"):
            _, name, begins, shown, pip, numbered, releases = line.split("\t")
            pairs = (one.partition("=") for one in releases.split())
            yield NamedLibrary(
                name=name,
                begins=tuple(begins.split()),
                shown=tuple(shown.split()),
                pip=pip,
                numbered=numbered,
                releases={version: month for version, _, month in pairs},
            )
        elif not line.startswith("#"):
            return


def _rows(table: str, text: str) -> Iterator[NameRow]:
    found = table.find(text)
    while found >= 0:
        start = table.rindex("\n", 0, found + 1) + 1
        end = table.index("\n", found + 1)
        line = table[start:end]
        if not line.startswith(("#", f"{_LIBRARY}\t")):
            yield _row(line)
        found = table.find(text, end)


def _row(line: str) -> NameRow:
    name, library, added, removed, moved = (*line.split("\t"), "", "", "")[:5]
    return NameRow(name=name, library=library, added=added, removed=removed, moved=moved)


@cache
def _libraries() -> dict[str, NamedLibrary]:
    return {one.name: one for one in libraries_in(_table())}


@cache
def _table() -> str:
    return file_content("library_names.tsv").decode()

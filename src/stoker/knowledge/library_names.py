"""Names that releases of common libraries added, moved to another header, or removed.

The table, library_names.z, is made by release/library_names.py of the headers and modules of the
releases. Of a class, module or namespace that came or went as a whole, it has only the name of the
whole. A diagnosis looks up a few of its rows: they are in the order of their last words, in blocks
that are compressed one by one.
"""

import re
import zlib
from bisect import bisect_left
from collections.abc import Iterable, Iterator
from functools import cache

import msgspec

from stoker.knowledge import Row, file_content
from stoker.model.value import prepared, version_numbers

_TABLE = "library_names.z"
_BLOCK = 1500  # rows
_SEPARATOR = re.compile(r"::|/|\.(?!(?:h|hpp|cuh|inl|hh|hxx|def)$)")


class NamedLibrary(Row, frozen=True, kw_only=True):
    """A library in the table. ``releases`` are the versions that were compared, the oldest first,
    with the year and month of each, if known; ``numbered`` is a pattern of other numbers that a
    release has, with its number here as the group. Names of a ``plain`` library may be any words.
    """

    name: str
    begins: tuple[str, ...]
    shown: tuple[str, ...] = ()
    pip: str = ""
    numbered: str = ""
    plain: bool = False
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


class _Block(Row, frozen=True, kw_only=True):
    last: str  # the last word of its last row
    size: int  # compressed


class _Head(Row, frozen=True, kw_only=True):
    libraries: tuple[NamedLibrary, ...]
    blocks: tuple[_Block, ...]


def library_names_table(
    libraries: Iterable[NamedLibrary], names: Iterable[NameRow], block: int = _BLOCK
) -> bytes:
    """Return the content of the table, with so many rows in a block."""
    rows = sorted(names, key=lambda row: (_last_word(row.name), row.name, row.library))
    parts = [rows[at : at + block] for at in range(0, len(rows), block)]
    packed = [zlib.compress("".join(map(_line, part)).encode(), 9) for part in parts]
    blocks = (
        _Block(last=_last_word(part[-1].name), size=len(content))
        for part, content in zip(parts, packed, strict=True)
    )
    head = _Head(libraries=tuple(libraries), blocks=tuple(blocks))
    return b"\n".join((msgspec.json.encode(head), b"".join(packed)))


def rows_of(name: str) -> tuple[NameRow, ...]:
    """Return what happened to a name with its namespaces, a header or a module."""
    return tuple(row for row in _rows(_last_word(name)) if row.name == name)


def rows_ending(name: str) -> tuple[NameRow, ...]:
    """Return what happened to all names that are this one in some namespace or class."""
    return tuple(row for row in _rows(name) if row.name.endswith(f"::{name}"))


def named_library(name: str) -> NamedLibrary:
    """Return a library of the table."""
    return next(one for one in libraries() if one.name == name)


def libraries() -> tuple[NamedLibrary, ...]:
    """Return the libraries of the table."""
    return _head().libraries


def all_rows() -> Iterator[NameRow]:
    """Yield all rows of the table."""
    for place in range(len(_head().blocks)):
        yield from map(_row, _lines(place))


def forget() -> None:
    """Read the table again when it is needed."""
    for kept in (_lines, _head, _content):
        kept.cache_clear()


def _rows(last_word: str) -> Iterator[NameRow]:
    """Yield the rows with a last word; more than one block may have them."""
    ends = [block.last for block in _head().blocks]
    for place in range(bisect_left(ends, last_word), len(ends)):
        for line in _lines(place):
            if last_word in line and _last_word(line.partition("\t")[0]) == last_word:
                yield _row(line)
        if ends[place] > last_word:
            return


def _last_word(name: str) -> str:
    return _SEPARATOR.split(name)[-1]


def _line(row: NameRow) -> str:
    return "\t".join((row.name, row.library, row.added, row.removed, row.moved)).rstrip("\t") + "\n"


def _row(line: str) -> NameRow:
    name, library, added, removed, moved = (*line.split("\t"), "", "", "")[:5]
    return NameRow(name=name, library=library, added=added, removed=removed, moved=moved)


@cache
def _lines(place: int) -> list[str]:
    blocks = _head().blocks
    start = len(_content()) - sum(block.size for block in blocks[place:])
    packed = _content()[start : start + blocks[place].size]
    return zlib.decompress(packed).decode().splitlines()


@cache
def _head() -> _Head:
    end = _content().index(b"\n")
    return msgspec.json.decode(_content()[:end], type=prepared(_Head))


@cache
def _content() -> bytes:
    return file_content(_TABLE)

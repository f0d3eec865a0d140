"""Finds libraries to link: their headers, files and versions.

Which libraries to look for is written in knowledge/libraries.toml. Whether one will do is decided
by ``stoker.plan``.
"""

import os
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path

from stoker.knowledge.libraries import LibraryRow, library_table
from stoker.machine.file_tree import FileTree
from stoker.model.machine import Library
from stoker.outside.looking import is_file, matching

# The linker's name is best; pip packages have only the loader's, which ends with a number.
SUFFIXES = (".so", ".dylib", ".so.", ".a")
FILE_NAME = re.compile(r"(lib.+?)(\.so|\.dylib|\.a|\.so\.)[\d.]*", re.ASCII)

Parts = tuple[Path | None, Path | None]  # header and library


def find_libraries(
    tree: FileTree, environment: Mapping[str, str], triple: str, prefixes: Iterable[Path]
) -> tuple[Library, ...]:
    """Return the libraries. ``prefixes`` are searched before the system's own; ``triple`` is that
    of ``lib/<triple>``.
    """
    finder = _Finder(tree, environment, triple, prefixes)
    found = (finder.find(row) for row in library_table().library)
    return tuple(library for library in found if library is not None)


class _Finder:
    """Searches the same folders for every library, so it reads each of them once."""

    def __init__(
        self,
        tree: FileTree,
        environment: Mapping[str, str],
        triple: str,
        prefixes: Iterable[Path],
    ):
        self._tree = tree
        self._environment = environment
        self._triple = triple
        self._indexes: dict[Path, dict[str, Path]] = {}
        search = library_table().search
        self._includes = [name.format(triple=triple) for name in search.includes]
        self._libraries = [name.format(triple=triple) for name in search.libraries]
        self._first = [*self._named(search.prefix_variables), *prefixes]
        self._last = self._matching(search.prefixes)

    def find(self, row: LibraryRow) -> Library | None:
        """Return the first place that has both parts of a library, else the parts that exist."""
        # Variables may name the two parts of a library separately: those folders count as one.
        alone = (*self._first, *self._matching(row.places), *self._last)
        places = [self._named(row.variables), *([folder] for folder in alone)]
        parts = [self._look(row, folders) for folders in places]
        headers = [header for header, _ in parts if header]
        libraries = [library for _, library in parts if library]
        if not headers and not libraries:
            return None
        anywhere = (next(iter(headers), None), next(iter(libraries), None))
        header, library = next((part for part in parts if all(part)), anywhere)
        return Library(
            name=row.name,
            version=_read_version(row, header) if header else None,
            header=str(header) if header else None,
            library=str(library) if library else None,
        )

    def _named(self, variables: Iterable[str]) -> list[Path]:
        """Return the folders that environment variables name, or the folders of the files they
        name.
        """
        values = (self._environment.get(variable, "") for variable in variables)
        paths = [Path(word) for value in values for word in re.split("[:;]", value) if word]
        return [path.parent if is_file(path) else path for path in paths]

    def _matching(self, patterns: Iterable[str]) -> list[Path]:
        filled = (pattern.format(triple=self._triple) for pattern in patterns)
        return [path for pattern in filled for path in self._tree.matching(pattern)]

    def _look(self, row: LibraryRow, folders: list[Path]) -> Parts:
        header = next((path for folder in folders for path in self._headers(row, folder)), None)
        # A library of headers only is found by its header.
        if not row.libraries:
            return header, header
        library = next((path for folder in folders for path in self._files(row, folder)), None)
        return header, library

    def _headers(self, row: LibraryRow, folder: Path) -> Iterator[Path]:
        for name in row.headers:
            for base in _readable(folder, self._includes):
                yield from sorted(matching(base, name))

    def _files(self, row: LibraryRow, folder: Path) -> Iterator[Path]:
        for name in row.libraries:
            inner, _, stem = name.rpartition("/")
            for base in _readable(folder, self._libraries):
                for holder in sorted(matching(base, inner)) if inner else [base]:
                    if holder not in self._indexes:
                        self._indexes[holder] = _index_of(holder)
                    index = self._indexes[holder]
                    if path := index.get(stem if "." in stem else f"lib{stem}"):
                        yield path


def _readable(folder: Path, names: Iterable[str]) -> Iterator[Path]:
    paths = (folder / name for name in names)
    return (path for path in paths if os.access(path, os.R_OK | os.X_OK))


def _index_of(folder: Path) -> dict[str, Path]:
    try:
        names = sorted(path.name for path in folder.iterdir())
    except OSError:
        return {}
    matches = [match for name in names if (match := FILE_NAME.fullmatch(name))]
    best_last = sorted(
        matches, key=lambda match: (SUFFIXES.index(match[2]), len(match[0])), reverse=True
    )
    index = {name: folder / name for name in names}
    return index | {match[1]: folder / match[0] for match in best_last}


def _read_version(row: LibraryRow, header: Path) -> str | None:
    for path in (header, *(header.parent / name for name in row.version_files)):
        with suppress(OSError):
            if version := row.version(path.read_text(errors="replace")):
                return version
    return None

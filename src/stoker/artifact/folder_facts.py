"""The facts of libraries that lie on disk: of one file, of all in a folder."""

import os
from collections.abc import Iterable
from pathlib import Path

from stoker.artifact.elf import MAGIC
from stoker.artifact.library import read_library
from stoker.artifact.reader import open_file, printable
from stoker.model.artifact import LibraryFacts
from stoker.model.errors import StorageError


def read_file(path: Path, name: str) -> LibraryFacts | None:
    """The facts of an ELF file, under a name; None of a file of another kind."""
    with open_file(path, name) as reader:
        return read_library(reader) if reader.read_at(0, len(MAGIC)) == MAGIC else None


def files_of(folder: Path) -> tuple[str, ...]:
    """Every file under a folder, links too, relative to it."""

    def fail(error: OSError) -> None:
        raise StorageError(f"cannot read {error.filename}: {error.strerror}") from error

    found = []
    for parent, folders, names in os.walk(folder, onerror=fail):
        folders.sort()
        found += [str(Path(parent, name).relative_to(folder)) for name in sorted(names)]
    return tuple(found)


def read_files(root: Path, files: Iterable[str]) -> tuple[LibraryFacts, ...]:
    """Of the ELF files among ``files``; a link is another name for a file, and left out."""
    libraries = []
    for name in files:
        path = root / name
        if path.is_symlink() or not path.is_file():
            continue
        try:
            library = read_file(path, printable(name))
        except StorageError as error:
            problem = printable(str(error))
            library = LibraryFacts(path=printable(name), size=0, problem=problem)
        if library:
            libraries.append(library)
    return tuple(libraries)

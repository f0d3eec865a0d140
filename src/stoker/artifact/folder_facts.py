"""Reads the facts of libraries on disk: of one file, or of all files in a folder."""

import os
from collections.abc import Iterable
from pathlib import Path

from stoker.artifact.elf import MAGIC
from stoker.artifact.library import read_library
from stoker.artifact.reader import open_file, printable
from stoker.model.artifact import LibraryFacts
from stoker.model.errors import StorageError


def read_file(path: Path, name: str) -> LibraryFacts | None:
    """Return the facts of an ELF file, or None for other files. ``name`` is used in messages."""
    with open_file(path, name) as reader:
        return read_library(reader) if reader.read_at(0, len(MAGIC)) == MAGIC else None


def is_elf(path: Path) -> bool:
    """Return whether a regular file, which is no link, is an ELF file."""
    if path.is_symlink() or not path.is_file():
        return False
    with open_file(path) as reader:
        return reader.read_at(0, len(MAGIC)) == MAGIC


def files_of(folder: Path) -> tuple[str, ...]:
    """Return all files in a folder and its subfolders, with links, relative to it. A subfolder that
    disappears meanwhile has none: another stoker process may slim a part of the folder.
    """

    def fail(error: OSError) -> None:
        if isinstance(error, FileNotFoundError) and Path(error.filename) != folder:
            return
        raise StorageError(f"cannot read {error.filename}: {error.strerror}") from error

    found = []
    for parent, folders, names in os.walk(folder, onerror=fail):
        folders.sort()
        found += [str(Path(parent, name).relative_to(folder)) for name in sorted(names)]
    return tuple(found)


def read_files(root: Path, files: Iterable[str]) -> tuple[LibraryFacts, ...]:
    """Return the facts of the ELF files among ``files``; links are skipped."""
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

"""Reads the source files of functions from the symbol table of a library.

A symbol table names source files for local functions only: they follow the file's symbol.
"""

import struct
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import suppress

from stoker.model.errors import ArtifactError
from stoker.wheel.elf import SYMBOL_TABLE, Elf, Table

_SYMBOL = struct.Struct("<IBBHQQ")
_FILE, _FUNCTION_TYPE = 4, 2  # types of symbols
_LARGEST = 512 << 20


class LocalFunctions:
    """Source files and names of functions, by address."""

    def __init__(self, found: Mapping[int, tuple[str, str]]):
        self._found = found
        self._counts = Counter(found.values())

    def file(self, address: int) -> str:
        return self._found.get(address, ("", ""))[0]

    def has_copies(self, address: int) -> bool:
        """Return whether the same function of the same file exists more than once."""
        return address in self._found and self._counts[self._found[address]] > 1


def read_local_functions(file: Elf) -> LocalFunctions:
    """Return none for a file without symbols, of 32 bits, or with malformed symbols."""
    found = {}
    with suppress(ArtifactError):
        for address, source, name in _functions(file):
            found[address] = (source, name)
    return LocalFunctions(found)


def _functions(file: Elf) -> Iterator[tuple[int, str, str]]:
    table = next((part for part in file.sections if part.type == SYMBOL_TABLE), None)
    if table is None or not file.is_64_bit or table.link >= len(file.sections):
        return
    names = file.sections[table.link]
    if max(table.file_size, names.file_size) > _LARGEST:
        return
    strings, source = (
        Table(file.reader, "<", names.offset, file.reader.read(names.offset, names.file_size)),
        "",
    )
    # Local symbols come first; `info` is how many.
    count = min(table.info, table.file_size // _SYMBOL.size)
    symbols = file.reader.read(table.offset, table.file_size)[: count * _SYMBOL.size]
    for name, kind, _, _, address, _ in _SYMBOL.iter_unpack(symbols):
        if kind & 15 == _FILE:
            source = strings.string(name)
        elif kind & 15 == _FUNCTION_TYPE and source:
            yield address, source, strings.string(name)

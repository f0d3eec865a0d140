"""Which package provides a header, a library, a CMake package, a program, a module or a symbol.

The table, providers.tsv, is made by release/providers.py; its first lines say how. It is searched
as text, because a diagnosis looks up a few of its thousands of rows.
"""

import re
from collections.abc import Iterator
from enum import StrEnum
from functools import cache

from stoker.knowledge import file_content
from stoker.model.value import Value

_MANAGERS = ("apt", "dnf", "conda", "apk", "pacman", "brew", "pip")
_NONE = "-"
_OF_C = {"libc6-dev", "linux-libc-dev"}


class ProvidedKind(StrEnum):
    HEADER = "header"
    LIBRARY = "library"  # as in -lz
    SHARED = "shared"  # as the loader names it: libz.so.1
    CMAKE = "cmake"  # as in find_package(Eigen3)
    PKGCONFIG = "pkgconfig"
    PROGRAM = "program"
    MODULE = "module"  # of Python, as it is imported


class Provider(Value, frozen=True, kw_only=True):
    """``packages`` are the names by package manager; a name may be several words. ``root`` is a
    folder, below those of headers or libraries, that has to be searched as well.
    """

    packages: dict[str, str]
    root: str = ""

    @property
    def is_c_library(self) -> bool:
        """Whether it is the C library or the kernel's headers, which every compiler has."""
        return not _OF_C.isdisjoint(self.packages.values())


def provider(kind: ProvidedKind, name: str) -> Provider | None:
    """Return what provides something; ``None`` if the table does not have it."""
    for known in _spellings(kind, name):
        if row := _row(kind.value, known):
            root, package = row
            return Provider(packages=_packages(package), root=root)
    if kind is ProvidedKind.HEADER and "/" in name:  # graphviz/cgraph.h, where graphviz is a root
        folder, _, rest = name.partition("/")
        if (row := _row(kind.value, rest)) and row[0].endswith(f"/{folder}"):
            return Provider(packages=_packages(row[1]))
    if kind is ProvidedKind.MODULE and (row := _row("pypi", name.partition(".")[0])):
        project, conda = row
        return Provider(packages={"pip": project} | ({"conda": conda} if conda != _NONE else {}))
    return None


def built_with(project: str) -> list[str]:
    """Return the packages that Debian installs to build a project of PyPI; empty if not known."""
    row = _row("project", re.sub(r"[-_.]+", "-", project).lower())
    return row[1].split(" ") if row else []


def library_folders(package: str) -> list[str]:
    """Return the folders with the libraries of a package of Debian that a linker is not told of."""
    rows = (line.split("\t") for line in _lines_with(f"\t{package}"))
    of_libraries = (row for row in rows if row[0] == "library" and row[3] == package)
    return list(dict.fromkeys(row[2] for row in of_libraries if row[2]))


def _lines_with(text: str) -> Iterator[str]:
    table, found = _table(), _table().find(text)
    while found >= 0:
        end = table.index("\n", found)
        yield table[table.rindex("\n", 0, found) + 1 : end]
        found = table.find(text, end)


def library_of(symbol: str) -> str | None:
    """Return the name, as in -lz, of the library that defines a symbol."""
    known = _symbols()
    beginnings = (f"{symbol[:end]}*" for end in range(len(symbol), 1, -1))
    return next((known[name] for name in (symbol, *beginnings) if name in known), None)


@cache
def library_of_namespace(name: str) -> str | None:
    """Return the library of a namespace of C++, such as ``google::protobuf``, by its symbols or by
    the folder of its headers.
    """
    if row := _row("symbol", f"{name}::*"):
        return (
            name if row[1].startswith(f"{name}_") else row[1]
        )  # absl, of which absl_base is a part
    return name.replace("::", "/") if _row("header", name.replace("::", "/") + "/") else None


@cache
def _symbols() -> dict[str, str]:
    rows = (line.split("\t") for line in _table().splitlines() if line.startswith("symbol\t"))
    return {row[1]: row[3] for row in rows}


def _spellings(kind: ProvidedKind, name: str) -> Iterator[str]:
    yield name
    if kind is ProvidedKind.CMAKE:
        yield from _cmake_names().get(name.lower(), ())
    if kind is ProvidedKind.HEADER:
        folder = name
        while folder := folder.rstrip("/").rpartition("/")[0]:
            yield f"{folder}/"
    if kind is ProvidedKind.MODULE:
        yield name.partition(".")[0]
    if kind is ProvidedKind.PROGRAM:
        yield name.lower()


@cache
def _cmake_names() -> dict[str, tuple[str, ...]]:
    rows = (line.split("\t") for line in _table().splitlines() if line.startswith("cmake\t"))
    return {row[1].lower(): (row[1],) for row in rows}


def _packages(names: str) -> dict[str, str]:
    found: dict[str, list[str]] = {}
    for name in names.split(" "):
        others = _row("package", name) or ()
        for manager, other in zip(_MANAGERS, (name, *others), strict=False):
            found.setdefault(manager, []).append(other)
    return {
        manager: " ".join(dict.fromkeys(words))
        for manager, words in found.items()
        if _NONE not in words
    }


def _row(kind: str, name: str) -> tuple[str, ...] | None:
    """Return the fields of a row after its name."""
    begin = _table().find(f"\n{kind}\t{name}\t")
    if begin < 0:
        return None
    line = _table()[begin + 1 : _table().index("\n", begin + 1)]
    return tuple(line.split("\t")[2:])


@cache
def _table() -> str:
    return file_content("providers.tsv").decode()

"""The programs that a build may use, by role, which ``stoker.machine`` finds.

Also the names by which a command of a build is recognised as a compiler, a linker or a wrapper, and
the first release of gcc with a standard or a header of C++.
"""

import re
from functools import cache

from stoker.knowledge import Row, rows, table

DOTTED_NUMBER = r"(\d+(?:\.\d+)+)"


class KnownProgram(Row, frozen=True, kw_only=True):
    name: str
    commands: tuple[str, ...] = ()
    variable: str | None = None
    folders: tuple[str, ...] = ()
    asked: str = "--version"
    version: str = DOTTED_NUMBER
    launcher: bool = False

    @property
    def names(self) -> tuple[str, ...]:
        return self.commands or (self.name,)


programs = rows("tools", KnownProgram)


@cache
def launchers() -> frozenset[str]:
    return frozenset(name for program in programs() if program.launcher for name in program.names)


_names = table("compiler_names", dict[str, tuple[str, ...]])


def names(group: str) -> tuple[str, ...]:
    """Return the names of a group of programs, such as ``compilers`` or ``wrappers``."""
    return _names()[group]


@cache
def named(group: str) -> re.Pattern[str]:
    """Match a name of the group with a target's prefix and a version: aarch64-linux-gnu-gcc-13.
    Also g++-real, which a script named g++ starts.
    """
    known, ends = ("|".join(map(re.escape, names(each))) for each in (group, "originals"))
    return re.compile(rf"(?:.*-)?(?:{known})(?:-[\d.]+)?(?:{ends})?")


class _CxxFeatures(Row, frozen=True, kw_only=True):
    standard: dict[str, int]
    header: dict[str, int]
    intrinsic: dict[str, int]  # by a pattern of names
    declares: dict[str, str]  # words
    declares_in_c: dict[str, str]  # words
    gnu_functions: str  # words


_cxx_features = table("cxx_features", _CxxFeatures)


def first_gcc(kind: str, name: str) -> int | None:
    """Return the first major version of gcc with a ``standard``, such as 20, a ``header``, or an
    ``intrinsic``, a function for instructions of the CPU.
    """
    features = _cxx_features()
    if kind == "intrinsic":
        rows = features.intrinsic.items()
        return next((since for names, since in rows if re.fullmatch(names, name)), None)
    return (features.standard if kind == "standard" else features.header).get(name)


def declaring_header(name: str) -> str | None:
    """Return the standard header that declares a name, such as ``sort`` or ``std::sort``."""
    return _declaring(_cxx_features().declares, name.removeprefix("std::"))


def declaring_header_of_c(name: str) -> str | None:
    """Return the header of C or POSIX that declares a name, such as ``open``."""
    return _declaring(_cxx_features().declares_in_c, name)


def is_gnu_function(name: str) -> bool:
    """Return whether the C library declares a function only where _GNU_SOURCE is defined."""
    return name in _cxx_features().gnu_functions.split()


def _declaring(table: dict[str, str], name: str) -> str | None:
    return next((header for header, words in table.items() if name in words.split()), None)

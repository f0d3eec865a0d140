"""Whose file a path names, whose name a name of C or C++ is, and which system has a header."""

import re
from functools import cache
from posixpath import normpath

from stoker.knowledge.failures import owner_table
from stoker.model.value import Value


class Owner(Value, frozen=True, kw_only=True):
    """A package, and its version if the path tells it."""

    name: str
    version: str = ""

    def __str__(self) -> str:
        return f"{self.name} {self.version}".rstrip()


@cache
def owner_of_path(path: str) -> Owner | None:
    """Return the package whose file a path is; ``None`` for files of the project or the system."""
    plain = _plain(path)
    owner = _owner_in(plain, owner_table().paths)
    return None if owner and re.search(owner_table().no_owner, owner.name) else owner


@cache
def release_of(path: str) -> Owner | None:
    """Return the published release whose source a path is, as the name of its folder tells."""
    plain = _plain(path)
    if re.search(owner_table().no_release, plain):
        return None
    return _owner_in(plain, owner_table().releases)


def is_in_tree(library: str, path: str) -> bool:
    """Return whether a path is in the source tree of a library whose folders have other names."""
    folders = owner_table().trees.get(library)
    return bool(folders and re.search(folders, path))


def _plain(path: str) -> str:
    """Return a path without what `..` takes back, and without the progress in front of it."""
    plain = path.replace("\\", "/").rpartition(" ")[2]
    return normpath(plain) if "/../" in plain else plain


def _owner_in(path: str, patterns: tuple[str, ...]) -> Owner | None:
    found = next(filter(None, (re.search(one, path) for one in patterns)), None)
    if not found:
        return None
    return Owner(name=found["name"], version=found.groupdict().get("version") or "")


@cache
def owner_of_name(name: str) -> str | None:
    """Return the library whose names begin like this one."""
    rows = _beginnings().items()
    return next(
        (owner for owner, begins in rows if any(_begins(name, one) for one in begins)), None
    )


@cache
def _beginnings() -> dict[str, list[str]]:
    return {owner: words.split() for owner, words in owner_table().names.items()}


def _begins(name: str, begin: str) -> bool:
    """Return whether a name begins so; a `+` at the end stands for a capital and a small letter."""
    plain = begin.removesuffix("+")
    if not name.startswith(plain):
        return False
    following = name[len(plain) : len(plain) + 2]
    return following.istitle() and following.isalpha() if plain != begin else True


@cache
def _system_names(system: str) -> dict[str, str]:
    rows = owner_table().system_libraries[system].items()
    return {name: library for library, names in rows for name in names.split()}


def library_of_system(symbol: str, line: str) -> str | None:
    """Return the library, as in -lws2_32, that has a function of the system that the line of a
    linker is about; ``None`` where it is a part of the C library.
    """
    plain = re.sub(r"^(?:__imp_)?_?|@\d{1,3}$", "", symbol)
    if symbol.startswith("__imp_") or re.search(r"ld\.exe|mingw|LNK20", line):
        return _system_names("windows").get(plain)
    if line.endswith("referenced from:"):
        return _system_names("apple").get(plain)
    return None


@cache
def _android_levels() -> dict[str, str]:
    rows = owner_table().android_levels.items()
    return {name: level for level, names in rows for name in names.split()}


def android_level(function: str) -> str | None:
    """Return since which API level Android's C library has a function, or ``none`` if no release
    has it; ``None`` for functions that are not known to be new.
    """
    return _android_levels().get(function)


def platform_of(header: str, *, on_windows: bool) -> str | None:
    """Return the system that has a header, if it is one of the systems only."""
    others = owner_table().not_of_windows if on_windows else {}
    patterns = others | owner_table().platforms
    return next((name for name, each in patterns.items() if re.fullmatch(each, header)), None)

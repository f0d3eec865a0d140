"""Facts about the world outside: TOML tables, each with its types and a cached reader."""

import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import TypeVar

import msgspec

from stoker.model.errors import MissingError
from stoker.model.value import prepared

T = TypeVar("T")


class Row(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The base of every row: immutable, and a misspelt key is refused."""


def tables_digest(*names: str) -> str:
    """Return what changes with the content of these tables."""
    import hashlib  # loads OpenSSL, which most commands can do without

    found = hashlib.blake2b(digest_size=8)
    for name in names:
        found.update(file_content(f"{name}.toml"))
    return found.hexdigest()


def table(name: str, kind: type[T]) -> Callable[[], T]:
    """Return a function that returns the content of ``<name>.toml``, which it reads once."""
    return cache(lambda: load(name, kind))


def rows(name: str, kind: type[T]) -> Callable[[], tuple[T, ...]]:
    """Return the same for a table that is one list of rows."""

    def read() -> tuple[T, ...]:
        lists: dict[str, tuple[T, ...]] = load(name, dict[str, tuple[kind, ...]])  # type: ignore[valid-type]
        (only,) = lists.values()
        return only

    return cache(read)


def load(name: str, kind: type[T]) -> T:
    """Return the content of ``<name>.toml``."""
    return msgspec.toml.decode(file_content(f"{name}.toml"), type=prepared(kind))


def file_content(name: str) -> bytes:
    """Return the content of a file of this package, which importlib would need longer to find."""
    return Path(__file__).with_name(name).read_bytes()


def generated_content(name: str) -> bytes:
    """Return the content of a file that the build of stoker made for this package. An editable
    installation keeps it apart from the code.
    """
    folders = [Path(__file__).parent, *(Path(entry, "stoker/knowledge") for entry in sys.path)]
    for folder in folders:
        if (folder / name).is_file():
            return (folder / name).read_bytes()
    raise MissingError(
        f"{name} is not installed",
        hints=["install stoker again from its wheel or checkout: `uv tool install --force .`"],
    )

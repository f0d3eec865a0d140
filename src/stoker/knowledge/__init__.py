"""Facts about the world outside: TOML tables, each with its types and a cached reader."""

import hashlib
from importlib import resources
from typing import TypeVar

import msgspec

T = TypeVar("T")


class Row(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The base of every row: immutable, and a misspelt key is refused."""


def digest(*names: str) -> str:
    """Return what changes with the content of these tables."""
    folder, found = resources.files(__package__), hashlib.blake2b(digest_size=8)
    for name in names:
        found.update(folder.joinpath(f"{name}.toml").read_bytes())
    return found.hexdigest()


def load(name: str, kind: type[T]) -> T:
    """Return the content of ``<name>.toml``. The callers cache it."""
    content = resources.files(__package__).joinpath(f"{name}.toml").read_bytes()
    return msgspec.toml.decode(content, type=kind)

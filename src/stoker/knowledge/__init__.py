"""Facts about the world outside: TOML tables, each with its types and a cached reader."""

from pathlib import Path
from typing import TypeVar

import msgspec

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


def load(name: str, kind: type[T]) -> T:
    """Return the content of ``<name>.toml``. The callers cache it."""
    return msgspec.toml.decode(file_content(f"{name}.toml"), type=kind)


def file_content(name: str) -> bytes:
    """Return the content of a file of this package, which importlib would need longer to find."""
    return Path(__file__).with_name(name).read_bytes()

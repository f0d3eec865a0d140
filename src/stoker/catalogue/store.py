"""Stores the files of a catalogue: in a folder, or in a bucket of an object store (`s3.py`).

A file appears whole or not at all. `exclusive` keeps other publishers out where the store can do
that; `write` with `expected` fails where another publisher was quicker.
"""

import secrets
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path
from typing import BinaryIO, Protocol
from urllib.parse import unquote, urlsplit

from stoker.model.errors import StokerError, StorageError, UsageError
from stoker.outside import locks
from stoker.outside.deleting import remove_empty, remove_file, remove_tree
from stoker.outside.files import file_made_whole
from stoker.outside.long_work import Say, stage

_BLOCK = 1 << 20
OWN = ".stoker"  # what belongs to publishing itself, not to the catalogue


class ConflictError(StokerError):
    """Another publisher has written the file since it was read."""


class Store(Protocol):
    """Paths are relative, with slashes."""

    @property
    def name(self) -> str: ...

    @property
    def takes_turns(self) -> bool:
        """Whether `exclusive` keeps other publishers out."""

    def exclusive(self, say: Say) -> AbstractContextManager[None]: ...

    def read(self, path: str) -> tuple[bytes, str] | None:
        """Return the content and its version; ``None`` if there is no such file."""

    def write(self, path: str, content: bytes) -> None: ...

    def write_expected(self, path: str, content: bytes, expected: str | None) -> None:
        """Write only if the version is still this; None: only if there is no such file."""

    def upload(self, path: str, source: Path) -> None: ...

    def has(self, path: str, size: int) -> bool: ...

    def delete(self, path: str) -> None: ...

    def below(self, prefix: str) -> Iterable[tuple[str, int]]:
        """Return the files whose path starts with the prefix, and their sizes."""

    def abandoned(self, prefix: str) -> list[tuple[str, int]]:
        """Return those files of `below` that no running publisher can be using."""


class FolderStore:
    """A folder. Publishers take turns with a lock, which is released if one is killed."""

    takes_turns = True

    def __init__(self, root: Path):
        self.root = root
        self._incoming = root / OWN / "incoming"

    @property
    def name(self) -> str:
        return str(self.root)

    @contextmanager
    def exclusive(self, say: Say) -> Iterator[None]:
        def waiting() -> None:
            say(f"waiting for another publisher of {self.root}")

        with locks.held(self.root / OWN / "lock", waiting=waiting):
            # The lock is ours, so what lies here was left by a publisher that was killed.
            remove_tree(self._incoming)
            yield

    def read(self, path: str) -> tuple[bytes, str] | None:
        try:
            content = (self.root / path).read_bytes()
        except FileNotFoundError:
            return None
        except OSError as error:
            raise StorageError(f"cannot read {self.root / path}: {error.strerror}") from error
        return content, ""

    def write(self, path: str, content: bytes) -> None:
        with self._made(path) as stream:
            stream.write(content)

    def write_expected(self, path: str, content: bytes, expected: str | None) -> None:
        """Write the file. The lock excludes other publishers, so the version cannot have
        changed.
        """
        del expected
        self.write(path, content)

    def upload(self, path: str, source: Path) -> None:
        total = source.stat().st_size
        title = f"copying {source.name}"
        with self._made(path) as stream, source.open("rb") as original, stage(title, total) as done:
            while block := original.read(_BLOCK):
                done(stream.write(block))

    def _made(self, path: str) -> AbstractContextManager[BinaryIO]:
        """Give a file to write; it takes its place only if nothing failed."""
        return file_made_whole(self.root / path, aside=self._incoming / secrets.token_hex(8))

    def has(self, path: str, size: int) -> bool:
        with suppress(OSError):
            return (self.root / path).stat().st_size == size
        return False

    def delete(self, path: str) -> None:
        """Delete the file, and the folders above it that become empty."""
        target = self.root / path
        try:
            remove_file(target, below=self.root)
        except OSError as error:
            raise StorageError(f"cannot delete {target}: {error.strerror}") from error
        with suppress(OSError):
            for folder in target.relative_to(self.root).parents:
                if folder != Path():
                    remove_empty(self.root / folder, below=self.root)

    def below(self, prefix: str) -> Iterator[tuple[str, int]]:
        for path in (self.root / prefix).rglob("*"):
            if path.is_file():
                yield path.relative_to(self.root).as_posix(), path.stat().st_size

    def abandoned(self, prefix: str) -> list[tuple[str, int]]:
        """Return all files: we hold the lock, so no other publisher is running."""
        return sorted(self.below(prefix))


def open_store(place: str) -> Store:
    """Return the store of a folder path or of a bucket, ``s3://bucket/prefix``."""
    scheme, separator, _ = place.partition("://")
    if scheme == "s3" and separator:
        from stoker.catalogue.s3 import S3Store  # it imports this module

        return S3Store(place)
    if separator and scheme != "file":
        raise UsageError(
            f"{place} cannot hold a catalogue",
            hints=["name a folder, s3://bucket/prefix, or the http address of a published one"],
        )
    return FolderStore(Path(unquote(urlsplit(place).path) if scheme == "file" else place))

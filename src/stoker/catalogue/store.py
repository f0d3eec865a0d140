"""Stores the files of a catalogue: in a folder, or in a bucket of an object store.

A file appears whole or not at all. `exclusive` keeps other publishers out where the store can do
that; `write` with `expected` fails where another publisher was quicker.
"""

import secrets
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, BinaryIO, Protocol

from stoker.machine.installers import own_install
from stoker.model.errors import MissingError, StokerError, StorageError, UsageError
from stoker.outside import locks
from stoker.outside.deleting import remove_empty, remove_file, remove_tree
from stoker.outside.files import file_made_whole
from stoker.outside.progress import stage

_BLOCK = 1 << 20
OWN = ".stoker"  # what belongs to publishing itself, not to the catalogue

Say = Callable[[str], None]


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
        return S3Store(place)
    if separator and scheme != "file":
        raise UsageError(
            f"{place} cannot hold a catalogue",
            hints=["name a folder, s3://bucket/prefix, or the http address of a published one"],
        )
    return FolderStore(_folder(place))


def _folder(place: str) -> Path:
    if not place.startswith("file://"):
        return Path(place)
    from urllib.parse import unquote, urlsplit

    return Path(unquote(urlsplit(place).path))


# -- s3 --------------------------------------------------------------------------------------------
# A catalogue in an S3-compatible object store, through s3fs (`stoker[s3]`).
#
# There is no lock. `catalogue.json` is written with a condition (If-Match, If-None-Match), so of
# two publishers the slower one sees the change of the other and repeats its own. The store must
# support conditional writes, as AWS S3, MinIO, Ceph and Cloudflare R2 do. Address and credentials
# are those of the AWS tools: AWS_ENDPOINT_URL, AWS_ACCESS_KEY_ID, AWS_PROFILE and so on.


_CONFLICT = ("PreconditionFailed", "ConditionalRequestConflict")
_ABANDONED_AFTER = timedelta(hours=1)  # a change of pages takes seconds
_TYPES = {".html": "text/html; charset=utf-8", ".json": "application/json"}


class S3Store:
    """A catalogue at ``s3://bucket/prefix``."""

    takes_turns = False

    def __init__(self, place: str):
        self.name = place.rstrip("/")
        bucket, _, prefix = place.removeprefix("s3://").partition("/")
        if not bucket:
            hints = ["for example: s3://wheels/torch"]
            raise UsageError(f"{place} names no bucket", hints=hints)
        self._root = f"{bucket}/{prefix}".rstrip("/")
        self._files = _file_system()

    @contextmanager
    def exclusive(self, say: Say) -> Iterator[None]:
        """Do nothing: other publishers may work at the same time, and conditional writes separate
        them.
        """
        del say
        yield

    def read(self, path: str) -> tuple[bytes, str] | None:
        """Return the content and its entity tag; read again until both belong together."""
        with self._explained(path):
            while True:
                try:
                    tag = self._info(path)["ETag"]
                    content = bytes(self._files.cat_file(self._key(path)))
                except FileNotFoundError:
                    return None
                if self._info(path)["ETag"] == tag:
                    return content, str(tag)

    def _info(self, path: str) -> dict[str, Any]:
        found: dict[str, Any] = self._files.info(self._key(path), refresh=True)
        return found

    def _key(self, path: str) -> str:
        return f"{self._root}/{path}" if path else self._root

    def write(self, path: str, content: bytes) -> None:
        with self._explained(path):
            self._files.pipe_file(self._key(path), content, **_headers(path))

    def write_expected(self, path: str, content: bytes, expected: str | None) -> None:
        condition = {"IfNoneMatch": "*"} if expected is None else {"IfMatch": expected}
        with self._explained(path):
            self._files.pipe_file(self._key(path), content, **_headers(path), **condition)

    def upload(self, path: str, source: Path) -> None:
        with self._explained(path), stage(f"uploading {source.name}"):
            self._files.put_file(str(source), self._key(path))

    def has(self, path: str, size: int) -> bool:
        with self._explained(path):
            try:
                return bool(self._info(path)["size"] == size)
            except FileNotFoundError:
                return False

    def delete(self, path: str) -> None:
        with self._explained(path):
            try:
                self._files.rm_file(self._key(path))
            except FileNotFoundError:
                return

    def below(self, prefix: str) -> list[tuple[str, int]]:
        return [(path, row["size"]) for path, row in self._found(prefix)]

    def abandoned(self, prefix: str) -> list[tuple[str, int]]:
        """Return old files: a running publisher has written its files just now."""
        limit = datetime.now(UTC) - _ABANDONED_AFTER
        return [
            (path, row["size"])
            for path, row in self._found(prefix)
            if row.get("LastModified", limit) < limit
        ]

    def _found(self, prefix: str) -> list[tuple[str, dict[str, Any]]]:
        with self._explained(prefix):
            try:
                rows = self._files.find(
                    self._key(prefix).rstrip("/"), detail=True, refresh=True
                ).values()
            except FileNotFoundError:
                return []
        return [(row["name"].removeprefix(f"{self._root}/"), row) for row in rows]

    @contextmanager
    def _explained(self, path: str) -> Iterator[None]:
        """Turn errors of the store into those of the user."""
        from botocore.exceptions import BotoCoreError, ClientError

        try:
            yield
        except FileNotFoundError as error:
            raise UsageError(f"there is no bucket for {self.name}: {error}") from error
        except (ClientError, OSError) as error:
            code = _code(error)
            if code in _CONFLICT:
                raise ConflictError(
                    f"{self.name}/{path} was changed by another publisher"
                ) from None
            raise MissingError(
                f"{self.name}/{path}: {error}",
                hints=["AWS_ENDPOINT_URL names the store, AWS_ACCESS_KEY_ID the account"],
            ) from error
        except BotoCoreError as error:
            hints = ["AWS_ENDPOINT_URL names the store, AWS_ACCESS_KEY_ID the account"]
            raise MissingError(f"cannot reach {self.name}: {error}", hints=hints) from error


def _file_system() -> Any:
    try:
        import s3fs
    except ImportError:
        hints = [own_install("s3fs")]
        raise MissingError(
            "s3fs, which is needed for object stores, is not installed", hints=hints
        ) from None
    return s3fs.S3FileSystem(skip_instance_cache=True, use_listings_cache=False)


def _headers(path: str) -> dict[str, str]:
    """Return the headers: the content type, and no caching of pages."""
    suffix = path[path.rfind(".") :]
    if suffix not in _TYPES:
        return {}
    return {"ContentType": _TYPES[suffix], "CacheControl": "no-cache"}


def _code(error: BaseException | None) -> str:
    """Return the store's own name for an error, which s3fs wraps."""
    while error is not None:
        response = getattr(error, "response", None)
        if response:
            return str(response.get("Error", {}).get("Code", ""))
        error = error.__cause__
    return ""

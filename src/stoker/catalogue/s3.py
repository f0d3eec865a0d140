"""A catalogue in an S3-compatible object store, through s3fs (`stoker[s3]`).

There is no lock. `catalogue.json` is written with a condition (If-Match, If-None-Match), so of two
publishers the slower one sees the change of the other and repeats its own. The store must support
conditional writes, as AWS S3, MinIO, Ceph and Cloudflare R2 do. Address and credentials are those
of the AWS tools: AWS_ENDPOINT_URL, AWS_ACCESS_KEY_ID, AWS_PROFILE and so on.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from stoker.catalogue.store import ConflictError
from stoker.machine.installers import own_install
from stoker.model.errors import MissingError, UsageError
from stoker.outside.long_work import Say, stage

_CONFLICT = ("PreconditionFailed", "ConditionalRequestConflict")
_ABANDONED_AFTER = timedelta(hours=1)  # a change of pages takes seconds
_HINTS = ("AWS_ENDPOINT_URL names the store, AWS_ACCESS_KEY_ID the account",)
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
            raise MissingError(f"{self.name}/{path}: {error}", hints=_HINTS) from error
        except BotoCoreError as error:
            raise MissingError(f"cannot reach {self.name}: {error}", hints=_HINTS) from error


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

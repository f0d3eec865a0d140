"""The content of a new or changed member: its size is known, its bytes are read when written."""

import os
import stat
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from stoker.model.errors import ArtifactError, StorageError
from stoker.model.value import Value

SMALL = 64 << 20  # bytes of a member that may be read at once; libraries are streamed
_CHUNK = 1 << 20


class Content(Value, frozen=True, kw_only=True):
    """Exactly ``size`` bytes; each call of ``chunks`` starts again.

    Without a ``mode``, a member keeps its permissions, and a new one gets the default.
    """

    size: int
    chunks: Callable[[], Iterable[bytes]]
    mode: int | None = None

    @classmethod
    def of_bytes(cls, data: bytes, *, mode: int | None = None) -> "Content":
        return cls(size=len(data), chunks=lambda: (data,), mode=mode)

    @classmethod
    def of_file(cls, path: Path, *, mode: int | None = None) -> "Content":
        """Return the content of a regular file, which must not change until it is written."""
        return cls(size=regular_file(path).st_size, chunks=lambda: _read(path), mode=mode)


def regular_file(path: Path) -> os.stat_result:
    """Return the status of a file, or raise an error if it may not be added to a wheel."""
    try:
        status = path.lstat()
    except OSError as error:
        raise StorageError(f"cannot read {path}: {error.strerror}") from error
    if not stat.S_ISREG(status.st_mode):
        raise ArtifactError(
            "not a regular file, so it cannot be added to a wheel",
            file=str(path),
            hints=["replace the link with a copy"],
        )
    return status


def _read(path: Path) -> Iterator[bytes]:
    try:
        with path.open("rb", buffering=0) as stream:
            while chunk := stream.read(_CHUNK):
                yield chunk
    except OSError as error:
        raise StorageError(f"cannot read {path}: {error.strerror}") from error

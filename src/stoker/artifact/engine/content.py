"""Where the bytes of a new or changed member come from: of known size, produced when written."""

import os
import stat
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from stoker.model.errors import ArtifactError, StorageError
from stoker.model.value import Value

SMALL = 64 << 20  # what may be read at once; a library is streamed
_CHUNK = 1 << 20


class Content(Value, frozen=True, kw_only=True):
    """Exactly ``size`` bytes; ``chunks`` starts over at each call.

    Without a ``mode`` a member keeps the permissions it had, and a new one gets the usual ones.
    """

    size: int
    chunks: Callable[[], Iterable[bytes]]
    mode: int | None = None

    @classmethod
    def of_bytes(cls, data: bytes, *, mode: int | None = None) -> "Content":
        return cls(size=len(data), chunks=lambda: (data,), mode=mode)

    @classmethod
    def of_file(cls, path: Path, *, mode: int | None = None) -> "Content":
        """A regular file, which must not change until it is written."""
        return cls(size=regular_file(path).st_size, chunks=lambda: _read(path), mode=mode)


def regular_file(path: Path) -> os.stat_result:
    """The status of a file that may go into a wheel."""
    try:
        status = path.lstat()
    except OSError as error:
        raise StorageError(f"cannot read {path}: {error.strerror}") from error
    if not stat.S_ISREG(status.st_mode):
        raise ArtifactError(
            "not a regular file: a wheel holds nothing else",
            file=str(path),
            hints=["put a copy in the place of a link"],
        )
    return status


def _read(path: Path) -> Iterator[bytes]:
    try:
        with path.open("rb", buffering=0) as stream:
            while chunk := stream.read(_CHUNK):
                yield chunk
    except OSError as error:
        raise StorageError(f"cannot read {path}: {error.strerror}") from error

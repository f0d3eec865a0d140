"""Reads bytes at any offset of a file or of a part of a file.

It uses ``pread`` and no memory map, because mapped pages of a large library would count as memory
of the process.
"""

import os
import stat
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from stoker.model.errors import ArtifactError, StorageError, unreadable

_CHUNK = 1 << 20


class Reader(ABC):
    """Bytes of known size. A read returns exactly the requested bytes, or raises an error."""

    def __init__(self, *, size: int, file: str, member: str | None = None):
        self.size = size
        self.file = file
        self.member = member

    @property
    def name(self) -> str:
        return self.member or self.file

    def read(self, offset: int, length: int) -> bytes:
        if offset < 0 or length < 0 or offset + length > self.size:
            message = f"{length} bytes are expected here, beyond the end at byte {self.size}"
            raise self.error(message, offset)
        return self._read(offset, length) if length else b""

    def read_at(self, offset: int, length: int) -> bytes:
        """Read like ``read``, but only up to the end."""
        return self.read(min(offset, self.size), min(length, max(0, self.size - offset)))

    def chunks(self, offset: int, length: int) -> Iterator[bytes]:
        """Yield a range of any length in parts."""
        for start in range(offset, offset + length, _CHUNK):
            yield self.read(start, min(_CHUNK, offset + length - start))

    def part(self, *, start: int, size: int, member: str) -> "Reader":
        """Return a part of this file with its own name."""
        return _Part(self, start=start, size=size, member=member)

    def error(self, message: str, offset: int | None = None) -> ArtifactError:
        return ArtifactError(message, file=self.file, member=self.member, offset=offset)

    @abstractmethod
    def _read(self, offset: int, length: int) -> bytes:
        """Read a range that lies within the size."""


class _Part(Reader):
    """A range of another reader, with the name of the member that it is."""

    def __init__(self, whole: Reader, *, start: int, size: int, member: str):
        super().__init__(size=size, file=whole.file, member=member)
        self._whole = whole
        self._start = start

    def _read(self, offset: int, length: int) -> bytes:
        return self._whole.read(self._start + offset, length)


class FileReader(Reader):
    """An open file."""

    def __init__(self, handle: int, *, size: int, file: str):
        super().__init__(size=size, file=file)
        self._handle = handle

    def _read(self, offset: int, length: int) -> bytes:
        try:
            data = os.pread(self._handle, length, offset)
        except OSError as error:
            raise StorageError(f"cannot read {self.file}: {error.strerror}") from error
        if len(data) < length:  # the file shrank, or the read is larger than 2 GiB
            raise self.error(f"only {len(data)} of {length} bytes could be read here", offset)
        return data


@contextmanager
def open_file(path: Path, name: str | None = None) -> Iterator[FileReader]:
    """Open a file for reading; errors use ``name``."""
    try:
        # O_NONBLOCK: opening a named pipe would wait for a writer.
        handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError as error:
        raise unreadable(path, error) from error
    try:
        status = os.fstat(handle)
        if stat.S_ISDIR(status.st_mode):
            raise unreadable(path, IsADirectoryError())
        if not stat.S_ISREG(status.st_mode):
            raise ArtifactError("not a regular file", file=name or str(path))
        yield FileReader(handle, size=status.st_size, file=name or str(path))
    finally:
        os.close(handle)


def printable(text: str) -> str:
    """Return a name from a file as it is, or escaped if it holds control characters or no text."""
    return text if text.isprintable() else text.encode("unicode_escape").decode("ascii")

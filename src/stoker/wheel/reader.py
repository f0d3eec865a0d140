"""Reads bytes at any offset of a file, of a part of it, or of a compressed member of an archive.

It uses ``pread`` and no memory map, because mapped pages of a large library would count as memory
of the process. Nothing is unpacked to disk.
"""

import os
import stat
from abc import ABC, abstractmethod
from bisect import bisect_right
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from zlib_ng import zlib_ng

from stoker.model.errors import ArtifactError, StorageError, unreadable

_CHUNK = 1 << 20

_RAW = -15  # deflate without a header, as zip files hold it
_PIECE = 32 << 10  # deflated bytes handed over at a time: not even a bomb makes 40 MB of them
_STRIDE = 4 << 20  # between bookmarks; each takes some 45 kB, and a read inflates as much


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


class Lookout(Protocol):
    def see(self, data: bytes) -> None:
        """Receive the next bytes, in order."""

    def kept(self, offset: int, length: int) -> bytes | None:
        """Return a range of bytes, or None if they were not kept."""


class _Bookmark(NamedTuple):
    """The state of ``inflate`` at an ``offset`` of the output and after ``consumed`` input."""

    offset: int
    consumed: int
    inflate: Any


class InflatedReader(Reader):
    """A compressed member of an archive.

    One pass inflates everything, checks length and checksum, and stores the state every few MiB. A
    later read starts from the state before it. A lookout receives all bytes of the first pass and
    keeps those that will probably be read, so that most reads are fast. A wrong guess costs time,
    but never gives a wrong result.
    """

    def __init__(self, packed: Reader, *, size: int, crc: int, lookout: Lookout | None = None):
        super().__init__(size=size, file=packed.file, member=packed.member)
        self._packed = packed
        self._lookout = lookout
        self._bookmarks: list[_Bookmark] = []
        self._block = (0, b"")  # the last block between two bookmarks that was read
        self._inflate_all(crc)

    def _inflate_all(self, expected: int) -> None:
        inflate: Any = zlib_ng.decompressobj(_RAW)
        offset = consumed = crc = 0
        while not inflate.eof and consumed < self._packed.size:
            if not self._bookmarks or offset - self._bookmarks[-1].offset >= _STRIDE:
                self._bookmarks.append(_Bookmark(offset, consumed, inflate.copy()))
            data, consumed = self._step(inflate, consumed, offset)
            offset += len(data)
            if offset > self.size:
                raise self.error(f"unpacks to more than the {self.size} bytes it claims", offset)
            crc = zlib_ng.crc32(data, crc)
            if self._lookout:
                self._lookout.see(data)
        if offset != self.size or not inflate.eof or consumed != self._packed.size:
            raise self.error(f"unpacks to {offset} bytes instead of {self.size}", offset)
        if crc != expected:
            raise self.error("the bytes do not match their checksum")

    def _step(self, inflate: Any, consumed: int, offset: int) -> tuple[bytes, int]:
        """Inflate the next piece; return its bytes, and how much input is consumed so far."""
        piece = self._packed.read_at(consumed, _PIECE)
        try:
            data: bytes = inflate.decompress(piece)
        except zlib_ng.error as error:  # type: ignore[misc]  # its stub says: no class
            raise self.error(f"cannot be unpacked: {error}", offset) from None
        return data, consumed + len(piece) - len(inflate.unused_data)

    def _read(self, offset: int, length: int) -> bytes:
        if self._lookout and (kept := self._lookout.kept(offset, length)):
            return kept
        found = bytearray()
        while len(found) < length:
            start, block = self._block_at(offset + len(found))
            within = offset + len(found) - start
            found += block[within : within + length - len(found)]
        return bytes(found)

    def _block_at(self, offset: int) -> tuple[int, bytes]:
        start, block = self._block
        if not start <= offset < start + len(block):
            following = bisect_right(self._bookmarks, offset, key=lambda mark: mark.offset)
            start, consumed, inflate = self._bookmarks[following - 1]
            last = following == len(self._bookmarks)
            end = self.size if last else self._bookmarks[following].offset
            inflate, made = inflate.copy(), bytearray()
            while start + len(made) < end:
                data, consumed = self._step(inflate, consumed, start + len(made))
                if not data and consumed >= self._packed.size:  # changed since it was opened
                    raise self.error("is cut short", start + len(made))
                made += data
            self._block = (start, bytes(made))
        return self._block

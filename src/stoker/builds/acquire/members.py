"""Reads the members of an archive in one pass, whatever its format.

Tells what is damaged or cut off by the standard library's errors; judges no member.
"""

import bz2
import calendar
import gzip
import io
import lzma
import re
import shutil
import stat
import tarfile
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from typing import IO, cast

from stoker.model.errors import CommandError, MissingError
from stoker.model.value import Value
from stoker.outside import process

# What is raised for bytes that are not what they should be; from bz2 also an OSError of no number.
DAMAGE = (
    tarfile.TarError,
    zipfile.BadZipFile,
    zlib.error,
    lzma.LZMAError,
    CommandError,
    EOFError,
    MemoryError,
    NotImplementedError,
    OverflowError,
    RuntimeError,
    ValueError,
)
_MAGIC = {
    b"\x1f\x8b": "gzip",
    b"\xfd7zXZ\0": "xz",
    b"BZh": "bzip2",
    b"\x28\xb5\x2f\xfd": "zstd",
    b"PK\x03\x04": "zip",
    b"PK\x05\x06": "zip",
}
_MOST_HEADER = 1 << 20  # bytes of a name or of attributes, which are read at once
_LONG_NUMBER = re.compile(rb"\d{20}")
_LONG_HEADERS = (
    tarfile.GNUTYPE_LONGNAME,
    tarfile.GNUTYPE_LONGLINK,
    tarfile.XHDTYPE,
    tarfile.XGLTYPE,
    tarfile.SOLARIS_XHDTYPE,
)
_CHUNK = 1 << 20
# 2 January 1980: a wheel, being a zip file, can hold no file from before, in any time zone.
_OLDEST, _NEWEST = 315_619_200.0, 2.0**32


class MemberKind(StrEnum):
    FOLDER = "folder"
    FILE = "file"
    SYMBOLIC = "symbolic link"
    HARD = "hard link"
    OTHER = "device or pipe"


class ArchiveMember(Value, frozen=True, kw_only=True):
    """A member of an archive. The ``content`` of a file can be read until the next member is
    requested.
    """

    name: str
    kind: MemberKind
    size: int = 0
    target: str = ""
    executable: bool = False
    modified: float = _OLDEST
    content: IO[bytes] | None = None


def read_members(archive: Path) -> Iterator[ArchiveMember]:
    with archive.open("rb") as stream:
        head = stream.read(6)
    kind = next((kind for magic, kind in _MAGIC.items() if head.startswith(magic)), "tar")
    return _zip_members(archive) if kind == "zip" else _tar_members(archive, kind)


def _tar_members(archive: Path, compression: str) -> Iterator[ArchiveMember]:
    with _decompressed(archive, compression) as plain:
        stream = _Remembering(plain)
        # The mode with a bar reads from beginning to end and never seeks.
        with tarfile.open(
            fileobj=cast("IO[bytes]", stream), mode="r|", tarinfo=_CarefulInfo, errorlevel=2
        ) as tar:
            for entry in tar:
                yield _tar_member(tar, entry)
            end = tar.offset
        stream.drain()
        # tarfile takes damage behind the first member for the end of the archive.
        if stream.position <= end or stream.last_content > end:
            raise EOFError


@contextmanager
def _decompressed(archive: Path, compression: str) -> Iterator[IO[bytes]]:
    if compression == "zstd":
        with process.piped([_zstd(), "--decompress", "--stdout", "--quiet", archive]) as stream:
            yield stream
        return
    modules = {"gzip": gzip, "xz": lzma, "bzip2": bz2, "tar": io}
    with modules[compression].open(archive, "rb") as stream:
        yield stream


def _zstd() -> str:
    if found := shutil.which("zstd"):
        return found
    raise MissingError(
        "zstd is not installed, so the archive cannot be unpacked",
        hints=["unpack it and name the folder"],
    )


class _Remembering:
    """A stream that records its position and the position of its last byte that is not zero."""

    def __init__(self, stream: IO[bytes]):
        self._stream = stream
        self.position = 0
        self.last_content = 0

    def read(self, count: int) -> bytes:
        chunk = self._stream.read(count)
        if content := chunk.rstrip(b"\0"):
            self.last_content = self.position + len(content)
        self.position += len(chunk)
        return chunk

    def drain(self) -> None:
        """Read to the end, where a decompressor compares checksums."""
        while self.read(_CHUNK):
            pass


class _CarefulInfo(tarfile.TarInfo):
    """Refuses headers that would use an unlimited amount of memory."""

    def _proc_member(self, tar: tarfile.TarFile) -> tarfile.TarInfo:
        """Limit the size of what is read at once; newer releases of Python do not call frombuf()
        for the headers of a file, but all call this with each.
        """
        if self.size < 0 or (self.type in _LONG_HEADERS and self.size > _MOST_HEADER):
            raise ValueError(f"a header of {self.size:,} bytes")
        info: tarfile.TarInfo = super()._proc_member(tar)  # type: ignore[misc]
        return info

    def _proc_pax(self, tar: tarfile.TarFile) -> tarfile.TarInfo:
        """Limit the length of attributes, because the library searches them in quadratic time."""
        stream: IO[bytes] = tar.fileobj  # type: ignore[assignment]
        content = stream.read(-(-self.size // tarfile.BLOCKSIZE) * tarfile.BLOCKSIZE)
        if _LONG_NUMBER.search(content):
            raise ValueError("attributes with a number of twenty digits")
        tar.fileobj = _Ahead(content, stream)  # type: ignore[assignment]
        try:
            info: tarfile.TarInfo = super()._proc_pax(tar)  # type: ignore[misc]
        finally:
            tar.fileobj = stream
        return info


class _Ahead:
    """A stream of which a part was already read; that part comes first, in one piece."""

    def __init__(self, content: bytes, stream: IO[bytes]):
        self._content: bytes | None = content
        self._stream = stream

    def read(self, count: int) -> bytes:
        if self._content is None:
            return self._stream.read(count)
        content, self._content = self._content, None
        return content

    def tell(self) -> int:
        return self._stream.tell()

    def seek(self, position: int) -> int:
        return self._stream.seek(position)


def _tar_member(tar: tarfile.TarFile, entry: tarfile.TarInfo) -> ArchiveMember:
    kinds = {
        tarfile.DIRTYPE: MemberKind.FOLDER,
        tarfile.SYMTYPE: MemberKind.SYMBOLIC,
        tarfile.LNKTYPE: MemberKind.HARD,
    }
    kind = MemberKind.FILE if entry.isreg() else kinds.get(entry.type, MemberKind.OTHER)
    return ArchiveMember(
        name=entry.name,
        kind=kind,
        size=entry.size if kind is MemberKind.FILE else 0,
        target=entry.linkname,
        executable=bool(entry.mode & stat.S_IXUSR),
        modified=min(max(_OLDEST, entry.mtime), _NEWEST),
        content=tar.extractfile(entry) if kind is MemberKind.FILE else None,
    )


def _zip_members(archive: Path) -> Iterator[ArchiveMember]:
    with zipfile.ZipFile(archive) as opened:
        for entry in opened.infolist():
            kind = _zip_kind(entry)
            with opened.open(entry) as content:
                linked = kind is MemberKind.SYMBOLIC
                yield ArchiveMember(
                    name=entry.filename,
                    kind=kind,
                    size=entry.file_size,
                    target=content.read(_MOST_HEADER).decode() if linked else "",
                    executable=bool(entry.external_attr >> 16 & stat.S_IXUSR),
                    modified=_zip_time(entry),
                    content=content,
                )


def _zip_kind(entry: zipfile.ZipInfo) -> MemberKind:
    if not entry.filename:
        raise ValueError("a member without a name")
    if entry.is_dir():
        return MemberKind.FOLDER
    kinds = {0: MemberKind.FILE, stat.S_IFREG: MemberKind.FILE, stat.S_IFLNK: MemberKind.SYMBOLIC}
    return kinds.get(stat.S_IFMT(entry.external_attr >> 16), MemberKind.OTHER)


def _zip_time(entry: zipfile.ZipInfo) -> float:
    try:
        return max(_OLDEST, calendar.timegm((*entry.date_time, 0, 0, 0)))
    except ValueError:  # there are writers that leave it at zero
        return _OLDEST

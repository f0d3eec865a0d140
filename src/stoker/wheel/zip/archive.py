"""Opens wheels: the zip archive, its dist-info folder and its RECORD, and the contents of members.

Members are streams, decompressed or as compressed bytes, and can be read by several threads at
once.
"""

import hashlib
import stat
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path

from zlib_ng import zlib_ng

from stoker.model.errors import ArtifactError, StorageErrors, nearest
from stoker.model.value import Value
from stoker.model.value import size as in_words
from stoker.outside.long_work import stage
from stoker.wheel.reader import FileReader, open_file
from stoker.wheel.zip import headers as zip_
from stoker.wheel.zip.directory import Member, ZipLimits, read_directory
from stoker.wheel.zip.record import (
    Mismatch,
    RecordRow,
    is_strong,
    mismatches,
    parse_record,
    written,
)
from stoker.wheel.zip.threads import threads

SMALL = 64 << 20  # bytes of a member that may be read at once; libraries are streamed
_CHUNK = 1 << 20  # bytes that are read from a file, or decompressed, at a time
_BLOCK = 256 << 10  # compressed bytes that are read at a time


class Content(Value, frozen=True, kw_only=True):
    """Exactly ``size`` bytes; each call of ``chunks`` starts again.

    Without a ``mode``, a member keeps its permissions, and a new one gets the default.
    """

    size: int
    chunks: Callable[[], Iterable[bytes]]
    mode: int | None = None

    @classmethod
    def of_bytes(cls, data: bytes) -> "Content":
        return cls(size=len(data), chunks=lambda: (data,))

    @classmethod
    def of_file(cls, path: Path) -> "Content":
        """Return the content of a regular file, which must not change until it is written."""
        with StorageErrors("read", path):
            status = path.lstat()
        if not stat.S_ISREG(status.st_mode):
            raise ArtifactError(
                "not a regular file, so it cannot be added to a wheel",
                file=str(path),
                hints=["replace the link with a copy"],
            )

        def chunks() -> Iterator[bytes]:
            with StorageErrors("read", path), path.open("rb", buffering=0) as stream:
                while chunk := stream.read(_CHUNK):
                    yield chunk

        return cls(size=status.st_size, chunks=chunks)


class Archive:
    """The members of a zip file by name, in file order, without folders."""

    def __init__(self, file: FileReader, limits: ZipLimits):
        self.file = file
        self.path = Path(file.name)
        everything = read_directory(file, limits)
        self.members = {member.name: member for member in everything if not member.is_folder}

    def compressed(self, member: Member) -> Iterator[bytes]:
        """Yield the bytes of a member as they are in the file."""
        position, end = member.data, member.data + member.compressed_size
        while position < end:
            block = self.file.read(position, min(_BLOCK, end - position))
            yield block
            position += len(block)

    def stream(self, member: Member) -> Iterator[bytes]:
        """Yield the content of a member in chunks; raise an error for a wrong size or checksum."""
        blocks = self.compressed(member)
        chunks = blocks if member.method == zip_.STORED else self._inflated(blocks, member)
        size = crc = 0
        for chunk in chunks:
            size += len(chunk)
            if size > member.size:
                raise self.error("the member inflates to more than its declared size", member)
            crc = zlib_ng.crc32(chunk, crc)
            yield chunk
        if size < member.size:
            raise self.error("the member inflates to less than its declared size", member)
        if crc != member.crc:
            raise self.error("the checksum of the content is wrong", member)

    def error(self, problem: str, member: Member, offset: int | None = None) -> ArtifactError:
        place = member.data if offset is None else offset
        return ArtifactError(problem, file=str(self.path), member=member.name, offset=place)

    def _inflated(self, blocks: Iterable[bytes], member: Member) -> Iterator[bytes]:
        inflater = zlib_ng.decompressobj(-zlib_ng.MAX_WBITS)
        for block in blocks:
            if inflater.eof:
                raise self.error("bytes after the end of the compressed data", member)
            try:
                chunk = inflater.decompress(block, _CHUNK)
                while chunk:
                    yield chunk
                    chunk = inflater.decompress(inflater.unconsumed_tail, _CHUNK)
            except zlib_ng.error as error:  # type: ignore[misc]  # its stub says: no class
                raise self.error(f"the compressed data is broken ({error})", member) from None
        if not inflater.eof:
            raise self.error("the compressed data is truncated", member)
        if inflater.unused_data:
            raise self.error("bytes after the end of the compressed data", member)


class Wheel:
    """An open wheel, with its members by name, in file order."""

    def __init__(self, archive: Archive):
        self.archive = archive
        self.path = archive.path
        self.members = archive.members
        self.dist_info = dist_info_of(self.members, self.path)

    def member(self, name: str) -> Member:
        if name in self.members:
            return self.members[name]
        hints = [f"did you mean {other}?" for other in nearest(name, self.members, count=1)]
        raise ArtifactError(
            "the wheel has no such member", file=str(self.path), member=name, hints=hints
        )

    def stream(self, name: str) -> Iterator[bytes]:
        """Yield the content of a member in chunks, and check its declared size and checksum."""
        return self.archive.stream(self.member(name))

    def read(self, name: str) -> bytes:
        """Return the whole content of a small member, such as one of dist-info."""
        member = self.member(name)
        if member.size > SMALL:
            raise self.archive.error(f"{in_words(member.size)} is too large here", member)
        return b"".join(self.archive.stream(member))

    def content(self, name: str) -> Content:
        """Return the content of a member, for use in another wheel."""
        member = self.member(name)
        return Content(size=member.size, chunks=lambda: self.archive.stream(member))

    @cached_property
    def record(self) -> dict[str, RecordRow]:
        member = self.member(f"{self.dist_info}/RECORD")
        try:
            return parse_record(self.read(member.name), most=1000 + 2 * len(self.members))
        except ValueError as error:
            raise self.archive.error(str(error), member) from None

    def mismatches(self) -> Iterator[Mismatch]:
        """Yield the differences between RECORD and the wheel that need no content."""
        return mismatches(self.record, self.members.values(), self.dist_info)

    def wrong_hashes(self, *, workers: int | None = None) -> Iterator[Mismatch]:
        """Yield the members whose content differs from their hash in RECORD."""
        listed = [
            (member, row.digest)
            for name, member in self.members.items()
            if (row := self.record.get(name)) and is_strong(row.digest)
        ]
        listed.sort(key=lambda one: -one[0].size)  # the largest first, to keep all threads busy

        def is_wrong(one: tuple[Member, str]) -> bool:
            member, told = one
            digest = hashlib.new(told.partition("=")[0])
            for chunk in self.archive.stream(member):
                digest.update(chunk)
                advance(len(chunk))
            return written(digest.name, digest.digest()) != told

        title, total = "comparing files with RECORD", sum(member.size for member, _ in listed)
        with stage(title, total) as advance, ThreadPoolExecutor(workers or threads()) as pool:
            for (member, _), wrong in zip(listed, pool.map(is_wrong, listed), strict=True):
                if wrong:
                    yield Mismatch(member=member.name, problem="the hash in RECORD is wrong")


def dist_info_of(names: Iterable[str], path: Path) -> str:
    folders = {name.partition("/")[0] for name in names if "/" in name}
    found = sorted(folder for folder in folders if folder.endswith(".dist-info"))
    if len(found) != 1:
        what = " and ".join(found) if found else "no .dist-info folder"
        raise ArtifactError(f"not a valid wheel: it has {what}", file=str(path))
    return found[0]


@contextmanager
def open_wheel(path: Path, limits: ZipLimits | None = None) -> Iterator[Wheel]:
    """Open a wheel and check everything except the contents: names, headers, layout."""
    with open_file(path) as file:
        yield Wheel(Archive(file, limits or ZipLimits()))

"""Reads the members of a zip file as streams, decompressed or as compressed bytes.

It is safe to use from several threads at once.
"""

from collections.abc import Iterable, Iterator
from pathlib import Path

from zlib_ng import zlib_ng

from stoker.artifact.engine import zip_records as zip_
from stoker.artifact.engine.directory import Limits, Member, read_directory
from stoker.artifact.reader import FileReader
from stoker.model.errors import ArtifactError

_READ = 256 << 10
_CHUNK = 1 << 20  # bytes that are decompressed at a time


class Archive:
    """The members of a zip file by name, in file order, without folders."""

    def __init__(self, file: FileReader, limits: Limits):
        self._file = file
        self.path = Path(file.name)
        everything = read_directory(file, limits)
        self.members = {member.name: member for member in everything if not member.is_folder}

    def compressed(self, member: Member) -> Iterator[bytes]:
        """Yield the bytes of a member as they are in the file."""
        position, end = member.data, member.data + member.compressed_size
        while position < end:
            block = self._file.read(position, min(_READ, end - position))
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

"""Writes the members of a wheel as a zip file in one pass, with reproducible bytes.

This thread reads and hashes, all cores compress, and only a limited number of chunks is in memory,
whatever the size of a member. The result depends only on the content, because chunks have a fixed
size. Each chunk is primed with the end of the one before, so that splitting hardly affects the
compression. Headers with unknown sizes are completed at the end.
"""

import hashlib
import os
import stat
import time
from collections.abc import Collection, Iterable, Iterator
from contextlib import closing
from itertools import chain
from pathlib import Path
from typing import BinaryIO, NamedTuple

from zlib_ng import zlib_ng

from stoker.model.errors import ArtifactError, UsageError
from stoker.model.value import Value
from stoker.model.value import size as in_words
from stoker.outside.files import file_made_whole
from stoker.outside.long_work import stage
from stoker.wheel.zip import headers as zip_
from stoker.wheel.zip.archive import SMALL, Archive, Content
from stoker.wheel.zip.directory import Member
from stoker.wheel.zip.record import RecordRow, render_record, written
from stoker.wheel.zip.threads import map_in_order, threads

_UNKNOWN = zip_.Sizes(0, 0, 0)
CHUNK = 1 << 20
_WINDOW = 32 << 10  # how far back deflate can refer
_LEVEL = 6


class CopiedMember(Value, frozen=True, kw_only=True):
    """A member whose compressed bytes are copied unchanged, with its row of RECORD."""

    archive: Archive
    member: Member
    row: RecordRow


class OutputMember(Value, frozen=True, kw_only=True):
    """``row`` is what RECORD says of a content that is not copied; writing checks it."""

    name: str
    source: Content | CopiedMember
    mode: int = 0o644
    row: RecordRow | None = None

    @property
    def size(self) -> int:
        return self.source.size if isinstance(self.source, Content) else self.source.member.size

    def read(self) -> bytes:
        """Return the whole content of a small member."""
        if self.size > SMALL:
            raise ArtifactError(f"{in_words(self.size)} is too large here", member=self.name)
        if isinstance(self.source, Content):
            return b"".join(self.source.chunks())
        return b"".join(self.source.archive.stream(self.source.member))


class ZipOutput:
    """``moment`` is the date and time of every member in DOS format."""

    def __init__(self, stream: BinaryIO, moment: int):
        self._stream = stream
        self._moment = moment
        self._position = 0
        self._start = self._data = 0  # of the member being written
        self._directory: list[bytes] = []
        self._completed: list[tuple[int, bytes]] = []

    def keep(self, entry: OutputMember, kept: CopiedMember) -> None:
        """Copy a member as compressed bytes."""
        member = kept.member
        sizes = zip_.Sizes(member.crc, member.compressed_size, member.size)
        header = self._header(entry, sizes, member.method)
        self._open(header)
        for block in kept.archive.compressed(member):
            self.extend(block)
        self._list(entry, header)

    def begin(self, entry: OutputMember) -> None:
        self._open(self._header(entry, _UNKNOWN, zip_.DEFLATED))

    def extend(self, data: bytes) -> None:
        self._stream.write(data)
        self._position += len(data)

    def finish(self, entry: OutputMember, crc: int) -> None:
        sizes = zip_.Sizes(crc, self._position - self._data, entry.size)
        header = self._header(entry, sizes, zip_.DEFLATED)
        self._completed.append((self._start, zip_.pack_local(header)))
        self._list(entry, header)

    def close(self) -> None:
        start = self._position
        for entry in self._directory:
            self.extend(entry)
        self.extend(zip_.pack_end(zip_.End(len(self._directory), self._position - start, start)))
        self._stream.flush()
        for offset, header in self._completed:
            os.pwrite(self._stream.fileno(), header, offset)

    def _open(self, header: zip_.MemberHeader) -> None:
        self._start = self._position
        self.extend(zip_.pack_local(header))
        self._data = self._position

    def _header(self, entry: OutputMember, sizes: zip_.Sizes, method: int) -> zip_.MemberHeader:
        # The header format is chosen before the compressed size is known; it may exceed the size.
        wide = zip_.is_large(max(sizes.compressed, entry.size + (entry.size >> 10)))
        return zip_.MemberHeader(entry.name.encode(), method, self._moment, sizes, wide)

    def _list(self, entry: OutputMember, header: zip_.MemberHeader) -> None:
        mode = stat.S_IFREG | entry.mode
        self._directory.append(zip_.pack_entry(header, mode=mode, offset=self._start))


class Chunk(NamedTuple):
    """A part of a content. The last part has the ``crc`` of the whole content."""

    data: bytes
    before: bytes
    first: bool
    crc: int | None


def cut_chunks(name: str, content: Content, rows: dict[str, RecordRow]) -> Iterator[Chunk]:
    """Yield the chunks of a member, then add its row to the rows of RECORD."""
    digest = hashlib.sha256()
    size = crc = 0
    before = b""
    for data in _exact(content.chunks()):
        first = size == 0
        size += len(data)
        if size > content.size:
            break
        crc = zlib_ng.crc32(data, crc)
        digest.update(data)
        yield Chunk(data, before, first, crc if size == content.size else None)
        before = data[-_WINDOW:]
    if size != content.size:
        came = "more" if size > content.size else str(size)
        raise ArtifactError(f"{content.size} bytes were announced, {came} came", member=name)
    rows[name] = RecordRow(digest=written("sha256", digest.digest()), size=size)


def _exact(pieces: Iterable[bytes]) -> Iterator[bytes]:
    """Yield the same bytes in parts of one size; the last is shorter, and empty for no bytes."""
    part = bytearray()
    whole = 0
    for piece in pieces:
        view = memoryview(piece)
        while view:
            room = CHUNK - len(part)
            part += view[:room]
            view = view[room:]
            if len(part) == CHUNK:
                yield bytes(part)
                part.clear()
                whole += 1
    if part or not whole:
        yield bytes(part)


def deflated(chunk: Chunk) -> bytes:
    settings = (_LEVEL, zlib_ng.DEFLATED, -zlib_ng.MAX_WBITS, zlib_ng.DEF_MEM_LEVEL)
    if chunk.before:
        deflater = zlib_ng.compressobj(*settings, zdict=chunk.before)
    else:
        deflater = zlib_ng.compressobj(*settings)
    # A sync flush ends a part at a byte boundary, so that parts can be concatenated.
    end = zlib_ng.Z_SYNC_FLUSH if chunk.crc is None else zlib_ng.Z_FINISH
    return deflater.compress(chunk.data) + deflater.flush(end)


Task = tuple[OutputMember, Chunk | CopiedMember]


def write_members(
    entries: Collection[OutputMember], record_name: str, target: Path, workers: int | None
) -> None:
    """Write all members in the given order, then RECORD. ``target`` appears when complete."""
    moment = _moment()
    with file_made_whole(target) as stream:
        output = ZipOutput(stream, moment)
        batches = _batches(_tasks(entries, record_name))
        done = map_in_order(_deflate, batches, workers or threads())
        total = sum(entry.size for entry in entries)
        with closing(done), stage("writing the wheel", total) as advance:
            for (entry, part), block in chain.from_iterable(done):
                if isinstance(part, CopiedMember):
                    output.keep(entry, part)
                    advance(entry.size)
                else:
                    if part.first:
                        output.begin(entry)
                    output.extend(block)
                    if part.crc is not None:
                        output.finish(entry, part.crc)
                    advance(len(part.data))
        output.close()


def _moment() -> int:
    """Return the time of all members in DOS format: SOURCE_DATE_EPOCH, or the earliest."""
    text = os.environ.get("SOURCE_DATE_EPOCH") or "0"
    try:
        year, month, day, hour, minute, second = time.gmtime(int(text))[:6]
    except (ValueError, OverflowError, OSError):
        raise UsageError(
            f"SOURCE_DATE_EPOCH is not a time: {text!r}", hints=["set it to seconds since 1970"]
        ) from None
    if not 1980 <= year < 2108:  # the range of a zip file
        year, month, day, hour, minute, second = 1980, 1, 1, 0, 0, 0
    date = (year - 1980) << 9 | month << 5 | day
    return date << 16 | hour << 11 | minute << 5 | second // 2


def _tasks(entries: Iterable[OutputMember], record_name: str) -> Iterator[Task]:
    rows: dict[str, RecordRow] = {}
    for entry in entries:
        if isinstance(entry.source, CopiedMember):
            rows[entry.name] = entry.source.row
            yield entry, entry.source
        else:
            for chunk in cut_chunks(entry.name, entry.source, rows):
                yield entry, chunk
            # RECORD may leave out sizes.
            if entry.row and entry.row.digest != rows[entry.name].digest:
                raise ArtifactError("its content is not what RECORD says", member=entry.name)
    rows[record_name] = RecordRow()
    listing = Content.of_bytes(render_record(rows))
    for chunk in cut_chunks(record_name, listing, {}):
        yield OutputMember(name=record_name, source=listing), chunk


def _batches(tasks: Iterable[Task]) -> Iterator[list[Task]]:
    """Group small members: passing a task to a thread costs more than compressing a small file."""
    batch: list[Task] = []
    size = 0
    for entry, part in tasks:
        batch.append((entry, part))
        size += 0 if isinstance(part, CopiedMember) else len(part.data)
        if size >= CHUNK:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch


def _deflate(batch: list[Task]) -> list[tuple[Task, bytes]]:
    return [
        ((entry, part), b"" if isinstance(part, CopiedMember) else deflated(part))
        for entry, part in batch
    ]

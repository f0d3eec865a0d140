"""Writes a wheel in one pass: chunks are deflated on all cores and written in order.

The bytes depend on the members alone, not on the number of cores: chunks have a fixed size, and
each is primed with the end of the one before, so that cutting costs next to nothing. Memory is
bounded by the chunks under way. Sizes and checksums are put into the headers at the end.
"""

import hashlib
import os
import stat
import time
from collections.abc import Generator, Iterable, Iterator
from contextlib import closing
from itertools import chain
from pathlib import Path
from typing import BinaryIO, NamedTuple

from zlib_ng import zlib_ng

from stoker.artifact.engine import parallel, record
from stoker.artifact.engine import zip_records as zip_
from stoker.artifact.engine.content import Content
from stoker.artifact.engine.entries import Entry, Kept
from stoker.model.errors import ArtifactError, UsageError
from stoker.outside.files import file_made_whole

_CHUNK = 1 << 20
_WINDOW = 32 << 10
_LEVEL = 6
_UNKNOWN = zip_.Sizes(0, 0, 0)


class _Chunk(NamedTuple):
    """A part of a changed member. ``crc`` is that of the whole, told with the last part."""

    entry: Entry
    data: bytes
    before: bytes
    first: bool
    crc: int | None


class _Keep(NamedTuple):
    entry: Entry
    kept: Kept


_Task = _Chunk | _Keep


def write(entries: Iterable[Entry], record_name: str, target: Path, workers: int | None) -> None:
    """All entries in the order given, then RECORD. ``target`` appears when it is complete."""
    moment = _moment()
    with file_made_whole(target) as stream:
        output = _Output(stream, moment)
        batches = _batches(_tasks(entries, record_name))
        deflated = parallel.in_order(_deflate, batches, workers or parallel.threads())
        with closing(deflated):
            for task, block in chain.from_iterable(deflated):
                output.take(task, block)
        output.close()


def _moment() -> int:
    """Every member's date and time, as DOS writes them: SOURCE_DATE_EPOCH, or the earliest."""
    text = os.environ.get("SOURCE_DATE_EPOCH") or "0"
    try:
        year, month, day, hour, minute, second = time.gmtime(int(text))[:6]
    except (ValueError, OverflowError, OSError):
        raise UsageError(f"SOURCE_DATE_EPOCH is not a time: {text!r}") from None
    if not 1980 <= year < 2108:  # what a zip file can say
        year, month, day, hour, minute, second = 1980, 1, 1, 0, 0, 0
    date = (year - 1980) << 9 | month << 5 | day
    return date << 16 | hour << 11 | minute << 5 | second // 2


def _tasks(entries: Iterable[Entry], record_name: str) -> Iterator[_Task]:
    rows: dict[str, record.Row] = {}
    for entry in entries:
        if isinstance(entry.source, Kept):
            rows[entry.name] = entry.source.row
            yield _Keep(entry, entry.source)
        else:
            rows[entry.name] = yield from _chunks(entry, entry.source)
    rows[record_name] = record.Row()
    listing = Content.of_bytes(record.render(rows))
    yield from _chunks(Entry(name=record_name, source=listing), listing)


def _chunks(entry: Entry, content: Content) -> Generator[_Chunk, None, record.Row]:
    """The parts of a member; its row of RECORD is known when all have been taken."""
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
        yield _Chunk(entry, data, before, first, crc if size == content.size else None)
        before = data[-_WINDOW:]
    if size != content.size:
        raise ArtifactError(
            f"{size} bytes or more came where {content.size} were announced", member=entry.name
        )
    return record.Row(digest=record.written("sha256", digest.digest()), size=size)


def _exact(chunks: Iterable[bytes]) -> Iterator[bytes]:
    """The same bytes in parts of one size, the last one shorter; one empty part for nothing."""
    part = bytearray()
    whole = 0
    for chunk in chunks:
        view = memoryview(chunk)
        while view:
            room = _CHUNK - len(part)
            part += view[:room]
            view = view[room:]
            if len(part) == _CHUNK:
                yield bytes(part)
                part.clear()
                whole += 1
    if part or not whole:
        yield bytes(part)


def _batches(tasks: Iterable[_Task]) -> Iterator[list[_Task]]:
    """Small members go together: handing over a task costs more than deflating a small file."""
    batch: list[_Task] = []
    size = 0
    for task in tasks:
        batch.append(task)
        size += len(task.data) if isinstance(task, _Chunk) else 0
        if size >= _CHUNK:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch


def _deflate(batch: list[_Task]) -> list[tuple[_Task, bytes]]:
    return [(task, _deflated(task) if isinstance(task, _Chunk) else b"") for task in batch]


def _deflated(chunk: _Chunk) -> bytes:
    settings = (_LEVEL, zlib_ng.DEFLATED, -zlib_ng.MAX_WBITS, zlib_ng.DEF_MEM_LEVEL)
    if chunk.before:
        deflater = zlib_ng.compressobj(*settings, zdict=chunk.before)
    else:
        deflater = zlib_ng.compressobj(*settings)
    # A sync flush ends the part on a byte, so that the next one can simply follow.
    end = zlib_ng.Z_SYNC_FLUSH if chunk.crc is None else zlib_ng.Z_FINISH
    return deflater.compress(chunk.data) + deflater.flush(end)


class _Output:
    """A zip file being written. A header that had to come before its sizes is mended at the end."""

    def __init__(self, stream: BinaryIO, moment: int):
        self._stream = stream
        self._moment = moment
        self._position = 0
        self._start = self._data = 0  # of the member being written
        self._directory: list[bytes] = []
        self._mended: list[tuple[int, bytes]] = []

    def take(self, task: _Task, block: bytes) -> None:
        if isinstance(task, _Keep):
            self._keep(task)
            return
        if task.first:
            self._begin(self._header(task.entry, _UNKNOWN, zip_.DEFLATED))
        self._write(block)
        if task.crc is not None:
            self._finish(task.entry, task.crc)

    def close(self) -> None:
        start = self._position
        for entry in self._directory:
            self._write(entry)
        self._write(zip_.pack_end(zip_.End(len(self._directory), self._position - start, start)))
        self._stream.flush()
        for offset, header in self._mended:
            os.pwrite(self._stream.fileno(), header, offset)

    def _keep(self, task: _Keep) -> None:
        member = task.kept.member
        sizes = zip_.Sizes(member.crc, member.compressed_size, member.size)
        header = self._header(task.entry, sizes, member.method)
        self._begin(header)
        for block in task.kept.archive.compressed(member):
            self._write(block)
        self._list(task.entry, header)

    def _begin(self, header: zip_.Header) -> None:
        self._start = self._position
        self._write(zip_.pack_local(header))
        self._data = self._position

    def _finish(self, entry: Entry, crc: int) -> None:
        sizes = zip_.Sizes(crc, self._position - self._data, entry.size)
        header = self._header(entry, sizes, zip_.DEFLATED)
        self._mended.append((self._start, zip_.pack_local(header)))
        self._list(entry, header)

    def _header(self, entry: Entry, sizes: zip_.Sizes, method: int) -> zip_.Header:
        # Whether sizes need room is decided before they are known: what does not compress grows.
        wide = zip_.is_large(max(sizes.compressed, entry.size + (entry.size >> 10)))
        return zip_.Header(entry.name.encode(), method, self._moment, sizes, wide)

    def _list(self, entry: Entry, header: zip_.Header) -> None:
        mode = stat.S_IFREG | entry.mode
        self._directory.append(zip_.pack_entry(header, mode=mode, offset=self._start))

    def _write(self, data: bytes) -> None:
        self._stream.write(data)
        self._position += len(data)

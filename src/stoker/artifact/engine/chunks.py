"""Splits new content into chunks that can be compressed in parallel and concatenated.

The result depends only on the content, because chunks have a fixed size. Each chunk is primed with
the end of the one before, so that splitting hardly affects the compression.
"""

import hashlib
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from zlib_ng import zlib_ng

from stoker.artifact.engine.content import Content
from stoker.artifact.engine.record import Row, written
from stoker.model.errors import ArtifactError

CHUNK = 1 << 20
_WINDOW = 32 << 10  # how far back deflate can refer
_LEVEL = 6


class Chunk(NamedTuple):
    """A part of a content. The last part has the ``crc`` of the whole content."""

    data: bytes
    before: bytes
    first: bool
    crc: int | None


def cut(name: str, content: Content, rows: dict[str, Row]) -> Iterator[Chunk]:
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
    rows[name] = Row(digest=written("sha256", digest.digest()), size=size)


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

"""Writes a wheel in one pass: this thread reads and hashes, all cores compress.

Only a limited number of chunks is in memory, whatever the size of a member.
"""

import os
import time
from collections.abc import Iterable, Iterator
from contextlib import closing
from itertools import chain
from pathlib import Path

from stoker.artifact.engine.chunks import CHUNK, Chunk, cut, deflated
from stoker.artifact.engine.content import Content
from stoker.artifact.engine.edit import CopiedMember, OutputMember
from stoker.artifact.engine.output import ZipOutput
from stoker.artifact.engine.record import Row, render
from stoker.model.errors import UsageError
from stoker.outside import process
from stoker.outside.files import file_made_whole

Task = tuple[OutputMember, Chunk | CopiedMember]


def write(
    entries: Iterable[OutputMember], record_name: str, target: Path, workers: int | None
) -> None:
    """Write all members in the given order, then RECORD. ``target`` appears when complete."""
    moment = _moment()
    with file_made_whole(target) as stream:
        output = ZipOutput(stream, moment)
        batches = _batches(_tasks(entries, record_name))
        done = process.in_order(_deflate, batches, workers or process.threads())
        with closing(done):
            for (entry, part), block in chain.from_iterable(done):
                if isinstance(part, CopiedMember):
                    output.keep(entry, part)
                else:
                    _put(output, entry, part, block)
        output.close()


def _put(output: ZipOutput, entry: OutputMember, chunk: Chunk, block: bytes) -> None:
    if chunk.first:
        output.begin(entry)
    output.extend(block)
    if chunk.crc is not None:
        output.finish(entry, chunk.crc)


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
    rows: dict[str, Row] = {}
    for entry in entries:
        if isinstance(entry.source, CopiedMember):
            rows[entry.name] = entry.source.row
            yield entry, entry.source
        else:
            for chunk in cut(entry.name, entry.source, rows):
                yield entry, chunk
    rows[record_name] = Row()
    listing = Content.of_bytes(render(rows))
    for chunk in cut(record_name, listing, {}):
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

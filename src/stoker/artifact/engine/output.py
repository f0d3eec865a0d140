"""Writes a zip file from start to end; headers with unknown sizes are completed at the end."""

import os
import stat
from typing import BinaryIO

from stoker.artifact.engine import zip_records as zip_
from stoker.artifact.engine.edit import CopiedMember, OutputMember

_UNKNOWN = zip_.Sizes(0, 0, 0)


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

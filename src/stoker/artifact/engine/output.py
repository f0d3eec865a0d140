"""A zip file being written front to back. What a header could not know yet is put in at the end."""

import os
import stat
from typing import BinaryIO

from stoker.artifact.engine import zip_records as zip_
from stoker.artifact.engine.edit import CopiedMember, OutputMember

_UNKNOWN = zip_.Sizes(0, 0, 0)


class ZipOutput:
    """``moment`` is the date and time of every member, as DOS writes them."""

    def __init__(self, stream: BinaryIO, moment: int):
        self._stream = stream
        self._moment = moment
        self._position = 0
        self._start = self._data = 0  # of the member being written
        self._directory: list[bytes] = []
        self._mended: list[tuple[int, bytes]] = []

    def keep(self, entry: OutputMember, kept: CopiedMember) -> None:
        """A whole member, as the compressed bytes it is."""
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
        self._mended.append((self._start, zip_.pack_local(header)))
        self._list(entry, header)

    def close(self) -> None:
        start = self._position
        for entry in self._directory:
            self.extend(entry)
        self.extend(zip_.pack_end(zip_.End(len(self._directory), self._position - start, start)))
        self._stream.flush()
        for offset, header in self._mended:
            os.pwrite(self._stream.fileno(), header, offset)

    def _open(self, header: zip_.MemberHeader) -> None:
        self._start = self._position
        self.extend(zip_.pack_local(header))
        self._data = self._position

    def _header(self, entry: OutputMember, sizes: zip_.Sizes, method: int) -> zip_.MemberHeader:
        # Whether sizes need room is decided before they are known: what does not compress grows.
        wide = zip_.is_large(max(sizes.compressed, entry.size + (entry.size >> 10)))
        return zip_.MemberHeader(entry.name.encode(), method, self._moment, sizes, wide)

    def _list(self, entry: OutputMember, header: zip_.MemberHeader) -> None:
        mode = stat.S_IFREG | entry.mode
        self._directory.append(zip_.pack_entry(header, mode=mode, offset=self._start))

"""A part of a file in memory, with checked access to its records and strings."""

import struct

from stoker.artifact.reader import Reader, printable
from stoker.model.errors import ArtifactError

_LONGEST_STRING = 16 << 10
# A bound on the bytes of all strings that are returned: strings may share their ends.
_SHARED, _SHARED_PER_BYTE = 1 << 20, 16


class Table:
    """Positions are relative to its start; errors name the file offset."""

    def __init__(self, reader: Reader, order: str, offset: int, content: bytes):
        self._reader = reader
        self._order = order
        self._offset = offset
        self.content = content
        self._room = _SHARED + _SHARED_PER_BYTE * len(content)

    def record(self, layout: str, position: int) -> tuple[int, ...]:
        try:
            return struct.unpack_from(self._order + layout, self.content, position)
        except struct.error:
            raise self.error("a record is truncated", position) from None

    def string(self, position: int) -> str:
        end = self.content.find(b"\0", position, position + _LONGEST_STRING)
        if end < 0:
            raise self.error("a string without end", position)
        self._room -= end - position
        if self._room < 0:
            raise self.error("too many overlapping strings", position)
        return printable(self.content[position:end].decode(errors="surrogateescape"))

    def slice(self, position: int, length: int) -> bytes:
        if position + length > len(self.content):
            raise self.error("a record is truncated", position)
        return self.content[position : position + length]

    def error(self, message: str, position: int) -> ArtifactError:
        return self._reader.error(message, self._offset + position)

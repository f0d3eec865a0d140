"""Reads a wheel on a server in parts, so that most of it is never downloaded."""

from stoker.model.errors import ArtifactError
from stoker.outside.web import Web, opened, size_of
from stoker.outside.web_connections import WebConnections
from stoker.wheel.reader import Reader

_FIRST, _MOST = 64 << 10, 4 << 20  # bytes of one request; reads in sequence double it


class RemoteReader(Reader):
    """A file on a server that answers range requests. ``downloaded`` counts the bytes received."""

    def __init__(
        self,
        url: str,
        web: Web,
        *,
        size: int | None = None,
        name: str | None = None,
        connections: WebConnections | None = None,
    ):
        found = size_of(url, web, connections) if size is None else size
        if found is None:
            raise ArtifactError("the server does not tell its size", file=name or url)
        super().__init__(size=found, file=name or url)
        self.downloaded = 0
        self._url, self._web, self._connections = url, web, connections
        self._start, self._block, self._ahead = 0, b"", _FIRST

    def _read(self, offset: int, length: int) -> bytes:
        end = self._start + len(self._block)
        if not self._start <= offset or offset + length > end:
            self._ahead = min(_MOST, 2 * self._ahead) if offset == end else _FIRST
            kept = self._block[offset - self._start :] if self._start <= offset < end else b""
            self._fetch(offset, max(length, self._ahead), kept)
        start = offset - self._start
        return self._block[start : start + length]

    def _fetch(self, offset: int, length: int, kept: bytes) -> None:
        """Hold the bytes from an offset on, of which some are there."""
        # The end record lies before the end, and the directory before that: both in one request.
        if self.size - offset < _FIRST:
            offset, kept = max(0, self.size - _FIRST), b""
        first, last = offset + len(kept), min(self.size, offset + length)
        part = (first, last)
        with opened(self._url, self._web, part=part, connections=self._connections) as answer:
            content = answer.whole(last - first)
        self.downloaded += len(content)
        self._start, self._block = offset, kept + content

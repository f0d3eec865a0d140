"""Reads a wheel on a server in parts, so that most of it is never downloaded."""

import os
import tempfile
import time
from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from math import inf
from pathlib import Path
from typing import NamedTuple

from stoker.model.errors import ArtifactError, MissingError, StorageErrors
from stoker.outside.web import Web, opened, size_of
from stoker.wheel.reader import Reader

_LARGEST = 1 << 36  # bytes; the largest wheels have a twentieth
_FIRST, _MOST = 64 << 10, 4 << 20  # bytes of one request; reads in sequence double it


class SpentError(MissingError):
    """So many bytes, or so much time, as were allowed have been used."""


class Allowance:
    """How much may still be received, by all readers together."""

    def __init__(self, most_bytes: float = inf, seconds: float = inf):
        self._left, self._ends = most_bytes, time.monotonic() + seconds

    def take(self, count: int) -> None:
        """Count bytes before they are received; raise SpentError if they are too many."""
        self._left -= count
        if self._left < 0 or time.monotonic() > self._ends:
            raise SpentError("no more is read")


class _Server(NamedTuple):
    url: str
    web: Web
    allowance: Allowance


class RemoteReader(Reader):
    """A file on a server that answers range requests. ``downloaded`` counts the bytes received.

    Libraries are read in several passes, so what was received is kept in a file, ``parts``, and no
    byte is received twice.
    """

    def __init__(self, server: _Server, parts: int, *, size: int, file: str):
        super().__init__(size=size, file=file)
        self._server, self._parts = server, parts
        self._received: list[tuple[int, int]] = []  # ranges in order that do not touch
        self._ahead, self._latest = _FIRST, 0
        self.downloaded = 0

    def _read(self, offset: int, length: int) -> bytes:
        end = offset + length
        while gap := self._first_gap(offset, end):
            begin, needed, until = gap
            self._ahead = min(_MOST, 2 * self._ahead) if needed == self._latest else _FIRST
            # The directory lies before the end: one request for it and its end record.
            first = needed if self.size - needed >= _FIRST else max(begin, self.size - _FIRST)
            self._fetch(first, min(until, max(end, needed + self._ahead)))
        return os.pread(self._parts, length, offset)

    def _first_gap(self, begin: int, end: int) -> tuple[int, int, int] | None:
        """Return the first range of which some is needed and nothing was received: where it begins,
        which byte is needed first, and where it ends.
        """
        following = bisect_right(self._received, (begin, inf))
        before = self._received[following - 1][1] if following else 0
        if max(before, begin) >= end:
            return None
        known = self._received[following : following + 1]
        return before, max(before, begin), known[0][0] if known else self.size

    def _fetch(self, first: int, last: int) -> None:
        """Receive a range of which nothing was received before."""
        url, web, allowance = self._server
        allowance.take(last - first)
        with opened(url, web, part=(first, last)) as answer:
            content = answer.whole(last - first)
        with StorageErrors("keep the received parts of", Path(self.file)):
            os.pwrite(self._parts, content, first)
        self.downloaded += len(content)
        self._latest = last
        at = bisect_left(self._received, (first, last))
        if at < len(self._received) and self._received[at][0] == last:
            last = self._received.pop(at)[1]
        if at and self._received[at - 1][1] == first:
            first = self._received.pop(at - 1)[0]
            at -= 1
        self._received.insert(at, (first, last))


@contextmanager
def open_remote(
    url: str,
    web: Web,
    folder: Path,
    *,
    size: int | None = None,
    name: str | None = None,
    allowance: Allowance | None = None,
) -> Iterator[RemoteReader]:
    """Open a file on a server; ``folder`` takes what is received of it, until it is closed."""
    found = size_of(url, web) if size is None else size
    if found is None:
        raise ArtifactError("the server does not tell its size", file=name or url)
    if found > _LARGEST:
        raise ArtifactError(f"the server says that it has {found} bytes", file=name or url)
    with ExitStack() as stack:
        with StorageErrors("write", folder):
            parts = stack.enter_context(tempfile.TemporaryFile(dir=folder))
        server = _Server(url, web, allowance or Allowance())
        yield RemoteReader(server, parts.fileno(), size=found, file=name or url)

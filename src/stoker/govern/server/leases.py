"""Leases: places for short commands, which launchers take from shared memory without a message.

A build of thousands of small C files would otherwise wait for this process more than for its
compilers. Commands that differ only in the names of their files are a family, whose number the
launcher computes. A family whose steps were all short and small is offered leases while no
other step waits; such a step that outgrows its lease is reported like any other, and then
governed. What the page contains is in launcher/page.c.

The kernel holds the truth: a place is taken as long as its byte of the file is locked. A report is
what a launcher would have sent over its socket, and is checked in the same way.
"""

import fcntl
import mmap
import os
import select
import struct
import time
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from stoker.govern.protocol import MOST_REPORTED, PAGE_ROOM, PAGE_VERSION
from stoker.model.govern import LEASE_BYTES, LEASE_S
from stoker.outside.deleting import remove_file

_LEAST_CLAIM = 64 << 20  # bytes that a step by a lease may use at least
_ENOUGH = 8  # steps of a family that must have ended before it gets leases

_PAGE, _PIPE = ".page", ".reports"  # appended to the name of the socket
_HEADER = struct.Struct("@IIqI4x128s")
_SIZE = _HEADER.size + 8 * PAGE_ROOM
_LOCK = struct.Struct("@hhqqi4x")  # struct flock
_GET_LOCK = getattr(fcntl, "F_OFD_GETLK", 36)


def make_files(socket: str) -> None:
    """Make both files beside the socket of a governor that is not there yet, so that its first
    launchers have them. Without them every launcher asks.
    """
    remove_files(socket)
    with suppress(OSError):
        os.mkfifo(f"{socket}{_PIPE}", 0o600)
        flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
        page = os.open(f"{socket}{_PAGE}", flags, 0o600)
        os.write(page, _HEADER.pack(PAGE_VERSION, 0, 0, 0, b"").ljust(_SIZE, b"\0"))
        os.close(page)


def remove_files(socket: str) -> None:
    for suffix in (_PAGE, _PIPE):
        with suppress(OSError):
            remove_file(Path(f"{socket}{suffix}"))


@dataclass(slots=True)
class _Family:
    ended: int = 0  # steps
    largest: int = 0  # peak of them
    enough_at: float = 0.0  # when enough had ended
    is_excluded: bool = False


class Leases:
    """The page and the pipe of reports beside the governor's socket."""

    def __init__(self, socket: str):
        """Open the files. If that fails, no launcher gets a lease."""
        self._socket = socket
        self._rest = b""
        self._families: dict[int, _Family] = {}
        self.places = 0  # that launchers may take
        self.all_cpus = len(os.sched_getaffinity(0))
        self.claim = _LEAST_CLAIM  # bytes that count for each
        self._file = self._pipe = -1
        with suppress(OSError):
            # Open for writing too, so that it never seems to have ended.
            self._pipe = os.open(f"{socket}{_PIPE}", os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
            with suppress(OSError, AttributeError):
                fcntl.fcntl(self._pipe, fcntl.F_SETPIPE_SZ, MOST_REPORTED)
            self._file = os.open(f"{socket}{_PAGE}", os.O_RDWR | os.O_CLOEXEC)
            # Words are written as a whole, because launchers read them at any time.
            view = memoryview(mmap.mmap(self._file, _SIZE))
            self._words, self._beats = view[:8].cast("I"), view[8:16].cast("q")
            self._table = view[_HEADER.size :].cast("Q")

    def close(self) -> None:
        """Remove both files. Launchers that have them open find no places any more."""
        self.grant(0)
        for descriptor in (self._file, self._pipe):
            if descriptor >= 0:
                os.close(descriptor)
        self._file = self._pipe = -1
        remove_files(self._socket)

    def note(
        self,
        family: int,
        peak: int,
        seconds: float,
        now: float = 0.0,
        running: Iterable[float] = (),
    ) -> None:
        """Take in a step that has ended; ``running`` is when those of its family started that have
        not. The short ones of a family end first, so there are leases only when all that started
        beside them have ended too.
        """
        if (known := self._known(family)) is None:
            return
        known.largest = max(known.largest, peak)
        if peak > LEASE_BYTES or seconds > LEASE_S:
            self.exclude(family)
        if known.is_excluded:
            return
        known.ended += 1
        if known.ended == _ENOUGH:
            known.enough_at = now
        if known.ended >= _ENOUGH:
            if not self.offers(family) and min(running, default=now) >= known.enough_at:
                self._table[family % PAGE_ROOM] = family
            self.claim = max(self.claim, min(LEASE_BYTES, 2 * peak))

    def exclude(self, family: int) -> None:
        """Offer a family no leases from now on, because a step of it is large or long."""
        if known := self._known(family):
            known.is_excluded = True
        if self.offers(family):
            self._table[family % PAGE_ROOM] = 0

    def _known(self, family: int) -> _Family | None:
        """Return what is known of a family; None if it can have no leases."""
        known = self._families.get(family)
        if known is None and family and self._file >= 0 and len(self._families) < PAGE_ROOM:
            known = self._families[family] = _Family()
        return known

    def offers(self, family: int) -> bool:
        """Return whether steps of a family get leases."""
        return self._file >= 0 and family > 0 and self._table[family % PAGE_ROOM] == family

    def largest(self, family: int) -> int:
        """Return the most memory that a step of a family has used."""
        known = self._families.get(family)
        return known.largest if known else 0

    def grant(self, places: int) -> None:
        """Let launchers take so many places from now on; they keep those that they have."""
        if self._file < 0:
            return
        self._beats[0] = time.monotonic_ns() // 1000
        places = min(places, PAGE_ROOM - 1)
        if places != self.places:
            self.places = self._words[1] = places

    def taken(self) -> int:
        """Return the number of places that launchers have."""
        return self._locked(0, PAGE_ROOM) if self._file >= 0 else 0

    def _locked(self, start: int, stop: int) -> int:
        """Return how many bytes of a part of the file are locked, each by itself. The kernel names
        any of them first.
        """
        if start >= stop:
            return 0
        question = _LOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, start, stop - start, 0)
        kind, _, found, _, _ = _LOCK.unpack(fcntl.fcntl(self._file, _GET_LOCK, question))
        if kind == fcntl.F_UNLCK or not start <= found < stop:
            return 0
        return 1 + self._locked(start, found) + self._locked(found + 1, stop)

    def reports(self) -> Iterator[list[bytes]]:
        """Yield the lines of each step that has ended since the last call."""
        lines: list[bytes] = []
        for line in self._lines():
            lines.append(line)
            if line.startswith(b"done\t"):
                yield lines
                lines = []

    def _lines(self) -> list[bytes]:
        received = self._rest
        if self._pipe >= 0:
            with suppress(BlockingIOError):
                received += os.read(self._pipe, MOST_REPORTED)
        *lines, rest = received.split(b"\n")
        # Launchers write whole reports of at most so many bytes; a longer rest is of no launcher.
        self._rest = rest if len(rest) <= select.PIPE_BUF else b""
        return lines

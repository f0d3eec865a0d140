"""Copies what a command writes to our terminal or pipe, while it goes there unchanged.

The command gets a pseudo terminal in place of a terminal, and a pipe in place of a pipe. Its input
and its controlling terminal stay ours, so that keys, job control and questions for passwords work
as without us. Files and closed streams are left alone.
"""

import fcntl
import os
import select
import signal
import stat
import struct
import termios
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

Copy = Callable[[bytes], None]

_STREAMS = (1, 2)
_CHUNK = 1 << 16
_NO_SIZE = struct.pack("HHHH", 0, 0, 0, 0)


class Relay:
    """Reads what a command writes, writes it to our streams and gives a copy to ``copy``.

    ``ends`` are the descriptors that the command gets in place of 1 and 2; ``started`` closes ours.
    ``close`` passes on what is left.
    """

    def __init__(self, copy: Copy):
        self.ends: dict[int, int] = {}
        self._copy = copy
        self._lock = threading.Lock()
        self._terminals: dict[int, int] = {}  # pseudo terminals by our own
        self._threads: list[threading.Thread] = []
        self._stop, self._stopper = os.pipe()
        shared: dict[tuple[int, int], int] = {}
        for stream in _STREAMS:
            with suppress(OSError):  # it may be closed, or there are no pseudo terminals
                state = os.fstat(stream)
                there = (state.st_dev, state.st_ino)
                if (
                    there not in shared
                    and (end := self._end_for(stream, state.st_mode)) is not None
                ):
                    shared[there] = end
                if there in shared:
                    self.ends[stream] = shared[there]

    def started(self) -> None:
        """Close the command's ends and begin to read: the command has its own now."""
        for end in set(self.ends.values()):
            os.close(end)
        for thread in self._threads:
            thread.start()

    def resize(self) -> None:
        """Give the pseudo terminals the size of ours."""
        for ours, theirs in self._terminals.items():
            with suppress(OSError):
                fcntl.ioctl(theirs, termios.TIOCSWINSZ, _size(ours))

    def close(self) -> None:
        """Pass on what the command has written. A server that it left behind is not waited for."""
        os.close(self._stopper)
        for thread in self._threads:
            if thread.ident is None:  # the command could not be started
                thread.start()
            thread.join()
        os.close(self._stop)

    def _end_for(self, stream: int, mode: int) -> int | None:
        if os.isatty(stream):
            source, end = os.openpty()
            _make_raw(end)
            self._terminals[stream] = source
            fcntl.ioctl(source, termios.TIOCSWINSZ, _size(stream))
        elif stat.S_ISFIFO(mode):
            source, end = os.pipe()
        else:
            return None
        self._threads.append(threading.Thread(target=self._pass_on, args=(source, stream)))
        return end

    def _pass_on(self, source: int, target: int) -> None:
        try:
            while self._has_more(source) and (chunk := _read(source)):
                with self._lock:
                    self._copy(chunk)
                _write_all(target, chunk)
        except OSError:
            pass  # our output is closed: the next write of the command fails, as without us
        finally:
            os.close(source)

    def _has_more(self, source: int) -> bool:
        """Wait for something to read; return whether there is, or the command still runs."""
        ready, _, _ = select.select([source, self._stop], [], [])
        return source in ready or bool(select.select([source], [], [], 0)[0])


@contextmanager
def resized_with(relay: Relay) -> Iterator[None]:
    """Keep the size of the pseudo terminals that of ours."""
    before = signal.signal(signal.SIGWINCH, lambda *_: relay.resize())
    try:
        yield
    finally:
        signal.signal(signal.SIGWINCH, before)


def _make_raw(terminal: int) -> None:
    """Let bytes through as they are: our own terminal translates the ends of lines."""
    attributes = termios.tcgetattr(terminal)
    attributes[1] &= ~termios.OPOST
    attributes[3] &= ~termios.ECHO
    termios.tcsetattr(terminal, termios.TCSANOW, attributes)


def _size(terminal: int) -> bytes:
    return fcntl.ioctl(terminal, termios.TIOCGWINSZ, _NO_SIZE)


def _read(source: int) -> bytes:
    """Return what there is; nothing if the other end of a pseudo terminal is closed."""
    try:
        return os.read(source, _CHUNK)
    except OSError:
        return b""


def _write_all(target: int, chunk: bytes) -> None:
    while chunk:
        chunk = chunk[os.write(target, chunk) :]

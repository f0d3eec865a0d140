"""Copies what a command writes to our terminal or pipe, while it goes there unchanged.

The command gets a pseudo terminal in place of a terminal, and a pipe in place of a pipe. Its input
and its controlling terminal stay ours, so that keys, job control and questions for passwords work
as without us. Programs such as ccmake set the modes of the terminal through their output: what they
change there is changed in our terminal too. Programs such as less open the terminal of their output
by its name to read keys: they get ours. Files and closed streams are left alone.
"""

import fcntl
import os
import select
import signal
import stat
import struct
import termios
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

Copy = Callable[[bytes], None]

_STREAMS = (1, 2)
_CHUNK = 1 << 16
_NO_SIZE = struct.pack("HHHH", 0, 0, 0, 0)
_LEAVE_S = 0.1  # that a program which is to stop has to restore the screen
_LOOK_S = 0.25  # how often the modes of a pseudo terminal are compared
# Of termios: input, output, control and local modes, and what is not changed in ours: the pseudo
# terminal is without OPOST because ours has it.
_FLAGS = {0: 0, 1: termios.OPOST, 2: 0, 3: 0}
_CHARACTERS = 6
_OPENED, _CLOSED = 0x20, 0x08 | 0x10  # events of inotify
_EVENT = struct.Struct("iIII")
_KEYS = 0


class Relay:
    """Reads what a command writes, writes it to our streams and gives a copy to ``copy``.

    ``ends`` are the descriptors that the command gets in place of 1 and 2; ``started`` closes ours.
    ``close`` passes on what is left.
    """

    def __init__(self, copy: Copy):
        self.ends: dict[int, int] = {}
        self._copy = copy
        self._lock = threading.Lock()
        self._terminals: dict[int, _Terminal] = {}  # by our own
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
        """Give the pseudo terminals the size of ours. Our terminal told the command of its new size
        before they had it, so the command is told once more.
        """
        with suppress(OSError):
            if True in {terminal.resize() for terminal in self._terminals.values()}:
                os.kill(0, signal.SIGWINCH)

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
            self._terminals[stream] = _Terminal(stream, source)
            if (events := _watched(os.ttyname(end))) is not None:
                arguments = (events, self._terminals[stream])
                self._threads.append(threading.Thread(target=self._pass_keys, args=arguments))
        elif stat.S_ISFIFO(mode):
            source, end = os.pipe()
        else:
            return None
        self._threads.append(threading.Thread(target=self._pass_on, args=(source, stream)))
        return end

    def _pass_on(self, source: int, target: int) -> None:
        try:
            while self._has_more(source, target) and (chunk := _read(source)):
                with self._lock:
                    self._copy(chunk)
                _write_all(target, chunk)
        except OSError:
            pass  # our output is closed: the next write of the command fails, as without us
        finally:
            os.close(source)

    def _pass_keys(self, events: int, terminal: "_Terminal") -> None:
        """Pass keys on while a program has the pseudo terminal open by its name."""
        readers = 0
        with suppress(OSError):
            while True:
                sources = [events, self._stop, *([_KEYS] if readers else [])]
                ready = select.select(sources, [], [], _LOOK_S if readers else None)[0]
                if self._stop in ready:
                    break
                if events in ready:
                    masks = [mask for _, mask, _, _ in _EVENT.iter_unpack(os.read(events, _CHUNK))]
                    readers += sum(1 if mask & _OPENED else -1 for mask in masks)
                elif _KEYS in ready:
                    terminal.type(os.read(_KEYS, _CHUNK))
        os.close(events)

    def _has_more(self, source: int, target: int) -> bool:
        """Wait for something to read; return whether there is, or the command still runs."""
        terminal = self._terminals.get(target)
        ready: list[int] = []
        while not ready:
            ready = select.select([source, self._stop], [], [], _LOOK_S if terminal else None)[0]
            if terminal:
                terminal.follow()  # before what was written in the new modes is shown
        return source in ready or bool(select.select([source], [], [], 0)[0])


class _Terminal:
    """A pseudo terminal with the size and the modes of ours.

    It lets bytes through as they are, because ours translates the ends of lines.
    """

    def __init__(self, ours: int, theirs: int):
        self._ours, self._theirs = ours, theirs
        modes = termios.tcgetattr(ours)
        modes[1] &= ~termios.OPOST
        termios.tcsetattr(theirs, termios.TCSANOW, modes)
        self._seen = termios.tcgetattr(theirs)
        self.resize()

    def resize(self) -> bool:
        """Take the size of our terminal; return whether it is another than before."""
        size = fcntl.ioctl(self._ours, termios.TIOCGWINSZ, _NO_SIZE)
        before = fcntl.ioctl(self._theirs, termios.TIOCGWINSZ, _NO_SIZE)
        fcntl.ioctl(self._theirs, termios.TIOCSWINSZ, size)
        return size != before

    def type(self, keys: bytes) -> None:
        """Give keys to what reads from the pseudo terminal."""
        _write_all(self._theirs, keys)

    def follow(self) -> None:
        """Change in our terminal what the command has changed in the pseudo terminal. A command in
        the background may not.
        """
        modes = termios.tcgetattr(self._theirs)
        if modes == self._seen or os.tcgetpgrp(self._ours) != os.getpgrp():
            return
        termios.tcsetattr(self._ours, termios.TCSADRAIN, self._changed(modes))
        self._seen = modes

    def _changed(self, modes: list[Any]) -> list[Any]:
        result = termios.tcgetattr(self._ours)
        for field, kept in _FLAGS.items():
            changed = (self._seen[field] ^ modes[field]) & ~kept
            result[field] = (result[field] & ~changed) | (modes[field] & changed)
        characters = zip(self._seen[_CHARACTERS], modes[_CHARACTERS], strict=True)
        for index, (before, now) in enumerate(characters):
            if before != now:
                result[_CHARACTERS][index] = now
        return result


@contextmanager
def terminal_signals(relay: Relay) -> Iterator[None]:
    """Keep the size of the pseudo terminals that of ours, and stop after the command at Ctrl-Z."""

    def stop(*_: object) -> None:
        time.sleep(_LEAVE_S)  # meanwhile the threads pass on how the command leaves its screen
        os.kill(os.getpid(), signal.SIGSTOP)
        relay.resize()

    before = {signal.SIGWINCH: signal.signal(signal.SIGWINCH, lambda *_: relay.resize())}
    if signal.getsignal(signal.SIGTSTP) is signal.SIG_DFL:
        before[signal.SIGTSTP] = signal.signal(signal.SIGTSTP, stop)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _watched(file: str) -> int | None:
    """Return a descriptor that tells when a file is opened and closed; ``None`` if that fails."""
    import ctypes  # a run without a terminal starts sooner without it

    try:
        libc = ctypes.CDLL(None)
        events: int = libc.inotify_init1(os.O_CLOEXEC)
        watched = libc.inotify_add_watch(events, os.fsencode(file), _OPENED | _CLOSED)
    except (AttributeError, OSError):
        return None
    if events >= 0 and watched < 0:
        os.close(events)
    return events if watched >= 0 else None


def _read(source: int) -> bytes:
    """Return what there is; nothing if the other end of a pseudo terminal is closed."""
    try:
        return os.read(source, _CHUNK)
    except OSError:
        return b""


def _write_all(target: int, chunk: bytes) -> None:
    while chunk:
        chunk = chunk[os.write(target, chunk) :]

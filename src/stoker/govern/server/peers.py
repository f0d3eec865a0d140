"""Processes at the other end of a socket, as the kernel knows them.

A process number in a message is never used: in the sender's pid namespace it names another
process than here, and after a process has ended its number may be used again.
"""

import os
import select
import signal
import socket
import struct
from contextlib import suppress
from functools import cache
from pathlib import Path

_ONE_READ = 1 << 14  # bytes; such a file of /proc is shorter
DEATH = 5.0  # seconds for a killed process to be gone; one that waits for a disk may take longer


def process_behind(stream: socket.socket) -> int | None:
    """Return the process that connected or listened, where the system tells."""
    option = getattr(socket, "SO_PEERCRED", None)
    if option is None:
        return None
    process, _, _ = struct.unpack("3i", stream.getsockopt(socket.SOL_SOCKET, option, 12))
    return int(process)


def command_line(process: int) -> bytes:
    """Return the words with which a process was started, each with a NUL behind it."""
    with suppress(OSError):
        return Path(f"/proc/{process}/cmdline").read_bytes()
    return b""


def is_stopped(process: int) -> bool:
    """Return whether a process was suspended, as by Ctrl-Z."""
    with suppress(OSError):
        return Path(f"/proc/{process}/stat").read_bytes().rpartition(b") ")[2][:1] in (b"T", b"t")
    return False


def cpu_seconds(process: int) -> float | None:
    """Return the CPU time that a process has used; ``None`` if it is gone or was suspended."""
    try:
        fields = Path(f"/proc/{process}/stat").read_bytes().rpartition(b") ")[2].split()
        stopped = fields[0] in (b"T", b"t")
        return None if stopped else (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    except (OSError, ValueError, IndexError):
        return None


def kill_behind(stream: socket.socket) -> bool:
    """Kill the process at the other end of a connection; return whether it is gone."""
    number = process_behind(stream) or 0
    try:
        process = os.pidfd_open(number) if number > 1 and number != os.getpid() else -1
    except ProcessLookupError:
        return True
    except OSError:
        return False
    if process < 0:
        return False
    try:
        # If the other end is open after pidfd_open, the number was still that of its process.
        if _polled(stream.fileno(), 0, 0.0):
            return True
        signal.pidfd_send_signal(process, signal.SIGKILL)
        return _polled(process, select.POLLIN, DEATH)
    except OSError:
        return False
    finally:
        os.close(process)


def _polled(descriptor: int, events: int, seconds: float) -> bool:
    """Return whether one of the events occurs on the descriptor in time."""
    poll = select.poll()
    poll.register(descriptor, events)
    return bool(poll.poll(seconds * 1000))


class Keeper:
    """The process group of a step's command, known by a pidfd of its leader that the launcher sent.

    Takes over the descriptor. Anything but a pidfd of a group's leader is never a target.
    """

    def __init__(self, descriptor: int):
        self._descriptor = descriptor
        self._group = _leader(descriptor)

    def kill_group(self) -> None:
        """Kill all that is left of the group.

        While a member lives, the kernel gives the group's number to no other process. So the group
        is the right one unless its leader has ended and another process has the number by now.
        """
        if self._group and (self._is_there() or not _exists(self._group)):
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(self._group, signal.SIGKILL)

    def close(self) -> None:
        os.close(self._descriptor)

    def _is_there(self) -> bool:
        try:
            signal.pidfd_send_signal(self._descriptor, 0)
        except OSError:
            return False
        return True


def _leader(pidfd: int) -> int | None:
    """Return the number of a process in our namespace, if it leads a group that is not ours."""
    number = _own_number(pidfd)
    try:
        leads = number > 1 and os.getpgid(number) == number != os.getpgrp()
    except OSError:
        return None
    return number if leads else None


def _own_number(pidfd: int) -> int:
    """Return the number by which we can signal a process; 0 where there is none.

    /proc may show the numbers of a namespace above ours, followed by those of each one below.
    """
    try:
        theirs = _numbers(f"/proc/self/fdinfo/{pidfd}")
        level = _depth()
    except OSError:
        return 0
    return theirs[level] if 0 <= level < len(theirs) else 0


@cache
def _depth() -> int:
    """Return how many of the pid namespaces that /proc shows are outside ours."""
    return len(_numbers("/proc/self/status")) - 1


def _numbers(file: str) -> list[int]:
    # Without Python's layers of files: this is done for every step.
    descriptor = os.open(file, os.O_RDONLY)
    try:
        content = os.read(descriptor, _ONE_READ)
    finally:
        os.close(descriptor)
    _, _, numbers = content.partition(b"\nNSpid:")
    return [int(word) for word in numbers.partition(b"\n")[0].split()]


def _exists(number: int) -> bool:
    try:
        os.kill(number, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True

"""Processes of the governor: peers of connections, native programs, and starting the daemon."""

import os
import select
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack, suppress
from functools import cache
from pathlib import Path

import msgspec

from stoker.govern.chain import Native
from stoker.model.errors import MissingError, StokerError, StorageError
from stoker.model.govern import GovernorOptions
from stoker.outside import folders, locks, process
from stoker.outside.deleting import remove_file
from stoker.outside.files import file_made_whole
from stoker.outside.folders import unwritable

# -- processes -------------------------------------------------------------------------------------
# Processes at the other end of a socket, as the kernel knows them.
#
# A process number in a message is never used: in the sender's pid namespace it names another
# process than here, and after a process has ended its number may be used again.


_ONE_READ = 1 << 14  # bytes; such a file of /proc is shorter
_DEATH = 5.0  # seconds for a killed process to be gone; one that waits for a disk may take longer


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
        return _polled(process, select.POLLIN, _DEATH)
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


# -- launcher --------------------------------------------------------------------------------------
# Stoker's native parts, the launcher and the preloaded library: where they are installed, and
# copies of them at a path that lasts.
#
# A build folder configured with `--via launcher` remembers the path of the copy, which stays when
# stoker is upgraded or removed. What the parts do is described in launcher/README.md.


LAUNCHER = "bin/stoker-launcher"
LIBRARY = "lib/libstoker-preload.so"
# Programs built with the address sanitizer start only if every library before its own has such a
# name; a link in the path is enough (launcher/README.md).
_SANITIZER_LINK = "libasan.so-libclang_rt.asan"


def installed(part: str) -> Path:
    """Return the file that came with this stoker. An editable install keeps it apart from the
    code.
    """
    package = Path(__file__).parents[1]
    for folder in (package, *(Path(entry) / "stoker" for entry in sys.path)):
        if os.access(folder / part, os.R_OK):
            return folder / part
    raise MissingError(
        f"{Path(part).name} is not installed",
        hints=["install stoker again from its wheel or checkout: `uv tool install --force .`"],
    )


def stable_native() -> Native:
    """Return lasting copies of both parts, and write them if they differ from those of this stoker.

    They are in stoker's data folder. The library is in another folder if LD_PRELOAD would split
    that path.
    """
    folder = folders.data_folder("native")
    launcher = _copied(LAUNCHER, folder, 0o755)
    if any(character in str(folder) for character in ": \t\n"):  # LD_PRELOAD is split at these
        folder = folders.private_folder(Path(f"/tmp/stoker-{os.getuid()}-native"))
    library = _copied(LIBRARY, folder, 0o644)
    link = folder / _SANITIZER_LINK
    with suppress(FileExistsError):
        link.symlink_to(".")
    return Native(launcher=str(launcher), library=str(link / library.name))


def _copied(part: str, folder: Path, mode: int) -> Path:
    path = folder / Path(part).name
    content = _content(installed(part))
    with suppress(OSError):
        if path.read_bytes() == content and path.stat().st_mode & 0o777 == mode:
            return path
    with file_made_whole(path) as stream:
        # Before it appears: a running build must never find a launcher that it cannot execute.
        os.fchmod(stream.fileno(), mode)
        stream.write(content)
    return path


def _content(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise StorageError(f"cannot read {path}: {error.strerror}") from error


# -- activation ------------------------------------------------------------------------------------
# Socket activation: a run that finds no governor listens in its place, and starts one only when
# the first launcher or another run connects. A run in which nothing compiles never starts one.
#
# The lock beside the socket belongs to the process that listens. The governor inherits it
# together with the listening socket, so it is free again only when both are gone.


BACKLOG = 4096
LOCK = ".lock"  # appended to the name of a socket
START = 30.0  # seconds for a governor to appear: a busy machine takes that long to start Python


def listen(path: Path) -> socket.socket:
    """Return a listening socket that appears at ``path`` at once, in place of one that was left."""
    listener = socket.socket(socket.AF_UNIX)
    aside = path.with_suffix(".new")  # no other process makes it: we have the lock
    try:
        remove_file(aside)
        listener.bind(str(aside))
        listener.listen(BACKLOG)
        listener.setblocking(False)
        aside.rename(path)
    except OSError as error:
        listener.close()
        raise unwritable(path, error, doing="listen at") from error
    return listener


class Activation:
    """Listens in place of a governor that does not exist yet. ``connection`` leads to the governor
    in any case.

    A thread waits for the first connection, because the run itself may be busy.
    """

    def __init__(self, options: GovernorOptions, greeting: Callable[[], bytes]):
        """Raise ``BusyError`` if another process holds the lock: it listens, or is about to."""
        self.started: float | None = None  # when the governor was started
        self.problem = ""  # why it could not be started
        self._options = options
        self._greeting = greeting
        self._path = Path(options.socket)
        self._governor: subprocess.Popen[bytes] | None = None
        self._withdrawn = False
        self._deciding = threading.Lock()
        with ExitStack() as stack:
            self._lock = stack.enter_context(locks.held(Path(f"{options.socket}{LOCK}")))
            self._listener = stack.enter_context(listen(self._path))
            self.connection, given = socket.socketpair()
            self._given = stack.enter_context(given)
            self._closing = stack.pop_all()
        self.connection.settimeout(START)
        # Made before the run lowers its own priority, which on Linux is that of one thread only.
        self._thread = threading.Thread(target=self._wait, daemon=True)
        self._thread.start()

    @property
    def process(self) -> int | None:
        """The governor that was started, if one was."""
        return self._governor.pid if self._governor else None

    def withdraw(self) -> bool:
        """Return whether no governor was started; then none will be, and the socket is gone.

        A run that connects at this moment is refused, and listens itself.
        """
        with self._deciding:
            if self.started is None and not self._withdrawn:
                self._withdrawn = True
                with suppress(OSError):
                    remove_file(self._path)
                self.connection.shutdown(socket.SHUT_WR)  # wakes the thread
        self._thread.join()
        self._closing.close()
        return self._withdrawn

    def kill(self) -> bool:
        """End the governor that was started; return whether it is gone."""
        if self._governor:
            self._governor.kill()
            with suppress(subprocess.TimeoutExpired):
                self._governor.wait(_DEATH)
        return self._governor is None or self._governor.returncode is not None

    def _wait(self) -> None:
        poll = select.poll()
        poll.register(self._listener, select.POLLIN)
        poll.register(self._given, select.POLLIN)
        poll.poll()
        with self._deciding:
            if not self._withdrawn:
                self._start()

    def _start(self) -> None:
        self.started = time.monotonic()
        inherited = (self._listener.fileno(), self._given.fileno())
        said = msgspec.json.encode(self._options).decode()
        words = [sys.executable, "-m", "stoker.govern.daemon", said, *map(str, inherited)]
        log = self._path.with_suffix(".log")
        try:
            self._governor = process.detach(words, output=log, keep_open=(*inherited, self._lock))
        except StokerError as error:
            self.problem = str(error)
        finally:
            self._closing.close()  # launchers must notice when the governor dies
        with suppress(OSError):  # the governor has died; the next read reports it
            self.connection.sendall(self._greeting())

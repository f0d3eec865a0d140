"""Socket activation: a run that finds no governor listens in its place.

It starts one only when the first launcher or another run connects. A run in which nothing compiles
never starts one.

The lock beside the socket belongs to the process that listens. The governor inherits it together
with the listening socket, so it is free again only when both are gone.
"""

import select
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack, suppress
from pathlib import Path

import msgspec

from stoker.govern.server import leases
from stoker.govern.server.peers import DEATH
from stoker.model.errors import StokerError
from stoker.model.terms import GovernorOptions
from stoker.outside import locks, process
from stoker.outside.deleting import remove_file
from stoker.outside.folders import unwritable

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
            leases.make_files(options.socket)
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
                leases.remove_files(self._options.socket)
                self.connection.shutdown(socket.SHUT_WR)  # wakes the thread
        self._thread.join()
        self._closing.close()
        return self._withdrawn

    def kill(self) -> bool:
        """End the governor that was started; return whether it is gone."""
        if self._governor:
            self._governor.kill()
            with suppress(subprocess.TimeoutExpired):
                self._governor.wait(DEATH)
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
        words = [sys.executable, "-m", "stoker.govern.server.daemon", said, *map(str, inherited)]
        log = self._path.with_suffix(".log")
        try:
            self._governor = process.detach(words, output=log, keep_open=(*inherited, self._lock))
        except StokerError as error:
            self.problem = str(error)
        finally:
            self._closing.close()  # launchers must notice when the governor dies
        with suppress(OSError):  # the governor has died; the next read reports it
            self.connection.sendall(self._greeting())

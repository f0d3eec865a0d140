"""A real daemon that predicts from a given history, with launchers that ask it.

Whatever the history holds, it must serve every launcher: an error of the daemon is raised here. It
is a process of its own, because its threads end with it.
"""

import os
import selectors
import socket
import sqlite3
import traceback
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from stoker.govern.history.store import History
from stoker.govern.protocol import VERSION, encode
from stoker.govern.server.activation import listen
from stoker.govern.server.daemon import Daemon
from stoker.model.terms import GovernorOptions
from stoker.outside import folders

TIMEOUT_S = 60.0
RUN = 4711
_MIB = 1 << 20
_USAGE = (2_000_000, 1_000_000, 50 * _MIB, 60 * _MIB)


@contextmanager
def home(folder: Path) -> Iterator[Path]:
    """Let stoker's own folders be below ``folder``; yield the file of the history."""
    before = os.environ.get("STOKER_HOME")
    os.environ["STOKER_HOME"] = str(folder / "home")
    try:
        yield folders.history()
    finally:
        if before is None:
            del os.environ["STOKER_HOME"]
        else:
            os.environ["STOKER_HOME"] = before


def store(path: Path, rows: Iterable[Mapping[str, object]]) -> None:
    """Write rows of attempts into a history as they are, which stoker itself may never do."""
    with History(path) as history:
        run = history.start_run("ninja", "/")
    with sqlite3.connect(path) as database:
        for row in rows:
            names, marks = ", ".join(row), ", ".join("?" for _ in row)
            with suppress(sqlite3.Error, OverflowError):  # no database holds such a row
                database.execute(
                    f"INSERT INTO attempt (run, {names}) VALUES (?, {marks})", (run, *row.values())
                )
    database.close()


def serve(folder: Path, commands: Sequence[Sequence[str]]) -> bytes:
    """Serve one run whose launchers ask for these commands; return what its client heard."""
    path = folder / "governor.sock"
    options = GovernorOptions(socket=str(path), policy="adaptive", cpus=2, cap=1 << 30)
    ours, theirs = socket.socketpair()
    with listen(path) as listener, ours, (folder / "daemon.log").open("w+b") as log:
        with warnings.catch_warnings(action="ignore"):  # Python warns of threads, if there are any
            child = os.fork()
        if not child:
            ours.close()
            os._exit(_served(options, listener, theirs, log.fileno()))
        theirs.close()
        run = _Run(ours, path, folder, commands)
        try:
            run.drive()
        finally:
            _, status = os.waitpid(child, 0)
        log.seek(0)
        assert status == 0, log.read().decode()
    assert run.done == len(commands), f"{run.done} of {len(commands)} steps were admitted"
    return run.heard


def _served(
    options: GovernorOptions, listener: socket.socket, client: socket.socket, log: int
) -> int:
    """Serve until the client is gone; return the exit status, and write an error to ``log``."""
    try:
        listener.setblocking(False)
        Daemon(options, listener, [client]).serve()
    except BaseException:
        os.write(log, traceback.format_exc().encode(errors="replace"))
        return 1
    return 0


class _Run:
    """The client of a run and its launchers."""

    def __init__(
        self, client: socket.socket, path: Path, folder: Path, commands: Sequence[Sequence[str]]
    ):
        self.done, self.heard = 0, b""
        self._client, self._path, self._folder = client, path, folder
        self._commands = commands

    def drive(self) -> None:
        self._client.settimeout(TIMEOUT_S)
        with suppress(OSError):  # the daemon has ended, which is what is reported then
            self._client.sendall(encode("client", RUN, "ninja", str(self._folder)))
            self._hear_until(b"welcome")
            self._ask()
            self._client.sendall(encode("finish", 0, 0))
            self._hear_until(b"summary")
        self._client.close()

    def _hear_until(self, word: bytes) -> None:
        while not any(line.startswith(word) for line in self.heard.splitlines()):
            chunk = self._client.recv(1 << 16)
            if not chunk:
                raise ConnectionError
            self.heard += chunk

    def _ask(self) -> None:
        with selectors.DefaultSelector() as selector:
            selector.register(self._client, selectors.EVENT_READ)
            for command in self._commands:
                line = socket.socket(socket.AF_UNIX)
                line.connect(str(self._path))
                words = ("compile", "", *command)
                line.sendall(encode("ask", VERSION, RUN, str(self._folder), 1, 0, *words))
                selector.register(line, selectors.EVENT_READ)
            while self.done < len(self._commands):
                for key, _ in selector.select(TIMEOUT_S):
                    line = key.fileobj  # type: ignore[assignment]
                    heard = line.recv(1 << 16)
                    if line is self._client:
                        self.heard += heard
                        if not heard:
                            return
                    else:
                        selector.unregister(line)
                        self._end(line, admitted=heard.startswith(b"run\t"))

    def _end(self, line: socket.socket, *, admitted: bool) -> None:
        with line:
            if admitted:
                memory = (encode("memory", size * _MIB, size * _MIB, 0) for size in (10, 50))
                line.sendall(b"".join((*memory, encode("done", 0, 0, *_USAGE, ""))))
                self.done += 1
            elif line.recv(1) == b"":
                raise ConnectionError

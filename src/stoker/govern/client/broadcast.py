"""Sends the events of a run to the processes that watch it.

A run listens at a socket of its own beside those of governors. The socket keeps message boundaries
(SOCK_SEQPACKET), so an event is received as a whole or not at all: one for which a slow watcher has
no room is dropped, and the build never waits. Watchers send nothing.
"""

import os
import socket
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

import msgspec

from stoker.govern.client.conversation import runtime_folders
from stoker.model.errors import StorageError, UsageError
from stoker.model.events import AnyEvent, Overview, RunBegins, RunEnds, StageChanges
from stoker.model.runs import RunSummary
from stoker.model.secrets import redact
from stoker.model.value import UNDECODABLE, duration, prepared
from stoker.outside.deleting import remove_file
from stoker.outside.folders import private_folder

Show = Callable[[AnyEvent], None]

_SUFFIX = ".watch"
_LARGEST = 1 << 20  # bytes of an event
_ANSWER_TIMEOUT_S = 5.0  # for a run to say what it is; a suspended one does not
_WATCHERS = 16  # that may connect at the same moment


class Broadcast:
    """Sends the events of a run to its watchers, within a ``with`` block. If no socket can be made,
    the run cannot be watched.

    A watcher that connects later first receives what the run is, its stage, and its state.
    """

    def __init__(self, command: str, directory: str):
        self._begins = RunBegins(
            at=time.time(),
            process=os.getpid(),
            command=_as_text(redact(command)),
            directory=_as_text(directory),
        )
        self._state: dict[type, bytes] = {RunBegins: msgspec.json.encode(self._begins)}
        self._watchers: list[socket.socket] = []
        self._lock = threading.Lock()
        self._listener = _listening(f"{os.urandom(6).hex()}{_SUFFIX}")
        self._summary: RunSummary | None = None

    def __enter__(self) -> "Broadcast":
        if self._listener:
            threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self.send(RunEnds(at=time.time() - self._begins.at, summary=self._summary))
        if self._listener:
            with suppress(OSError):
                remove_file(Path(self._listener.getsockname()))
            with suppress(OSError):
                self._listener.shutdown(socket.SHUT_RDWR)  # wakes the thread
            self._listener.close()
        with self._lock:
            for watcher in self._watchers:
                watcher.close()
            self._watchers.clear()

    def through(self, show: Show) -> Show:
        """Return a function that gives an event to ``show`` and to the watchers."""

        def both(event: AnyEvent) -> None:
            show(event)
            self.send(event)

        return both

    def end(self, summary: RunSummary | None) -> None:
        """Tell the watchers this summary when the block ends."""
        self._summary = summary

    def send(self, event: AnyEvent) -> None:
        with self._lock:
            if not self._watchers and not isinstance(event, Overview | StageChanges):
                return
            message = msgspec.json.encode(event)
            if isinstance(event, Overview | StageChanges):
                self._state[type(event)] = message
            self._watchers = [watcher for watcher in self._watchers if _sent(watcher, message)]

    def _accept(self) -> None:
        assert self._listener is not None
        while True:
            try:
                watcher, _ = self._listener.accept()
            except OSError:
                return
            watcher.setblocking(False)
            with self._lock:
                if all(_sent(watcher, message) for message in self._state.values()):
                    self._watchers.append(watcher)


def _sent(watcher: socket.socket, message: bytes) -> bool:
    """Return whether the watcher is still there. An event that it has no room for is dropped."""
    try:
        watcher.send(message, socket.MSG_NOSIGNAL)
    except BlockingIOError:
        return True
    except OSError:
        watcher.close()
        return False
    return True


def _listening(name: str) -> socket.socket | None:
    try:
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    except OSError:  # not on macOS
        return None
    for folder in runtime_folders():
        with suppress(OSError, StorageError):
            listener.bind(str(private_folder(folder) / name))
            listener.listen(_WATCHERS)
            return listener
    listener.close()
    return None


class Watching:
    """A connection to a run. ``begins`` says which."""

    def __init__(self, connection: socket.socket, begins: RunBegins):
        self.begins = begins
        self._connection = connection

    def events(self) -> Iterator[AnyEvent]:
        """Yield every event until the run has ended. The last one is ``RunEnds``, unless the run
        was killed.
        """
        self._connection.settimeout(None)
        yield self.begins
        with suppress(ConnectionError):
            while message := self._connection.recv(_LARGEST):
                with suppress(*UNDECODABLE):
                    yield msgspec.json.decode(message, type=prepared(AnyEvent))

    def close(self) -> None:
        self._connection.close()


def running() -> list[Watching]:
    """Connect to every run of this user, oldest first."""
    paths = (path for folder in runtime_folders() for path in folder.glob(f"*{_SUFFIX}"))
    found = [watching for path in paths if (watching := _connected(path))]
    return sorted(found, key=lambda watching: watching.begins.at)


def _connected(path: Path) -> Watching | None:
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    connection.settimeout(_ANSWER_TIMEOUT_S)
    try:
        connection.connect(str(path))
        begins = msgspec.json.decode(connection.recv(_LARGEST), type=prepared(RunBegins))
    except ConnectionRefusedError:  # left by a run that was killed
        connection.close()
        with suppress(OSError):
            remove_file(path)
    except (OSError, *UNDECODABLE):
        connection.close()
    else:
        return Watching(connection, begins)
    return None


def _as_text(name: str) -> str:
    """Return a name without the surrogates that stand for bytes that are not UTF-8."""
    return name.encode(errors="replace").decode()


@contextmanager
def watched(word: str | None) -> Iterator[Watching]:
    """Connect to a running build: the one of that process or run folder, else the only one."""
    found = running()
    try:
        yield choose(found, word)
    finally:
        for each in found:
            each.close()


def choose(found: Sequence[Watching], word: str | None) -> Watching:
    """Return the build that ``word`` names; raise UsageError if that is none or more than one."""
    fitting = [each for each in found if word is None or _is_named(each.begins, word)]
    if len(fitting) == 1:
        return fitting[0]
    lines = [_line(each.begins) for each in fitting or found]
    if fitting:
        raise UsageError("several builds are running; name one of them", hints=lines)
    if word is not None and found:
        raise UsageError(f"no running build is called '{word}'", hints=lines)
    hints = [
        "`stoker run -- ninja` or `stoker build` starts one",
        "`stoker history` lists the builds that have ended",
    ]
    raise UsageError("no build of yours is running", hints=hints)


def _is_named(begins: RunBegins, word: str) -> bool:
    return word in (str(begins.process), begins.command.rpartition(" ")[2])


def _line(begins: RunBegins) -> str:
    age = duration(max(0.0, time.time() - begins.at))
    return f"`stoker watch {begins.process}`: {begins.command} in {begins.directory}, for {age}"

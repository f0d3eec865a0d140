"""A run's side of the conversation with its governor: find or start one, hear events, finish."""

import hashlib
import os
import socket
import stat
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from types import TracebackType

import msgspec

from stoker import __version__
from stoker.govern.daemon import Options
from stoker.govern.processes import kill_behind
from stoker.govern.protocol import decode, encode
from stoker.model.errors import CommandError, StokerError, StorageError
from stoker.model.events import AnyEvent
from stoker.model.runs import RunSummary
from stoker.outside import process
from stoker.outside.folders import data, private_folder

_START = 30.0  # seconds for a governor to appear: a busy machine takes that long to start Python
_PATIENCE = 10.0  # seconds for a governor to answer
_SILENCE = 20.0  # seconds after which a governor hangs; it speaks every second
_LONGEST_LOOK = 1.0  # seconds of silence that count between two looks: we may have been stopped
_LONGEST_PATH = 100  # bytes that any system allows a socket's path to have, and a few less


def socket_path(limit: str) -> Path:
    """One governor for each user and binding memory limit; ``limit`` is where that one stands.

    It measures one control group and knows processes by their numbers, so containers that share a
    folder have one each, although every one of them sees its own group at the same path. Another
    version of stoker has its own, to which this one is a neighbour.
    """
    home = os.environ.get("STOKER_HOME", "")
    what = "\0".join((__version__, home, *_scope(limit)))
    name = f"{hashlib.sha256(os.fsencode(what)).hexdigest()[:12]}.sock"
    problem: StorageError | None = None
    for base in _bases(home):
        try:
            path = private_folder(base) / name
        except StorageError as error:
            problem = problem or error
            continue
        if len(os.fsencode(path)) <= _LONGEST_PATH:
            return path
    raise problem or StorageError("no folder has a path that is short enough for a socket")


def _bases(home: str) -> Iterator[Path]:
    if home:
        yield data().parent / "run"
    if runtime := os.environ.get("XDG_RUNTIME_DIR"):
        yield Path(runtime) / "stoker"
    yield Path(f"/tmp/stoker-{os.getuid()}")


def _scope(limit: str) -> Iterator[str]:
    """What tells the limit, the pid namespace and the boot of a machine from all others."""
    yield limit
    with suppress(OSError):
        group = Path(limit).stat()
        if stat.S_ISDIR(group.st_mode):  # not the machine's own limit, which is a file in /proc
            yield f"{group.st_dev} {group.st_ino}"
    with suppress(OSError):
        yield str(Path("/proc/self/ns/pid").stat().st_ino)
    with suppress(OSError):
        yield Path("/proc/sys/kernel/random/boot_id").read_text()


class Client:
    """Use it in a ``with`` block: leaving it tells the governor that the run is over."""

    def __init__(self, options: Options, *, run: int, command: str, directory: str):
        """``options`` become those of the governor that is there, if there is one."""
        self.options = options
        self.alive = True
        self._received = b""
        self._silence, self._looked = 0.0, time.monotonic()
        self._summary: RunSummary | None = None
        greeting = encode("client", run, command, directory)
        self._deadline = time.monotonic() + _START
        self._socket = _connect(options, self._deadline)
        while not self._welcomed(greeting):  # it hung, or was just about to end
            self._socket.close()
            self._socket = _connect(options, self._deadline)

    def fileno(self) -> int:
        return self._socket.fileno()

    def _welcomed(self, greeting: bytes) -> bool:
        """Whether the governor takes us on. One that hangs is ended, and another may be started."""
        self._received = b""
        self._socket.settimeout(_PATIENCE)
        try:
            self._socket.sendall(greeting)
            while b"\n" not in self._received:
                if not (chunk := self._socket.recv(1 << 16)):
                    return False
                self._received += chunk
        except TimeoutError as error:
            if not kill_behind(self._socket):
                raise StokerError(
                    f"the governor of {self.options.socket} does not answer and cannot be ended",
                    hints=["end its process yourself, or choose another folder by STOKER_HOME"],
                ) from error
            self._deadline = time.monotonic() + _START
            return False
        except OSError:
            return False
        self._socket.settimeout(None)
        line, _, self._received = self._received.partition(b"\n")
        _, fields = decode(line)
        self.options = msgspec.json.decode(fields[0], type=Options)
        return True

    def events(self) -> Iterator[AnyEvent]:
        """What has come; blocks until something does. ``alive`` turns false when it has gone."""
        try:
            chunk = self._socket.recv(1 << 16)
        except TimeoutError:
            chunk = b""
            kill_behind(self._socket)
        except OSError:
            chunk = b""
        self._silence, self._looked = 0.0, time.monotonic()
        if not chunk:
            self.alive = False
        *lines, self._received = (self._received + chunk).split(b"\n")
        for line in lines:
            word, fields = decode(line)
            match word:
                case "event":
                    yield msgspec.json.decode(fields[0], type=AnyEvent)
                case "summary":
                    self._summary = msgspec.json.decode(fields[0], type=RunSummary)

    def ended_as_hung(self) -> bool:
        """Whether the governor has said nothing for so long that it hangs; then it is ended.

        Call it whenever nothing has come. Launchers see the end at once, and take turns.
        """
        now = time.monotonic()
        self._silence += min(now - self._looked, _LONGEST_LOOK)
        self._looked = now
        if self._silence < _SILENCE:
            return False
        self.alive = False
        kill_behind(self._socket)  # where that is impossible, launchers find out by themselves
        return True

    def finish(self, status: int) -> Iterator[AnyEvent]:
        """Ask for the summary; gives what happened until it came, or the governor hangs."""
        self._socket.settimeout(_PATIENCE)
        try:
            self._socket.sendall(encode("finish", status))
        except OSError:
            self.alive = False
        while self.alive and self._summary is None:
            yield from self.events()

    @property
    def summary(self) -> RunSummary | None:
        """There once ``finish`` is through, unless the governor died."""
        return self._summary

    def __enter__(self) -> "Client":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._socket.close()


class NoGovernor:
    """Stands in for a client where there can be no governor: nothing comes from it."""

    alive = False
    summary: RunSummary | None = None

    def __init__(self, options: Options):
        self.options = options

    def fileno(self) -> int:
        raise ValueError("there is no connection")

    def ended_as_hung(self) -> bool:
        return False

    def events(self) -> Iterator[AnyEvent]:
        yield from ()

    def finish(self, status: int) -> Iterator[AnyEvent]:  # noqa: ARG002
        yield from ()

    def __enter__(self) -> "NoGovernor":
        return self

    def __exit__(self, *_: object) -> None:
        pass


def _connect(options: Options, deadline: float) -> socket.socket:
    """To the governor that is there, else to the one we start."""
    words = [sys.executable, "-m", "stoker.govern.daemon", msgspec.json.encode(options).decode()]
    log = Path(options.socket).with_suffix(".log")
    started = None
    while time.monotonic() < deadline:
        if connection := _try(options.socket):
            return connection
        status = started.poll() if started else 0
        if status is not None and status > 0:
            break
        if status is not None:  # it was killed, or gave way to one that is beginning, or ending
            started = process.detach(words, output=log)
        time.sleep(0.01)
    said = log.read_text(errors="replace")[-2000:] if log.exists() else ""
    raise CommandError("the governor did not start", output=said)


def _try(path: str) -> socket.socket | None:
    connection = socket.socket(socket.AF_UNIX)
    connection.settimeout(_PATIENCE)  # one that hangs may have a full queue
    try:
        connection.connect(path)
    except OSError:
        connection.close()
        return None
    return connection

"""A run's side of the conversation with its governor: find or start one, hear events, finish."""

import hashlib
import os
import socket
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType

import msgspec

from stoker.govern.daemon import Options
from stoker.govern.protocol import decode, encode
from stoker.model.errors import StokerError
from stoker.model.events import AnyEvent
from stoker.model.runs import RunSummary
from stoker.outside import process

_PATIENCE = 10.0  # seconds for a governor to appear


def socket_path(limit: str) -> Path:
    """One governor for each user and binding memory limit; ``limit`` is where that one stands."""
    runtime = os.environ.get("XDG_RUNTIME_DIR")
    base = Path(runtime) / "stoker" if runtime else Path(f"/tmp/stoker-{os.getuid()}")
    if home := os.environ.get("STOKER_HOME"):
        base = Path(home) / "run"
    return base / f"{hashlib.sha256(limit.encode()).hexdigest()[:12]}.sock"


def private_folder(path: Path) -> Path:
    """A folder that nobody else can enter; refused where somebody else made it first."""
    path.mkdir(mode=0o700, parents=True, exist_ok=True)
    if path.stat().st_uid != os.getuid():
        raise StokerError(f"{path} belongs to another user", hints=["set XDG_RUNTIME_DIR"])
    path.chmod(0o700)
    return path


class Client:
    """Use it in a ``with`` block: leaving it tells the governor that the run is over."""

    def __init__(self, options: Options, *, run: int, command: str, directory: str):
        private_folder(Path(options.socket).parent)
        self._socket = _connect(options)
        self._socket.sendall(encode("client", run, command, directory))
        self._received = b""
        self._summary: RunSummary | None = None
        self.options = options
        self.alive = True

    def fileno(self) -> int:
        return self._socket.fileno()

    def events(self) -> Iterator[AnyEvent]:
        """What has come; blocks until something does. ``alive`` turns false when it has gone."""
        try:
            chunk = self._socket.recv(1 << 16)
        except OSError:
            chunk = b""
        if not chunk:
            self.alive = False
        *lines, self._received = (self._received + chunk).split(b"\n")
        for line in lines:
            word, fields = decode(line)
            match word:
                case "event":
                    yield msgspec.json.decode(fields[0], type=AnyEvent)
                case "welcome":
                    self.options = msgspec.json.decode(fields[0], type=Options)
                case "summary":
                    self._summary = msgspec.json.decode(fields[0], type=RunSummary)

    def finish(self, status: int) -> Iterator[AnyEvent]:
        """Ask for the summary; gives what happened until it came."""
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


def _connect(options: Options) -> socket.socket:
    """To the governor that is there, else to the one we start."""
    if connection := _try(options.socket):
        return connection
    words = [sys.executable, "-m", "stoker.govern.daemon", msgspec.json.encode(options).decode()]
    log = Path(options.socket).with_suffix(".log")
    process.detach(words, output=log)
    deadline = time.monotonic() + _PATIENCE
    while time.monotonic() < deadline:
        if connection := _try(options.socket):
            return connection
        time.sleep(0.01)
    said = log.read_text(errors="replace")[-2000:] if log.exists() else ""
    raise StokerError(f"the governor did not start; its log, {log}, ends:\n{said}")


def _try(path: str) -> socket.socket | None:
    connection = socket.socket(socket.AF_UNIX)
    try:
        connection.connect(path)
    except OSError:
        connection.close()
        return None
    return connection

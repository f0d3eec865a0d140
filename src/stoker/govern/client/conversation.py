"""A run's side of the conversation with its governor: find or start one, hear events, finish."""

import os
import socket
import stat
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from zlib import crc32

import msgspec
from msgspec.structs import replace

from stoker import __version__
from stoker.govern.protocol import decode, encode
from stoker.govern.server.activation import START, Activation
from stoker.govern.server.peers import (
    command_line,
    cpu_seconds,
    is_stopped,
    kill_behind,
    process_behind,
)
from stoker.model.errors import StokerError, StorageError
from stoker.model.events import AnyEvent
from stoker.model.runs import RunSummary
from stoker.model.secrets import redact
from stoker.model.terms import GovernorOptions, RunShare, RunTerms, TimeLimit
from stoker.model.value import prepared
from stoker.outside import locks
from stoker.outside.folders import data, history, private_folder

_ANSWER_TIMEOUT_S = 10.0  # seconds for a governor to answer
_SILENCE = (
    20.0  # seconds after which a silent governor counts as hung; it sends something every second
)
_MOST_CPU_S = 20.0  # seconds that a governor may compute without a word
_LONGEST_LOOK = 1.0  # seconds of silence that count between two checks: we may have been stopped
_MOST_LOSSES = 3  # governors that are replaced when they die; one that always dies has a fault
_REPLACE = 2.0  # seconds to find a place for another governor; launchers wait no longer
_LONGEST_PATH = 99  # bytes of a socket's path that every system allows


def socket_path(limit: str) -> Path:
    """Return the path of the governor's socket, one for each user and binding memory limit;
    ``limit`` is the path of that limit.

    It measures one control group and knows processes by their numbers, so containers that share a
    folder have one each, although every one of them sees its own group at the same path. Another
    version of stoker has its own, and each counts the other's steps as other processes.
    """
    home = os.environ.get("STOKER_HOME", "")
    what = os.fsencode("\0".join((__version__, home, *_scope(limit))))
    # 48 bits: to load OpenSSL for a digest would take longer than all the rest of this module.
    name = f"{crc32(what):08x}{crc32(what[::-1]) & 0xFFFF:04x}.sock"
    problem: StorageError | None = None
    for base in runtime_folders():
        try:
            path = private_folder(base) / name
        except StorageError as error:
            problem = problem or error
            continue
        if len(os.fsencode(path)) <= _LONGEST_PATH:
            return path
    raise problem or StorageError("no folder has a path that is short enough for a socket")


def runtime_folders() -> Iterator[Path]:
    """Yield the folders in which sockets can be, best first."""
    if os.environ.get("STOKER_HOME"):
        yield data().parent / "run"
    if runtime := os.environ.get("XDG_RUNTIME_DIR"):
        yield Path(runtime) / "stoker"
    yield Path(f"/tmp/stoker-{os.getuid()}")


def _scope(limit: str) -> Iterator[str]:
    """Yield what distinguishes the limit, the pid namespace and the boot of this machine from
    others.
    """
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
    """A run's connection to its governor. Leaving the ``with`` block tells the governor that the
    run is over. Unless a governor already serves another run, none exists until the first step
    asks.
    """

    def __init__(
        self,
        options: GovernorOptions,
        *,
        run: int,
        command: str,
        directory: str,
        terms: RunTerms | None = None,
        weight: float = 1.0,
        time_limit: TimeLimit | None = None,
    ):
        """Connect to the governor or prepare to start one. If one exists, ``options`` become those
        of that governor, except for limits; ``terms``, ``weight`` and ``time_limit`` are of this
        run alone.
        """
        self._share = RunShare(
            cpus=options.cpus, cap=options.cap, weight=weight, history=str(history())
        )
        self._terms = replace(terms or RunTerms(), share=self._share)
        self._time_limit = time_limit
        self.options = options
        self.alive = True
        self.losses = 0  # governors that have died or were ended
        self._run, self._command, self._directory = run, command, directory
        self._received = b""
        self.answered = False  # whether the governor has said anything to this run
        self._silence, self._looked = 0.0, time.monotonic()
        # CPU time of the governor: when its silence began, and at the last look.
        self._cpu_s: tuple[float, float] | None = None
        self.summary: RunSummary | None = None  # after ``finish``; None if no governor has answered
        self._activation: Activation | None = None
        self._deadline = time.monotonic() + START
        self._socket = self._found()

    def fileno(self) -> int:
        return self._socket.fileno()

    def _greeting(self) -> bytes:
        terms = self._terms
        if limit := self._time_limit:
            left = max(0.0, limit.ends - time.monotonic())
            terms = replace(terms, seconds_left=left, seconds=limit.seconds, grace=limit.grace)
        told = msgspec.json.encode(terms)
        return encode("client", self._run, redact(self._command), self._directory, told)

    def _found(self) -> socket.socket:
        """Return a connection to the governor that is there, else to the one that will be."""
        while time.monotonic() < self._deadline:
            if connection := _try(self.options.socket):
                if self._welcomed(connection):
                    return connection
                connection.close()
            else:
                with suppress(locks.BusyError):  # one is starting or ending
                    self._activation = Activation(self.options, self._greeting)
                    return self._activation.connection
            time.sleep(0.01)
        raise StokerError(
            f"the governor of {self.options.socket} does not answer",
            hints=["kill its process, or choose another folder with STOKER_HOME"],
        )

    def _welcomed(self, connection: socket.socket) -> bool:
        """Return whether the governor accepts this run. If not, another one may listen soon."""
        connection.settimeout(_LONGEST_LOOK)
        self._received, began = b"", time.monotonic()
        try:
            connection.sendall(self._greeting())
            while b"\n" not in self._received:
                try:
                    chunk = connection.recv(1 << 16)
                except TimeoutError:
                    if self._gave_up(connection, time.monotonic() - began):
                        return False
                    continue
                if not chunk:
                    return False
                self._received += chunk
        except OSError:
            return False
        connection.settimeout(None)
        line, _, self._received = self._received.partition(b"\n")
        self._welcome(decode(line)[1])
        return True

    def _welcome(self, fields: tuple[bytes, ...]) -> None:
        self.answered = True
        found = msgspec.json.decode(fields[0], type=prepared(GovernorOptions))
        self.options = replace(found, cpus=self._share.cpus, cap=self._share.cap)

    def _gave_up(self, connection: socket.socket, waited: float) -> bool:
        """Return whether waiting for an answer is useless, after having acted on the reason."""
        if _is_governor(connection):
            if self._works(process_behind(connection)) or waited < _ANSWER_TIMEOUT_S:
                return False
            if kill_behind(connection):
                self._deadline = time.monotonic() + START
            return True
        if is_stopped(process_behind(connection) or 0):
            # A run that has no governor yet, and whose user has suspended it: it is left alone.
            path = Path(self.options.socket)
            aside = str(path.with_name(f"{path.stem}-{os.getpid()}.sock"))
            self.options = replace(self.options, socket=aside)
            return True
        return waited > START  # a run that is about to start its governor

    def events(self) -> Iterator[AnyEvent]:
        """Yield the events that arrived; block until there is one. ``alive`` becomes false when the
        governor is gone.
        """
        try:
            chunk = self._socket.recv(1 << 16)
        except TimeoutError:
            chunk = b""
            self._kill()
        except OSError:
            chunk = b""
        self._silence, self._looked, self._cpu_s = 0.0, time.monotonic(), None
        if not chunk:
            self.alive = False
        *lines, self._received = (self._received + chunk).split(b"\n")
        for line in lines:
            word, fields = decode(line)
            match word:
                case "welcome":
                    self._welcome(fields)
                case "event":
                    yield msgspec.json.decode(fields[0], type=prepared(AnyEvent))
                case "summary":
                    self.summary = msgspec.json.decode(fields[0], type=prepared(RunSummary))

    def ended_as_hung(self) -> bool:
        """Return whether the governor was silent for so long that it hangs; it is killed then.

        Call it whenever nothing has come. Launchers see the end at once, and take turns.
        """
        now = time.monotonic()
        self._silence += min(now - self._looked, _LONGEST_LOOK)
        self._looked = now
        activation = self._activation
        process = activation.process if activation else process_behind(self._socket)
        if self.dormant or self._works(process):
            self._silence = 0.0
            return False
        if self._silence < (_SILENCE if self.answered else START):
            return False
        self.alive = False
        self._kill()  # if that is impossible, launchers notice by themselves
        return True

    def _works(self, process: int | None) -> bool:
        """Return whether the governor has used CPU time since the last look: on a busy machine it
        may take minutes to start. One that uses much without a word is in a loop.
        """
        if (used := cpu_seconds(process or 0)) is None:
            return False
        began, before = self._cpu_s or (used, used)
        self._cpu_s = began, used
        return before < used < began + _MOST_CPU_S

    def replaced(self) -> bool:
        """Find or prepare another governor in place of one that is gone; return whether it did.

        Steps that wait ask the new one. Steps that run continue, and count as memory in use.
        """
        self.losses += 1
        if self.losses > _MOST_LOSSES:
            return False
        if self._activation:
            self._activation.withdraw()
        self._socket.close()
        self._activation, self.answered, self._received = None, False, b""
        self._silence, self._cpu_s = 0.0, None
        self._deadline = time.monotonic() + _REPLACE
        try:
            self._socket = self._found()
        except StokerError:
            return False
        self.alive = True
        return True

    @property
    def dormant(self) -> bool:
        """Whether no step has asked yet, so that there is no governor."""
        return self._activation is not None and self._activation.started is None

    @property
    def why_gone(self) -> str:
        """The reason why ``alive`` became false."""
        if self.answered or self._activation is None:
            return "the governor has died"
        log = Path(self.options.socket).with_suffix(".log")
        with suppress(OSError):
            self._activation.problem = self._activation.problem or _last_line(log)
        return f"the governor did not start: {self._activation.problem or 'it was killed'}"

    def _kill(self) -> None:
        if self._activation:
            self._activation.kill()
        elif connection := _try(self.options.socket):
            # A connection made now has the governor behind it. Ours may have been made while the
            # socket was still that of another run.
            with connection:
                if _is_governor(connection):
                    kill_behind(connection)

    def finish(
        self, status: int, *, cache_hits: int, written_bytes: int | None
    ) -> Iterator[AnyEvent]:
        """Tell what only the run knows and ask for the summary. Yields the events until it comes or
        the governor hangs.
        """
        if self._activation and self._activation.withdraw():
            return
        self._socket.settimeout(_ANSWER_TIMEOUT_S if self.answered else START)
        try:
            written = () if written_bytes is None else (written_bytes,)
            self._socket.sendall(encode("finish", status, cache_hits, *written))
        except OSError:
            self.alive = False
        while self.alive and self.summary is None:
            yield from self.events()

    def __enter__(self) -> "Client":
        return self

    def __exit__(self, *_: object) -> None:
        if self._activation:
            self._activation.withdraw()
        self._socket.close()


def _try(path: str) -> socket.socket | None:
    connection = socket.socket(socket.AF_UNIX)
    connection.settimeout(_ANSWER_TIMEOUT_S)  # a hung governor may have a full queue
    try:
        connection.connect(path)
    except OSError:
        connection.close()
        return None
    return connection


def _is_governor(connection: socket.socket) -> bool:
    """Return whether a governor listens, and not a run that has none yet."""
    return b"stoker.govern.server.daemon" in command_line(process_behind(connection) or 0)


def _last_line(log: Path) -> str:
    return next(reversed(log.read_text(errors="replace").splitlines()), "")

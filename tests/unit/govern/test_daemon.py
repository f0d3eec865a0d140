"""The governor's process handles any input of its user, and exits with its clients."""

import fcntl
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from stoker.govern.client.conversation import Client
from stoker.govern.history.store import History
from stoker.govern.protocol import VERSION, encode
from stoker.govern.server.activation import listen
from stoker.model.events import AnyEvent, StepStarts, StepWaits
from stoker.model.terms import GovernorOptions
from stoker.outside.folders import history

TIMEOUT_S = 60.0
# A governor that took a number from a message for a process must find no process to kill.
APART = ["unshare", "--pid", "--fork", "--mount-proc", "--kill-child"]
RUN = 4711
Field = str | bytes | int
Message = tuple[Field, ...]  # the first one is its word


class RealGovernor:
    """A governor of its own, with a client that keeps it alive."""

    def __init__(self, folder: Path, code: str = "from stoker.govern.server import daemon"):
        folder.mkdir(exist_ok=True)
        path = folder / "governor.sock"
        self.options = GovernorOptions(socket=str(path), policy="adaptive", cpus=2)
        self.log = folder / "governor.log"
        words = [sys.executable, "-c", f"{code}\ndaemon.main()"]
        said = msgspec.json.encode(self.options).decode()
        with self.log.open("wb") as log, listen(path) as listener:
            descriptor = listener.fileno()
            self._process = subprocess.Popen(
                [*APART, *words, said, str(descriptor)], stderr=log, pass_fds=[descriptor]
            )
        self.client = self.greet(RUN)

    def greet(self, run: int) -> Client:
        return Client(self.options, run=run, command="test", directory="/")

    def connect(self) -> "Line":
        return Line(self.options.socket)

    def serves(self) -> bool:
        """Whether a launcher that asks gets its permit."""
        with self.connect() as line:
            line.say(ask())
            return line.hears().startswith(b"run\t")

    def wait(self) -> int:
        return self._process.wait(TIMEOUT_S)

    def end(self) -> None:
        self.client.__exit__(None, None, None)
        try:
            self.wait()
        finally:
            self._process.kill()
            self._process.wait()


class Line:
    """A connection that says what no launcher would."""

    def __init__(self, path: str):
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.settimeout(TIMEOUT_S)
        self._socket.connect(path)

    def say(self, *messages: Message) -> None:
        self.send(b"".join(encode(str(word), *fields) for word, *fields in messages))

    def send(self, content: bytes) -> None:
        try:
            self._socket.sendall(content)
        except OSError:  # it was closed meanwhile
            return

    def hears(self) -> bytes:
        """What comes next; nothing when the governor has closed the connection."""
        try:
            return self._socket.recv(1 << 16)
        except ConnectionResetError:
            return b""

    def is_closed(self) -> bool:
        """Once the governor has closed it."""
        while self.hears():
            pass
        return True

    def __enter__(self) -> "Line":
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()


def ask(*command: str, run: Field = RUN) -> Message:
    return ("ask", VERSION, run, "/", 1, 0, "compile", "", *(command or ("true",)))


@pytest.fixture(autouse=True)
def _apart() -> None:
    if subprocess.run([*APART, "true"], capture_output=True, check=False).returncode:
        pytest.skip("no process namespace can be made here")


@pytest.fixture
def governor(tmp_path: Path) -> Iterator[RealGovernor]:
    found = RealGovernor(tmp_path / "run")
    yield found
    found.end()


USAGE = (1, 1, 1, 1)
BAD: dict[str, Sequence[Message]] = {
    "two asks": (ask(), ask()),
    "two asks of another version": (("ask", 1, RUN, 1), ("ask", 1, RUN, 1)),
    "a number no machine has": (ask(), ("memory", 1 << 80, 1 << 80, 0)),
    "a number of 5,000 digits": (ask(), ("memory", "9" * 5000, 1, 0)),
    "a number in another script": (ask(), ("memory", "\N{ARABIC-INDIC DIGIT FIVE}", 1, 0)),
    "memory without a permit": (("memory", 1, 1, 0),),
    "end without a permit": (("done", 0, 0, *USAGE, ""),),
    "kill without a permit": (("killed", *USAGE),),
    "ends twice": (ask(), ("done", 0, 0, *USAGE, ""), ("done", 0, 0, *USAGE, "")),
    "an empty ask": (("ask",),),
    "an ask without a command": (("ask", VERSION, RUN, "/", 1, 0, "compile", ""),),
    "a client without a command": (("client", 1),),
    "a client that greets twice": (("client", 1, "a", "/"), ("client", 2, "a", "/")),
    "a client with the number of another": (("client", RUN, "a", "/"),),
    "an end of no client": (("finish", 0),),
    "an unknown word": (("attack",),),
    "a bare backslash": (ask("x"), ("memory", b"\xff", b"\xff")),
}


@pytest.mark.parametrize("messages", BAD.values(), ids=BAD)
def test_a_connection_that_talks_nonsense_is_closed_and_the_governor_serves_on(
    governor: RealGovernor, messages: Sequence[Message]
) -> None:
    with governor.connect() as line:
        line.say(*messages)
        assert line.is_closed()
    assert governor.serves()
    assert "protocol error" in governor.log.read_text()


def test_an_endless_line_is_not_buffered_for_ever(governor: RealGovernor) -> None:
    with governor.connect() as line:
        for _ in range(40):
            line.send(b"x" * (1 << 20))
        assert line.is_closed()
    assert governor.serves()


FIELDS = st.one_of(
    st.integers(-2, 1 << 70), st.sampled_from([0, 1, RUN, VERSION]), st.text(max_size=8)
)
WORDS = st.sampled_from(
    ["ask", "started", "memory", "done", "killed", "client", "finish", "heartbeat", "", "\0"]
)
ANYTHING = st.one_of(
    st.tuples(WORDS, FIELDS, FIELDS, FIELDS, FIELDS, FIELDS, FIELDS),
    st.tuples(WORDS, FIELDS),
    st.just(ask()),
    st.tuples(st.just("started"), st.integers(1 << 30, 1 << 31)),
    st.just(("memory", 1 << 20, 1 << 62, 0)),
    st.just(("done", 0, 0, (1 << 63) - 1, (1 << 63) - 1, (1 << 63) - 1, (1 << 63) - 1, "")),
    st.just(("done", 1, 9, *USAGE, "Killed")),
    st.just(("killed", *USAGE)),
)


def test_no_sequence_of_messages_ends_it(governor: RealGovernor) -> None:
    @settings(database=None)
    @given(st.lists(st.lists(ANYTHING, max_size=5), max_size=3))
    def try_it(conversations: list[list[Message]]) -> None:
        lines = [governor.connect() for _ in conversations]
        for line, messages in zip(lines, conversations, strict=True):
            line.say(*messages)
        for line in lines:
            line.__exit__()
        assert governor.serves()

    try_it()


def test_a_fault_of_its_own_is_not_taken_for_nonsense_of_the_other_side(tmp_path: Path) -> None:
    """It ends, its client says so, and the traceback is in its log."""
    fault = "from stoker.govern.server import build_files, daemon\n"
    fault += "build_files.step_of = lambda *_, **__: {}['fault']"
    governor = RealGovernor(tmp_path / "run", fault)
    with governor.connect() as line:
        line.say(ask())
        assert line.is_closed()
    assert governor.wait() != 0
    assert "KeyError: 'fault'" in governor.log.read_text()
    governor.end()


SLOW_FILES = """
import pathlib, time
from stoker.govern.server import daemon

def text(self, path):
    while not pathlib.Path(path).exists():
        time.sleep(0.01)
    return ""

daemon.BuildFiles.text = text
"""


def test_a_slow_response_file_does_not_delay_other_steps(tmp_path: Path) -> None:
    governor = RealGovernor(tmp_path / "run", SLOW_FILES)
    with governor.connect() as slow, governor.connect() as gone:
        slow.say(ask("cc", f"@{tmp_path}/go"))
        gone.say(ask("cc", f"@{tmp_path}/go"))
        assert governor.serves()
        gone.__exit__()
        assert governor.serves()
        (tmp_path / "go").touch()
        assert slow.hears().startswith(b"run\t")
    with governor.connect() as never:  # and does not keep a governor whose clients have gone
        never.say(ask("cc", f"@{tmp_path}/never"))
        assert governor.serves()
        governor.end()


BUSY = """
import pathlib, sys, time
from stoker.govern.server import daemon
wait, busy = daemon.Connections.wait, pathlib.Path(sys.argv[1].split('"')[3]).with_name("busy")

def late(connections, seconds):
    while busy.exists():
        time.sleep(0.01)
    return wait(connections, seconds)

daemon.Connections.wait = late
"""


def test_the_first_step_starts_before_all_that_ask_at_once_are_read(tmp_path: Path) -> None:
    """ninja's window has 32 jobs for each CPU, which all ask while the governor starts."""
    governor = RealGovernor(tmp_path / "run", BUSY)
    busy = tmp_path / "run" / "busy"
    busy.touch()
    with ExitStack() as lines:
        for number in range(200):
            lines.enter_context(governor.connect()).say(ask("cc", "-c", f"{number}.c"))
        busy.unlink()
        heard: list[AnyEvent] = []
        while not any(isinstance(event, StepStarts) for event in heard):
            heard += governor.client.events()
    governor.end()
    first = next(at for at, event in enumerate(heard) if isinstance(event, StepStarts))
    assert sum(isinstance(event, StepWaits) for event in heard[:first]) < 100


def test_a_fault_in_a_thread_is_one_of_the_governor(tmp_path: Path) -> None:
    broken = "daemon.BuildFiles.text = lambda *_: {}['fault']"
    fault = f"from stoker.govern.server import daemon\n{broken}"
    governor = RealGovernor(tmp_path / "run", fault)
    with governor.connect() as line:
        line.say(ask("cc", "@file"))
        assert line.is_closed()
    assert governor.wait() != 0
    assert "KeyError: 'fault'" in governor.log.read_text()
    governor.end()


def test_it_ends_with_the_last_of_its_clients(governor: RealGovernor) -> None:
    other = governor.greet(RUN + 1)
    governor.client.__exit__(None, None, None)
    assert governor.serves()
    with governor.connect() as line:  # a launcher does not keep it
        line.say(ask())
        other.__exit__(None, None, None)
        assert governor.wait() == 0
    assert not Path(governor.options.socket).exists()


def test_what_governors_of_long_ago_left_is_removed(tmp_path: Path) -> None:
    """Containers come and go, and each one's governor has names of its own."""
    folder = tmp_path / "run"
    folder.mkdir()
    for name, days in (("old", 8), ("held", 8), ("new", 1)):
        (folder / f"{name}.turns-of-2").mkdir()
        (folder / f"{name}.log").touch()
        lock = folder / f"{name}.sock.lock"
        lock.touch()
        os.utime(lock, (time.time() - days * 86400,) * 2)
    with (folder / "held.sock.lock").open() as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        governor = RealGovernor(folder)
        governor.end()
    left = {path.name.partition(".")[0] for path in folder.iterdir()}
    assert left == {"held", "new", "governor"}


def test_a_run_of_another_home_has_its_own_history_and_limits(
    governor: RealGovernor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STOKER_HOME", str(tmp_path / "other"))
    own = replace(governor.options, cpus=1, cap=1 << 20)
    client = Client(own, run=5, command="second", directory="/")
    assert (client.options.cpus, client.options.cap) == (1, 1 << 20)
    with client, governor.connect() as line:
        line.say(ask(run=5))
        assert line.hears().startswith(b"run\t")
        line.say(("done", 0, 0, *USAGE, ""))
        assert line.is_closed()
        list(client.finish(0, cache_hits=0, written_bytes=None))
    summary = client.summary
    assert summary is not None
    assert (summary.cpus, summary.limit_bytes, summary.steps) == (1, 1 << 20, 1)
    with History(history()) as kept:
        run = kept.find(str(summary.run))
        assert (run.command, len(kept.attempts(run.id))) == ("second", 1)

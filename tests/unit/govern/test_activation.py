"""One process listens at a time: a run without a governor, or the governor that it starts."""

import select
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from stoker.govern.client.conversation import Client
from stoker.govern.server.activation import LOCK, Activation, listen
from stoker.model.errors import StorageError
from stoker.model.terms import GovernorOptions
from stoker.outside import locks

TIMEOUT_S = 60.0


@pytest.fixture
def options(tmp_path: Path) -> GovernorOptions:
    return GovernorOptions(socket=str(tmp_path / "governor.sock"), policy="adaptive", cpus=2)


@pytest.fixture
def activation(options: GovernorOptions) -> Iterator[Activation]:
    made = Activation(options, lambda: b"")
    yield made
    made.withdraw()
    made.connection.close()


def refuses(path: str) -> bool:
    with socket.socket(socket.AF_UNIX) as stream:
        return stream.connect_ex(path) != 0


def open_files() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def test_only_one_run_listens(options: GovernorOptions, activation: Activation) -> None:
    with pytest.raises(locks.BusyError):
        Activation(options, lambda: b"")
    assert activation.started is None


def test_nothing_is_left_of_one_that_was_not_needed(options: GovernorOptions) -> None:
    before, threads = open_files(), threading.active_count()
    activation = Activation(options, lambda: b"")
    assert activation.withdraw()
    assert activation.withdraw()
    activation.connection.close()
    assert not Path(options.socket).exists()
    assert (open_files(), threading.active_count()) == (before, threads)


def test_a_socket_that_was_left_is_replaced(options: GovernorOptions) -> None:
    listen(Path(options.socket)).close()
    assert refuses(options.socket)
    activation = Activation(options, lambda: b"")
    with listen(Path(options.socket).with_name("other")):
        assert Path(options.socket).is_socket()
    assert activation.withdraw()
    activation.connection.close()


def test_a_place_where_nothing_can_listen(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match="cannot listen at"):
        listen(tmp_path / "missing" / "governor.sock")


def test_a_run_that_met_one_which_was_withdrawn_listens_itself(options: GovernorOptions) -> None:
    found: list[Client] = []

    def join() -> None:
        found.append(Client(options, run=1, command="test", directory="/"))

    with locks.held(Path(f"{options.socket}{LOCK}")), listen(Path(options.socket)) as listener:
        thread = threading.Thread(target=join)
        thread.start()
        assert select.select([listener], [], [], TIMEOUT_S)[0]  # it waits to be welcomed
        Path(options.socket).unlink()
    thread.join(TIMEOUT_S)
    (client,) = found
    with client:
        assert client.dormant
        assert Path(options.socket).is_socket()
        assert list(client.finish(0, cache_hits=0, written_bytes=None)) == []
        assert client.dormant
    assert not Path(options.socket).exists()


def test_a_run_without_a_governor_has_none_that_hangs(
    options: GovernorOptions, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Client(options, run=1, command="test", directory="/") as client:
        monkeypatch.setattr("stoker.govern.client.conversation._SILENCE", 0.0)
        monkeypatch.setattr("stoker.govern.client.conversation.START", 0.0)
        assert not client.ended_as_hung()
        assert client.alive


SLOW = """
import time
if b"stoker.govern.server.daemon" in open("/proc/self/cmdline", "rb").read():
    while time.process_time() < 3:
        pass
"""


def test_a_governor_that_starts_slowly_does_not_hang(
    options: GovernorOptions, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """On a machine that is busy, its CPU seconds take long; they are seen, so that it is spared."""
    (tmp_path / "sitecustomize.py").write_text(SLOW)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setattr("stoker.govern.client.conversation.START", 1.0)
    client = Client(options, run=1, command="test", directory="/")
    with client, socket.socket(socket.AF_UNIX) as launcher:
        launcher.connect(options.socket)
        deadline = time.monotonic() + TIMEOUT_S
        while not client.answered and time.monotonic() < deadline:
            if select.select([client], [], [], 0.1)[0]:
                list(client.events())
            else:
                assert not client.ended_as_hung()
        assert (client.alive, client.answered) == (True, True)
        activation = client._activation
        assert activation
    activation.kill()

"""Only the process group that a launcher has handed over is ever killed."""

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from stoker.govern.server.peers import Keeper, kill_behind, process_behind

Leader = Callable[[], subprocess.Popen[bytes]]


@pytest.fixture
def leader() -> Iterator[Leader]:
    """Starts a process that leads a group with one more member, and says so."""
    started = []

    def start() -> subprocess.Popen[bytes]:
        words = ["sh", "-c", "sleep 1000 & echo; wait"]
        process = subprocess.Popen(words, stdout=subprocess.PIPE, process_group=0)
        started.append(process)
        assert process.stdout is not None
        process.stdout.readline()
        return process

    yield start
    for process in started:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()


def group_exists(number: int) -> bool:
    try:
        os.killpg(number, 0)
    except ProcessLookupError:
        return False
    return True


@pytest.mark.parametrize("is_dead", [False, True])
def test_the_group_is_killed_whether_its_leader_lives_or_not(leader: Leader, is_dead: bool) -> None:
    process = leader()
    keeper = Keeper(os.pidfd_open(process.pid))
    if is_dead:
        process.kill()
        process.wait()
        assert group_exists(process.pid)
    keeper.kill_group()
    keeper.close()
    assert process.stdout is not None
    assert process.stdout.read() == b""  # its end comes when no member holds the pipe
    assert process.wait() == -signal.SIGKILL


def test_what_is_no_leader_of_another_group_is_no_target(leader: Leader, tmp_path: Path) -> None:
    beside = subprocess.Popen(["sleep", "1000"])  # in our own group
    (tmp_path / "file").write_text("NSpid:\t1\n")
    for descriptor in (
        os.pidfd_open(1),
        os.pidfd_open(os.getpid()),
        os.pidfd_open(beside.pid),
        os.open(tmp_path / "file", os.O_RDONLY),
    ):
        keeper = Keeper(descriptor)
        keeper.kill_group()
        keeper.close()
    assert beside.poll() is None
    assert leader().poll() is None
    beside.kill()
    beside.wait()


USED_AGAIN = """
import os, signal, sys
from pathlib import Path
from stoker.govern.server.peers import Keeper

def leader():
    pid = os.fork()
    if pid == 0:
        signal.pause()
    os.setpgid(pid, pid)
    return pid

first = leader()
keeper = Keeper(os.pidfd_open(first))
os.kill(first, signal.SIGKILL)
os.waitpid(first, 0)
Path("/proc/sys/kernel/ns_last_pid").write_text(str(first - 1))
second = leader()
assert second == first
keeper.kill_group()
assert os.waitpid(second, os.WNOHANG) == (0, 0)
os.kill(second, signal.SIGTERM)
assert os.waitpid(second, 0)[1] == signal.SIGTERM
"""


def test_a_number_that_is_used_again_is_no_target(need: Callable[[str], str]) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root makes pid namespaces")
    words = [need("unshare"), "--pid", "--fork", "--mount-proc", sys.executable, "-c", USED_AGAIN]
    subprocess.run(words, check=True, timeout=60)


IN_A_NAMESPACE = """
import os, signal, socket, subprocess, sys
stream = socket.socket(fileno=int(sys.argv[1]))
process = subprocess.Popen(["sleep", "1000"], process_group=0)
socket.send_fds(stream, [b"started"], [os.pidfd_open(process.pid)])
sys.exit(process.wait() != -signal.SIGKILL)
"""


def test_a_group_in_another_namespace_is_killed(need: Callable[[str], str]) -> None:
    """There its number is small: here that is another process."""
    if os.geteuid() != 0:
        pytest.skip("only root makes pid namespaces")
    ours, theirs = socket.socketpair()
    words = [need("unshare"), "--pid", "--fork", sys.executable, "-c", IN_A_NAMESPACE]
    with subprocess.Popen([*words, str(theirs.fileno())], pass_fds=[theirs.fileno()]) as process:
        _, (descriptor,), _, _ = socket.recv_fds(ours, 100, 1)
        keeper = Keeper(descriptor)
        keeper.kill_group()
        keeper.close()
    assert process.returncode == 0
    ours.close()
    theirs.close()


LISTENING = """
import os, signal, socket, sys
listener = socket.socket(socket.AF_UNIX)
listener.bind(sys.argv[1])
listener.listen()
print(flush=True)
os.kill(os.getpid(), signal.SIGSTOP)
"""


def test_a_process_that_hangs_behind_a_socket_is_killed(tmp_path: Path) -> None:
    path = str(tmp_path / "socket")
    words = [sys.executable, "-c", LISTENING, path]
    with (
        subprocess.Popen(words, stdout=subprocess.PIPE) as process,
        socket.socket(socket.AF_UNIX) as stream,
    ):
        assert process.stdout is not None
        process.stdout.readline()
        stream.connect(path)
        assert process_behind(stream) == process.pid
        assert kill_behind(stream)
        assert process.wait() == -signal.SIGKILL
        assert kill_behind(stream)  # it is gone

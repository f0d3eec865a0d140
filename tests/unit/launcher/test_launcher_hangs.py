"""A governor that hangs without closing its socket, processes that cannot be made, terminals."""

import os
import pty
import shutil
import signal
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from conftest import Need, as_root
from unit.launcher.scripted import Launch, ScriptedGovernor, children, result, state, until

UNUSED_USER = 54321  # whose processes are only those of the test


@pytest.fixture
def hasty(launch: Launch, tmp_path: Path) -> Launch:
    """Launchers that soon ask whether the governor is alive; turns for one at a time."""
    (tmp_path / "locks").mkdir()
    (tmp_path / "locks/cpu0").touch()
    launch.environment |= {"STOKER_GOVERNOR_TIMEOUT": "3", "STOKER_LOCKS": str(tmp_path / "locks")}
    return launch


def test_those_that_wait_for_a_hung_governor_take_turns(
    hasty: Launch, governor: ScriptedGovernor, tmp_path: Path
) -> None:
    busy = 'echo + >> "$1"; sleep 0.1; echo - >> "$1"; echo $STOKER_STEP'
    processes = [hasty.script(busy, tmp_path / "log") for _ in range(4)]
    steps = [governor.accept() for _ in processes]
    assert [result(process) for process in processes] == [(0, b"0\n", b"")] * 4
    assert (tmp_path / "log").read_text().split() == ["+", "-"] * 4
    for step in steps:
        assert [step.hear_raw()[0] for _ in range(3)] == [b"ask", b"ping", b"ping"]


def test_a_paused_command_of_a_hung_governor_is_resumed(
    hasty: Launch, governor: ScriptedGovernor, tmp_path: Path
) -> None:
    process = hasty.script('until [ -e "$1" ]; do sleep 0.01; done; exit 3', tmp_path / "go")
    step = governor.asked()
    keeper = step.permit()
    step.say("pause")

    def is_paused() -> bool:
        step.say("pong")  # it hangs only from then on
        # A shell that is just starting a command by vfork waits for its stopped child ("D").
        return [state(pid) for pid in children(keeper)] in (["T"], ["D"])

    until(is_paused, "the command is paused")
    (tmp_path / "go").touch()
    assert result(process) == (3, b"", b"")


def test_a_finished_command_does_not_wait_for_a_hung_governor(
    hasty: Launch, governor: ScriptedGovernor
) -> None:
    process = hasty.script("echo out; exit 3")
    governor.permitted()
    assert result(process) == (3, b"out\n", b"")


def test_a_governor_that_answers_is_waited_for(hasty: Launch, governor: ScriptedGovernor) -> None:
    process = hasty("/bin/echo", "permitted")
    step = governor.asked()
    for _ in range(4):  # one more than a hung governor is asked
        assert step.hear_raw() == [b"ping"]
        step.say("pong")
    step.permit()
    step.expect("done")
    step.say("release")
    assert result(process) == (0, b"permitted\n", b"")


def test_a_governor_whose_queue_is_full_is_not_waited_for(hasty: Launch, tmp_path: Path) -> None:
    governor = ScriptedGovernor(tmp_path / "full", backlog=0)
    hasty.environment["STOKER_SOCKET"] = str(governor.path)
    processes = [hasty("/bin/echo", "alone") for _ in range(3)]
    assert [result(process) for process in processes] == [(0, b"alone\n", b"")] * 3
    governor.die()


def test_the_end_of_the_run_is_told(hasty: Launch, governor: ScriptedGovernor) -> None:
    waiting, running = hasty("/bin/true"), hasty("/bin/sleep", "1000")
    steps = {len(step.expect("ask")): step for step in (governor.accept(), governor.accept())}
    keeper = steps[max(steps)].permit()
    for step in steps.values():
        step.say("end")
    assert waiting.wait(60) == running.wait(60) == -signal.SIGTERM
    assert state(keeper) == ""


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """A folder that every user may enter, unlike those of pytest."""
    with tempfile.TemporaryDirectory() as name:
        Path(name).chmod(0o777)
        yield Path(name)


@as_root
@pytest.mark.parametrize("processes", [1, 2])
def test_a_launcher_that_cannot_fork_runs_the_command_all_the_same(
    launch: Launch, open_folder: Path, need: Need, processes: int
) -> None:
    """With a limit of 1 there is no process for the keeper, with 2 none below the keeper."""
    setpriv, prlimit = need("setpriv"), need("prlimit")
    governor = ScriptedGovernor(open_folder / "socket")
    governor.path.chmod(0o777)
    governor.permit_everything()
    launcher = shutil.copy2(launch.launcher, open_folder / "stoker-launcher")
    launch.environment |= {"STOKER_SOCKET": str(governor.path), "STOKER_SCRATCH": str(open_folder)}
    user = [setpriv, f"--reuid={UNUSED_USER}", "--clear-groups", prlimit, f"--nproc={processes}"]
    process = launch.program([*user, launcher, "/bin/sh", "-c", "echo ran; exit 3"], cwd=Path("/"))
    assert result(process) == (3, b"ran\n", b"")
    governor.die()


@contextmanager
def at_terminal(launch: Launch, *command: str) -> Iterator[tuple[int, int]]:
    """The launcher in the foreground of a terminal: its pid, and the keyboard."""
    pid, keyboard = pty.fork()
    if pid == 0:
        os.execve(launch.launcher, [str(launch.launcher), *command], launch.environment)
    try:
        yield pid, keyboard
    finally:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
        os.close(keyboard)


READ = 'exec < /dev/tty; read line || { echo "cannot read" >> "$0"; exit 5; }'


def test_a_command_that_reads_the_terminal_gets_an_error(
    launch: Launch, governor: ScriptedGovernor, tmp_path: Path
) -> None:
    with at_terminal(launch, "/bin/sh", "-c", READ, str(tmp_path / "log")) as (pid, _):
        step = governor.permitted()
        assert step.expect("done")[:2] == [b"5", b"0"]
        assert (tmp_path / "log").read_text() == "cannot read\n"
        step.say("release")
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 5


STOPPED = """
import os, signal, sys
signal.signal(signal.SIGTTIN, signal.SIG_DFL)
os.read(os.open("/dev/tty", os.O_RDWR), 1)
"""


def test_ctrl_c_ends_a_command_that_the_terminal_has_stopped(
    launch: Launch, governor: ScriptedGovernor
) -> None:
    """One that wants to be stopped: an interactive shell, say."""
    python = shutil.which("python3") or "python3"
    with at_terminal(launch, python, "-I", "-S", "-c", STOPPED) as (pid, keyboard):
        step = governor.asked()
        keeper = step.permit()
        until(lambda: [state(child) for child in children(keeper)] == ["T"], "it is stopped")
        until(lambda: state(keeper) == "S", "the keeper waits")  # it must be able to clean up
        os.write(keyboard, b"\x03")
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == -signal.SIGINT

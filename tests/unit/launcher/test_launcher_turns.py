"""When the governor dies, running steps continue, and waiting steps take turns."""

import resource
import signal
import subprocess
from pathlib import Path

import pytest

from unit.launcher.scripted import Launch, ScriptedGovernor, result

BUSY = 'echo + >> "$1"; sleep 0.1; echo - >> "$1"; echo $STOKER_STEP'


@pytest.fixture
def locks(tmp_path: Path, launch: Launch) -> Path:
    """Turns for two at a time."""
    folder = tmp_path / "locks"
    folder.mkdir()
    for number in range(2):
        (folder / f"cpu{number}").touch()
    launch.environment["STOKER_LOCKS"] = str(folder)
    return folder


def most_at_once(log: Path) -> int:
    running = most = 0
    for sign in log.read_text().split():
        running += 1 if sign == "+" else -1
        most = max(most, running)
    return most


def test_launchers_that_waited_take_turns(
    launch: Launch, governor: ScriptedGovernor, tmp_path: Path, locks: Path
) -> None:
    """A run that wants to know how many do so has made a file for it."""
    log, counted = tmp_path / "log", locks / "ungoverned-1"
    counted.touch()
    processes = [launch.script(BUSY, log) for _ in range(8)]
    for _ in processes:
        governor.asked()
    governor.die()
    assert [result(process) for process in processes] == [(0, b"0\n", b"")] * 8
    assert most_at_once(log) == 2
    assert counted.stat().st_size == 8


@pytest.mark.usefixtures("locks")
def test_a_step_that_waits_asks_the_next_governor(
    launch: Launch, governor: ScriptedGovernor
) -> None:
    """A run starts another governor where one was killed."""
    process = launch.script("echo $STOKER_STEP")
    governor.asked()
    governor.die()
    governor.path.unlink()
    following = ScriptedGovernor(governor.path)
    step = following.asked()
    step.permit()
    step.expect("done")
    step.say("release")
    assert result(process)[0] == 0
    following.die()


@pytest.mark.usefixtures("locks")
def test_launchers_that_start_later_take_turns_too(
    launch: Launch, governor: ScriptedGovernor, tmp_path: Path
) -> None:
    """ninja's window is many times the CPUs: all at once would be the stampede."""
    governor.die()
    log = tmp_path / "log"
    processes = [launch.script(BUSY, log) for _ in range(6)]
    assert [result(process) for process in processes] == [(0, b"0\n", b"")] * 6
    assert most_at_once(log) == 2


@pytest.mark.usefixtures("locks")
def test_a_turn_can_be_given_up(launch: Launch, governor: ScriptedGovernor) -> None:
    governor.die()
    holders = [launch.script("echo up; sleep 1000") for _ in range(2)]
    waiting = launch("/bin/true")
    waiting.send_signal(signal.SIGINT)
    assert waiting.wait(60) == -signal.SIGINT
    for holder in holders:
        holder.kill()
    assert result(launch("/bin/true")) == (0, b"", b"")


def test_without_locks_it_becomes_the_command(launch: Launch, governor: ScriptedGovernor) -> None:
    process = launch("/bin/sh", "-c", "echo $$")
    governor.asked()
    governor.die()
    assert result(process) == (0, b"%d\n" % process.pid, b"")


@pytest.mark.usefixtures("locks")
def test_a_running_command_continues_until_it_exits(
    launch: Launch, governor: ScriptedGovernor, tmp_path: Path
) -> None:
    process = launch.script(
        'echo out; while [ ! -e "$1" ]; do sleep 0.01; done; exit 3', tmp_path / "go"
    )
    governor.asked().permit()
    governor.die()
    (tmp_path / "go").touch()
    assert result(process) == (3, b"out\n", b"")


@pytest.mark.usefixtures("locks")
def test_a_governor_that_dies_after_done(launch: Launch, governor: ScriptedGovernor) -> None:
    process = launch.script("echo out; exit 3")
    step = governor.permitted()
    step.expect("done")
    governor.die()
    assert result(process) == (3, b"out\n", b"")


@pytest.mark.usefixtures("locks")
def test_a_preempted_step_whose_governor_dies(launch: Launch, governor: ScriptedGovernor) -> None:
    process = launch.script('[ "$STOKER_STEP" = 0 ] && echo well || sleep 1000')
    step = governor.permitted()
    step.kill()
    governor.die()
    assert result(process) == (0, b"well\n", b"")


@pytest.mark.heavy
@pytest.mark.usefixtures("locks")
def test_five_thousand_who_waited(launch: Launch, governor: ScriptedGovernor) -> None:
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    nowhere = subprocess.DEVNULL
    processes = [launch("/bin/true", stdout=nowhere, stderr=nowhere) for _ in range(5000)]
    for _ in processes:
        governor.asked()
    governor.die()
    assert {process.wait(60) for process in processes} == {0}

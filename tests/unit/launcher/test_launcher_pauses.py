"""Pause and resume: growth stops, the work is kept, and every process is resumed."""

import os
import signal
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from unit.launcher.scripted import (
    Conversation,
    Launch,
    ScriptedGovernor,
    alive,
    children,
    encoded,
    pids_in,
    result,
    state,
    until,
)

# A command and its child, which is in a session of its own: both write without end, until they may.
TICKING = """
import os, sys, time
child = os.fork()
if child == 0:
    os.setsid()
log = os.open(sys.argv[1], os.O_WRONLY | os.O_CREAT | os.O_APPEND)
memory = b"x" * (20 << 20)
while not os.path.exists(sys.argv[2]):
    os.write(log, b"%d\\n" % os.getpid())
    time.sleep(0.002)
if child:
    os.waitpid(child, 0)
    sys.exit(3)
"""

TRAPPING = """
import os, signal, sys, time
log = os.open(sys.argv[1], os.O_WRONLY | os.O_CREAT | os.O_APPEND)
signal.signal(signal.SIGTERM, lambda *_: os.write(log, b"trapped\\n"))
os.write(log, b"ready\\n")
while not os.path.exists(sys.argv[2]):
    time.sleep(0.002)
sys.exit(4)
"""

LEAVING_A_DAEMON = """
import os, sys, time
daemon = os.fork()
if daemon == 0:
    time.sleep(1000)
with open(sys.argv[1], "w") as log:
    print(daemon, file=log)
while not os.path.exists(sys.argv[2]):
    time.sleep(0.002)
sys.exit(3)
"""

# Each child has a child and ends, so that at any moment a process is about to be forked.
FORKING = """
import os, sys, time
log = os.open(sys.argv[1], os.O_WRONLY | os.O_CREAT | os.O_APPEND)
if os.fork():
    time.sleep(1000)
while True:
    if os.fork():
        time.sleep(0.002)
        os._exit(0)
    os.setsid()
    os.write(log, b"%d\\n" % os.getpid())
"""


def descendants(pid: int) -> Iterator[int]:
    for child in children(pid):
        yield child
        yield from descendants(child)


class Command:
    """One under way that writes to a log, and ends when it may."""

    def __init__(self, launch: Launch, governor: ScriptedGovernor, folder: Path, text: str):
        self.log = folder / "log"
        self._end = folder / "end"
        self.process = launch.python(text, self.log, self._end)
        self.step = governor.asked()
        self.permitted = time.monotonic()
        self.keeper = self.step.permit()
        until(lambda: self.size() > 0, "the log begins")  # some commands write only once

    def size(self) -> int:
        return self.log.stat().st_size if self.log.exists() else 0

    def moves(self) -> None:
        before = self.size()
        until(lambda: self.size() > before, "the log grows")

    def is_stopped(self) -> bool:
        """Return all processes; zombies that a stopped parent cannot reap do not count."""
        states = {state(pid) for pid in descendants(self.keeper)} - {"Z", ""}
        return states == {"T"}

    def stands_still(self) -> bool:
        before = self.size()
        time.sleep(0.1)  # in which one that was overlooked would write
        return self.is_stopped() and self.size() == before

    def pause(self) -> None:
        self.step.say("pause")
        until(self.stands_still, "all of it is stopped")
        assert state(self.keeper) != "T"

    def end(self) -> None:
        self._end.touch()


@pytest.fixture
def ticking(launch: Launch, governor: ScriptedGovernor, tmp_path: Path) -> Command:
    command = Command(launch, governor, tmp_path, TICKING)
    until(lambda: len(set(command.log.read_text().split("\n")[:-1])) == 2, "both write")
    return command


def test_a_paused_command_stops_and_then_resumes(ticking: Command) -> None:
    ticking.pause()
    assert len(list(descendants(ticking.keeper))) == 2
    ticking.pause()  # once more is no more
    ticking.step.say("resume")
    ticking.moves()
    ticking.step.say("resume")
    ticking.moves()
    ticking.pause()
    ticking.step.say("resume")
    ticking.end()
    assert ticking.step.expect("done")[:2] == [b"3", b"0"]
    ticking.step.say("release")
    assert result(ticking.process) == (3, b"", b"")


def test_memory_is_still_reported_and_time_does_not_count(ticking: Command) -> None:
    ticking.pause()
    paused = time.monotonic()
    while time.monotonic() < paused + 2:  # one report a second: the last one is of the pause
        assert int(ticking.step.expect("memory")[0]) > 0
    seconds_paused = time.monotonic() - paused
    ticking.step.say("resume")
    ticking.end()
    _, _, wall_us, _, peak, byte_seconds, _ = ticking.step.expect("done")
    seconds = time.monotonic() - ticking.permitted
    assert 0 < int(wall_us) / 1e6 < seconds - seconds_paused
    assert 0 < int(byte_seconds) <= int(peak) * int(wall_us) / 1e6


def test_a_paused_command_can_be_killed_and_the_next_attempt_runs(ticking: Command) -> None:
    ticking.pause()
    pids = list(descendants(ticking.keeper))
    ticking.step.say("kill")
    assert int(ticking.step.expect("killed")[0]) > 0
    assert not any(alive(pid) for pid in pids)
    ticking.step.say("pause")  # between attempts there is nothing to pause
    ticking.step.permit()
    ticking.moves()
    ticking.end()
    assert ticking.step.expect("done")[0] == b"3"


@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM", "SIGHUP", "SIGQUIT"])
def test_a_signal_ends_a_paused_command(ticking: Command, name: str) -> None:
    number = signal.Signals[name]
    ticking.pause()
    pids = list(descendants(ticking.keeper))
    ticking.process.send_signal(number)
    assert result(ticking.process)[0] == -number
    assert not any(alive(pid) for pid in pids)


def test_a_command_that_was_told_to_end_is_not_paused_again(
    launch: Launch, governor: ScriptedGovernor, tmp_path: Path
) -> None:
    command = Command(launch, governor, tmp_path, TRAPPING)
    command.pause()
    command.process.terminate()
    until(lambda: "trapped" in command.log.read_text(), "the command acts on the signal")
    command.step.say("pause")
    command.end()
    assert result(command.process) == (4, b"", b"")


def test_job_control_leaves_the_pause_as_it_is(ticking: Command) -> None:
    ticking.pause()
    ticking.process.send_signal(signal.SIGTSTP)
    until(lambda: state(ticking.process.pid) == "T", "the launcher is stopped")
    ticking.process.send_signal(signal.SIGCONT)
    until(lambda: state(ticking.process.pid) == "S", "the launcher continues")
    until(ticking.stands_still, "still paused")
    ticking.step.say("resume")
    ticking.moves()


def test_a_paused_command_resumes_without_its_governor(
    ticking: Command, governor: ScriptedGovernor
) -> None:
    ticking.pause()
    governor.die()
    ticking.moves()
    ticking.end()
    assert result(ticking.process) == (3, b"", b"")


@pytest.mark.parametrize("who", ["launcher", "keeper"])
def test_of_a_paused_command_nothing_is_left(ticking: Command, who: str) -> None:
    ticking.pause()
    pids = [ticking.keeper, *descendants(ticking.keeper)]
    os.kill(ticking.process.pid if who == "launcher" else ticking.keeper, signal.SIGKILL)
    until(lambda: not any(alive(pid) for pid in pids), "all processes gone")


def test_what_is_born_around_the_pause_is_stopped_too(
    launch: Launch, governor: ScriptedGovernor, tmp_path: Path
) -> None:
    command = Command(launch, governor, tmp_path, FORKING)
    for _ in range(10):
        command.pause()
        command.step.say("resume")
        command.moves()
    command.pause()
    pids = list(descendants(command.keeper))
    command.process.kill()
    until(lambda: not any(alive(pid) for pid in pids), "all processes gone")


def permit_and_pause(governor: ScriptedGovernor) -> tuple[Conversation, int]:
    """Send both at once: the pause may find no child of the keeper, or a child before its exec."""
    step = governor.asked()
    step.say_raw(encoded("run", "7") + encoded("pause"))
    step.expect("started")
    return step, step.keeper


def test_a_pause_that_comes_with_the_permit(
    launch: Launch, governor: ScriptedGovernor, tmp_path: Path
) -> None:
    process = launch.python(TRAPPING, tmp_path / "log", tmp_path / "end")
    step, keeper = permit_and_pause(governor)
    until(lambda: [state(pid) for pid in children(keeper)] == ["T"], "it is stopped")
    step.say("resume")
    (tmp_path / "end").touch()
    assert step.expect("done")[0] == b"4"
    step.say("release")
    assert result(process) == (4, b"", b"")


def test_a_launcher_that_dies_while_it_pauses_what_it_starts(
    launch: Launch, governor: ScriptedGovernor
) -> None:
    process = launch("/bin/sleep", "1000")
    _, keeper = permit_and_pause(governor)
    process.kill()
    until(lambda: not alive(keeper), "the keeper is gone")


def test_a_daemon_does_not_stay_stopped(
    launch: Launch, governor: ScriptedGovernor, tmp_path: Path
) -> None:
    """A command that was about to end when the pause came leaves it to us."""
    command = Command(launch, governor, tmp_path, LEAVING_A_DAEMON)
    (daemon,) = pids_in(command.log, 1)
    try:
        command.pause()
        (compiler,) = children(command.keeper)
        command.end()

        def has_ended() -> bool:
            with suppress(ProcessLookupError):
                os.kill(compiler, signal.SIGCONT)
            return not alive(compiler)

        until(has_ended, "the command ends")
        assert command.step.expect("done")[0] == b"3"
        until(lambda: state(daemon) == "S", "the daemon continues")
    finally:
        os.kill(daemon, signal.SIGKILL)


def test_a_command_with_hundreds_of_children(
    launch: Launch, governor: ScriptedGovernor, tmp_path: Path
) -> None:
    """The kernel lists them in pieces of a page."""
    pids = tmp_path / "pids"
    launch.python(
        "import os, signal, sys\n"
        "for _ in range(900):\n"
        "    if os.fork() == 0: signal.pause()\n"
        "open(sys.argv[1], 'w').write(open('/proc/thread-self/children').read() + '\\n')\n"
        "signal.pause()\n",
        pids,
    )
    step = governor.permitted()
    until(lambda: pids.exists() and pids.read_text().endswith("\n"), "all have started")
    forked = [int(pid) for pid in pids.read_text().split()]
    assert len(forked) == 900
    step.say("pause")
    until(lambda: all(state(pid) == "T" for pid in forked), "all are stopped")
    step.kill()
    assert not any(alive(pid) for pid in forked)

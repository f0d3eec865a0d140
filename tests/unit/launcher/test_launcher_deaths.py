"""Whichever process dies, no other process and no incomplete file is left behind."""

import ctypes
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from conftest import missing
from unit.launcher.scripted import (
    Launch,
    ScriptedGovernor,
    alive,
    children,
    pids_in,
    process_and_namespace,
    result,
    state,
    until,
)

# The shell itself, a child, a grandchild in a session of its own whose parent is gone.
TREE = (
    'echo $$ >> "$1"; echo part > "$3"; echo x > "$TMPDIR/x"; sleep 1000 & echo $! >> "$1"; '
    'sh -c \'setsid sleep 1000 & echo $! >> "$0"\' "$1"; wait'
)


class Tree:
    """A command with descendants everywhere, under way."""

    def __init__(self, launch: Launch, governor: ScriptedGovernor, folder: Path):
        self.output = folder / "out.o"
        self.steps = folder / "steps"
        self.process = launch.script(TREE, folder / "pids", "-o", self.output)
        self.step = governor.asked()
        self.keeper = self.step.permit()
        self.pids = pids_in(folder / "pids", 3)
        assert all(alive(pid) for pid in self.pids)

    def vanishes(self) -> None:
        everyone = [self.process.pid, self.keeper, *self.pids]
        until(lambda: not any(alive(pid) for pid in everyone), "all processes gone")

    def leaves_nothing(self) -> None:
        self.vanishes()
        assert not self.output.exists()
        assert list(self.steps.iterdir()) == []


@pytest.fixture
def tree(launch: Launch, governor: ScriptedGovernor, tmp_path: Path) -> Tree:
    launch.environment["STOKER_SCRATCH"] = str(tmp_path / "steps")
    return Tree(launch, governor, tmp_path)


def test_of_the_launcher(tree: Tree) -> None:
    tree.process.kill()
    tree.leaves_nothing()
    assert tree.step.hear() == []  # the connection ends with the keeper, when memory is free


@pytest.mark.parametrize("kill", [os.kill, os.killpg])
def test_of_the_keeper(tree: Tree, kill: Callable[[int, int], None]) -> None:
    """Alone, or with its process group, as the governor kills it when a run is gone."""
    kill(tree.keeper, signal.SIGKILL)
    assert tree.step.expect("done")[:2] == [b"0", b"9"]
    tree.step.say("release")
    assert tree.process.wait(60) == -signal.SIGKILL
    tree.vanishes()


def test_of_the_compiler(tree: Tree) -> None:
    os.kill(tree.pids[0], signal.SIGKILL)
    assert tree.step.expect("done")[:2] == [b"0", b"9"]
    until(lambda: not any(alive(pid) for pid in tree.pids), "orphans gone")
    tree.step.say("release")
    assert tree.process.wait(60) == -signal.SIGKILL


def test_of_the_run(launch: Launch, governor: ScriptedGovernor, tmp_path: Path) -> None:
    with subprocess.Popen(["sleep", "1000"]) as run:
        launch.environment["STOKER_PROCESS"] = process_and_namespace(run.pid)
        waiting = launch("/bin/true")
        governor.asked()
        tree = Tree(launch, governor, tmp_path)
        run.kill()
    tree.leaves_nothing()
    assert tree.process.wait(60) == waiting.wait(60) == -signal.SIGTERM


def test_of_the_parent(launch: Launch, governor: ScriptedGovernor, tmp_path: Path) -> None:
    """ninja, say, killed with -9."""
    command = [str(launch.launcher), str(launch.compiler), "-c", TREE, "sh", str(tmp_path / "pids")]
    spawn = f"import subprocess; subprocess.run({[*command, '-o', str(tmp_path / 'out.o')]!r})"
    parent = launch.program([sys.executable, "-I", "-S", "-c", spawn])
    step = governor.asked()
    keeper = step.permit()
    pids = pids_in(tmp_path / "pids", 3)
    (process,) = children(parent.pid)
    parent.kill()
    until(lambda: not any(map(alive, [process, keeper, *pids])), "all processes gone")
    assert not (tmp_path / "out.o").exists()


def test_of_only_a_thread_of_the_parent(launch: Launch, governor: ScriptedGovernor) -> None:
    """The kernel sends the same signal as when the parent dies."""
    started: list[subprocess.Popen[bytes]] = []
    thread = threading.Thread(target=lambda: started.append(launch.script("sleep 0.2; echo well")))
    thread.start()
    step = governor.permitted()
    thread.join()
    step.expect("done")
    step.say("release")
    assert result(started[0]) == (0, b"well\n", b"")


def test_of_a_hundred_that_fork_and_flee(
    launch: Launch, governor: ScriptedGovernor, tmp_path: Path
) -> None:
    """Each child leaves the group and has a child of its own, for as long as it lives."""
    text = (
        "import os, sys, time\n"
        "log = os.open(sys.argv[1], os.O_WRONLY | os.O_CREAT | os.O_APPEND)\n"
        "if os.fork(): time.sleep(1000)\n"
        "for _ in range(100):\n"
        "    if os.fork(): time.sleep(0.02); os._exit(0)\n"
        "    os.setsid()\n"
        "    os.write(log, b'%d\\n' % os.getpid())\n"
        "time.sleep(1000)\n"
    )
    launch.python(text, tmp_path / "pids")
    step = governor.permitted()
    pids_in(tmp_path / "pids", 20)
    step.kill()
    seen = pids_in(tmp_path / "pids", 20)
    assert not any(alive(pid) for pid in seen)


@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM", "SIGHUP", "SIGQUIT"])
def test_signals_reach_the_command(launch: Launch, governor: ScriptedGovernor, name: str) -> None:
    number = signal.Signals[name]
    process = launch.script("echo before; sleep 1000")
    governor.asked().permit()
    (keeper,) = children(process.pid)
    until(lambda: bool(children(keeper) and children(children(keeper)[0])), "the sleep runs")
    process.send_signal(number)
    assert result(process) == (-number, b"before\n", b"")


def test_a_command_may_answer_a_signal_in_its_own_way(
    launch: Launch, governor: ScriptedGovernor, tmp_path: Path
) -> None:
    process = launch.script(
        'trap "echo trapped; exit 3" TERM; echo > "$1"; while :; do sleep 0.01; done',
        tmp_path / "up",
    )
    step = governor.permitted()
    until((tmp_path / "up").exists, "the trap is set")
    process.terminate()
    assert result(process)[:2] == (3, b"trapped\n")
    assert step.expect("done")[:2] == [b"3", b"0"]  # told, not asked


@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM", "SIGHUP", "SIGQUIT"])
def test_signals_end_a_launcher_that_waits(
    launch: Launch, governor: ScriptedGovernor, name: str
) -> None:
    process = launch("/bin/true")
    step = governor.asked()
    process.send_signal(signal.Signals[name])
    assert result(process) == (-signal.Signals[name], b"", b"")
    assert step.hear() == []


def test_a_signal_while_the_governor_ponders(launch: Launch, governor: ScriptedGovernor) -> None:
    process = launch.script("echo done; exit 4")
    step = governor.permitted()
    step.expect("done")
    process.send_signal(signal.SIGINT)
    assert result(process) == (4, b"done\n", b"")


def test_an_interrupted_step_is_not_tried_again(launch: Launch, governor: ScriptedGovernor) -> None:
    process = launch.script('trap "" INT; while :; do sleep 0.01; done')
    step = governor.permitted()
    (keeper,) = children(process.pid)
    until(lambda: bool(children(keeper)), "the command runs")
    process.send_signal(signal.SIGINT)
    until(lambda: signal_was_read(process.pid), "the launcher has read the signal")
    step.say("kill")
    assert result(process) == (-signal.SIGINT, b"", b"")


def signal_was_read(pid: int) -> bool:
    pending = Path(f"/proc/{pid}/status").read_text().partition("ShdPnd:")[2].split()[0]
    return int(pending, 16) == 0


def test_ignored_signals_stay_ignored(launch: Launch, governor: ScriptedGovernor) -> None:
    """As under nohup; an ignored SIGCHLD must not lose us the status."""
    governor.permit_everything()
    script = f'trap "" HUP CHLD; exec {launch.launcher} sh -c "kill -HUP \\$\\$; exit 5"'
    assert result(launch.program(["/bin/sh", "-c", script]))[0] == 5


def test_stopping_and_going_on(launch: Launch, governor: ScriptedGovernor) -> None:
    process = launch.script("sleep 1000; exit 6")
    step = governor.asked()
    keeper = step.permit()
    until(lambda: bool(children(keeper) and children(children(keeper)[0])), "the sleep runs")
    (shell,) = children(keeper)
    (sleep,) = children(shell)
    process.send_signal(signal.SIGTSTP)
    until(lambda: [state(pid) for pid in (process.pid, shell, sleep)] == ["T"] * 3, "all stopped")
    process.send_signal(signal.SIGCONT)
    until(lambda: [state(pid) for pid in (process.pid, shell, sleep)] == ["S"] * 3, "all going on")
    os.kill(sleep, signal.SIGKILL)
    assert step.expect("done")[0] == b"6"
    step.say("release")
    assert process.wait(60) == 6


def test_of_a_child_that_cannot_be_reaped(
    launch: Launch, governor: ScriptedGovernor, tmp_path: Path
) -> None:
    """A debugger keeps it; one that waits for a lost disk would not even die."""
    seize = 0x4206
    pids = tmp_path / "pids"
    process = launch.script('[ -e "$1" ] && exit 0; echo $$ > "$1"; sleep 1000', pids)
    step = governor.permitted()
    (compiler,) = pids_in(pids, 1)
    ptrace = ctypes.CDLL(None, use_errno=True).ptrace
    ptrace.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p]
    if ptrace(seize, compiler, None, None) < 0:
        missing("the right to trace a process")
    step.kill()
    assert state(compiler) == "Z"
    step.permit()
    step.expect("done")
    os.waitpid(compiler, 0)
    assert process.wait(60) == 0

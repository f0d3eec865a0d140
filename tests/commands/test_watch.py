"""`stoker watch`: a running build seen from another process."""

import fcntl
import os
import pty
import struct
import subprocess
import termios
from pathlib import Path

import msgspec
import pytest

from governed import STOKER, WAIT, Build, finished, wait_until
from stoker.model.events import AnyEvent, Overview, RunBegins, RunEnds


def watch(build: Build, *words: str) -> "subprocess.Popen[bytes]":
    return subprocess.Popen(
        [STOKER, "watch", *words],
        env=build.environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )


def event_of(line: bytes) -> AnyEvent:
    event: AnyEvent = msgspec.json.decode(line, type=AnyEvent)
    return event


def sockets(build: Build) -> list[Path]:
    return list((build.home / "run").glob("*.watch"))


@pytest.fixture
def waiting(build: Build) -> Build:
    """A build whose only step waits for the file ``go``."""
    build.step("one", f"touch begun; {WAIT}")
    return build


def begin(build: Build) -> "subprocess.Popen[bytes]":
    run = build.start()
    wait_until((build.folder / "begun").exists, "the step runs")
    return run


def test_a_watcher_sees_the_state_and_the_end(waiting: Build) -> None:
    run = begin(waiting)
    watcher = watch(waiting, "--json")
    assert watcher.stdout is not None
    first = event_of(watcher.stdout.readline())
    assert isinstance(first, RunBegins)
    assert (first.command, first.process) == ("ninja", run.pid)
    view = None
    while view is None or not view.running:
        event = event_of(watcher.stdout.readline())
        view = event if isinstance(event, Overview) else view
    waiting.let_go()
    events = [event_of(line) for line in watcher.stdout]
    assert finished(watcher).status == 0
    assert isinstance(events[-1], RunEnds)
    assert events[-1].summary is not None
    assert events[-1].summary.steps == 1
    assert finished(run).status == 0
    assert sockets(waiting) == []


def test_a_watcher_that_leaves_does_not_disturb_the_build(waiting: Build) -> None:
    run = begin(waiting)
    for _ in range(3):
        watcher = watch(waiting, "--json")
        assert watcher.stdout is not None
        watcher.stdout.readline()
        watcher.kill()
        watcher.communicate()
    waiting.let_go()
    assert finished(run).status == 0


def test_a_killed_build_is_reported(waiting: Build) -> None:
    run = begin(waiting)
    watcher = watch(waiting, "--json")
    assert watcher.stdout is not None
    watcher.stdout.readline()
    run.kill()
    run.communicate()
    events = [event_of(line) for line in watcher.stdout]
    assert finished(watcher).status == 0
    assert not any(isinstance(event, RunEnds) for event in events)
    assert len(sockets(waiting)) == 1
    again = finished(watch(waiting))
    assert "no build of yours is running" in again.err
    assert sockets(waiting) == []  # what the killed build left is removed


def test_nothing_to_watch(build: Build) -> None:
    done = finished(watch(build))
    assert done.status == 2
    assert "no build of yours is running" in done.err


def test_several_builds_must_be_told_apart(waiting: Build, tmp_path: Path) -> None:
    other = Build(tmp_path / "other", waiting.home)
    other.step("one", f"touch begun; {WAIT}")
    runs = [begin(waiting), begin(other)]
    done = finished(watch(waiting))
    assert done.status == 2
    assert "several builds are running" in done.err
    assert all(f"stoker watch {run.pid}" in done.err for run in runs)
    assert "no running build is called 'x'" in finished(watch(waiting, "x")).err
    chosen = watch(waiting, str(runs[1].pid), "--json")
    assert chosen.stdout is not None
    first = event_of(chosen.stdout.readline())
    assert isinstance(first, RunBegins)
    assert first.process == runs[1].pid
    for build in (waiting, other):
        build.let_go()
    assert [finished(run).status for run in runs] == [0, 0]
    assert finished(chosen).status == 0


@pytest.mark.slow
def test_at_a_terminal_there_is_a_page(waiting: Build) -> None:
    run = begin(waiting)
    pid, keyboard = pty.fork()
    if pid == 0:
        os.environ.update(waiting.environment | {"TERM": "xterm"})
        os.execv(STOKER, ["stoker", "watch"])
    fcntl.ioctl(keyboard, termios.TIOCSWINSZ, struct.pack("HHHH", 16, 40, 0, 0))
    shown = b""
    while b"build  0 done" not in shown:
        shown += os.read(keyboard, 1 << 16)
    waiting.let_go()
    try:
        while chunk := os.read(keyboard, 1 << 16):
            shown += chunk
    except OSError:
        pass  # every process has closed the terminal
    os.close(keyboard)
    assert os.waitpid(pid, 0)[1] == 0
    assert b"1 step in" in shown
    assert shown.count(b"\x1b[?1049h") == shown.count(b"\x1b[?1049l") == 1
    assert finished(run).status == 0

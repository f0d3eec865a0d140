"""Fault injection: processes are killed and disks fill up; the build continues, and no process is
left behind.
"""

import os
import re
import signal
import sqlite3
import subprocess
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path

import pytest

from conftest import Need, as_root
from governed import (
    WAIT,
    Build,
    above,
    alive,
    at_terminal,
    command_of,
    finished,
    parent_of,
    wait_until,
)
from small_disks import small_disk


def sleepers(build: Build) -> list[int]:
    """Return the processes of `sleep 1000`; a shell forks before such a child is one."""
    return [pid for pid in build.processes() if command_of(pid).startswith("sleep 1000")]


def holds_pidfd(holder: int, pid: int) -> bool:
    for file in Path(f"/proc/{holder}/fdinfo").iterdir():
        with suppress(OSError):  # it was closed meanwhile
            if f"Pid:\t{pid}\n" in file.read_text():
                return True
    return False


def wait_for_asks(run: subprocess.Popen[bytes], count: int) -> None:
    """Until so many steps have asked, of a run with ``--progress json``."""
    assert run.stderr is not None
    waiting = 0
    for line in run.stderr:
        waiting += b'"event":"waits"' in line
        if waiting == count:
            return
    pytest.fail(f"only {waiting} steps have asked")


TURN = f"echo + >> turns\n{WAIT}\nsleep 0.1\necho - >> turns"


def most_at_once(build: Build) -> int:
    running, most = 0, 0
    for sign in (build.folder / "turns").read_text().split():
        running += 1 if sign == "+" else -1
        most = max(most, running)
    return most


@pytest.mark.parametrize(
    ("number", "said"),
    [
        (signal.SIGKILL, "the governor has died; another one replaces it"),
        (signal.SIGSTOP, "the governor stopped answering and was killed"),
    ],
)
def test_a_build_continues_by_turns_without_its_governor(
    build: Build, number: signal.Signals, said: str
) -> None:
    for name in range(8):
        build.step(f"step{name}", TURN)
    run = build.start(options=["--cpus", "2"])
    wait_until((build.folder / "turns").exists, "the first step runs")
    (governor,) = build.governors()
    os.kill(governor, number)
    build.let_go()
    done = finished(run)
    assert done.status == 0, done
    assert len(build.made()) == 8
    assert done.err.count(said) == 1
    assert list(build.home.rglob("ungoverned-*")) == []
    assert most_at_once(build) <= 2 + 2  # steps that take turns, and steps that had a permit


def test_a_run_after_a_governor_was_killed_has_a_new_one(build: Build) -> None:
    build.step("one", WAIT)
    run = build.start()
    wait_until(build.governors, "there is a governor")
    os.kill(build.governors()[0], signal.SIGKILL)  # before, while or after the run greets it
    build.let_go()
    assert finished(run).status == 0
    build.step("two", "true")
    assert build.summary().steps == 1


@pytest.mark.slow
def test_a_new_run_ends_a_governor_that_hangs(build: Build, tmp_path: Path) -> None:
    build.step("one", f"echo $$ > pid\n{WAIT}")
    first = build.start()
    build.pid("pid")
    (hung,) = build.governors()
    os.kill(hung, signal.SIGSTOP)
    other = Build(tmp_path / "other", build.home)
    other.step("two", "true")
    assert other.summary().steps == 1
    assert not alive(hung)
    build.let_go()
    assert finished(first).status == 0


def test_an_interrupted_run_does_not_wait_for_a_governor_that_hangs(build: Build) -> None:
    build.step("one", f"echo $$ > pid\n{WAIT}")
    run = build.start()
    build.pid("pid")
    os.kill(build.governors()[0], signal.SIGSTOP)
    run.send_signal(signal.SIGINT)
    done = finished(run)
    assert done.status != 0
    assert "Traceback" not in done.err
    build.wait_for_end()


@as_root
def test_a_build_in_a_pid_namespace_of_its_own(build: Build, need: Need) -> None:
    """Process numbers there mean nothing here, and those that /proc shows mean nothing there."""
    for number in range(4):
        build.step(f"step{number}", "sleep 0.2")
    assert build.summary(need("unshare"), "-pf", "ninja").steps == 4


@as_root
def test_stoker_is_killed_and_its_build_in_another_namespace_ends(build: Build, need: Need) -> None:
    """Neither the launchers nor ninja can see that stoker is gone: the governor tells them."""
    build.step("one", f"setsid sleep 1000 & {WAIT}")
    build.step("two", WAIT)
    options = ["--policy", "fixed:1", "--progress", "json"]
    run = build.start(need("unshare"), "-pf", "ninja", options=options)
    wait_for_asks(run, 2)
    run.kill()
    finished(run)
    build.wait_for_end()
    assert build.made() == set()


def test_the_launcher_and_its_keeper_are_killed_and_the_governor_ends_the_rest(
    build: Build,
) -> None:
    """The governor learns the keeper with the first report of the command's memory, after 10 ms."""
    build.step("victim", f"sleep 1000 & echo $$ > pid\n{WAIT}")
    run = build.start("ninja", "-k", "0")
    keeper = parent_of(build.pid("pid"))
    wait_until(lambda: sleepers(build), "the shell's child sleeps")
    (sleeper,) = sleepers(build)
    (governor,) = build.governors()
    wait_until(lambda: holds_pidfd(governor, keeper), "the governor knows the keeper")
    os.kill(parent_of(keeper), signal.SIGSTOP)  # so that it cannot see what comes
    os.kill(keeper, signal.SIGKILL)
    os.kill(parent_of(keeper), signal.SIGKILL)
    wait_until(lambda: not alive(sleeper), "the governor has ended what was left")
    assert finished(run).status != 0


def test_a_compiler_is_killed_and_that_is_no_lack_of_memory(build: Build) -> None:
    build.step("victim", "echo attempt >> attempts; kill -9 $$")
    done = build.run()
    assert done.status != 0
    assert re.search(rb"FAILED: (\[code=\d+\] )?victim", done.out)  # newer ninjas print the code
    assert (build.folder / "attempts").read_text() == "attempt\n"


def test_a_launcher_is_killed_and_no_grandchild_survives(build: Build) -> None:
    build.step("victim", f"sleep 1000 & setsid sleep 1000 & echo $$ > pid\n{WAIT}")
    build.step("other", WAIT)
    run = build.start("ninja", "-k", "0", options=["--policy", "fixed:2"])
    shell = build.pid("pid")
    wait_until(lambda: len(sleepers(build)) == 2, "both sleep")
    asleep = sleepers(build)
    os.kill(parent_of(above(shell, "stoker-launcher")), signal.SIGKILL)
    wait_until(lambda: not any(map(alive, [shell, *asleep])), "its children are gone")
    build.let_go()
    done = finished(run)
    assert done.status != 0
    assert build.made() == {"other"}


def test_ninja_is_killed_and_the_next_run_resumes(build: Build) -> None:
    build.step("first", "echo made >> first-made")
    build.step("second", f"setsid sleep 1000 & echo $$ > pid\n{WAIT}", needs=["first"])
    run = build.start()
    os.kill(above(build.pid("pid"), "ninja"), signal.SIGKILL)
    assert finished(run).status == -signal.SIGKILL
    build.wait_for_end()
    build.let_go()
    build.step("second", WAIT, needs=["first"])
    assert build.run().status == 0
    assert (build.folder / "first-made").read_text() == "made\n"


def test_stoker_itself_is_killed_and_no_process_is_left(build: Build) -> None:
    build.step("one", f"setsid sleep 1000 & echo $$ > pid\n{WAIT}")
    run = build.start()
    build.pid("pid")
    run.kill()
    finished(run)
    build.wait_for_end()
    assert build.made() == set()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_ends_the_whole_build_and_the_next_run_resumes(
    build: Build, number: signal.Signals
) -> None:
    build.step("first", "echo made >> first-made")
    build.step("second", f"setsid sleep 1000 & echo $$ > pid\n{WAIT}", needs=["first"])
    run = build.start()
    build.pid("pid")
    run.send_signal(number)
    done = finished(run)
    assert done.status != 0
    assert "Traceback" not in done.err
    build.wait_for_end()
    build.let_go()
    build.step("second", WAIT, needs=["first"])
    again = build.run()
    assert again.status == 0, again
    assert (build.folder / "first-made").read_text() == "made\n"


def test_ctrl_c_at_a_terminal(build: Build) -> None:
    build.step("one", f"setsid sleep 1000 & echo $$ > pid\n{WAIT}")
    with at_terminal(build) as terminal:
        build.pid("pid")
        os.write(terminal.keyboard, b"\x03")
        wait_until(lambda: not alive(terminal.pid), "stoker has ended")
        screen = terminal.screen()
    assert b"interrupted by user" in screen
    assert b"stoker diagnose" not in screen  # nothing failed
    assert b"Traceback" not in screen
    assert screen.rindex(b"\x1b[r") > screen.rindex(b"\x1b[1;")  # all of it scrolls again
    build.wait_for_end()


def test_a_second_build_joins_the_governor_of_the_first(build: Build, tmp_path: Path) -> None:
    build.step("one", WAIT)
    other = Build(tmp_path / "other", build.home)
    other.step("two", WAIT)
    first = build.start()
    wait_until(build.governors, "there is a governor")
    second = other.start()
    wait_until(lambda: "./two.sh" in str([*map(command_of, build.processes())]), "two has asked")
    (governor,) = build.governors()
    (socket,) = build.sockets()
    build.let_go()
    assert finished(first).status == 0
    assert build.governors() == [governor]
    other.let_go()
    assert finished(second).status == 0
    build.wait_for_end()
    assert not socket.exists()


def test_runs_that_end_and_begin_at_the_same_time(build: Build) -> None:
    """A governor that is about to end must not be joined."""
    for _ in range(3):
        runs = [build.start("true") for _ in range(3)]
        for run in runs:
            done = finished(run)
            assert (done.status, "died" in done.err) == (0, False), done


@pytest.mark.heavy
def test_options_that_an_older_governor_does_not_follow_are_said(build: Build) -> None:
    build.step("one", WAIT)
    first = build.start(options=["--cpus", "2"])
    wait_until(build.governors, "there is a governor")
    wait_until(build.sockets, "it listens")
    done = build.run("true", options=["--gc", "off"])
    build.let_go()
    assert "its gc is auto, not off" in done.err
    assert finished(first).status == 0


def test_a_compiler_that_leaves_a_daemon_does_not_hold_the_build_up(build: Build) -> None:
    build.step(
        "server",
        "setsid sh -c 'echo $$ > daemon; exec sleep 1000' &\nuntil [ -s daemon ]; do :; done",
    )
    assert build.run().status == 0
    daemon = build.pid("daemon")
    assert alive(daemon)  # as a cache's server must be
    os.kill(daemon, signal.SIGKILL)


@pytest.mark.heavy
def test_a_hundred_megabytes_of_output_come_through_unchanged(build: Build) -> None:
    line = b"a.cpp:1:1: warning: " + bytes(range(33, 127)) + b"\n"
    text = line * (100_000_000 // len(line))
    (build.folder / "text").write_bytes(text)
    build.step("talker", "echo $PPID > keeper\ncat text")
    run = build.start()
    most = 0
    launcher = parent_of(build.pid("keeper"))
    out = b""
    assert run.stdout is not None
    while chunk := run.stdout.read(1 << 20):
        most = max(most, peak_memory(launcher))
        out += chunk
    assert finished(run).status == 0
    assert out.partition(b"\n")[2] == text
    assert most < 16 << 20


def peak_memory(pid: int) -> int:
    try:
        words = Path(f"/proc/{pid}/status").read_text().split()
    except OSError:
        return 0
    return int(words[words.index("VmHWM:") + 1]) << 10 if "VmHWM:" in words else 0


@pytest.mark.slow
def test_five_thousand_launchers_wait(build: Build) -> None:
    count = 5000
    build.step("one", WAIT)
    script = (
        f"'{build.launcher}' sh -c '{WAIT}' & i=1;"
        f" while [ $i -lt {count} ]; do '{build.launcher}' true & i=$((i+1)); done; wait"
    )
    run = build.start("sh", "-c", script, options=["--cpus", "1", "--progress", "json"])
    wait_for_asks(run, count)
    run.send_signal(signal.SIGTERM)
    finished(run)
    build.wait_for_end()


def test_more_launchers_than_the_governor_has_files_for(build: Build) -> None:
    script = f"for i in $(seq 100); do '{build.launcher}' touch made-$i & done; wait"
    few = ["sh", "-c", 'ulimit -n 40; exec "$@"', "few"]
    done = finished(build.start("sh", "-c", script, prefix=few))
    assert done.status == 0, done
    assert len(list(build.folder.glob("made-*"))) == 100


@pytest.mark.slow
def test_a_client_that_stops_reading_for_a_while(build: Build) -> None:
    """The governor continues, and sends all events when the client reads again."""
    count = 1000
    script = (
        f"'{build.launcher}' true; kill -STOP $PPID; i=1; while [ $i -lt {count} ];"
        f" do '{build.launcher}' true; i=$((i+1)); done; kill -CONT $PPID"
    )
    done = build.run("sh", "-c", script, options=["--progress", "json"])
    assert done.status == 0
    assert done.err.count('"event":"ends"') == count


@pytest.fixture
def full_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system with no room left."""
    with small_disk(tmp_path / "full", "size=64k,nr_inodes=64") as folder:
        yield folder


def fill(folder: Path) -> None:
    with (folder / "rest").open("wb", buffering=0) as stream:
        try:
            while True:
                stream.write(bytes(4096))
        except OSError:
            return


def test_a_full_disk_ends_learning_and_not_the_build(build: Build, full_disk: Path) -> None:
    fill(full_disk)
    (build.home / "state").symlink_to(full_disk)
    build.step("one", "true")
    done = build.run()
    assert done.status == 0, done
    assert "history is not written" in done.err
    assert build.made() == {"one"}


def has_runs(history: Path) -> bool:
    """Return whether the history is complete enough to have a run: its file is there before."""
    if not history.exists():
        return False
    with closing(sqlite3.connect(history)) as database, suppress(sqlite3.Error):
        return bool(database.execute("SELECT 1 FROM run").fetchall())
    return False


def test_a_disk_that_becomes_full_ends_learning_and_not_the_build(
    build: Build, full_disk: Path
) -> None:
    subprocess.run(["mount", "-o", "remount,size=256k", str(full_disk)], check=True)
    (build.home / "state").symlink_to(full_disk)
    build.step("one", WAIT)
    build.step("two", "true", needs=["one"])
    run = build.start()
    wait_until(lambda: has_runs(full_disk / "history.sqlite"), "the history has the run")
    fill(full_disk)
    build.let_go()
    done = finished(run)
    assert done.status == 0, done
    assert done.err.count("history is not written") == 1


def test_held_back_output_on_a_full_disk_is_shown_all_the_same(
    build: Build, full_disk: Path
) -> None:
    text = b"".join(b"line %d\n" % number for number in range(400_000))
    (build.folder / "text").write_bytes(text)
    build.step("talker", "cat text")
    fill(full_disk)
    done = build.run(TMPDIR=str(full_disk))
    assert done.status == 0, done
    assert done.out.partition(b"\n")[2] == text


@as_root
def test_another_user_cannot_ask(build: Build, need: Need) -> None:
    setpriv = need("setpriv")
    build.step("one", WAIT)
    run = build.start()
    wait_until(build.sockets, "the governor listens")
    (socket,) = build.sockets()
    assert socket.parent.stat().st_mode & 0o777 == 0o700
    # Every folder above it is open to all, so that this one alone keeps others out.
    opened = [folder for folder in socket.parents if not folder.stat().st_mode & 0o001][1:]
    for folder in opened:
        folder.chmod(folder.stat().st_mode | 0o001)
    python = f"import socket; socket.socket(socket.AF_UNIX).connect({str(socket)!r})"
    words = [setpriv, "--reuid=65534", "--clear-groups", "/usr/bin/python3", "-c", python]
    asked = subprocess.run(words, capture_output=True, text=True, check=False)
    for folder in opened:
        folder.chmod(folder.stat().st_mode & ~0o001)
    assert "PermissionError" in asked.stderr
    build.let_go()
    assert finished(run).status == 0

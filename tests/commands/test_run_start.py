"""The start of a run: its cost, and which process starts the governor, and when."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from governed import WAIT, Build, alive, finished, parent_of, wait_until

# What `stoker run` must not import: other commands need it, or the governor.
NEEDLESS = {
    "archspec", "difflib", "email", "hashlib", "importlib.metadata", "importlib.resources",
    "logging", "packaging", "pynvml", "secrets", "shutil", "sqlite3", "tempfile",
    "stoker.builds.toolchain_all", "stoker.govern.history.store", "stoker.govern.policy.governor",
    "stoker.govern.policy.policies", "stoker.govern.policy.predict", "stoker.govern.server.daemon",
    "stoker.knowledge", "stoker.machine.system",
}  # fmt: skip


def dormant(build: Build, *, options: tuple[str, ...] = ()) -> subprocess.Popen[bytes]:
    """A run that waits for the file ``go`` and has asked for nothing yet."""
    run = build.start("sh", "-c", f"touch begun; {WAIT}", options=options)
    wait_until((build.folder / "begun").exists, "the command runs")
    return run


def logs(build: Build) -> list[Path]:
    """Every governor that is started has one, and leaves it."""
    return list((build.home / "run").glob("*.log"))


@pytest.fixture
def other(build: Build, tmp_path: Path) -> Build:
    other = Build(tmp_path / "other", build.home)
    other.step("one", "true")
    return other


def test_a_run_imports_only_what_it_needs(build: Build, tmp_path: Path) -> None:
    # Runs of other tests that end or are killed at the same time leave the same.
    left = tmp_path / f"stoker-{os.getuid()}-steps"
    (left / "run-1-killed" / "steps").mkdir(parents=True, mode=0o700)
    (left / "run-2-ended.lock").touch()
    build.environment["TMPDIR"] = str(tmp_path)
    done = subprocess.run(
        [sys.executable, "-X", "importtime", "-m", "stoker", "run", "--", "true"],
        cwd=build.folder,
        env=build.environment,
        capture_output=True,
        text=True,
        check=True,
    )
    lines = [line for line in done.stderr.splitlines() if line.startswith("import time:")]
    imported = {line.rpartition("|")[2].strip() for line in lines}
    assert "stoker.govern.client.conversation" in imported
    assert imported & NEEDLESS == set()
    assert list(left.iterdir()) == []


def test_a_run_in_which_nothing_asks_has_no_governor(build: Build) -> None:
    summary = build.summary("sh", "-c", "cc --version >/dev/null 2>&1 || true")
    assert (summary.steps, summary.status, summary.oom_kills) == (0, 0, 0)
    assert summary.limit_bytes > 0
    assert logs(build) == []
    assert build.sockets() == []
    build.step("one", "true")
    assert build.summary().steps == 1
    assert len(logs(build)) == 1


def test_the_socket_goes_with_a_run_that_is_interrupted(build: Build) -> None:
    run = dormant(build)
    assert len(build.sockets()) == 1
    run.send_signal(signal.SIGTERM)
    assert finished(run).status == -signal.SIGTERM
    assert build.sockets() == []
    assert logs(build) == []


def test_a_second_run_wakes_the_governor_of_the_first(build: Build, other: Build) -> None:
    first = dormant(build, options=("--cpus", "2"))
    assert build.governors() == []
    other.step("two", WAIT, needs=["one"])
    second = other.start(options=("--cpus", "1"))
    wait_until((other.folder / "one").exists, "a step of the second has run")
    (governor,) = build.governors()
    assert parent_of(governor) == first.pid
    build.let_go()
    done = finished(first)
    assert (done.status, "stoker: 0 steps" in done.err) == (0, True), done
    assert build.governors() == [governor]
    other.let_go()
    done = finished(second)
    assert (done.status, "stoker: 2 steps" in done.err) == (0, True), done
    assert "2 steps in" in done.err
    assert " on 1 CPU " in done.err  # its own limit, not that of the first
    build.wait_for_end()
    assert build.sockets() == []


def test_a_run_is_killed_before_its_governor_was_started(build: Build, other: Build) -> None:
    first = dormant(build)
    first.kill()
    finished(first)
    assert len(build.sockets()) == 1
    assert other.summary().steps == 1
    build.wait_for_end()
    assert build.sockets() == []


def test_a_suspended_run_holds_no_other_up_and_is_not_ended(build: Build, other: Build) -> None:
    first = dormant(build)
    first.send_signal(signal.SIGSTOP)
    assert other.summary().steps == 1
    assert alive(first.pid)
    first.send_signal(signal.SIGCONT)
    build.let_go()
    assert finished(first).status == 0
    build.wait_for_end()
    assert build.sockets() == []


def test_a_governor_that_cannot_be_started_leaves_turns_to_the_build(build: Build) -> None:
    first = dormant(build)
    (socket,) = build.sockets()
    build.let_go()
    assert finished(first).status == 0
    socket.with_suffix(".log").mkdir()
    for number in range(3):
        build.step(f"step{number}", "true")
    done = build.run()
    assert done.status == 0, done
    assert "the governor did not start: cannot write" in done.err
    assert "runs one step per CPU" in done.err
    assert len(build.made()) == 3


def test_a_governor_that_fails_at_once_leaves_turns_to_the_build(
    build: Build, tmp_path: Path
) -> None:
    """It ends like one that is killed while it starts; launchers that wait for it are let go."""
    broken = tmp_path / "broken"
    broken.mkdir()
    daemon = "stoker.govern.server.daemon"
    code = f"import sys\nif {daemon!r} in sys.orig_argv: raise SystemExit('no luck')\n"
    (broken / "sitecustomize.py").write_text(code)
    for number in range(3):
        build.step(f"step{number}", "true")
    done = build.run(PYTHONPATH=str(broken))
    assert done.status == 0, done
    assert "the governor did not start: SystemExit: no luck" in done.err
    assert len(build.made()) == 3
    assert build.summary("true").steps == 0  # the socket that is left is replaced
    assert build.sockets() == []


def test_a_nice_run_has_a_governor_that_is_not(build: Build) -> None:
    build.step("one", f"echo $$ > pid\n{WAIT}")
    run = build.start(options=["--nice"])
    step = build.pid("pid")
    (governor,) = build.governors()
    ours = os.getpriority(os.PRIO_PROCESS, 0)
    assert os.getpriority(os.PRIO_PROCESS, step) == min(ours + 10, 19)
    assert os.getpriority(os.PRIO_PROCESS, governor) in (ours, -10)  # -10 if we are root
    build.let_go()
    assert finished(run).status == 0

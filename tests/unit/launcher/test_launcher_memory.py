"""The memory and the CPU time of the whole process tree are reported."""

import os
import sys
import time
from pathlib import Path

import pytest

from conftest import missing
from unit.launcher.scripted import REPEATABLE, Conversation, Launch, ScriptedGovernor, Word

MIB = 1 << 20


def account(launch: Launch, governor: ScriptedGovernor, text: str) -> list[int]:
    """What `done` says."""
    launch.python(text)
    return [int(number) for number in governor.permitted().expect("done")[:6]]


CHILD = "import time; b = b'x' * (60 << 20); time.sleep(1000)"


def killed_at(step: Conversation, least: int) -> list[int]:
    """What `killed` says of a lasting command that used this much when it was killed. Every use
    that was reported before is checked.

    However busy the machine is: the use is reported once a second at least.
    """
    currents = [0]

    def hear() -> list[bytes]:
        message = step.hear()
        if message[0] == b"memory":
            assert int(message[1]) <= int(message[2])
            currents.append(int(message[1]))
        return message

    while currents[-1] < least:
        assert hear()[0] in (b"memory", b"started")
    time.sleep(0.3)
    step.say("kill")
    while (message := hear())[0] == b"memory":
        pass
    assert message[0] == b"killed"
    account = [int(number) for number in message[1:]]
    assert max(currents) > account[2] - 17 * MIB
    return account


def test_the_sum_over_the_tree(launch: Launch, governor: ScriptedGovernor) -> None:
    text = (
        "import subprocess, sys\nb = b'x' * (50 << 20)\n"
        f"run = [subprocess.Popen([sys.executable, '-I', '-S', '-c', {CHILD!r}]) for _ in '12']\n"
        "for child in run: child.wait()\n"
    )
    launch.python(text)
    wall_us, _, peak, byte_seconds = killed_at(governor.permitted(), 170 * MIB)
    assert 170 * MIB < peak < 230 * MIB
    assert 170 * MIB * 0.3 < byte_seconds < peak * wall_us / 1e6


def test_a_command_that_ends_before_the_first_sample_has_a_peak(
    launch: Launch, governor: ScriptedGovernor
) -> None:
    launch("/bin/true")
    step = governor.permitted()
    while (message := step.hear())[0] == b"memory":
        pass
    assert message[0] == b"done"
    assert 0 < int(message[5]) < 16 * MIB


def test_children_of_a_thread_are_seen(launch: Launch, governor: ScriptedGovernor) -> None:
    text = (
        "import subprocess, sys, threading\n"
        f"child = lambda: subprocess.run([sys.executable, '-I', '-S', '-c', {CHILD!r}])\n"
        "threads = [threading.Thread(target=child) for _ in '12']\n"
        "for thread in threads: thread.start()\n"
        "for thread in threads: thread.join()\n"
    )
    launch.python(text)
    assert killed_at(governor.permitted(), 120 * MIB)[2] > 120 * MIB


def test_a_user_in_many_groups(launch: Launch, governor: ScriptedGovernor) -> None:
    """Their numbers come before the memory in /proc/PID/status."""
    if os.geteuid() != 0:
        missing("the right to set groups")
    join = (
        "import os, sys; os.setgroups(range(100_000, 103_000)); os.execv(sys.argv[1], sys.argv[1:])"
    )
    compiler = launch.named("clang", sys.executable)
    words: list[Word] = [launch.launcher, compiler, "-I", "-S", "-c", CHILD, *REPEATABLE]
    launch.program([sys.executable, "-c", join, *words])
    killed_at(governor.permitted(), 60 * MIB)


def test_shared_memory_counts_and_mapped_files_do_not(
    launch: Launch, governor: ScriptedGovernor
) -> None:
    shared = (
        "import mmap, time\nm = mmap.mmap(-1, 64 << 20)\nm.write(b'x' * (64 << 20))\n"
        "time.sleep(1000)\n"
    )
    launch.python(shared)
    assert killed_at(governor.permitted(), 64 * MIB)[2] < 160 * MIB
    mapped = (
        "import mmap, os, time\nf = open(os.environ['TMPDIR'] + '/f', 'wb+')\n"
        "f.truncate(64 << 20)\nm = mmap.mmap(f.fileno(), 0)\n"
        "for at in range(0, 64 << 20, 4096): m[at] = 1\ntime.sleep(0.3)\n"
    )
    assert account(launch, governor, mapped)[4] < 50 * MIB


@pytest.mark.parametrize("how", ["exit", "kill"])
def test_cpu_time_of_the_whole_tree(
    launch: Launch, governor: ScriptedGovernor, how: str, tmp_path: Path
) -> None:
    done = tmp_path / "done"
    spin = "import time\nwhile time.process_time() < 0.3: pass\n"
    text = (
        "import subprocess, sys, time\n"
        f"subprocess.run([sys.executable, '-I', '-S', '-c', {spin!r}])\n{spin}"
        "print('x' * 10, flush=True)\n"
        + ("" if how == "exit" else f"open({str(done)!r}, 'w')\ntime.sleep(1000)\n")
    )
    if how == "exit":
        cpu_us = account(launch, governor, text)[3]
    else:
        launch.python(text)
        step = governor.permitted()
        while not done.exists():
            step.expect("memory")
        step.expect("memory")
        step.say("kill")
        cpu_us = int(step.expect("killed")[1])
    assert 550_000 < cpu_us < 5_000_000

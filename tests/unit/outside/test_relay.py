"""What programs at a terminal do through their output: modes, names and sizes of the terminal."""

import fcntl
import os
import pty
import select
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

LIMIT_S = 60  # for a machine under load
RELAYED = """
import subprocess, sys
from stoker.outside.relay import Relay, terminal_signals
relay = Relay(lambda chunk: None)
with terminal_signals(relay):
    ends = {"stdout": relay.ends[1], "stderr": relay.ends[2]}
    child = subprocess.Popen([sys.executable, "-c", sys.argv[1]], **ends)
    relay.started()
    child.wait()
relay.close()
print("ended")
"""
# Like ncurses, which sets modes through the output.
BY_OUTPUT = """
import os, termios
modes = termios.tcgetattr(1)
modes[3] &= ~(termios.ICANON | termios.ECHO)
termios.tcsetattr(1, termios.TCSANOW, modes)
print("ready", flush=True)
print("got", os.read(0, 1), flush=True)
"""
# Like less, which opens the terminal of its output by its name, and restores all modes.
BY_NAME = """
import os, termios
keys = os.open(os.ttyname(2), os.O_RDWR | os.O_NOCTTY)
before = termios.tcgetattr(keys)
modes = termios.tcgetattr(keys)
modes[1] |= termios.OPOST | termios.ONLCR
modes[3] &= ~(termios.ICANON | termios.ECHO)
termios.tcsetattr(keys, termios.TCSANOW, modes)
print("ready", flush=True)
print("got", os.read(keys, 1), flush=True)
termios.tcsetattr(keys, termios.TCSANOW, before)
"""
BY_SIZE = """
import os, signal, time
def tell(*_):
    # The signal may come within print("ready"), which cannot be called again meanwhile.
    os.write(1, f"columns {os.get_terminal_size(1).columns}\\n".encode())
signal.signal(signal.SIGWINCH, tell)
print("ready", flush=True)
while True:
    time.sleep(1)
"""


@contextmanager
def relayed(program: str) -> Iterator[int]:
    """Run a program behind a relay at a terminal of its own, and yield the terminal's other end."""
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-c", RELAYED, program],
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        start_new_session=True,
        preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),  # noqa: PLW1509
    )
    os.close(theirs)
    try:
        yield ours
    finally:
        os.killpg(process.pid, 9)
        process.wait()
        os.close(ours)


def read_until(terminal: int, wanted: str) -> str:
    text, limit = "", time.monotonic() + LIMIT_S
    while wanted not in text:
        left = limit - time.monotonic()
        assert left > 0, f"no {wanted!r} in {text!r}"
        if select.select([terminal], [], [], left)[0]:
            text += os.read(terminal, 4096).decode()
    return text


@pytest.mark.parametrize("program", [BY_OUTPUT, BY_NAME], ids=["by output", "by name"])
def test_a_program_gets_single_keys_without_echo(program: str) -> None:
    with relayed(program) as terminal:
        read_until(terminal, "ready")
        os.write(terminal, b"k")
        assert read_until(terminal, "got b'k'").count("k") == 1


def test_our_terminal_still_begins_lines_at_the_left_afterwards() -> None:
    with relayed(BY_NAME) as terminal:
        read_until(terminal, "ready")
        os.write(terminal, b"k")
        assert "ended\r\n" in read_until(terminal, "ended\r\n")
        assert termios.tcgetattr(terminal)[3] & termios.ECHO


def test_a_program_that_is_told_of_a_new_size_finds_it() -> None:
    with relayed(BY_SIZE) as terminal:
        read_until(terminal, "ready")
        fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 20, 77, 0, 0))
        read_until(terminal, "columns 77")

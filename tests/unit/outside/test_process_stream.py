"""Reading the lines of a program as they are printed."""

import fcntl
import os
import sys
import time
from pathlib import Path

import pytest

from stoker.model.errors import MissingError
from stoker.outside import process


def test_each_line_comes_at_once_and_all_are_kept() -> None:
    lines: list[str] = []
    script = "import sys; print('one'); print('two', file=sys.stderr); sys.exit(3)"
    outcome = process.stream([sys.executable, "-u", "-c", script], lines.append)
    assert lines == ["one", "two"]
    assert (outcome.status, outcome.stdout) == (3, "one\ntwo\n")


def test_of_much_output_only_the_end_is_kept() -> None:
    """A container build may talk for hours."""
    count = 0

    def hear(line: str) -> None:
        nonlocal count
        count += line.startswith("line ")

    script = "for n in range(20_000): print(f'line {n:095}')"
    outcome = process.stream([sys.executable, "-c", script], hear)
    assert count == 20_000
    assert len(outcome.stdout) <= 1 << 18
    assert outcome.stdout.endswith(f"line {19_999:095}\n")
    assert all(len(line) == 100 for line in outcome.stdout.splitlines())


def test_a_line_without_end_comes_in_pieces() -> None:
    pieces: list[str] = []
    script = "import sys; sys.stdout.write('x' * 3_000_000 + '\\nend\\n')"
    outcome = process.stream([sys.executable, "-c", script], pieces.append)
    assert ("".join(pieces[:-1]), pieces[-1]) == ("x" * 3_000_000, "end")
    assert max(map(len, pieces)) <= 1 << 20
    assert len(outcome.stdout) <= 1 << 18


def test_a_line_is_handed_over_before_the_end(tmp_path: Path) -> None:
    """The program waits for what is done about its first line."""
    answer = tmp_path / "answer"
    script = f"echo question; while [ ! -e {answer} ]; do sleep 0.02; done; echo done"

    def hear(line: str) -> None:
        if line == "question":
            answer.touch()

    assert process.stream(["sh", "-c", script], hear).stdout == "question\ndone\n"


def test_an_exception_ends_the_program(tmp_path: Path) -> None:
    pid = tmp_path / "pid"

    def interrupt(line: str) -> None:
        pid.write_text(line)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        process.stream(["sh", "-c", "echo $$; exec sleep 1000"], interrupt)
    with pytest.raises(ProcessLookupError):
        os.kill(int(pid.read_text()), 0)


def test_a_lock_holds_for_as_long_as_the_program_lives(tmp_path: Path) -> None:
    path, end = tmp_path / "lock", tmp_path / "end"
    script = f"(while [ ! -e {end} ]; do sleep 0.02; done) >/dev/null 2>&1 &"
    with path.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        process.stream(["sh", "-c", script], print, keep_open=(lock.fileno(),))
    with path.open("w") as lock:
        with pytest.raises(BlockingIOError):
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        end.touch()
        while True:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                time.sleep(0.02)


def test_a_program_that_is_not_there() -> None:
    with pytest.raises(MissingError, match="no-such-program"):
        process.stream(["no-such-program"], print)

"""Progress of long work: the line about it, and when it is written."""

import io
import time

import pytest

from stoker.outside import long_work
from stoker.outside.long_work import amount_line, fitted_line

MIB = 1 << 20


@pytest.mark.parametrize(
    ("done", "total", "elapsed", "expected"),
    [
        (0, 0, 3.2, "unpacking: 3 s"),
        (0, 8 * MIB, 3.2, "unpacking: 0 B of 8.0 MiB (0 %), 3 s so far"),
        (2 * MIB, 8 * MIB, 10, "unpacking: 2.0 MiB of 8.0 MiB (25 %), 10 s so far, 30 s left"),
        (9 * MIB, 8 * MIB, 10, "unpacking: 8.0 MiB of 8.0 MiB (100 %), 10 s so far, 0 s left"),
    ],
)
def test_the_line(done: int, total: int, elapsed: float, expected: str) -> None:
    assert amount_line("unpacking", done, total, elapsed) == expected


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture
def quickly(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(long_work, "_TICK_S", 0.01)
    monkeypatch.setattr(long_work, "_QUIET_S", {True: 0.0, False: 0.0})


def work_until(stream: io.StringIO, text: str) -> None:
    with long_work.shown(), long_work.stage("unpacking", 8 * MIB) as advance:
        advance(2 * MIB)
        deadline = time.monotonic() + 60
        while text not in stream.getvalue() and time.monotonic() < deadline:
            time.sleep(0.01)
        long_work.say("a line that stays")


@pytest.mark.usefixtures("quickly")
def test_a_terminal_gets_one_line_that_is_erased(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = Terminal()
    monkeypatch.setattr("sys.stderr", stream)
    work_until(stream, "2.0 MiB of 8.0 MiB")
    lines = stream.getvalue().split("\r\033[K")
    assert any(line.startswith("unpacking: 2.0 MiB of 8.0 MiB") for line in lines)
    assert "a line that stays\n" in stream.getvalue()
    assert stream.getvalue().endswith(("\n", "\r\033[K"))


@pytest.mark.usefixtures("quickly")
def test_a_log_gets_a_line_now_and_then(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = io.StringIO()
    monkeypatch.setattr("sys.stderr", stream)
    work_until(stream, "2.0 MiB of 8.0 MiB")
    told, stays = stream.getvalue().splitlines()
    assert told.startswith("unpacking: 2.0 MiB of 8.0 MiB")
    assert stays == "a line that stays"


def test_nothing_is_shown_unless_a_command_asks_for_it(capsys: pytest.CaptureFixture[str]) -> None:
    with long_work.stage("unpacking", 1) as advance:
        advance(1)
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize(
    ("columns", "line"),
    [
        (80, "unpacking torch-2.9.1-cp312.whl: 2.0 MiB of 8.0 MiB (25 %), 30 s left"),
        (60, "unpacking...cp312.whl: 2.0 MiB of 8.0 MiB (25 %), 30 s left"),
        (20, "...: 2.0 MiB of 8.0"),
    ],
)
def test_a_line_never_wraps(columns: int, line: str) -> None:
    """One that wraps could not be overwritten, so each second would add a line to the screen."""
    whole = "unpacking torch-2.9.1-cp312.whl: 2.0 MiB of 8.0 MiB (25 %), 30 s left"
    assert fitted_line(whole, columns) == line
    assert len(fitted_line(whole, columns)) < columns

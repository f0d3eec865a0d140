"""Running programs that exit, hang, crash or do not exist."""

import logging
import os
import signal
import sys
import time
from pathlib import Path

import pytest

from stoker.model.errors import CommandError, ExitStatus, MissingError
from stoker.outside import process
from stoker.outside.processes import is_static


def script(folder: Path, text: str, mode: int = 0o755) -> Path:
    path = folder / "program"
    path.write_text(text)
    path.chmod(mode)
    return path


@pytest.mark.parametrize(
    ("line", "status", "problem"),
    [
        ("echo out; echo err >&2", 0, None),
        ("echo out; echo err >&2; exit 3", 3, "ended with status 3"),
        ("echo out; echo err >&2; kill -SEGV $$", -signal.SIGSEGV, "was killed by signal 11"),
    ],
)
def test_how_a_program_ends(line: str, status: int, problem: str | None) -> None:
    outcome = process.run(["sh", "-c", line], timeout=30)
    assert (outcome.status, outcome.stdout, outcome.stderr) == (status, "out\n", "err\n")
    assert (outcome.ok, outcome.problem) == (status == 0, problem)


def test_a_wrapper_that_hangs_takes_its_children_along(tmp_path: Path) -> None:
    """The shell waits for a child that holds the pipe; neither may be left or waited for."""
    pid_file = tmp_path / "pid"
    wrapper = script(tmp_path, f"#!/bin/sh\nsleep 600 &\necho $! > {pid_file}\nwait\n")
    for timeout in (0.3, 3, 30):  # on a busy machine the child takes a while to start
        assert process.run([wrapper], timeout=timeout).status is None
        if pid_file.exists() and pid_file.read_text().strip():
            break
    child = int(pid_file.read_text())
    for _ in range(200):
        if not _runs(child):
            return
        time.sleep(0.02)
    os.kill(child, signal.SIGKILL)
    pytest.fail("the child of a hanging program lived on")


def _runs(pid: int) -> bool:
    """Return whether the process exists and is not a zombie."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"


def test_nothing_is_read_from_our_input() -> None:
    assert process.run(["cat"], timeout=30).stdout == ""


def test_bytes_that_are_no_text_do_not_matter() -> None:
    outcome = process.run(["printf", r"a\377b"], timeout=30)
    assert outcome.stdout == "a\ufffdb"


def test_environment_and_folder_are_those_given(tmp_path: Path) -> None:
    command = [sys.executable, "-c", "import os; print(os.getcwd(), sorted(os.environ))"]
    outcome = process.run(command, timeout=30, env={"ONLY": "this"}, cwd=tmp_path)
    assert str(tmp_path) in outcome.stdout
    assert "'ONLY'" in outcome.stdout
    assert "'HOME'" not in outcome.stdout


@pytest.mark.parametrize("arguments", [["no-such-program"], ["/no/such/program", "--version"]])
def test_a_program_that_is_not_there(arguments: list[str]) -> None:
    with pytest.raises(MissingError, match=arguments[0]) as missing:
        process.run(arguments, timeout=30)
    assert missing.value.status is ExitStatus.MISSING


@pytest.mark.parametrize(
    ("text", "mode"),
    [("not a program at all", 0o755), ("#!/no/such/interpreter\n", 0o755), ("echo\n", 0o644)],
    ids=["no format", "no interpreter", "not executable"],
)
def test_a_file_that_is_no_program(tmp_path: Path, text: str, mode: int) -> None:
    path = script(tmp_path, text, mode)
    with pytest.raises(MissingError, match=f"cannot run {path}"):
        process.run([path], timeout=30)


def test_every_command_is_logged_as_a_line_to_paste(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG, logger="stoker.process"):
        process.run(["echo", "two words", Path("/a b")], timeout=30)
    assert "echo 'two words' '/a b'" in caplog.text


def test_a_check_that_fails_keeps_the_end_of_the_output() -> None:
    assert process.check(["echo", "yes"], timeout=30) == "yes\n"
    command = ["sh", "-c", "seq 50; echo wrong >&2; exit 2"]
    with pytest.raises(CommandError, match="ended with status 2") as failed:
        process.check(command, timeout=30)
    assert failed.value.output.splitlines() == [*(str(n) for n in range(32, 51)), "wrong"]
    assert failed.value.status is ExitStatus.FAILED


def test_a_program_that_hangs() -> None:
    assert process.run(["sleep", "600"], timeout=0.1).status is None
    with pytest.raises(CommandError, match="`sleep 600` did not answer in time"):
        process.check(["sleep", "600"], timeout=0.1)


def test_a_static_program_is_told_from_others(tmp_path: Path) -> None:
    source, script = tmp_path / "a.c", tmp_path / "script"
    source.write_text("void _start(void) { for (;;); }\n")
    for name, option in (("static", "-static"), ("dynamic", "-lc")):
        process.check(["cc", source, option, "-nostdlib", "-o", tmp_path / name], timeout=60)
    script.write_text("#!/bin/sh\n")
    script.chmod(0o755)
    found = [is_static(str(tmp_path / n)) for n in ("static", "dynamic", "script", "none")]
    assert found == [True, False, False, False]
    assert not is_static("sh")

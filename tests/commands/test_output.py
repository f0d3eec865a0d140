"""Where output goes: full disks, closed streams, poor encodings, readers that leave."""

import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest

import wheel_files
from conftest import PROJECTS, Stoker, slow
from small_disks import small_disk
from stoker.model.errors import ExitStatus

PRINTING = (
    "--help",
    "--version",
    "plan h100 --json",
    "plan h100 --shell",
    "plan --list",
    "diagnose --explain",
    "help --completion bash",
    "diagnose log",
    "diagnose log --json",
    "inspect mill-1.2-py3-none-any.whl",
)


@pytest.fixture
def things(tmp_path: Path) -> Path:
    """A folder with what the commands above read."""
    (tmp_path / "log").write_text("a.cpp:1:1: error: unknown\nninja: build stopped: failed.\n")
    library = Path(shutil.which("sh") or "").read_bytes()
    contents = {**wheel_files.members(), "mill/\u00e9\u2588.so": library}
    wheel_files.make_wheel(tmp_path, wheel_files.wheel_bytes(contents))
    return tmp_path


@pytest.mark.parametrize("unbuffered", ["", slow("1")])
@pytest.mark.parametrize("words", PRINTING)
def test_output_that_cannot_be_written_is_told_once(
    words: str, unbuffered: str, things: Path
) -> None:
    done = shell(f"stoker {words} > /dev/full", things, unbuffered)
    assert done.returncode == ExitStatus.STORAGE, done.stderr
    assert done.stderr == "stoker: cannot write the output: No space left on device\n"


@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_output_that_fits_only_in_part_is_told(
    unbuffered: str, things: Path, tmp_path: Path
) -> None:
    with small_disk(tmp_path / "disk", "size=4k"):
        done = shell("stoker help --schema build > disk/out", things, unbuffered)
    assert done.returncode == ExitStatus.STORAGE, done.stderr
    assert done.stderr == "stoker: cannot write the output: No space left on device\n"


def test_an_error_is_told_where_its_json_cannot_be_written(things: Path) -> None:
    done = shell("stoker plan --json nonsense > /dev/full", things)
    assert done.returncode == ExitStatus.USAGE
    assert "unknown word 'nonsense'" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("encoding", ["latin-1", slow("ascii"), slow("utf-8")])
@pytest.mark.parametrize("words", PRINTING)
def test_any_encoding_of_the_output_will_do(words: str, encoding: str, things: Path) -> None:
    done = shell(f"PYTHONIOENCODING={encoding} stoker {words} > out", things)
    assert "Traceback" not in done.stderr
    # click writes UTF-8 where Python was told ASCII.
    text = (things / "out").read_text(encoding="latin-1" if encoding == "latin-1" else "utf-8")
    if "--json" in words:
        json.loads(text)


@pytest.mark.parametrize(
    "redirection", [slow(">&-"), slow("2>&-"), ">&- 2>&-", "2>/dev/full", slow("< /dev/null")]
)
def test_closed_streams_are_no_traceback(redirection: str, things: Path) -> None:
    done = shell(f"stoker plan --list {redirection}", things)
    assert (done.returncode, done.stderr) == (0, "")
    done = shell(f"stoker plan nonsense {redirection}", things)
    assert done.returncode == ExitStatus.USAGE
    assert "Traceback" not in done.stderr


def test_a_reader_that_goes_away_is_no_error(things: Path) -> None:
    done = shell("stoker plan --list | head -1", things)
    assert (done.returncode, done.stderr) == (0, "")


def shell(line: str, folder: Path, unbuffered: str = "") -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["sh", "-c", line],
        cwd=folder,
        env={**os.environ, "PYTHONUNBUFFERED": unbuffered},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


KEEPING = (
    "build mini-cmake",
    "history",
    "report",
    "toolchain install ninja",
    "run -- true",
)


@pytest.mark.parametrize("words", KEEPING)
def test_a_home_that_cannot_be_used_names_the_folder_and_the_next_step(
    words: str, stoker: Stoker, tmp_path: Path
) -> None:
    home = tmp_path / "home"
    home.touch()
    done = stoker(*words.split(), cwd=PROJECTS, STOKER_HOME=str(home))
    governs_nothing = words.startswith("run")
    assert done.returncode == (0 if governs_nothing else ExitStatus.STORAGE), done.stderr
    assert f"{home} is not a folder" in done.stderr
    assert f"STOKER_HOME is {home}: set it to a folder that can be written" in done.stderr


@pytest.mark.parametrize(
    ("options", "reason", "step"),
    [("ro", "Read-only file system", "can be written"), ("size=4k", "is full", "another disk")],
)
def test_a_home_on_a_disk_that_takes_nothing(
    stoker: Stoker, tmp_path: Path, options: str, reason: str, step: str
) -> None:
    with small_disk(tmp_path / "home", options) as home:
        if options != "ro":
            (home / "state").mkdir()
        done = stoker("history", STOKER_HOME=str(home))
    assert done.returncode == ExitStatus.STORAGE, done.stderr
    assert str(home / "state") in done.stderr
    assert reason in done.stderr
    assert "STOKER_HOME" in done.stderr
    assert step in done.stderr

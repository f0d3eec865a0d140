"""Folders that are removed with their process, or by the next one."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from conftest import as_root
from stoker.model.errors import StorageError
from stoker.outside.files import folder_of_process

PREFIX = ".mill-"
STAY = f"""
import sys
from pathlib import Path
from stoker.outside.files import folder_of_process
with folder_of_process(Path(sys.argv[1]), "{PREFIX}") as folder:
    (folder / "large").write_bytes(bytes(1000))
    print(folder, flush=True)
    sys.stdin.read()
"""


@pytest.fixture
def other(tmp_path: Path) -> Iterator["subprocess.Popen[str]"]:
    """A process that has such a folder."""
    command = [sys.executable, "-c", STAY, str(tmp_path)]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        yield process
        process.kill()


def folder_of(process: "subprocess.Popen[str]") -> Path:
    assert process.stdout is not None
    return Path(process.stdout.readline().strip())


def test_gone_afterwards(tmp_path: Path) -> None:
    with folder_of_process(tmp_path / "new", PREFIX) as folder:
        (folder / "x").write_text("x")
        assert folder.stat().st_mode & 0o777 == 0o700
    assert list((tmp_path / "new").iterdir()) == []


def test_that_of_a_live_process_stays(tmp_path: Path, other: "subprocess.Popen[str]") -> None:
    theirs = folder_of(other)
    with folder_of_process(tmp_path, PREFIX):
        pass
    assert (theirs / "large").exists()
    other.communicate("", timeout=60)
    assert list(tmp_path.iterdir()) == []


def test_that_of_a_live_process_is_not_waited_for(
    tmp_path: Path, other: "subprocess.Popen[str]", monkeypatch: pytest.MonkeyPatch
) -> None:
    folder_of(other)
    pauses: list[float] = []
    monkeypatch.setattr("stoker.outside.locks.time.sleep", pauses.append)
    with folder_of_process(tmp_path, PREFIX):
        pass
    assert sum(pauses) == 0


def test_that_of_a_killed_process_goes(tmp_path: Path, other: "subprocess.Popen[str]") -> None:
    theirs = folder_of(other)
    other.kill()
    other.wait()
    assert theirs.exists()
    kept = tmp_path / "mill-of-the-user"
    kept.mkdir()
    (tmp_path / f"{PREFIX}0-made-without-a-lock").mkdir()
    with folder_of_process(tmp_path, PREFIX):
        pass
    assert list(tmp_path.iterdir()) == [kept]


@as_root
def test_those_of_others_stay(tmp_path: Path) -> None:
    theirs, lock = tmp_path / f"{PREFIX}1", tmp_path / f"{PREFIX}1.lock"
    theirs.mkdir()
    os.chown(theirs, 4711, 4711)
    lock.symlink_to(tmp_path / "made-through-a-link")
    os.lchown(lock, 4711, 4711)
    with folder_of_process(tmp_path, PREFIX):
        pass
    assert sorted(tmp_path.iterdir()) == [theirs, lock]


def test_a_place_that_is_no_folder(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StorageError), folder_of_process(tmp_path / "file", PREFIX):
        pass

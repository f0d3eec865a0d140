"""Files and folders appear whole or not at all."""

import errno
import os
import shutil
import stat
import subprocess
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from stoker.model.errors import ExitStatus, StorageError
from stoker.outside import deleting, files


def content(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_a_file_is_made_with_its_folders(tmp_path: Path) -> None:
    path = tmp_path / "a" / "b" / "file.txt"
    files.write_whole(path, "t\u00e9xt\n")
    assert path.read_bytes() == "t\u00e9xt\n".encode()
    assert content(path.parent) == ["file.txt"]


@pytest.mark.parametrize("write", [files.write_whole, files.write_named])
def test_a_file_is_replaced_in_one_step(
    tmp_path: Path, write: Callable[[Path, str | bytes], object]
) -> None:
    path = tmp_path / "new" / "file"
    write(path, "old")
    with path.open("rb") as reader:
        write(path, b"new and longer")
        assert reader.read() == b"old", "who reads keeps what was there"
    assert path.read_bytes() == b"new and longer"
    assert content(path.parent) == ["file"]


def test_a_file_can_be_read_as_the_umask_says(tmp_path: Path) -> None:
    before = os.umask(0o022)
    try:
        files.write_whole(tmp_path / "file", b"x")
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "file").stat().st_mode) == 0o644


def test_a_folder_in_the_way_and_a_file_where_a_folder_should_be(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "file").write_text("x")
    for path in (tmp_path / "folder", tmp_path / "file" / "below"):
        with pytest.raises(StorageError, match="cannot write") as refused:
            files.write_whole(path, b"x")
        assert refused.value.status is ExitStatus.STORAGE
    assert content(tmp_path) == ["file", "folder"]
    assert (tmp_path / "file").read_text() == "x"


@pytest.mark.parametrize("failure", [RuntimeError("bug"), KeyboardInterrupt()])
def test_a_file_that_is_not_finished_leaves_the_old_one(
    tmp_path: Path, failure: BaseException
) -> None:
    path = tmp_path / "file"
    files.write_whole(path, b"old")

    def write_half() -> None:
        with files.file_made_whole(path) as stream:
            stream.write(b"half")
            raise failure

    with pytest.raises(type(failure)):
        write_half()
    assert path.read_bytes() == b"old"
    assert content(tmp_path) == ["file"]


@pytest.mark.parametrize("make", [files.file_made_whole, files.folder_made_whole])
def test_a_full_disk_is_said_and_leaves_nothing(
    tmp_path: Path, make: Callable[[Path], AbstractContextManager[object]]
) -> None:
    with pytest.raises(StorageError, match="No space left on device"), make(tmp_path / "x"):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    assert content(tmp_path) == []


def test_text_that_cannot_be_written_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(UnicodeEncodeError):
        files.write_whole(tmp_path / "file", "\ud800")
    assert content(tmp_path) == []


def test_a_folder_appears_when_it_is_full(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "folder"
    with files.folder_made_whole(path) as aside:
        (aside / "content").write_text("x")
        assert not path.exists()
        assert aside.parent == path.parent, "on the same file system, so that renaming is one step"
    assert (path / "content").read_text() == "x"
    assert content(path.parent) == ["folder"]
    assert stat.S_IMODE(path.stat().st_mode) == 0o755


@pytest.mark.parametrize("failure", [RuntimeError("bug"), KeyboardInterrupt(), SystemExit(1)])
def test_a_folder_that_is_not_finished_leaves_nothing(
    tmp_path: Path, failure: BaseException
) -> None:
    def fill_half() -> None:
        with files.folder_made_whole(tmp_path / "folder") as aside:
            (aside / "sub").mkdir()
            (aside / "sub" / "file").write_text("half")
            raise failure

    with pytest.raises(type(failure)):
        fill_half()
    assert content(tmp_path) == []


def test_an_error_without_a_number_is_still_said(tmp_path: Path) -> None:
    """shutil.copytree() and others raise errors that have only a text."""
    with pytest.raises(StorageError) as refused, files.folder_made_whole(tmp_path / "folder"):
        raise shutil.Error([("a", "b", "the disk is on fire")])
    assert "the disk is on fire" in refused.value.message
    assert "None" not in refused.value.message


def test_a_folder_that_is_there_stays(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "mine").write_text("x")
    with (
        pytest.raises(StorageError, match="cannot make"),
        files.folder_made_whole(tmp_path / "folder") as aside,
    ):
        (aside / "other").write_text("y")
    assert content(tmp_path) == ["folder"]
    assert content(tmp_path / "folder") == ["mine"]


def test_an_empty_folder_may_be_filled(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    with files.folder_made_whole(tmp_path / "folder") as aside:
        (aside / "content").write_text("x")
    assert content(tmp_path / "folder") == ["content"]


def test_a_place_that_cannot_be(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    with (
        pytest.raises(StorageError, match="cannot write in"),
        files.folder_made_whole(tmp_path / "file" / "folder"),
    ):
        pytest.fail("there is nothing to fill")


def test_a_file_is_no_folder_to_remove(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(StorageError, match="cannot remove"):
        deleting.remove_whole(tmp_path / "file")
    assert content(tmp_path) == ["file"]


@pytest.mark.parametrize("there", [True, False])
def test_a_link_that_was_named_stays(tmp_path: Path, there: bool) -> None:
    target = tmp_path / "disk2" / "file"
    target.parent.mkdir()
    if there:
        target.write_text("old")
    link = tmp_path / "link"
    link.symlink_to("disk2/file")
    files.write_named(link, "new")
    assert link.is_symlink()
    assert target.read_text() == "new"
    assert content(target.parent) == ["file"]


def test_a_device_that_was_named_stays(tmp_path: Path) -> None:
    link = tmp_path / "link"
    link.symlink_to(os.devnull)
    files.write_named(link, "new")
    assert link.is_symlink()
    assert stat.S_ISCHR(Path(os.devnull).stat().st_mode)
    full = tmp_path / "full"
    full.symlink_to("/dev/full")
    with pytest.raises(StorageError, match="No space left"):
        files.write_named(full, "new")
    assert full.is_symlink()


def test_a_pipe_that_was_named_is_written_to(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    files.write_named(pipe, "new")
    assert os.read(reader, 100) == b"new"
    os.close(reader)
    assert stat.S_ISFIFO(pipe.stat().st_mode)


@pytest.mark.parametrize("name", ["stdout", "log"])
def test_our_own_output_is_not_replaced(tmp_path: Path, name: str) -> None:
    """`--summary /dev/stdout > log` must not lose what is in the log, nor what comes after."""
    code = (
        "import sys; from pathlib import Path; from stoker.outside.files import write_named\n"
        "print('before', flush=True); write_named(Path(sys.argv[1]), 'named\\n'); print('after')"
    )
    (tmp_path / "stdout").symlink_to("/proc/self/fd/1")  # as /dev/stdout
    with (tmp_path / "log").open("wb") as log:
        words = [sys.executable, "-c", code, name]
        subprocess.run(words, stdout=log, cwd=tmp_path, check=True)
    assert (tmp_path / "log").read_text() == "before\nnamed\nafter\n"


def test_a_pipe_is_not_replaced(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(StorageError, match="not a regular file"):
        files.write_whole(tmp_path / "pipe", "new")
    assert stat.S_ISFIFO((tmp_path / "pipe").stat().st_mode)


def test_only_incomplete_folders_are_leftovers(tmp_path: Path) -> None:
    (tmp_path / ".cuda.backup").mkdir()
    (tmp_path / ".cuda-13.stoker-file").write_text("a file")
    with (
        files.folder_made_whole(tmp_path / "cuda") as cuda,
        files.folder_made_whole(tmp_path / "[c]uda") as odd,
    ):
        assert files.leftovers(tmp_path, "cuda") == [cuda]
        assert files.leftovers(tmp_path, "[c]uda") == [odd]
        assert files.leftovers(tmp_path) == sorted([cuda, odd])
    assert files.leftovers(tmp_path) == []
    assert (tmp_path / "cuda").is_dir()

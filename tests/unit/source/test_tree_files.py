"""Walking and reading a tree."""

import os
from pathlib import Path

import pytest

from stoker.source import files as module
from stoker.source.files import TreeFiles


def fill(root: Path, *names: str) -> TreeFiles:
    for name in names:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).touch()
    return TreeFiles(root)


def test_only_the_trees_own_files_are_walked(tmp_path: Path) -> None:
    files = fill(
        tmp_path,
        "b/c/d",
        "a",
        "b/third_party/x",
        ".git/x",
        "build/x",
        "out/CMakeCache.txt",
        "out/deep/x",
        "env/pyvenv.cfg",
        "node_modules/x",
    )
    assert list(files.walk()) == ["a", "b/c/d"]


def test_a_root_that_was_built_in_is_still_walked(tmp_path: Path) -> None:
    files = fill(tmp_path, "CMakeCache.txt", "CMakeLists.txt")
    assert "CMakeLists.txt" in files.walk()


def test_a_walk_has_an_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_MOST_FILES", 3)
    files = fill(tmp_path, *(f"{folder}/{name}" for folder in "abc" for name in "xyz"))
    assert list(files.walk()) == [f"{folder}/{name}" for folder in "ab" for name in "xyz"]
    assert files.notes == ["more than 3 files: those after b were not read"]


def test_names_that_are_no_text_are_left_out(tmp_path: Path) -> None:
    (tmp_path / "é").mkdir()
    (tmp_path / "é/CMakeLists.txt").touch()
    Path(os.fsdecode(os.fsencode(tmp_path) + b"/\xff")).mkdir()
    Path(os.fsdecode(os.fsencode(tmp_path) + b"/\xff/CMakeLists.txt")).touch()
    Path(os.fsdecode(os.fsencode(tmp_path) + b"/\xfe.cmake")).touch()
    assert list(TreeFiles(tmp_path).walk()) == ["é/CMakeLists.txt"]


def test_a_mark_of_the_byte_order_is_no_text(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"\xef\xbb\xbfhere")
    assert TreeFiles(tmp_path).text("a") == "here"


def test_bytes_that_are_no_text_are_noted_with_their_line(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"one\ntwo \xff\n")
    files = TreeFiles(tmp_path)
    assert files.text("a") == "one\ntwo \N{REPLACEMENT CHARACTER}\n"
    assert files.notes == ["a:2: not UTF-8; bytes that cannot be decoded were replaced"]


def test_what_is_not_there_is_no_trouble(tmp_path: Path) -> None:
    files = TreeFiles(tmp_path)
    assert files.text("a") is None
    assert files.text("a/b") is None
    assert files.notes == []


def test_what_cannot_be_read_is_noted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_MOST_BYTES", 4)
    (tmp_path / "large").write_text("12345")
    (tmp_path / "loop").symlink_to("loop")
    files = TreeFiles(tmp_path)
    assert files.text("large") is None
    assert files.text("loop") is None
    assert files.notes == [
        "large: not read, 5 bytes are too many",
        "loop: cannot be read: Too many levels of symbolic links",
    ]


def test_a_pipe_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "CMakeLists.txt")
    (tmp_path / "folder").mkdir()
    files = TreeFiles(tmp_path)
    assert files.text("CMakeLists.txt") is None
    assert files.text("folder") is None


def test_a_folder_is_filled_or_not(tmp_path: Path) -> None:
    files = fill(tmp_path, "full/x")
    (tmp_path / "empty").mkdir()
    assert [files.is_filled(name) for name in ("full", "empty", "none", "full/x")] == [
        True,
        False,
        False,
        False,
    ]

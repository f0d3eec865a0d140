"""Files that describe a command are read, and none of them can stop the governor."""

import os
from pathlib import Path

import pytest

from stoker.govern.server.build_files import BuildFiles

FILES = BuildFiles()


def test_sizes_and_words(tmp_path: Path) -> None:
    (tmp_path / "a.rsp").write_bytes(b"-O2 \xff.o")
    assert FILES.size(str(tmp_path / "a.rsp")) == 7
    assert os.fsencode(FILES.text(str(tmp_path / "a.rsp"))) == b"-O2 \xff.o"


def test_a_compiler_is_known_by_its_own_file(tmp_path: Path) -> None:
    (tmp_path / "gcc-12").write_text("old")
    (tmp_path / "gcc-13").write_text("newer")
    (tmp_path / "gcc").symlink_to("gcc-12")
    (tmp_path / "cc").symlink_to("gcc-13")
    assert FILES.identity(str(tmp_path / "gcc")) == "gcc-12 3"
    assert FILES.identity(str(tmp_path / "cc")) == "gcc-13 5"


@pytest.mark.parametrize("path", ["", "no-such-file", "nul\0", "/", "x" * 5000, "\udcff"])
def test_what_is_not_there_says_nothing(path: str) -> None:
    assert FILES.text(path) == ""
    assert isinstance(FILES.size(path), int)
    assert isinstance(FILES.identity(path), str)


def test_a_pipe_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    assert FILES.text(str(tmp_path / "pipe")) == ""

"""What compilers read: from ninja's log, and from the dependency files of real compilers."""

import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from stoker.govern.client.includes import StepOutput, parse_dependency_file, read_includes
from stoker.model.govern import Role
from stoker.model.runs import Includes, short_path


def step(output: str) -> StepOutput:
    return StepOutput(Role.CXX, "", output)


def files_of(includes: Includes, output: str) -> list[str]:
    return [includes.files[place] for place in includes.steps[output]]


@pytest.mark.parametrize(
    ("text", "paths"),
    [
        ("a.o: a.cpp b.h\n", ["a.cpp", "b.h"]),
        ("a.o : a.cu \\\n    b.h \\\n    c.h\n", ["a.cu", "b.h", "c.h"]),
        ("\na.o: \\\n a.cpp \\\n b.h\n\nb.h:\n", ["a.cpp", "b.h"]),
        (r"a.o: a\ b.h c\#.h d$$.h e\f.h", ["a b.h", "c#.h", "d$.h", r"e\f.h"]),
        ("a.o:", []),
        ("", []),
    ],
)
def test_dependency_files(text: str, paths: list[str]) -> None:
    assert parse_dependency_file(text) == paths


@pytest.mark.parametrize(
    ("path", "short"),
    [
        ("/home/me/tree/build/gen.h", "gen.h"),
        ("/home/me/tree/core/a.h", "../core/a.h"),
        ("/home/me/tree/build", "../build"),
        ("/usr/include/vector", "/usr/include/vector"),
    ],
)
def test_paths_are_the_same_for_every_copy_of_a_tree(path: str, short: str) -> None:
    assert short_path(path, "/home/me/tree/build") == short
    assert short_path(path, "/build") == short_path(path, "/") == path


def test_what_a_real_compiler_wrote(tmp_path: Path, need: Callable[[str], str]) -> None:
    (tmp_path / "a b.h").write_text("int one;\n")
    (tmp_path / "a.cpp").write_text('#include "a b.h"\n')
    subprocess.run([need("g++"), "-c", "-MD", "-MP", "a.cpp"], cwd=tmp_path, check=True)
    began = (tmp_path / "a.d").stat().st_mtime
    found = read_includes(str(tmp_path), [step("a.o"), step("b.o")], began=began)
    assert list(found.steps) == ["a.o"]
    assert files_of(found, "a.o")[0] == "a.cpp"
    assert files_of(found, "a.o")[-1] == "a b.h"
    assert all(found.digests)
    (tmp_path / "a b.h").write_text("int two;\n")
    again = read_includes(str(tmp_path), [step("a.o")], began=began)
    assert again.files == found.files
    changed = [old != new for old, new in zip(found.digests, again.digests, strict=True)]
    assert changed == [name == "a b.h" for name in found.files]
    assert read_includes(str(tmp_path), [step("a.o")], began=began + 60) == Includes()


def test_the_objects_of_a_link_are_not_read(tmp_path: Path) -> None:
    """CMake lists them too: for PyTorch that is most of a gigabyte after a change of one file."""
    (tmp_path / "lib.so.d").write_text("lib.so: a.o\n")
    link = StepOutput(Role.LINK, "", "lib.so")
    assert read_includes(str(tmp_path), [link], began=0.0) == Includes()


def test_files_that_are_gone_or_no_files(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.h")
    (tmp_path / "a.o.d").write_text("a.o: a.cpp pipe.h .\n")
    found = read_includes(str(tmp_path), [step("a.o")], began=0.0)
    assert files_of(found, "a.o") == ["a.cpp", "pipe.h", f"../{tmp_path.name}"]
    assert found.digests == (b"", b"", b"")

"""Links only for compilers that are there; made again when they are not as they should be."""

import os
from pathlib import Path

import pytest

from stoker.govern.links import compilers_on, make_links
from stoker.model.errors import StorageError


def folder_of(tmp_path: Path, *names: str) -> Path:
    tmp_path.mkdir(exist_ok=True)
    for name in names:
        (tmp_path / name).write_text("")
        (tmp_path / name).chmod(0o755)
    return tmp_path


def test_compilers_of_a_path(tmp_path: Path) -> None:
    one = folder_of(tmp_path / "one", "gcc", "gcc-12", "gcc-ar", "ls")
    two = folder_of(tmp_path / "two", "x86_64-linux-gnu-g++", "gcc")
    assert compilers_on(f"{one}:/no/such/folder:{two}") == [
        "gcc",
        "gcc-12",
        "x86_64-linux-gnu-g++",
    ]


def test_a_name_that_is_ccache_is_left_to_it(tmp_path: Path) -> None:
    real = folder_of(tmp_path / "real", "gcc", "g++", "ccache")
    cached = folder_of(tmp_path / "cached")
    (cached / "gcc").symlink_to(real / "ccache")
    assert compilers_on(f"{cached}:{real}") == ["g++"]
    assert compilers_on(f"{real}:{cached}") == ["g++", "gcc"]


def test_each_set_of_names_has_its_folder_and_keeps_it(tmp_path: Path) -> None:
    one = make_links(str(folder_of(tmp_path / "one", "gcc")))
    two = make_links(str(folder_of(tmp_path / "two", "gcc", "clang")))
    assert os.listdir(one.compilers) == ["gcc"]  # noqa: PTH208
    assert sorted(os.listdir(two.compilers)) == ["clang", "gcc"]  # noqa: PTH208
    assert make_links(str(tmp_path / "one")) == one


def test_what_was_damaged_is_made_again(tmp_path: Path) -> None:
    path = str(folder_of(tmp_path / "one", "gcc"))
    links = make_links(path)
    ninja, gcc = Path(links.tools) / "ninja", Path(links.compilers) / "gcc"
    whole = ninja.read_bytes()
    ninja.write_bytes(b"damaged")
    gcc.unlink()
    gcc.symlink_to("/nowhere")
    assert make_links(path) == links
    assert ninja.read_bytes() == whole
    assert os.access(ninja, os.X_OK)
    assert gcc.resolve() == Path(links.launcher).resolve()


def test_a_place_that_cannot_be_written(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STOKER_HOME", "/proc/no-such-place")
    with pytest.raises(StorageError):
        make_links("/usr/bin")


def test_nobody_else_can_change_what_every_build_runs(stoker_home: Path) -> None:
    """With a umask of 0, as some containers have it."""
    before = os.umask(0)
    try:
        links = make_links(os.environ["PATH"])
    finally:
        os.umask(before)
    for path in map(Path, (links.launcher, links.nvcc, links.tools, links.compilers)):
        for level in (path, *path.parents):
            if level.is_relative_to(stoker_home / "data"):
                assert level.stat().st_mode & 0o022 == 0, level
    assert all(tool.stat().st_mode & 0o022 == 0 for tool in Path(links.tools).iterdir())

"""The path of the governor's socket: a private folder and a path that is short enough."""

import os
from pathlib import Path

import pytest

from stoker.govern.client.conversation import socket_path
from stoker.outside.folders import data_folder, private_folder


def test_one_for_each_limit_and_home(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("STOKER_HOME", str(tmp_path / "a"))
    paths = {socket_path("/proc/meminfo"), socket_path(str(tmp_path))}
    assert socket_path("/proc/meminfo") in paths
    monkeypatch.setenv("STOKER_HOME", str(tmp_path / "b"))
    paths.add(socket_path("/proc/meminfo"))
    assert len(paths) == 3


def test_a_group_is_known_by_itself_and_not_by_its_path(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Every container sees its own group at the same path."""
    monkeypatch.setenv("STOKER_HOME", str(tmp_path / "home"))
    (tmp_path / "group").mkdir()
    (tmp_path / "other").mkdir()
    first = socket_path(str(tmp_path / "group"))
    (tmp_path / "group").rename(tmp_path / "away")
    (tmp_path / "other").rename(tmp_path / "group")
    assert socket_path(str(tmp_path / "group")) != first


def test_a_path_is_never_too_long_for_a_socket(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path / "run"))
    monkeypatch.setenv("STOKER_HOME", f"{tmp_path}/{'long' * 50}/1")
    first = socket_path("/proc/meminfo")
    monkeypatch.setenv("STOKER_HOME", f"{tmp_path}/{'long' * 50}/2")
    assert len(os.fsencode(first)) < 104
    assert socket_path("/proc/meminfo") != first


def test_the_users_runtime_folder_is_preferred(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv("STOKER_HOME")
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    assert socket_path("x").parent == tmp_path / "stoker"


@pytest.mark.parametrize("unusable", ["/proc/no", "/dev/null/x"])
def test_a_folder_that_cannot_be_made_gives_way(
    unusable: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("STOKER_HOME", unusable)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    assert socket_path("x").parent == tmp_path / "stoker"


def test_a_folder_becomes_private(tmp_path: Path) -> None:
    (tmp_path / "open").mkdir(mode=0o777)
    assert private_folder(tmp_path / "open").stat().st_mode & 0o777 == 0o700


def test_a_link_in_place_of_the_folder_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "target").mkdir(mode=0o755)
    (tmp_path / "link").symlink_to(tmp_path / "target")
    other = private_folder(tmp_path / "link")
    assert other.parent == tmp_path
    assert other.name.startswith("link.")
    assert (tmp_path / "target").stat().st_mode & 0o777 == 0o755


def test_a_name_that_another_user_has_taken_does_not_block_us(tmp_path: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root gives folders away")
    (tmp_path / "name").mkdir()
    (tmp_path / "name.theirs").mkdir()
    for theirs in tmp_path.iterdir():
        os.chown(theirs, 65534, 65534)
    own = private_folder(tmp_path / "name")
    assert own.stat().st_uid == 0
    assert own.stat().st_mode & 0o777 == 0o700
    assert private_folder(tmp_path / "name") == own  # the next run finds what this one leaves


@pytest.mark.parametrize("umask", [0o000, 0o002, 0o022, 0o077])
def test_folders_are_closed_to_others_whatever_the_umask_is(
    umask: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STOKER_HOME", str(tmp_path / "home"))
    before = os.umask(umask)
    try:
        if umask == 0:  # made so by an earlier version
            (tmp_path / "home/data/launcher").mkdir(parents=True, mode=0o777)
        private = private_folder(tmp_path / "a/b")
        data = data_folder("launcher")
    finally:
        os.umask(before)
    assert private.stat().st_mode & 0o777 == 0o700
    for folder in (data, data.parent, private.parent):
        assert folder.stat().st_mode & 0o022 == 0

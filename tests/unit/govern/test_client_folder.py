"""Where a governor is found: a private folder, and a path that a socket can have."""

import os
from pathlib import Path

import pytest

from stoker.govern.client import socket_path
from stoker.model.errors import StokerError
from stoker.outside.folders import private_folder


def test_one_for_each_limit_and_home(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STOKER_HOME", "/a")
    paths = {socket_path("/proc/meminfo"), socket_path("/sys/fs/cgroup/x")}
    monkeypatch.setenv("STOKER_HOME", "/b")
    paths.add(socket_path("/proc/meminfo"))
    assert len(paths) == 3


def test_a_path_is_never_too_long_for_a_socket(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STOKER_HOME", f"/{'long' * 50}/1")
    first = socket_path("/proc/meminfo")
    monkeypatch.setenv("STOKER_HOME", f"/{'long' * 50}/2")
    assert len(os.fsencode(first)) < 104
    assert socket_path("/proc/meminfo") != first


def test_the_users_runtime_folder_is_preferred(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("STOKER_HOME")
    monkeypatch.setenv("XDG_RUNTIME_DIR", "/run/user/1")
    assert socket_path("x").parent == Path("/run/user/1/stoker")
    monkeypatch.delenv("XDG_RUNTIME_DIR")
    assert socket_path("x").parent == Path(f"/tmp/stoker-{os.getuid()}")


def test_a_folder_becomes_private(tmp_path: Path) -> None:
    (tmp_path / "open").mkdir(mode=0o777)
    assert private_folder(tmp_path / "open").stat().st_mode & 0o777 == 0o700


def test_a_link_that_somebody_put_there_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "target").mkdir(mode=0o755)
    (tmp_path / "link").symlink_to(tmp_path / "target")
    with pytest.raises(StokerError, match="not a folder of yours"):
        private_folder(tmp_path / "link")
    assert (tmp_path / "target").stat().st_mode & 0o777 == 0o755


def test_another_users_folder_is_refused(tmp_path: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root gives folders away")
    (tmp_path / "theirs").mkdir()
    os.chown(tmp_path / "theirs", 65534, 65534)
    with pytest.raises(StokerError, match="not a folder of yours"):
        private_folder(tmp_path / "theirs")

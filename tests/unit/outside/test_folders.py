"""The folders in which stoker keeps files."""

import errno
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from stoker.model.errors import StorageError, UsageError
from stoker.outside import folders
from stoker.outside.files import write_whole

Folder = Callable[[], Path]
KINDS: list[tuple[Folder, str, str, str]] = [
    (folders.cache, "cache", "XDG_CACHE_HOME", ".cache"),
    (folders.state, "state", "XDG_STATE_HOME", ".local/state"),
    (folders.data, "data", "XDG_DATA_HOME", ".local/share"),
]


@pytest.fixture(autouse=True)
def nothing_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/me")
    for name in ("STOKER_HOME", *(variable for _, _, variable, _ in KINDS)):
        monkeypatch.delenv(name, raising=False)


LONG = "torch-cpu-genericblas-nodistributed-nofbgemm-noitt-nokineto-nomkldnn-noqnnpack"


def test_a_short_name_is_the_text_itself_or_its_start_and_a_digest() -> None:
    assert folders.short_name("torch-cu130-sm90-avx2") == "torch-cu130-sm90-avx2"
    head, _, digest = folders.short_name(LONG).rpartition("-")
    assert head == "torch-cpu-genericblas"
    assert len(digest) == 6
    assert folders.short_name(LONG) == folders.short_name(LONG)


def test_short_names_of_different_texts_differ_and_name_one_folder() -> None:
    texts = [LONG, f"{LONG}-noxnnpack", "x" * 500, "x" * 501, "a/b", "a-b", "..", "", "/etc", "é"]
    names = [folders.short_name(text) for text in texts]
    assert len(set(names)) == len(names)
    assert all(len(name) <= 32 and "/" not in name for name in names)
    assert not any(name.startswith((".", "-")) for name in names)


def test_xdg_defaults() -> None:
    for folder, _, _, fallback in KINDS:
        assert folder() == Path("/home/me") / fallback / "stoker"


def test_xdg_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    for folder, kind, variable, _ in KINDS:
        monkeypatch.setenv(variable, f"/fast/{kind}")
        assert folder() == Path("/fast") / kind / "stoker"


@pytest.mark.parametrize("useless", ["relative/path", "~/x", ""])
def test_a_relative_xdg_path_is_ignored(useless: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for folder, _, variable, fallback in KINDS:
        monkeypatch.setenv(variable, useless)
        assert folder() == Path("/home/me") / fallback / "stoker"


def test_one_variable_moves_them_together(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STOKER_HOME", "/big/disk")
    for folder, kind, variable, _ in KINDS:
        monkeypatch.setenv(variable, "/fast/disk")
        assert folder() == Path("/big/disk") / kind


def test_stoker_home_may_be_relative_or_begin_with_a_tilde(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("STOKER_HOME", "here")
    assert folders.cache() == tmp_path / "here" / "cache"
    monkeypatch.setenv("STOKER_HOME", "~/stoker")
    assert folders.cache() == Path("/home/me/stoker/cache")


def test_an_empty_stoker_home_says_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STOKER_HOME", "")
    assert folders.data() == Path("/home/me/.local/share/stoker")


def test_the_home_of_a_user_who_does_not_exist(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STOKER_HOME", "~no-such-user/stoker")
    with pytest.raises(UsageError, match=r"STOKER_HOME|home folder"):
        folders.cache()


def test_looking_makes_nothing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("STOKER_HOME", str(tmp_path / "stoker"))
    for folder, *_ in KINDS:
        folder()
    assert list(tmp_path.iterdir()) == []


def refused(number: int) -> OSError:
    return OSError(number, os.strerror(number))


def test_what_cannot_be_written_in_our_folders_has_a_next_step() -> None:
    error = folders.unwritable(folders.state() / "runs", refused(errno.EROFS))
    assert error.message == "cannot write /home/me/.local/state/stoker/runs: Read-only file system"
    (hint,) = error.hints
    assert hint.startswith("stoker keeps files in /home/me/.local/state/stoker: set STOKER_HOME")


def test_a_full_disk_names_another_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STOKER_HOME", "/big/disk")
    error = folders.unwritable(Path("/big/disk/cache/x"), refused(errno.ENOSPC), doing="open")
    assert error.message == "cannot open /big/disk/cache/x: No space left on device"
    (hint,) = error.hints
    assert hint.startswith(
        "STOKER_HOME is /big/disk: free space there (`stoker clean --all`), or set it"
    )


def test_a_file_in_the_place_of_a_folder_is_named(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    home = tmp_path / "home"
    home.touch()
    monkeypatch.setenv("STOKER_HOME", str(home))
    for act in (
        lambda: folders.data_folder("native"),
        lambda: folders.private_folder(home / "run"),
        lambda: write_whole(home / "state" / "x", b""),
    ):
        with pytest.raises(StorageError, match=f"{home} is not a folder") as caught:
            act()
        assert "STOKER_HOME" in caught.value.hints[0]


def test_a_folder_of_the_user_is_not_moved_by_our_variable(tmp_path: Path) -> None:
    assert folders.unwritable(tmp_path / "x", refused(errno.EROFS)).hints == ()


def test_what_is_missing_is_not_refused() -> None:
    assert folders.unwritable(folders.cache() / "x", refused(errno.ENOENT)).hints == ()

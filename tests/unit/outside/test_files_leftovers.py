"""Temporary names beside a folder while it is made or deleted."""

from pathlib import Path

import pytest

from stoker.model.errors import StorageError
from stoker.outside import files


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


def test_a_folder_is_removed(tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    (folder / "deep").mkdir(parents=True)
    files.remove_whole(folder)
    assert list(tmp_path.iterdir()) == []


def test_what_is_not_there_cannot_be_removed(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match="cannot remove"):
        files.remove_whole(tmp_path / "nothing")
    assert list(tmp_path.iterdir()) == []


def test_a_link_is_removed_and_not_what_it_leads_to(tmp_path: Path) -> None:
    kept, folder = tmp_path / "kept", tmp_path / "folder"
    (kept / "deep").mkdir(parents=True)
    (kept / "file").touch()
    (folder / "deep" / "deeper").mkdir(parents=True)
    (folder / "deep" / "link").symlink_to(kept)
    (folder / "deep" / "nowhere").symlink_to(tmp_path / "nowhere")
    (folder / "link").symlink_to(kept / "file")
    files.remove_tree(folder)
    (tmp_path / "link").symlink_to(kept)
    files.remove_tree(tmp_path / "link")
    files.remove_tree(tmp_path / "nowhere")
    assert sorted(tmp_path.iterdir()) == [kept, tmp_path / "link"]
    assert sorted(kept.iterdir()) == [kept / "deep", kept / "file"]

"""Temporary names beside a folder while it is made or deleted."""

from pathlib import Path

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

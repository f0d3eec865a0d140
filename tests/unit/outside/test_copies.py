"""Commands on copies of folders: they work as with the originals, and leave nothing."""

from pathlib import Path

import pytest

from stoker.model.errors import MissingError
from stoker.outside.copies import copied_folders, run_on_copies


def on_copies(script: str, folder: Path, home: Path) -> tuple[int | None, str]:
    env = {"PATH": "/usr/bin:/bin:/usr/sbin:/sbin", "HOME": str(home)}
    try:
        done = run_on_copies(["sh", "-c", script], folder=folder, timeout=60, env=env)
    except MissingError as error:
        pytest.skip(str(error))
    return done.status, done.stdout


def test_what_a_command_writes_is_thrown_away(tmp_path: Path) -> None:
    tree, home = tmp_path / "tree", tmp_path / "home"
    tree.mkdir()
    home.mkdir()
    (tree / "a").write_text("before\n")
    script = "cat a; echo after > a; echo new > b; cat a b; rm a; touch $HOME/left; pwd"
    status, output = on_copies(script, tree, home)
    assert (status, output) == (0, f"before\nafter\nnew\n{tree}\n")
    assert [(file.name, file.read_text()) for file in tree.iterdir()] == [("a", "before\n")]
    assert list(home.iterdir()) == []


def test_the_status_of_the_command_is_kept(tmp_path: Path) -> None:
    assert on_copies("exit 7", tmp_path, tmp_path)[0] == 7


def test_the_top_folder_of_a_disk_is_copied_once(tmp_path: Path) -> None:
    (tmp_path / "a,b").mkdir()
    found = copied_folders([tmp_path, tmp_path / "a,b", tmp_path / "not there"])
    assert len(found) == 1
    assert found[0] in tmp_path.parents

"""Deleting follows no link, and only one module of stoker deletes."""

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import stoker
from conftest import Need
from stoker.catalogue.store import FolderStore
from stoker.model.errors import StorageError
from stoker.outside.deleting import remove_empty, remove_file, remove_tree, remove_whole

SOURCES = Path(stoker.__file__).parent
DOOR = "outside/deleting.py"
DELETES = {"unlink", "rmdir", "rmtree", "removedirs"}


def test_a_folder_is_removed(tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    (folder / "deep").mkdir(parents=True)
    remove_whole(folder)
    assert list(tmp_path.iterdir()) == []


def test_what_is_not_there_cannot_be_removed(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match="cannot remove"):
        remove_whole(tmp_path / "nothing")
    remove_file(tmp_path / "nothing")
    remove_file(tmp_path / "nothing" / "below", below=tmp_path)
    remove_tree(tmp_path / "nothing")
    with pytest.raises(FileNotFoundError):
        remove_tree(tmp_path / "nothing", strict=True)
    assert list(tmp_path.iterdir()) == []


@pytest.fixture
def kept(tmp_path: Path) -> Iterator[Path]:
    """A folder to which links lead; nothing of it may be deleted."""
    kept = tmp_path / "kept"
    (kept / "deep").mkdir(parents=True)
    (kept / "file").touch()
    yield kept
    assert sorted(kept.iterdir()) == [kept / "deep", kept / "file"]


def test_a_link_is_removed_and_not_what_it_leads_to(tmp_path: Path, kept: Path) -> None:
    folder = tmp_path / "folder"
    (folder / "deep" / "deeper").mkdir(parents=True)
    (folder / "deep" / "link").symlink_to(kept)
    (folder / "deep" / "nowhere").symlink_to(tmp_path / "nowhere")
    (folder / "link").symlink_to(kept / "file")
    remove_tree(folder)
    (tmp_path / "link").symlink_to(kept)
    remove_tree(tmp_path / "link")
    with pytest.raises(OSError, match=r"Not a directory|symbolic"):
        remove_tree(tmp_path / "link", strict=True)
    with pytest.raises(StorageError, match="does not follow it"):
        remove_whole(tmp_path / "link")
    remove_file(tmp_path / "link")
    assert sorted(tmp_path.iterdir()) == [kept]


def test_no_link_between_is_followed(tmp_path: Path, kept: Path) -> None:
    base = tmp_path / "base"
    (base / "real").mkdir(parents=True)
    (base / "real" / "file").touch()
    (base / "link").symlink_to(kept)
    (base / "real" / "up").symlink_to(tmp_path)
    for path in (base / "link" / "file", base / "real" / "up" / "kept" / "file"):
        with pytest.raises(StorageError, match="does not follow it"):
            remove_file(path, below=base)
    with pytest.raises(StorageError, match="does not follow it"):
        remove_empty(base / "link" / "deep", below=base)
    remove_tree(base / "link" / "deep", below=base)
    for path in (base / ".." / "kept" / "file", kept / "file", base):
        with pytest.raises(StorageError, match="leads out of"):
            remove_file(path, below=base)
    remove_file(base / "real" / "file", below=base)
    assert [path.name for path in (base / "real").iterdir()] == ["up"]


def test_folders_that_a_build_closed(tmp_path: Path) -> None:
    closed = tmp_path / "gone/closed"
    (closed / "in").mkdir(parents=True)
    (tmp_path / "gone/link").symlink_to(tmp_path)
    (closed / "in" / "file").touch()
    (closed / "in").chmod(0o500)
    closed.chmod(0)
    tmp_path.chmod(0o755)
    remove_whole(tmp_path / "gone")
    assert tmp_path.stat().st_mode & 0o777 == 0o755
    assert list(tmp_path.iterdir()) == []


def test_what_cannot_be_deleted_stays(tmp_path: Path, need: Need) -> None:
    """Root could delete everything, so it has no capabilities here."""
    (tmp_path / "closed" / "folder").mkdir(parents=True)
    (tmp_path / "closed").chmod(0o500)
    code = "import pathlib, sys; from stoker.outside.deleting import remove_tree\n"
    code += "remove_tree(pathlib.Path(sys.argv[1]))"
    words = [need("setpriv"), "--bounding-set=-all", "--inh-caps=-all", sys.executable, "-c", code]
    subprocess.run([*words, tmp_path / "closed" / "folder"], check=True)
    assert (tmp_path / "closed" / "folder").is_dir()
    (tmp_path / "closed").chmod(0o700)


def test_a_catalogue_deletes_nothing_through_a_link(tmp_path: Path, kept: Path) -> None:
    root = tmp_path / "catalogue"
    root.mkdir()
    (root / "wheels").symlink_to(kept)
    for path in ("wheels/file", "../kept/file", str(kept / "file")):
        with pytest.raises(StorageError):
            FolderStore(root).delete(path)


def test_only_one_module_deletes() -> None:
    """Files that are made by ``tempfile`` for a moment are the exception; it follows no links."""
    found = set()
    for file in SOURCES.rglob("*.py"):
        text = file.read_text()
        if not any(word in text for word in (*DELETES, "os.remove")):
            continue
        for node in ast.walk(ast.parse(text)):
            name = getattr(node, "attr", getattr(node, "id", ""))
            removes = name == "remove" and getattr(getattr(node, "value", None), "id", "") == "os"
            if removes or name in DELETES:
                found.add(file.relative_to(SOURCES).as_posix())
    assert found == {DOOR}

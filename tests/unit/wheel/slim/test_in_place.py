"""Files replaced where they are: all or none, never written into, and put back."""

import os
import shutil
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from stoker.model.errors import StokerError, StorageError, UsageError
from stoker.outside.files import sha256_of, stamp_of
from stoker.wheel.inspect.facts import files_below
from stoker.wheel.slim.folder import delete_originals, put_back_originals, recover
from stoker.wheel.slim.in_place import Journal, Originals, Replaced, StoreState

OLD, NEW = b"old" * 100, b"new"
NAMES = ("lib/a.so", "lib/b.so", "top.so")


class Site(Originals):
    """A store with the folder whose files it keeps."""

    def __init__(self, root: Path):
        super().__init__(root / ".store")
        self.root = root


@pytest.fixture
def site(tmp_path: Path) -> Site:
    root = tmp_path / "root"
    site = Site(root)
    for name in NAMES:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(OLD + name.encode())
        site.prepared(name).parent.mkdir(parents=True, exist_ok=True)
        site.prepared(name).write_bytes(NEW + name.encode())
    site.prepared("lib/note").write_bytes(b"more")
    return site


def replace_all(site: Site, paths: Iterable[str] = (*NAMES, "lib/note")) -> None:
    """Every prepared file, none changed since it was read."""
    here = {path: site.root / path for path in paths}
    site.replace(
        site.root,
        {path: stamp_of(file) if file.exists() else None for path, file in here.items()},
    )


def contents(site: Site) -> dict[str, bytes]:
    """Of everything outside the store."""
    return {
        str(path.relative_to(site.root)): path.read_bytes()
        for path in sorted(site.root.rglob("*"))
        if path.is_file() and not path.is_relative_to(site.store)
    }


BEFORE = {name: OLD + name.encode() for name in NAMES}
AFTER = {**{name: NEW + name.encode() for name in NAMES}, "lib/note": b"more"}


def test_replaced_and_put_back(site: Site) -> None:
    cache = site.root.parent / "cache"
    os.link(site.root / "lib/a.so", cache)
    inode = cache.stat().st_ino
    replace_all(site)
    assert contents(site) == AFTER
    assert cache.read_bytes() == OLD + b"lib/a.so"  # who shares the file sees nothing of it
    assert (site.root / "lib/a.so").stat().st_ino != inode
    assert put_back_originals(site) == NAMES
    assert contents(site) == BEFORE
    assert (site.root / "lib/a.so").stat().st_ino == inode
    assert not site.store.exists()


def test_an_environment_may_move(site: Site) -> None:
    replace_all(site)
    moved = site.root.rename(site.root.with_name("elsewhere"))
    put_back_originals(Site(moved))
    assert contents(Site(moved)) == BEFORE


def test_one_that_fails_leaves_all_as_they_were(site: Site) -> None:
    (site.root / "blocked").write_bytes(b"")
    site.prepared("blocked").mkdir()
    (site.prepared("blocked") / "x").write_bytes(b"")
    with pytest.raises((StorageError, IsADirectoryError)):
        replace_all(site, [*NAMES, "lib/note", "blocked"])
    left = contents(site)
    assert left.pop("blocked") == b""
    assert left == BEFORE


def test_a_place_that_cannot_be_written_to(site: Site) -> None:
    """The folder of the last file is gone when its turn comes."""
    site.prepared("gone").mkdir(parents=True)
    site.prepared("gone/c.so").write_bytes(NEW)
    with pytest.raises(StorageError, match=r"cannot replace .*gone"):
        replace_all(site, [*NAMES, "lib/note", "gone/c.so"])
    assert contents(site) == BEFORE


@pytest.mark.parametrize("reached", range(5))
def test_a_process_that_was_killed(site: Site, reached: int) -> None:
    """The journal is there, and some files have been replaced: as after the kill."""
    paths = [*NAMES, "lib/note"]
    replace_all(site, paths)
    for path in paths[reached:]:
        if site.original(path).exists():
            site.original(path).replace(site.root / path)
        else:
            (site.root / path).unlink()
    put_back_originals(site)
    assert contents(site) == BEFORE


def test_killed_between_the_two_names(site: Site) -> None:
    replace_all(site)
    (site.root / "top.so").unlink()
    os.link(site.original("top.so"), site.root / "top.so")
    put_back_originals(site)
    assert contents(site) == BEFORE


def test_what_was_installed_since_is_not_touched(site: Site) -> None:
    replace_all(site)
    (site.root / "lib/b.so").write_bytes(b"newer")
    with pytest.raises(UsageError, match=r"b\.so was changed or installed again") as raised:
        put_back_originals(site)
    assert "--discard" in raised.value.hints[0]
    assert contents(site) == {**AFTER, "lib/b.so": b"newer"}


def test_nothing_to_put_back(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="nothing can be restored"):
        put_back_originals(Site(tmp_path))
    (tmp_path / ".store").mkdir()
    (tmp_path / ".store" / "journal.json").write_text("{]")
    with pytest.raises(StorageError, match="cannot read"):
        put_back_originals(Site(tmp_path))


def test_a_file_that_another_process_changed(site: Site) -> None:
    """It was read, then another slim, or pip, put something else there."""
    stamps = {name: stamp_of(site.root / name) for name in NAMES}
    (site.root / "top.so").unlink()
    (site.root / "top.so").write_bytes(b"newer")
    with pytest.raises(StokerError, match=r"another process changed .*top\.so"):
        site.replace(site.root, stamps)
    assert contents(site) == {**BEFORE, "top.so": b"newer"}
    assert not list(site.store.rglob("*.so"))


def test_a_file_that_another_process_added(site: Site) -> None:
    (site.root / "lib/note").write_bytes(b"theirs")
    with pytest.raises(StokerError, match=r"another process changed .*note"):
        site.replace(site.root, {"lib/note": None})
    assert contents(site) == {**BEFORE, "lib/note": b"theirs"}


def test_without_hard_links(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise PermissionError

    monkeypatch.setattr("os.link", refuse)
    (site.root / "top.so").chmod(0o751)
    before = stamp_of(site.root / "top.so")
    replace_all(site)
    assert contents(site) == AFTER
    put_back_originals(site)
    assert contents(site) == BEFORE
    assert stamp_of(site.root / "top.so")[2:] == before[2:]
    assert (site.root / "top.so").stat().st_mode & 0o777 == 0o751


def test_a_store_without_a_journal(site: Site) -> None:
    """A process was killed while it prepared: nothing has been replaced."""
    for end in (put_back_originals, delete_originals):
        site.prepared("new.so").parent.mkdir(parents=True, exist_ok=True)
        site.prepared("new.so").write_bytes(NEW)
        assert not end(site)
        assert contents(site) == BEFORE
        assert not site.store.exists()


def test_originals_whose_journal_is_gone(site: Site) -> None:
    """They are never deleted unasked."""
    replace_all(site)
    site.journal.unlink()
    with pytest.raises(StorageError, match="its journal is missing"):
        put_back_originals(site)
    with (
        site.held(),
        pytest.raises(StorageError, match="its journal is missing"),
    ):
        recover(site)
    assert site.original("top.so").read_bytes() == BEFORE["top.so"]
    delete_originals(site)
    assert not site.store.exists()


def test_interrupted_and_changed_since(site: Site) -> None:
    """--discard puts back what is ours, and leaves what was installed since."""
    replace_all(site)
    site.journal.replace(site.store / StoreState.REPLACING)
    (site.root / "lib/b.so").write_bytes(b"newer")
    with pytest.raises(UsageError, match=r"b\.so was changed or installed again"):
        put_back_originals(site)
    delete_originals(site)
    assert contents(site) == {**BEFORE, "lib/b.so": b"newer"}
    assert not site.store.exists()


def test_one_process_at_a_time(site: Site) -> None:
    with (
        site.held(),
        pytest.raises(StokerError, match="another stoker process is slimming"),
    ):
        put_back_originals(site)


@pytest.mark.parametrize(
    ("root", "path"),
    [("..", "victim"), (".", "../victim"), (".", "link/victim"), ("link", "victim")],
)
def test_a_journal_from_elsewhere(tmp_path: Path, root: str, path: str) -> None:
    """A folder that was brought here is not to write anywhere else."""
    folder, victim = tmp_path / "folder", tmp_path / "victim"
    store = folder / ".stoker-slim"
    victim.write_bytes(OLD)
    site = Originals(store)
    store.joinpath("originals").mkdir(parents=True)
    site.original(path).parent.mkdir(exist_ok=True)
    site.original(path).write_bytes(b"evil")
    (folder / "link").symlink_to(tmp_path)
    file = Replaced(path=path, sha256=sha256_of(victim), added=False)
    store.joinpath("replacing.json").write_bytes(
        msgspec.json.encode(Journal(root=root, files=(file,)))
    )
    for end in (put_back_originals, delete_originals, recover):
        with pytest.raises(StorageError, match="stoker did not write it"):
            end(site)
    assert victim.read_bytes() == OLD


def test_a_subfolder_that_disappears_meanwhile_has_no_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "gone").mkdir()
    (tmp_path / "kept").touch()
    walk = os.walk

    def walk_slowly(*words: Any, **more: Any) -> Iterator[Any]:
        for each in walk(*words, **more):
            shutil.rmtree(tmp_path / "gone", ignore_errors=True)
            yield each

    monkeypatch.setattr("os.walk", walk_slowly)
    assert files_below(tmp_path) == ("kept",)
    with pytest.raises(StorageError, match="cannot read"):
        files_below(tmp_path / "none")

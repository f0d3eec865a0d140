"""Folders that builds leave are found, measured and removed, unless they are in use."""

import os
import time
from pathlib import Path

import pytest

from held_locks import held_elsewhere
from stoker.builds import cleaning as kept_module
from stoker.builds import in_memory, work
from stoker.builds.acquire import kept_sources as sources
from stoker.builds.cleaning import CleanupKind, choose_items, kept, kept_of, remove_item
from stoker.builds.toolchains import kept_toolchains
from stoker.model.errors import StorageError, UsageError
from stoker.outside import deleting, files, folders, locks
from stoker.plan.run_folder import RunFolder


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    tree = (tmp_path / "tree").resolve()
    tree.mkdir()
    return tree


def built(tree: Path, variant: str) -> Path:
    path = work.work_folder(tree, name="pkg", variant=variant, python="3.11")
    with work.locked(path):
        (path / "build").mkdir()
        (path / "build/a.o").write_bytes(bytes(100_000))
    return path


def test_size_is_what_deleting_frees(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(bytes(100_000))
    os.link(tmp_path / "a", tmp_path / "b")
    (tmp_path / "link").symlink_to("/usr")
    with (tmp_path / "sparse").open("wb") as stream:
        stream.truncate(1 << 30)
    assert 100_000 <= files.size_on_disk(tmp_path) < 200_000


def test_builds_are_found_and_removed(tree: Path, tmp_path: Path) -> None:
    first, second = built(tree, "cpu"), built(tree, "h100")
    other = built(tmp_path / "other", "cpu")
    found = {Path(entry.path): entry for entry in kept(CleanupKind.BUILDS)}
    assert found.keys() == {first, second, other}
    assert found[first].size_bytes >= 100_000
    assert {Path(entry.path) for entry in kept_of(tree)} == {first, second}
    assert remove_item(found[first])
    assert [Path(entry.path) for entry in kept_of(tree)] == [second]
    assert not work.build_lock(first).exists()
    assert remove_item(found[first])  # once more does no harm


def test_build_inside_the_tree(tree: Path) -> None:
    (tree / "build").mkdir()
    assert list(kept_of(tree)) == []  # not made by a build of ours
    with work.locked(work.in_tree_folder(tree)):
        (entry,) = kept_of(tree)
        assert entry.busy
        assert not remove_item(entry)
    (entry,) = kept_of(tree)
    assert entry.path == str(tree / "build")
    assert remove_item(entry)
    assert list(tree.iterdir()) == []


@pytest.fixture
def elsewhere(tmp_path: Path) -> Path:
    """A folder of the user's, with a folder in it that others may enter."""
    folder = tmp_path / "disk2"
    (folder / "data").mkdir(parents=True)
    (folder / "data").chmod(0o555)
    (folder / "data.txt").write_text("precious")
    return folder


def untouched(elsewhere: Path) -> bool:
    closed = (elsewhere / "data").stat().st_mode & 0o777 == 0o555
    return closed and (elsewhere / "data.txt").read_text() == "precious"


def test_what_a_link_of_the_user_leads_to_stays(tree: Path, elsewhere: Path) -> None:
    (tree / "build").symlink_to(elsewhere)
    with work.locked(work.in_tree_folder(tree)):
        pass
    (entry,) = kept_of(tree)
    assert entry.link == str(elsewhere)
    assert choose_items([entry], before=time.time()).chosen == ()
    with pytest.raises(StorageError, match="symbolic link"):
        remove_item(entry)  # as if it had become a link meanwhile
    assert (tree / "build").is_symlink()
    assert untouched(elsewhere)


def test_a_link_among_the_builds_is_not_followed(tree: Path, elsewhere: Path) -> None:
    link = work.work_folder(tree, name="pkg", variant="cpu", python="3.11")
    link.parent.mkdir(parents=True)
    link.symlink_to(elsewhere)
    (entry,) = kept(CleanupKind.BUILDS)
    assert entry.link == str(elsewhere)
    with pytest.raises(StorageError, match="symbolic link"):
        remove_item(entry)
    with pytest.raises(StorageError, match="symbolic link"):
        work.Work(link).start_over()
    assert untouched(elsewhere)


def test_a_link_within_a_build_is_removed_and_not_followed(tree: Path, elsewhere: Path) -> None:
    path = built(tree, "cpu")
    deleting.remove_whole(path / "build")
    (path / "build").symlink_to(elsewhere)
    (entry,) = kept_of(tree)
    assert entry.size_bytes < 100_000
    assert remove_item(entry)
    assert not path.exists()
    assert untouched(elsewhere)


def test_only_links_that_stoker_made_lead_into_memory(
    tree: Path, elsewhere: Path, tmp_path: Path
) -> None:
    build = tree / "build"
    build.symlink_to(elsewhere)
    assert not in_memory.is_in_memory(build)
    with pytest.raises(UsageError, match="link of your own"):
        in_memory.put_in_memory(build, in_memory.memory_home_in(tmp_path, tree))
    in_memory.drop_memory_tree(build)
    assert build.is_symlink()
    assert untouched(elsewhere)
    build.unlink()
    build.symlink_to("/no/such/disk")
    assert not in_memory.is_lost(build)
    build.unlink()
    home = in_memory.memory_home_in(tmp_path, tree)
    in_memory.put_in_memory(build, home)
    assert in_memory.is_in_memory(build)
    home.rmdir()
    assert in_memory.is_lost(build)
    in_memory.drop_memory_tree(build)
    assert not build.is_symlink()


@pytest.mark.parametrize("how", ["alone", "shared"])
def test_what_is_used_stays(tree: Path, how: str) -> None:
    path = built(tree, "cpu")
    (before,) = kept_of(tree)
    with held_elsewhere(work.build_lock(path), how):
        (entry,) = kept_of(tree)
        assert entry.busy
        assert not before.busy
        assert not remove_item(before)
        assert path.is_dir()
    assert remove_item(before)


def test_looking_is_no_use(tree: Path) -> None:
    path = built(tree, "cpu")
    os.utime(work.build_lock(path), (1000, 1000))
    assert [entry.used for entry in kept_of(tree)] == [1000]
    assert [entry.used for entry in kept_of(tree)] == [1000]
    with work.locked(path):
        pass
    assert [entry.used for entry in kept_of(tree)] > [1000]


def test_a_run_is_busy_while_it_runs() -> None:
    with RunFolder("cpu") as folder:
        (entry,) = kept(CleanupKind.RUNS)
        assert entry.busy
        assert not remove_item(entry)
        assert folder.path.is_dir()
    (entry,) = kept(CleanupKind.RUNS)
    assert remove_item(entry)
    assert list(kept(CleanupKind.RUNS)) == []


def test_sources_whole_and_half_made() -> None:
    root = sources.root()
    for name in ("pkg-1.0-aa", ".pkg-2.0-bb.partial"):
        (root / name / "unpacked").mkdir(parents=True)
    with held_elsewhere(root / "pkg-2.0-bb.lock"):
        found = {entry.name: entry for entry in kept(CleanupKind.SOURCES)}
        assert {name: entry.busy for name, entry in found.items()} == {
            "pkg-1.0-aa": False,
            ".pkg-2.0-bb.partial": True,
        }
        assert [remove_item(entry) for entry in found.values()].count(True) == 1
    assert [path.name for path in root.glob("*/")] == [".pkg-2.0-bb.partial"]


def test_toolchains_of_a_build_stay() -> None:
    for name in ("cuda-13.0", "ninja"):
        (kept_toolchains.root() / name).mkdir(parents=True)
    home = str(kept_toolchains.root() / "cuda-13.0")
    with locks.holding_toolchains({"CUDA_HOME": home, "PATH": f"/bin:{home}/bin"}):
        busy = {entry.name: entry.busy for entry in kept(CleanupKind.TOOLCHAINS)}
    assert busy == {"cuda-13.0": True, "ninja": False}
    assert not any(entry.busy for entry in kept(CleanupKind.TOOLCHAINS))


def test_killed_deletion_is_found_again(tree: Path) -> None:
    path = built(tree, "cpu")
    path.rename(path.with_name(f".{path.name}.stoker-0011"))
    (entry,) = kept(CleanupKind.BUILDS)
    assert remove_item(entry)
    assert list(folders.builds().glob("*/")) == []


def test_every_kind_has_its_place_and_a_new_home_has_nothing_to_remove() -> None:
    assert {*kept_module._PLACES} | {CleanupKind.HISTORY} == {*CleanupKind}
    assert [item for kind in CleanupKind for item in kept(kind)] == []

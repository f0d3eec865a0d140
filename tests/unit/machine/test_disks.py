import shutil
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from stoker.machine.disks import default_paths, read_disks, read_temporary
from stoker.machine.file_tree import FileTree
from stoker.outside import folders

Record = Callable[[Mapping[str, str]], FileTree]


def test_the_folders_of_a_build_are_on_disks_of_this_machine(stoker_home: Path) -> None:
    paths = default_paths()
    assert stoker_home / "cache" in paths
    disks = read_disks(FileTree(), paths)
    assert Path(disks[0].path) == Path.cwd()
    assert 0 < disks[0].free <= disks[0].total
    assert disks[0].total == shutil.disk_usage(Path.cwd()).total


def test_each_mount_once_and_memory_told_apart(tmp_path: Path, record: Record) -> None:
    memory = tmp_path / "memory"
    memory.mkdir()
    tree = record(
        {
            "/proc/self/mountinfo": "1 0 0:1 / / rw - ext4 disk rw\n"
            f"2 1 0:2 / {memory} rw - tmpfs none rw\n"
        }
    )
    paths = (tmp_path, tmp_path / "other", memory / "not" / "yet", memory)
    disks = read_disks(tree, paths)
    assert [(disk.path, disk.filesystem, disk.in_memory) for disk in disks] == [
        (str(tmp_path), "ext4", False),
        (str(memory / "not" / "yet"), "tmpfs", True),
    ]


def test_links_are_followed(tmp_path: Path, record: Record) -> None:
    (tmp_path / "memory").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "memory")
    mounts = f"1 0 0:1 / / rw - ext4 d rw\n2 1 0:2 / {tmp_path}/memory rw - tmpfs none rw\n"
    (disk,) = read_disks(record({"/proc/self/mountinfo": mounts}), (tmp_path / "link",))
    assert (disk.path, disk.filesystem) == (str(tmp_path / "link"), "tmpfs")


def test_without_a_list_of_mounts_there_are_still_sizes(tmp_path: Path, record: Record) -> None:
    (disk,) = read_disks(record({}), (tmp_path, tmp_path / "a"))
    assert disk.filesystem == "unknown"
    assert disk.total > 0


def test_a_name_too_long_is_on_the_disk_of_its_parent_folder(
    tmp_path: Path, record: Record
) -> None:
    (disk,) = read_disks(record({}), (tmp_path / ("x" * 300) / "y",))
    assert disk.total == shutil.disk_usage(tmp_path).total


def test_links_in_a_circle_are_noted_or_passed_over(tmp_path: Path, record: Record) -> None:
    """Which of the two depends on the Python."""
    (tmp_path / "a").symlink_to(tmp_path / "b")
    (tmp_path / "b").symlink_to(tmp_path / "a")
    tree = record({})
    disks = read_disks(tree, (tmp_path / "a", tmp_path))
    assert disks[-1].total == shutil.disk_usage(tmp_path).total
    assert len(disks) + len(tree.notes) in (1, 2)


def test_places_for_temporary_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The usual one first; none is merged with another on the same disk, nor with where we are."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    usual, *others = read_temporary()
    assert usual.path == str(tmp_path)
    assert others[-1].path == str(folders.cache())
    assert len({place.path for place in (usual, *others)}) == 1 + len(others)

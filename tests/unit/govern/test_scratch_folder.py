"""The folder of temporary files is created, switched and removed, also after SIGKILL."""

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from small_disks import small_disk
from stoker.govern.client.scratch import DiskGuard, ScratchFolder
from stoker.model.machine import Scratch

MIB = 1 << 20
STAY = """
import sys
from stoker.govern.client.scratch import ScratchFolder
from stoker.model.machine import Scratch
with ScratchFolder(Scratch(disk=sys.argv[1], ram=sys.argv[2], most=1 << 20)) as folder:
    (folder.path / "x").write_text("x")
    print(folder.path, flush=True)
    sys.stdin.read()
"""


@pytest.fixture
def places(tmp_path: Path) -> tuple[Path, Path]:
    """A disk and memory; here both are folders."""
    disk, ram = tmp_path / "disk", tmp_path / "ram"
    disk.mkdir()
    ram.mkdir()
    return disk, ram


def files_in(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if not path.is_dir()]


def test_in_memory_then_on_disk_then_back(places: tuple[Path, Path]) -> None:
    disk, ram = places
    with ScratchFolder(Scratch(disk=str(disk), ram=str(ram), most=MIB)) as folder:
        first = folder.path.resolve()
        assert first.is_relative_to(ram)
        assert folder.look() is None
        (first / "large").write_bytes(bytes(2 * MIB))
        assert "go to disk" in (folder.look() or "")
        assert folder.path.resolve().is_relative_to(disk)
        assert folder.look() is None  # it is said once
        assert first.is_dir()  # steps that started there stay there
        (first / "large").unlink()
        assert folder.look() is None
        assert folder.path.resolve() == first
    assert files_in(disk) == files_in(ram) == []


def test_between_half_and_whole_nothing_moves(places: tuple[Path, Path]) -> None:
    disk, ram = places
    with ScratchFolder(Scratch(disk=str(disk), ram=str(ram), most=MIB)) as folder:
        (folder.path / "a").write_bytes(bytes(700 * 1024))
        folder.look()
        assert folder.path.resolve().is_relative_to(ram)
        (folder.path / "b").write_bytes(bytes(700 * 1024))
        folder.look()
        next(ram.rglob("b")).unlink()
        folder.look()
        assert folder.path.resolve().is_relative_to(disk)


def test_on_disk_only(places: tuple[Path, Path]) -> None:
    disk, _ = places
    with ScratchFolder(Scratch(disk=str(disk))) as folder:
        assert folder.path.resolve().is_relative_to(disk)
        (folder.path / "x").write_bytes(bytes(2 * MIB))
        assert folder.look() is None
    assert files_in(disk) == []


def test_other_users_cannot_read_it(places: tuple[Path, Path]) -> None:
    disk, ram = places
    with ScratchFolder(Scratch(disk=str(disk), ram=str(ram), most=MIB)):
        for place in places:
            (base,) = place.iterdir()
            assert base.stat().st_mode & 0o777 == 0o700


def test_names_that_another_user_has_taken_do_not_block_us(places: tuple[Path, Path]) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root gives folders away")
    disk, ram = places
    for place in places:
        (place / "stoker-0-steps").mkdir()
        os.chown(place / "stoker-0-steps", 65534, 65534)
        (place / "stoker-0-steps" / "x.lock").touch()
    everywhere = (str(disk), str(ram))
    for _ in range(2):
        scratch = Scratch(disk=str(disk), ram=str(ram), most=MIB, places=everywhere)
        with ScratchFolder(scratch) as folder:
            assert folder.path.resolve().is_relative_to(ram)
            (folder.path / "x").write_text("x")
    for place in places:
        theirs, ours = sorted(place.iterdir())
        assert (theirs.owner(), ours.owner()) == ("nobody", "root")
        assert [path.name for path in theirs.iterdir()] == ["x.lock"]
        assert list(ours.iterdir()) == []


@pytest.mark.parametrize("next_in_ram", [True, False])
def test_what_a_killed_run_left_goes_with_the_next(
    places: tuple[Path, Path], next_in_ram: bool
) -> None:
    disk, ram = places
    command = [sys.executable, "-c", STAY, str(disk), str(ram)]
    runs = [
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) for _ in range(2)
    ]
    links = []
    for run in runs:
        assert run.stdout is not None
        links.append(Path(run.stdout.readline().decode().strip()))
    killed, living = (link.resolve() for link in links)
    os.kill(runs[0].pid, signal.SIGKILL)
    runs[0].communicate()
    assert (killed / "x").exists()
    chosen = str(ram) if next_in_ram else None
    scratch = Scratch(disk=str(disk), ram=chosen, most=MIB, places=(str(disk), str(ram)))
    with ScratchFolder(scratch):
        assert not killed.exists()
        assert not links[0].parent.exists()
        assert (living / "x").exists()
    runs[1].communicate()
    assert files_in(disk) == files_in(ram) == []


@pytest.mark.parametrize("ram", [None, "memory"])
def test_the_run_continues_if_no_folder_can_be_created(tmp_path: Path, ram: str | None) -> None:
    (tmp_path / "file").touch()
    scratch = Scratch(disk=str(tmp_path / "file"), ram=ram and str(tmp_path / ram), most=MIB)
    with ScratchFolder(scratch) as folder:
        assert folder.look() is None
        assert folder.path == tmp_path / "file"


def test_a_switch_that_finds_the_disk_full_is_said_once_and_tried_again(tmp_path: Path) -> None:
    (tmp_path / "ram").mkdir()
    with small_disk(tmp_path / "disk", "size=1m,nr_inodes=9") as disk:
        with ScratchFolder(Scratch(disk=str(disk), ram=str(tmp_path / "ram"), most=MIB)) as folder:
            first = folder.path.resolve()
            (first / "large").write_bytes(bytes(2 * MIB))
            fillers = use_up_inodes(disk)
            assert "No space left" in (folder.look() or "")
            assert folder.look() is None  # it is said once
            assert folder.path.resolve() == first
            fillers.pop().unlink()
            assert "go to disk" in (folder.look() or "")
            assert folder.path.resolve().is_relative_to(disk)
            use_up_inodes(disk)
            (first / "large").unlink()
            assert folder.look() is None  # back to memory is nothing to speak of
        assert files_in(tmp_path / "ram") == []


def use_up_inodes(disk: Path) -> list[Path]:
    """Files without content, until not even a link can be made."""
    made: list[Path] = []
    try:
        while True:
            made.append(disk / f"filler{len(list(disk.iterdir()))}")
            made[-1].touch()
    except OSError:
        return made[:-1]


@pytest.fixture
def small(tmp_path: Path) -> Iterator[Path]:
    """A file system of 8 MiB."""
    with small_disk(tmp_path / "small", "size=8m,nr_inodes=64") as folder:
        yield folder


def fill(folder: Path, least: int = 0) -> None:
    """Until less than so many bytes are left."""
    with (folder / "rest").open("ab", buffering=0) as stream:
        while shutil.disk_usage(folder).free > least:
            try:
                stream.write(bytes(4096))
            except OSError:
                return


def test_a_command_is_told_to_end_and_then_made_to(small: Path) -> None:
    guard = DiskGuard(small)
    assert guard.check(1.0) is None
    assert guard.shortage is None
    fill(small, 80_000)
    assert guard.check(2.0) is signal.SIGTERM
    assert "room for" in (guard.shortage or "")
    assert guard.check(3.0) is None
    assert guard.check(100.0) is signal.SIGKILL


@pytest.mark.parametrize("place", [".", "made/later"])
def test_growth_is_held_to_its_share(small: Path, place: str) -> None:
    guard = DiskGuard(small / place, 2 * MIB)
    fill(small, 7 * MIB)
    assert guard.check(1.0) is None
    fill(small, 5 * MIB)
    assert guard.check(2.0) is signal.SIGTERM


def test_a_disk_that_is_nearly_full_lets_small_builds_do(small: Path) -> None:
    fill(small, 50_000)
    assert DiskGuard(small).check(1.0) is None


def test_a_folder_that_vanishes_stops_nothing(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    guard = DiskGuard(tmp_path / "folder")
    (tmp_path / "folder").rmdir()
    assert guard.check(1.0) is None

"""`stoker slim` killed at every step, started twice, and on a full disk."""

import random
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

from conftest import Need, Stoker, heavy
from slim_kills import SIGNALS, SLIM, has_store, tree
from slim_libraries import build_library, cubins
from small_disks import small_disk
from stoker.model.errors import ExitStatus
from wheel_files import record, zipped

COMMAND = [sys.executable, "-m", "stoker", "slim"]


@pytest.fixture
def folder(need: Need, tmp_path: Path) -> Path:
    """Two libraries of one distribution, and its RECORD."""
    made = tmp_path / "made"
    made.mkdir()
    library = build_library(need, made, [cubins(1, 80, 86, 90)])
    folder = tmp_path / "site"
    lib, dist_info = folder / "mill" / "lib", folder / "mill-1.dist-info"
    lib.mkdir(parents=True)
    dist_info.mkdir()
    for name in ("libone.so", "libtwo.so"):
        shutil.copy(library, lib / name)
    rows = ["mill/lib/libone.so,,", "mill/lib/libtwo.so,,", "mill-1.dist-info/RECORD,,", ""]
    (dist_info / "RECORD").write_text("\n".join(rows))
    return folder


@pytest.mark.slow
@pytest.mark.parametrize(
    "case", [*("0", "1", "2"), *(heavy(case) for case in ("3", "0 no-links", "1 no-links"))]
)
def test_killed_at_every_step(folder: Path, case: str) -> None:
    """Whatever command comes next, all files are as before or all are slimmed."""
    script = Path(__file__).parents[1] / "slim_kills.py"
    done = subprocess.run(
        [sys.executable, str(script), str(folder), *case.split()],
        capture_output=True,
        text=True,
        check=False,
        timeout=1200,
    )
    assert done.returncode == 0, done.stderr
    assert int(done.stdout.split()[-1]) > 5


def start(*words: object) -> "subprocess.Popen[str]":
    command = [sys.executable, "-m", "stoker", "slim", *(str(word) for word in words)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


@pytest.mark.heavy
def test_killed_at_any_time(folder: Path, stoker: Stoker) -> None:
    """A real command and real signals; the moments are different in each run of the test."""
    before = tree(folder)
    for round_ in range(6):
        killed = start(folder, *SLIM)
        time.sleep(random.uniform(0.3, 1.2))
        killed.send_signal(SIGNALS[round_ % 3])
        killed.communicate(timeout=120)
        if has_store(tree(folder)):
            done = stoker("slim", str(folder), ("--undo", "--discard")[round_ % 2])
            assert done.returncode in (0, ExitStatus.USAGE), done.stderr
        if tree(folder) != before:  # it came to its end, and the originals were given up
            assert stoker("slim", str(folder), "--for", "sm90").returncode == 0
            return
    assert stoker("slim", str(folder), *SLIM).returncode == 0
    assert stoker("slim", str(folder), "--undo").returncode == 0
    assert tree(folder) == before


@pytest.mark.slow
@pytest.mark.parametrize("second", ["", "mill/lib/libone.so"])
def test_two_at_once(folder: Path, stoker: Stoker, second: str) -> None:
    """On the same folder, or on a part of it: what both have done can be undone."""
    before = tree(folder)
    for _ in range(3):
        both = start(folder, *SLIM), start(folder / second, *SLIM)
        errors = [one.communicate(timeout=120)[1] for one in both]
        assert any(one.returncode == 0 for one in both), errors
        for one, error in zip(both, errors, strict=True):
            refused = "another" in error or "slimmed before" in error
            assert one.returncode == 0 or refused, error
        # The one that came last has to be undone first.
        for target in (folder / second, folder, folder / second):
            stoker("slim", str(target), "--undo")
        assert tree(folder) == before


def test_one_that_does_not_wait(folder: Path, stoker: Stoker) -> None:
    (folder / ".stoker-slim").mkdir()
    holder = subprocess.Popen(
        ["flock", str(folder / ".stoker-slim" / "lock"), "sh", "-c", "echo held; cat"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert holder.stdout is not None
    assert holder.stdout.readline() == b"held\n"
    try:
        for words in (SLIM, ("--undo",), ("--discard",)):
            done = stoker("slim", str(folder), *words)
            assert done.returncode == ExitStatus.FAILED
            assert f"another stoker process is slimming or restoring {folder}" in done.stderr
    finally:
        holder.communicate(timeout=60)
    assert stoker("slim", str(folder), *SLIM).returncode == 0


NO_LINKS = """
import os, sys
def link(*_, **__): raise OSError(95, "Operation not supported")
os.link = link
from stoker.__main__ import main
sys.exit(main())
"""


def test_a_full_disk_without_hard_links(folder: Path, tmp_path: Path, stoker: Stoker) -> None:
    """The new files have room, a copy of an original has not: half of it could be written."""
    size = sum(path.stat().st_size for path in folder.rglob("*.so"))
    with small_disk(tmp_path / "disk", f"size={size * 7 // 4}") as disk:
        site = disk / "site"
        shutil.copytree(folder, site)
        before = tree(site)
        command = [sys.executable, "-c", NO_LINKS, "slim", str(site), *SLIM]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
        assert done.returncode == ExitStatus.STORAGE, done.stderr
        assert "No space left" in done.stderr
        assert tree(site) == before
        assert not (site / ".stoker-slim").exists()
        assert stoker("slim", str(site), *SLIM).returncode == 0  # with hard links it has room


@pytest.mark.parametrize("option", ["--undo", "--discard"])
def test_back_on_a_full_disk(folder: Path, tmp_path: Path, stoker: Stoker, option: str) -> None:
    with small_disk(tmp_path / "disk", "size=16m") as disk:
        site = disk / "site"
        shutil.copytree(folder, site)
        before = tree(site)
        assert stoker("slim", str(site), *SLIM).returncode == 0
        with pytest.raises(OSError, match="No space"):
            (disk / "filler").write_bytes(bytes(16 << 20))
        done = stoker("slim", str(site), option)
        assert done.returncode == 0, done.stderr
        assert (tree(site) == before) == (option == "--undo")
        assert not (site / ".stoker-slim").exists()


@pytest.mark.slow
def test_what_killed_slims_leave_in_out(folder: Path, tmp_path: Path, stoker: Stoker) -> None:
    """The next one deletes it, and nothing of one that still runs."""
    library, out = folder / "mill/lib/libone.so", tmp_path / "out"
    for _ in range(4):
        killed = start(wheel_of(folder), *SLIM, "-o", out)
        while not any(out.glob(f".stoker-slim-{killed.pid}-*/*")):
            assert killed.poll() is None
            time.sleep(0.01)
        killed.kill()
        killed.communicate(timeout=120)
    assert list(out.glob(".stoker-slim-*")) != []
    made = stoker("slim", str(library), *SLIM, "-o", str(out))
    assert made.returncode == 0, made.stderr
    assert [path.name for path in out.iterdir()] == ["libone.so"]


def wheel_of(folder: Path) -> Path:
    """Large enough to be killed while its libraries are unpacked."""
    filler = random.Random(1).randbytes(16 << 20)
    members = {
        "mill/lib/libone.so": (folder / "mill/lib/libone.so").read_bytes() + filler,
        "mill-1.dist-info/METADATA": b"Metadata-Version: 2.1\nName: mill\nVersion: 1\n",
        "mill-1.dist-info/WHEEL": b"Wheel-Version: 1.0\nTag: py3-none-any\n",
    }
    members["mill-1.dist-info/RECORD"] = record(members, "mill-1.dist-info")
    path = folder.with_name("mill-1-py3-none-any.whl")
    path.write_bytes(zipped(members))
    return path

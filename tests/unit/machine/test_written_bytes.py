"""Bytes written to disks, by us and by what we started."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from stoker.machine.counters import parse_written, read_written
from stoker.machine.disks import read_disks
from stoker.machine.file_tree import FileTree

MIB = 1 << 20
# In a child of a child, as compilers are, and not in our own process, which others may share.
WRITER = """
import os, subprocess, sys
from stoker.machine.counters import read_written, written_since
open({path!r} + ".before", "wb").write(bytes(1 << 20))
before = read_written()
code = "f = open({path!r}, 'wb'); f.write(bytes(32 << 20)); f.close(); {then}"
subprocess.run(["sh", "-c", '"$0" -c "$1"; true', sys.executable, code], check=True)
print(written_since(before))
"""


def written(path: Path, then: str = "") -> int:
    code = WRITER.replace("{path!r}", repr(str(path))).replace("{then}", then)
    done = subprocess.run([sys.executable, "-c", code], stdout=subprocess.PIPE, check=True)
    return int(done.stdout)


@pytest.fixture
def disk(tmp_path: Path) -> Path:
    (found,) = read_disks(FileTree(), [tmp_path])
    if found.in_memory or found.filesystem in ("overlay", "unknown", "9p", "virtiofs"):
        pytest.skip(f"temporary files lie on {found.filesystem}, where nothing is counted")
    if read_written() is None:
        pytest.skip("this system does not count what is written")
    return tmp_path


def test_of_all_below_us(disk: Path) -> None:
    assert written(disk / "file") >= 32 * MIB


def test_what_never_reached_the_disk_does_not_count(disk: Path) -> None:
    path, counters = disk / "file", disk / "counters"
    then = (
        f"import os; os.unlink({str(path)!r}); "
        f"open({str(counters)!r}, 'w').write(open('/proc/self/io').read())"
    )
    measured = written(path, then)

    # A busy system writes the file out before it is deleted: the writer's own counters say so.
    said = dict(line.split(": ") for line in counters.read_text().splitlines())
    own = int(said["write_bytes"]) - int(said["cancelled_write_bytes"])
    assert abs(measured - own) < MIB


def test_a_process_that_deletes_what_others_wrote_has_not_written_less_than_nothing(
    disk: Path,
) -> None:
    other = disk / "other"
    other.write_bytes(bytes(64 * MIB))
    assert 0 <= written(disk / "file", f"import os; os.unlink({str(other)!r})") < 33 * MIB


@pytest.mark.usefixtures("disk")
def test_memory_is_no_disk() -> None:
    memory = Path("/dev/shm")
    if not os.access(memory, os.W_OK) or not read_disks(FileTree(), [memory])[0].in_memory:
        pytest.skip("there is no file system in memory")
    path = memory / f"stoker-test-{os.getpid()}"
    try:
        assert written(path) < MIB
    finally:
        path.unlink()
        Path(f"{path}.before").unlink(missing_ok=True)


def test_counters() -> None:
    assert parse_written("wchar: 5\nwrite_bytes: 100\ncancelled_write_bytes: 30\n") == 70
    assert parse_written("write_bytes: 10\ncancelled_write_bytes: 30\n") == 0
    assert parse_written("") is None

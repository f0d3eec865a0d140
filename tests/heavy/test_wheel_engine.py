"""The engine where numbers no longer fit: beyond 4 GiB and 65,535 members; and torch itself."""

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from zlib_ng import zlib_ng

from conftest import missing
from stoker.wheel.zip import Content, Edit, open_wheel, rewrite
from wheel_files import DIST_INFO, NAME, digest, make_wheel, members, record, sparse_zip

pytestmark = pytest.mark.heavy

MEMORY_LIMIT = 300 << 20
RECORD = f"{DIST_INFO}/RECORD"


def peak_of(script: str, *arguments: Path) -> int:
    """Return the most memory that a Python process held. What the kernel tells its parent would
    include the parent's own peak before the process began.
    """
    tell = "\nprint(Path('/proc/self/status').read_text().partition('VmHWM:')[2].split()[0])\n"
    words = [sys.executable, "-c", script + tell, *map(str, arguments)]
    return int(subprocess.check_output(words).split()[-1]) * 1024


def zeros_crc(size: int) -> int:
    crc, block = 0, bytes(64 << 20)
    for _ in range(size // len(block)):
        crc = zlib_ng.crc32(block, crc)
    return zlib_ng.crc32(bytes(size % len(block)), crc)


def test_a_new_member_of_more_than_4_gib(tmp_path: Path) -> None:
    block = os.urandom(1 << 16) + bytes(15 << 16)  # compresses, but not like a zip bomb
    count = (4 << 10) + 50
    big = Content(size=count << 20, chunks=lambda: (block for _ in range(count)))
    with open_wheel(make_wheel(tmp_path)) as wheel:
        target = rewrite(wheel, Edit(contents={"mill/big": big}), tmp_path / "out")
    with open_wheel(target) as wheel:
        assert wheel.members["mill/big"].size == big.size
        assert not [*wheel.mismatches(), *wheel.wrong_hashes()]
    with zipfile.ZipFile(target) as archive:
        assert archive.testzip() is None


def test_a_kept_member_of_more_than_4_gib_and_what_follows_it(tmp_path: Path) -> None:
    size = (4 << 30) + 5
    source = tmp_path / NAME
    sparse_zip(source, "mill/big", size, zeros_crc(size))
    row = f"mill/big,{digest(b'')},{size}\n".encode()
    with zipfile.ZipFile(source, "a") as archive:
        for name, content in members().items():
            archive.writestr(name, content)
        archive.writestr(RECORD, row + record(members()))
    with open_wheel(source) as wheel:
        assert wheel.members[RECORD].offset > 4 << 30
        added = Edit(contents={"mill/last.py": Content.of_bytes(b"1")})
        target = rewrite(wheel, added, tmp_path / "out")
    with zipfile.ZipFile(target) as archive:
        assert archive.testzip() is None
        assert archive.getinfo("mill/big").file_size == size
        assert archive.read("mill/last.py") == b"1"


def test_memory_is_bounded_whatever_the_size_and_the_cores(tmp_path: Path) -> None:
    source = make_wheel(tmp_path)
    script = """
import os, sys
from pathlib import Path
from stoker.wheel.zip import Content, Edit, open_wheel, rewrite
block = os.urandom(1 << 20)  # the worst case: what comes out is as large as what goes in
big = Content(size=700 << 20, chunks=lambda: (block for _ in range(700)))
with open_wheel(Path(sys.argv[1])) as wheel:
    rewrite(wheel, Edit(contents={"mill/big": big}), Path(sys.argv[2]), workers=32)
"""
    assert peak_of(script, source, tmp_path / "out") < MEMORY_LIMIT


def test_more_members_than_a_plain_zip_file_can_count(tmp_path: Path) -> None:
    many = {f"mill/{number}": Content.of_bytes(b"") for number in range(1 << 16)}
    with open_wheel(make_wheel(tmp_path)) as wheel:
        target = rewrite(wheel, Edit(contents=many), tmp_path / "out")
    count = len(many) + len(members()) + 1
    with zipfile.ZipFile(target) as archive:
        assert len(archive.namelist()) == count
    with open_wheel(target) as wheel:
        assert len(wheel.members) == count


@pytest.fixture
def torch_wheel(tmp_path: Path) -> Path:
    if given := os.environ.get("STOKER_TORCH_WHEEL"):
        return Path(given)
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "torch", "-d"]
    if subprocess.run([*command, tmp_path / "source"], check=False).returncode:
        missing("no wheel of torch in the package index; name one in STOKER_TORCH_WHEEL")
    (found,) = (tmp_path / "source").glob("*.whl")
    return found


@pytest.mark.network
def test_torch_is_rewritten_within_bounds_and_stays_itself(
    torch_wheel: Path, tmp_path: Path
) -> None:
    script = """
import sys
from pathlib import Path
from stoker.wheel.zip import Edit, open_wheel, rewrite
with open_wheel(Path(sys.argv[1])) as wheel:
    names = [name for name in wheel.members if name.startswith("torch/lib/")]
    rewrite(wheel, Edit(contents={name: wheel.content(name) for name in names}), Path(sys.argv[2]))
"""
    assert peak_of(script, torch_wheel, tmp_path / "out") < MEMORY_LIMIT
    (target,) = (tmp_path / "out").iterdir()
    assert target.name == torch_wheel.name
    with open_wheel(torch_wheel) as before, open_wheel(target) as after:
        record = f"{before.dist_info}/RECORD"
        assert {**after.record, record: None} == {**before.record, record: None}
        assert not list(after.wrong_hashes())

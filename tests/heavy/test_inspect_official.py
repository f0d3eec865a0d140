"""Official wheels of torch: device code as cuobjdump lists and unpacks it, entry by entry."""

import json
import os
import re
import shutil
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from stoker.outside import process
from stoker.wheel.elf.elf import Elf
from stoker.wheel.elf.fatbin import LINKED, FatbinEntry, device_regions
from stoker.wheel.reader import open_file

pytestmark = [pytest.mark.heavy, pytest.mark.network, pytest.mark.timeout(3000)]

PIP = [sys.executable, "-m", "pip"]
MEMORY_LIMIT = 500_000_000


@pytest.fixture(scope="module")
def cuobjdump(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("cuobjdump")
    install = [*PIP, "install", "--quiet", "--no-deps", "--target"]
    process.check([*install, folder, "nvidia-cuda-cuobjdump"], timeout=600)
    return str(next(folder.rglob("bin/cuobjdump")))


@pytest.fixture(params=["torch==2.9.1", "torch==2.12.1"])
def wheel(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Path]:
    """For x86-64, whatever this machine is: nothing of it is run."""
    platform = ["--platform", "manylinux_2_28_x86_64", "--python-version", "3.12"]
    download = [*PIP, "download", "--quiet", "--no-deps", "--only-binary=:all:", *platform]
    process.check([*download, request.param, "--dest", tmp_path], timeout=1800)
    (path,) = tmp_path.glob("*.whl")
    yield path
    path.unlink()


def _entries(library: Path) -> list[tuple[str, FatbinEntry]]:
    with open_file(library) as reader:
        regions = list(device_regions(Elf(reader)))
    return [(section, entry) for section, region in regions for entry in region.entries]


def _arch(entry: FatbinEntry) -> str:
    """As the tool writes it."""
    return entry.arch.replace("compute", "sm").rstrip("f")


def _listed(cuobjdump: str, library: Path) -> list[str]:
    """Cubins that run, in the order of the file."""
    printed = process.check([cuobjdump, "-lelf", library], timeout=900)
    return re.findall(r"\.(sm_\w+)\.cubin", printed)


def _unpacked(cuobjdump: str, word: str, library: Path, folder: Path) -> list[tuple[str, int]]:
    """Architectures and sizes of all that the tool unpacks."""
    folder.mkdir()
    process.check([cuobjdump, f"-x{word}", "all", "-all", library], timeout=1800, cwd=folder)
    found = [(file.name.split(".")[-2], file.stat().st_size) for file in folder.iterdir()]
    shutil.rmtree(folder)
    return sorted(found)


def _inspect(wheel: Path) -> dict[str, dict[tuple[str, bool], tuple[int, int]]]:
    """What the command says, run by itself so that its memory can be told."""
    read, write = os.pipe()
    command = [sys.executable, "-m", "stoker", "inspect", str(wheel), "--json"]
    child = os.posix_spawn(
        sys.executable, command, os.environ, file_actions=[(os.POSIX_SPAWN_DUP2, write, 1)]
    )
    os.close(write)
    with os.fdopen(read) as stream:
        facts = json.load(stream)
    _, status, usage = os.wait4(child, 0)
    assert status == 0
    assert usage.ru_maxrss * 1024 < MEMORY_LIMIT
    return {
        library["path"]: {
            (code["arch"], code["linked"]): (code["size_bytes"], code["count"])
            for code in library["device_code"]
        }
        for library in facts["libraries"]
        if library["device_code"]
    }


def test_entry_by_entry(cuobjdump: str, wheel: Path, tmp_path: Path) -> None:
    told = _inspect(wheel)
    assert "torch/lib/libtorch_cuda.so" in told
    with zipfile.ZipFile(wheel) as archive:
        for member, codes in told.items():
            library = Path(archive.extract(member, tmp_path))
            entries = _entries(library)
            cubins = [_arch(e) for where, e in entries if where == LINKED and e.kind == "cubin"]
            assert cubins == _listed(cuobjdump, library), member
            for kind, word, slack in (("cubin", "elf", 0), ("ptx", "ptx", 8)):
                ours = sorted((_arch(e), e.unpacked_size) for _, e in entries if e.kind == kind)
                theirs = _unpacked(cuobjdump, word, library, tmp_path / word) if ours else []
                for (arch, size), (their_arch, their_size) in zip(ours, theirs, strict=True):
                    assert arch == their_arch, member
                    # The tool leaves out the zeros that end a text.
                    assert 0 <= size - their_size <= slack, (member, arch)
            assert sum(count for _, count in codes.values()) == len(entries)
            assert sum(size for size, _ in codes.values()) == sum(
                entry.payload_size for _, entry in entries
            )
            library.unlink()

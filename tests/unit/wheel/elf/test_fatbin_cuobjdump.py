"""Device code made by nvcc, compared entry by entry with NVIDIA's own tool."""

import re
from pathlib import Path

import pytest

from built_libraries import build_cuda
from conftest import Need
from stoker.model.artifact import Compression, DeviceKind
from stoker.outside import process
from stoker.wheel.elf.elf import Elf
from stoker.wheel.elf.fatbin import device_regions
from stoker.wheel.inspect.library import read_library
from stoker.wheel.reader import open_file

pytestmark = pytest.mark.network

ARCHS = ["75", "80", "90a", "100f", "120"]


def _gencode(archs: list[str]) -> list[str]:
    cubins = [f"-gencode=arch=compute_{arch},code=sm_{arch}" for arch in archs]
    return [*cubins, "-gencode=arch=compute_120,code=compute_120", "--threads=2"]


def _listed(cuobjdump: str, kind: str, path: Path) -> list[str]:
    """Architectures in the order of the file; the tool drops an ``f``."""
    printed = process.check([cuobjdump, f"-l{kind}", "-all", path], timeout=120)
    return re.findall(r"\.(sm_\w+)\.(?:cubin|ptx)", printed)


def _unpacked(cuobjdump: str, kind: str, path: Path, folder: Path) -> list[int]:
    """Sizes of what the tool unpacks, in the order of the file."""
    folder.mkdir()
    process.check([cuobjdump, f"-x{kind}", "all", "-all", path], timeout=120, cwd=folder)
    numbered = {int(file.name.split(".")[-3]): file for file in folder.iterdir()}
    return [numbered[number].stat().st_size for number in sorted(numbered)]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("flags", "compression"),
    [
        (["--no-compress"], Compression.NONE),
        (["-Xfatbin=-compress-all", "--compress-mode=speed"], Compression.LZ4),
        (["-Xfatbin=-compress-all", "--compress-mode=size"], Compression.ZSTD),
        (["-rdc=true", "--no-compress"], Compression.NONE),
    ],
    ids=["plain", "lz4", "zstd", "relocatable"],
)
def test_entry_by_entry(
    need: Need, tmp_path: Path, cuobjdump: str, flags: list[str], compression: Compression
) -> None:
    path = build_cuda(need, tmp_path, *_gencode(ARCHS), *flags)
    with open_file(path) as reader:
        entries = [entry for _, region in device_regions(Elf(reader)) for entry in region.entries]
        facts = read_library(reader)
    assert facts.problem is None
    for kind, word in ((DeviceKind.CUBIN, "elf"), (DeviceKind.PTX, "ptx")):
        ours = [entry for entry in entries if entry.kind is kind]
        names = [entry.arch.replace("compute", "sm").rstrip("f") for entry in ours]
        assert names == _listed(cuobjdump, word, path)
        sizes = _unpacked(cuobjdump, word, path, tmp_path / word)
        # Text ends with a zero, and more of them where it is not compressed: the tool drops them.
        slack = 8 if kind is DeviceKind.PTX else 0
        for entry, size in zip(ours, sizes, strict=True):
            assert 0 <= entry.unpacked_size - size <= slack, entry
    linked = [code for code in facts.device_code if code.linked]
    assert [code.arch for code in linked if code.kind is DeviceKind.CUBIN] == [
        f"sm_{arch}" for arch in ARCHS
    ]
    assert {kind for code in linked for kind in code.compression} == {compression}

"""Recompressed device code, decompressed by the real codecs and, with nvcc, by NVIDIA's tool."""

from pathlib import Path

import pytest

from built_libraries import CUBIN, LZ4, BytesReader, build_cuda, entry, region
from conftest import Need, missing
from slim_libraries import build_library, code, listed, loaded, slim
from stoker.model.artifact import Compression
from stoker.model.errors import ArtifactError, MissingError
from stoker.model.slimming import SlimLayout
from stoker.outside import process
from stoker.wheel.elf.elf import Elf
from stoker.wheel.elf.fatbin import device_regions, read_regions
from stoker.wheel.reader import open_file
from stoker.wheel.slim.recompressing import check_codecs, packed_by_zstd, unpacked

ARCHS = 80, 90


@pytest.fixture(autouse=True)
def _codecs() -> None:
    try:
        check_codecs()
    except MissingError as error:
        missing(str(error))


def plain(seed: int, arch: int) -> bytes:
    """Code that packs well, and better by zstd."""
    return (code(seed, 40) + code(seed + arch, 4000)) * 20 + code(seed, 5000).hex().encode()


def packed(seed: int, arch: int) -> bytes:
    import lz4.block

    content = plain(seed, arch)
    payload = lz4.block.compress(content, store_size=False)
    return entry(CUBIN, arch, payload, flags=LZ4, unpacked=len(content), header=80)


def library(need: Need, folder: Path) -> Path:
    regions = [region([packed(seed, arch) for arch in ARCHS]) for seed in range(3)]
    regions.append(region([entry(CUBIN, arch, b"not packed" * 8) for arch in ARCHS]))
    return build_library(need, folder, regions)


@pytest.mark.parametrize("pin", [False, True], ids=["move", "pin"])
def test_entries_hold_the_same_when_unpacked(need: Need, tmp_path: Path, pin: bool) -> None:
    path, made, usual = library(need, tmp_path), tmp_path / "made.so", tmp_path / "usual.so"
    slim(path, usual, "sm_90", pin=pin)
    summary = slim(path, made, "sm_90", pin=pin, recompress=True).summary
    assert summary.layout is (SlimLayout.PIN if pin else SlimLayout.MOVE)
    assert listed(made) == [["sm_90"]] * 4
    with open_file(made) as reader:
        regions = [one for _, one in device_regions(Elf(reader))]
        entries = [one.entries[0] for one in regions]
        found = [unpacked(reader, one) for one in entries]
    assert found == [*(plain(seed, 90) for seed in range(3)), b"not packed" * 8]
    assert {one.compression for one in entries[:3]} == {Compression.ZSTD}
    assert entries[3].compression is Compression.NONE
    with open_file(usual) as reader:
        former = [one.entries[0] for _, one in device_regions(Elf(reader))]
    for new, old in zip(entries[:3], former[:3], strict=True):
        assert new.payload_size < old.payload_size
    sizes = {number: one.end - one.offset for number, one in enumerate(regions)}
    content = made.read_bytes()
    assert loaded(made, sizes) == [content[one.offset : one.end] for one in regions]


def test_a_second_time_nothing_changes(need: Need, tmp_path: Path) -> None:
    path, made = library(need, tmp_path), tmp_path / "made.so"
    slim(path, made, "sm_80", "sm_90", recompress=True)
    assert listed(made) == [["sm_80", "sm_90"]] * 4
    assert not slim(made, tmp_path / "again.so", "sm_80", "sm_90", recompress=True).changes


def test_what_does_not_unpack_is_left(need: Need, tmp_path: Path) -> None:
    broken = entry(CUBIN, 90, b"\xff" * 200, flags=LZ4, unpacked=5000)
    path = build_library(need, tmp_path, [region([packed(1, 80), broken])])
    summary = slim(path, tmp_path / "made.so", "sm_90", recompress=True).summary
    assert "cannot be unpacked" in (summary.skipped_because or "")


@pytest.mark.parametrize("size", [0, 100, 1 << 40])
def test_sizes_that_lie(size: int) -> None:
    payload = packed_by_zstd(b"x" * 1000)
    content = region([entry(CUBIN, 90, payload, flags=0x8000, unpacked=size)])
    reader = BytesReader(content)
    (found,) = read_regions(reader, ".nv_fatbin", 0, len(content))
    with pytest.raises(ArtifactError):
        unpacked(reader, found.entries[0])


@pytest.mark.slow
@pytest.mark.network
def test_nvidias_tool_unpacks_the_same(need: Need, tmp_path: Path, cuobjdump: str) -> None:
    archs = [f"-gencode=arch=compute_{arch},code=sm_{arch}" for arch in ARCHS]
    flags = ["-Xfatbin=-compress-all", "--compress-mode=speed"]
    path, made = build_cuda(need, tmp_path, *archs, *flags), tmp_path / "made.so"
    assert slim(path, made, "sm_90", recompress=True).changes
    contents = []
    for library, name in ((path, "before"), (made, "after")):
        folder = tmp_path / name
        folder.mkdir()
        process.check([cuobjdump, "-xelf", "sm_90", library], timeout=120, cwd=folder)
        contents.append(sorted(file.read_bytes() for file in folder.iterdir()))
    assert contents[0] == contents[1] != []

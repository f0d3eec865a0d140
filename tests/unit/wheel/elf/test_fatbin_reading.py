"""Device code packed by hand: every kind, suffix and compression, and what is refused."""

import random
import struct
import zipfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from built_libraries import (
    ARCH_SPECIFIC,
    CUBIN,
    FAMILY_SPECIFIC,
    LTOIR,
    LZ4,
    PTX,
    ZSTD,
    BytesReader,
    entry,
    region,
    with_device_code,
)
from conftest import Need
from stoker.model.artifact import Compression, DeviceKind
from stoker.model.errors import ArtifactError
from stoker.wheel.elf import fatbin
from stoker.wheel.elf.fatbin import LINKED, RELOCATABLE, SCATTERED, FatbinLookout, read_regions
from stoker.wheel.inspect.library import read_library
from stoker.wheel.reader import InflatedReader, open_file

ENTRIES = [
    entry(CUBIN, 80, b"c" * 100),
    entry(CUBIN, 90, b"d" * 40, flags=ARCH_SPECIFIC | LZ4, unpacked=400),
    entry(
        CUBIN, 100, b"e" * 33, flags=FAMILY_SPECIFIC | ZSTD | 0x1000000, unpacked=999, header=112
    ),
    entry(PTX, 120, b".version 9.0", header=80),
    entry(LTOIR, 90, b"llvm", flags=0x1000),
]


def _read(content: bytes, section: str = LINKED) -> list[tuple[str, int]]:
    found = read_regions(BytesReader(content), section, 0, len(content))
    return [(entry.arch, entry.payload_size) for part in found for entry in part.entries]


def test_every_kind_and_suffix() -> None:
    names = ["sm_80", "sm_90a", "sm_100f", "compute_120", "lto_90"]
    assert _read(region(ENTRIES)) == list(zip(names, [104, 40, 40, 16, 8], strict=True))


def test_sizes_and_compression() -> None:
    content = region(ENTRIES)
    ((_, end, entries),) = read_regions(BytesReader(content), LINKED, 0, len(content))
    assert end == len(content) == entries[-1].end
    assert [e.compression for e in entries] == [
        Compression.NONE,
        Compression.LZ4,
        Compression.ZSTD,
        Compression.NONE,
        Compression.NONE,
    ]
    assert [e.unpacked_size for e in entries] == [104, 400, 999, 16, 8]
    assert [content[e.offset : e.offset + 2] for e in entries[2:]] == [b"\2\0", b"\1\0", b"\x08\0"]


def test_a_compression_that_is_not_known_is_said() -> None:
    content = region([entry(CUBIN, 75, b"z" * 8, compressed=8, unpacked=80)])
    ((_, _, (found,)),) = read_regions(BytesReader(content), LINKED, 0, len(content))
    assert found.compression is Compression.OTHER


@pytest.mark.parametrize("padding", [8, 256, 2048])
def test_zeros_between_regions(padding: int) -> None:
    content = b"".join(region([code], padding) for code in ENTRIES)
    assert len(_read(content)) == len(ENTRIES)


def test_regions_among_other_data() -> None:
    content = b"table" + region(ENTRIES[:2]) + b"x" * 2_000_001 + region(ENTRIES[2:]) + b"end"
    assert [arch for arch, _ in _read(content, SCATTERED)][1:3] == ["sm_90a", "sm_100f"]
    with pytest.raises(ArtifactError, match="not a region of device code"):
        _read(content, LINKED)


def test_an_empty_region() -> None:
    assert _read(region([])) == []


def _patched(position: int, form: str, value: int) -> bytes:
    broken = bytearray(region(ENTRIES))
    struct.pack_into(form, broken, position, value)
    return bytes(broken)


FIRST = 16  # the first entry follows the region's header


@pytest.mark.parametrize(
    ("content", "words", "offset"),
    [
        (_patched(8, "<Q", 2**60), "beyond its section", 0),
        (_patched(4, "<H", 2), "not a region", 0),
        (_patched(FIRST, "<H", 7), "unknown kind 7", FIRST),
        (_patched(FIRST + 2, "<H", 3), "version 0x3", FIRST),
        (_patched(FIRST + 4, "<I", 63), "63 bytes of header", FIRST),
        (_patched(FIRST + 4, "<I", 2**31), "bytes of header", FIRST),
        (_patched(FIRST + 8, "<Q", 2**64 - 1), "larger than its region", FIRST),
        (_patched(FIRST + 16, "<I", 105), "larger than its region", FIRST),
        (region(ENTRIES)[:-8], "beyond its section", 0),
        (region([*ENTRIES, b"cut short"]), "truncated", len(region(ENTRIES))),
    ],
)
def test_what_does_not_fit_the_format(content: bytes, words: str, offset: int) -> None:
    with pytest.raises(ArtifactError, match=words) as caught:
        _read(content)
    assert str(caught.value).startswith(f"mill.whl: lib/libmill.so at byte {offset}: ")


def test_entries_without_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fatbin, "MOST_ENTRIES", 100)
    assert len(_read(region([entry(CUBIN, 80, b"")] * 99))) == 99  # the region counts as well
    for content, what in (
        (region([entry(CUBIN, 80, b"")] * 101), "entries"),
        (region([]) * 101, "regions"),
    ):
        with pytest.raises(ArtifactError, match=f"more than 100 {what}"):
            _read(content)


def test_device_code_of_a_library(need: Need, tmp_path: Path) -> None:
    path = with_device_code(need, tmp_path, region(ENTRIES) + region(ENTRIES[:1]))
    with open_file(path) as reader:
        facts = read_library(reader)
    first = facts.device_code[0]
    assert (first.kind, first.arch, first.size_bytes, first.count) == (
        DeviceKind.CUBIN,
        "sm_80",
        208,
        2,
    )
    assert [code.arch for code in facts.device_code] == [
        "sm_80",
        "sm_90a",
        "sm_100f",
        "lto_90",
        "compute_120",
    ]
    assert all(code.linked for code in facts.device_code)
    assert [(pattern.archs, pattern.count) for pattern in facts.regions] == [
        (("sm_80", "sm_90a", "sm_100f", "compute_120", "lto_90"), 1),
        (("sm_80",), 1),
    ]


def test_what_is_left_over_from_linking_never_runs(need: Need, tmp_path: Path) -> None:
    path = with_device_code(need, tmp_path, region(ENTRIES), section=RELOCATABLE)
    with open_file(path) as reader:
        facts = read_library(reader)
    assert facts.device_code
    assert not any(code.linked for code in facts.device_code)
    assert facts.regions == ()


def _member(folder: Path, content: bytes) -> tuple[Path, zipfile.ZipInfo]:
    path = folder / "mill.zip"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("lib.so", content)
        return path, archive.getinfo("lib.so")


def _start(path: Path, info: zipfile.ZipInfo) -> int:
    header = path.read_bytes()[info.header_offset :][:30]
    name, extra = struct.unpack_from("<HH", header, 26)
    return int(info.header_offset + 30 + name + extra)


def test_a_streamed_library_gives_the_same_facts(need: Need, tmp_path: Path) -> None:
    content = b"".join(region([code, ENTRIES[3]], 256) for code in ENTRIES * 200)
    library = with_device_code(need, tmp_path, content)
    with open_file(library, "mill.zip") as reader:
        expected = read_library(reader)
    path, info = _member(tmp_path, library.read_bytes())
    lookout = FatbinLookout()
    with open_file(path, "mill.zip") as file:
        packed = file.part(start=_start(path, info), size=info.compress_size, member="mill.zip")
        streamed = InflatedReader(packed, size=info.file_size, crc=info.CRC, lookout=lookout)
        assert read_library(streamed) == expected
    assert sum(code.count for code in expected.device_code) == 2000


def test_the_lookout_keeps_every_header(need: Need, tmp_path: Path) -> None:
    content = b"".join(region([code, ENTRIES[3]], 256) for code in ENTRIES * 20)
    library = with_device_code(need, tmp_path, content + region([entry(CUBIN, 80, bytes(9000))]))
    data = library.read_bytes()
    lookout = FatbinLookout()
    for start in range(0, len(data), 700):
        lookout.see(data[start : start + 700])
    start = data.index(content)
    found = list(read_regions(BytesReader(data), LINKED, start, len(content)))
    assert len(found) == 100
    for part in found:
        assert lookout.kept(part.offset, 16) == data[part.offset : part.offset + 16]
        assert lookout.kept(part.end, 256) == data[part.end : part.end + 256]
        for code in part.entries:
            assert lookout.kept(code.offset, 64) == data[code.offset : code.offset + 64]


@given(st.binary(max_size=200), st.integers(1, 60), st.integers(0, 300), st.integers(0, 300))
def test_what_the_lookout_keeps_is_what_it_saw(
    noise: bytes, step: int, offset: int, length: int
) -> None:
    """Wherever regions seem to be, and however the bytes come."""
    data = noise + region(ENTRIES) + noise[:50] + region(ENTRIES)[:90] + noise + bytes(600)
    lookout = FatbinLookout()
    for start in range(0, len(data), step):
        lookout.see(data[start : start + step])
    kept = lookout.kept(offset, length)
    assert kept is None or kept == data[offset : offset + length]


@pytest.mark.parametrize("size", [0, 1, 100, 5 << 20, 13 << 20])
def test_reads_anywhere_in_a_member(tmp_path: Path, size: int) -> None:
    """Every place differs; larger than the distance between bookmarks."""
    chance = random.Random(7)
    content = b"".join(chance.randbytes(3) * 999 for _ in range(size // 2997 + 1))[:size]
    path, info = _member(tmp_path, content)
    with open_file(path) as file:
        packed = file.part(start=_start(path, info), size=info.compress_size, member="lib.so")
        reader = InflatedReader(packed, size=size, crc=info.CRC, lookout=FatbinLookout())
        for offset in range(0, size, 999_983):
            for length in (1, 70_000, 5 << 20):
                length = min(length, size - offset)
                assert reader.read(offset, length) == content[offset : offset + length]
        with pytest.raises(ArtifactError, match="beyond the end"):
            reader.read(size, 1)


@pytest.mark.parametrize(
    ("size", "crc", "words"),
    [(999, 0, "more than the 999 bytes"), (1001, 0, "1000 bytes instead"), (1000, 1, "checksum")],
)
def test_a_member_that_is_not_what_it_claims(
    tmp_path: Path, size: int, crc: int, words: str
) -> None:
    path, info = _member(tmp_path, b"grain" * 200)
    with open_file(path) as file:
        packed = file.part(start=_start(path, info), size=info.compress_size, member="lib.so")
        with pytest.raises(ArtifactError, match=words):
            InflatedReader(packed, size=size, crc=info.CRC ^ crc, lookout=FatbinLookout())
        cut = file.part(start=_start(path, info), size=info.compress_size - 5, member="lib.so")
        with pytest.raises(ArtifactError, match=r"lib\.so"):
            InflatedReader(cut, size=1000, crc=info.CRC, lookout=FatbinLookout())

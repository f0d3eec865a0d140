"""The check finds every wrong byte, and damaged libraries never become wrong ones."""

import random
import re
import struct
import tempfile
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from built_libraries import CUBIN, PTX, BytesReader, entry, region
from conftest import find_tool
from damaged_libraries import damaged, places
from slim_libraries import build_library, code, cubins, only, said_to_be
from stoker.model.errors import ArtifactError
from stoker.wheel.elf.elf import Elf
from stoker.wheel.elf.fatbin import read_wrappers
from stoker.wheel.slim.check import check_slimmed
from stoker.wheel.slim.library import LibraryPlan, SlimOptions, plan_library, write_library

SIZE = 12000


@cache
def _original() -> bytes:
    """Said to be for x86-64, whose pages are small: nothing of it is loaded here."""
    regions = [cubins(seed, 80, 90, 100, size=SIZE) for seed in range(3)]
    regions.append(region([entry(PTX, 90, b"ptx"), entry(CUBIN, 80, code(7, SIZE))], 256))
    more = "const char* inside = region1 + 80;"
    with tempfile.TemporaryDirectory() as folder:
        return said_to_be(62, build_library(find_tool, Path(folder), regions, more=more))


@cache
def _places() -> list[int]:
    names = ".dynamic", ".rela.dyn", ".nv_fatbin", ".nvFatBinSegment", ".symtab"
    return places(_original(), *names, most=400)


def _slimmed(content: bytes, made: Path, options: SlimOptions) -> LibraryPlan:
    reader = BytesReader(content)
    plan = plan_library(reader, only("sm_90"), options)
    if plan.changes:
        write_library(plan, reader, made)
    return plan


def test_the_undamaged_library_is_slimmed(tmp_path: Path) -> None:
    made = tmp_path / "made.so"
    summary = _slimmed(_original(), made, SlimOptions()).summary
    assert (summary.skipped_because, summary.kept, summary.stubs) == (None, 6, 1)
    assert made.stat().st_size < len(_original()) - 3 * 4096


@given(damaged(_original, _places), st.booleans(), st.booleans())
def test_damaged_libraries(content: bytes, pin: bool, strip: bool) -> None:
    """Left as they are and said so, refused, or slimmed so that the check finds no fault."""
    with tempfile.TemporaryDirectory() as folder:
        made = Path(folder, "made.so")
        try:
            plan = _slimmed(content, made, SlimOptions(pin=pin, strip=strip))
        except ArtifactError:
            assert not made.exists()
            return
        summary = plan.summary
        assert made.exists() == plan.changes
        if plan.changes:
            assert made.stat().st_size == summary.after_bytes
        else:
            assert summary.after_bytes == summary.before_bytes == len(content)
        if summary.skipped_because:
            assert "mill.so" in summary.skipped_because


@pytest.mark.parametrize("pin", [False, True], ids=["move", "pin"])
def test_no_wrong_byte_goes_unnoticed(tmp_path: Path, pin: bool) -> None:
    """Every byte that matters of headers, and some of every section."""
    made = tmp_path / "made.so"
    plan = _slimmed(_original(), made, SlimOptions(pin=pin))
    content = made.read_bytes()
    before = BytesReader(_original())
    check_slimmed(before, BytesReader(content), plan.kept)
    for place in _meaningful(Elf(BytesReader(content))):
        wrong = bytearray(content)
        wrong[place] ^= 0xFF
        with pytest.raises(ArtifactError):
            check_slimmed(before, BytesReader(bytes(wrong)), plan.kept)


def test_no_old_address_goes_unnoticed(tmp_path: Path) -> None:
    """Of a region that moved, in pointers, in what stands at their places, and in symbols."""
    made = tmp_path / "made.so"
    plan = _slimmed(_original(), made, SlimOptions())
    before, content = BytesReader(_original()), made.read_bytes()
    old, new = (
        [wrapper.region for wrapper in read_wrappers(Elf(BytesReader(whole)))]
        for whole in (_original(), content)
    )
    moved = [(one, other) for one, other in zip(old, new, strict=True) if one != other]
    assert moved
    for one, other in moved:
        address = struct.pack("<Q", other)
        places = [match.start() for match in re.finditer(re.escape(address), content)]
        assert len(places) >= 2
        for place in places:
            wrong = bytearray(content)
            struct.pack_into("<Q", wrong, place, one)
            with pytest.raises(ArtifactError):
                check_slimmed(before, BytesReader(bytes(wrong)), plan.kept)


def _meaningful(file: Elf) -> Iterator[int]:
    yield from range(64)
    for index, segment in enumerate(file.segments):
        start = file.header.segments_offset + 56 * index
        yield from (start + field for field in (0, 4, 16, 40))  # type, flags, address, memory
        if segment.file_size:
            yield from (start + 8, start + 32)  # offset, size in the file
    chosen = random.Random(1)
    for index, (name, section) in enumerate(zip(file.section_names, file.sections, strict=True)):
        start = file.header.sections_offset + 64 * index
        if any(section):
            yield from (start + field for field in (0, 4, 8, 16))  # name, type, flags, address
        if section.file_size:
            yield start + 24  # offset
            yield from (section.offset + chosen.randrange(section.file_size) for _ in range(10))
        if name != ".nv_fatbin":  # zeros behind it might as well belong to it
            yield start + 32

"""Real libraries, damaged at random, give facts or a problem with its place."""

import tempfile
import zlib
from functools import cache
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from built_libraries import ARCH_SPECIFIC, CUBIN, LZ4, PTX, BytesReader, build, entry, region
from conftest import find_tool
from damaged_libraries import damaged, places
from stoker.model.artifact import LibraryFacts
from stoker.model.errors import ArtifactError
from stoker.wheel.elf.fatbin import FatbinLookout
from stoker.wheel.inspect.library import read_library
from stoker.wheel.inspect.origins import resolve_needed
from stoker.wheel.inspect.runs_on import minimum_driver, oldest_manylinux, served_gpus
from stoker.wheel.reader import InflatedReader, open_file

DEVICE_CODE = region(
    [
        entry(CUBIN, 80, bytes(range(64))),
        entry(CUBIN, 90, b"x" * 50, flags=ARCH_SPECIFIC | LZ4, unpacked=80),
        entry(PTX, 120, b".version 9.0"),
    ],
    256,
)
SOURCE = """
#include <string>
asm(".section .nv_fatbin,\\"a\\"\\n .balign 8\\n .incbin \\"code.bin\\"\\n .text\\n");
asm(".section .cask_resource,\\"a\\"\\n .balign 8\\n .incbin \\"cask.bin\\"\\n .text\\n");
std::string twice(const std::string& word) { return word + word; }
"""


@cache
def _original() -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "code.bin").write_bytes(DEVICE_CODE * 2)
        Path(folder, "cask.bin").write_bytes(b"index" + DEVICE_CODE)
        flags = ("-Wl,-rpath,$ORIGIN", "-Wl,-soname,libmill.so.1")
        return build(find_tool, Path(folder), *flags, source=SOURCE).read_bytes()


@cache
def _places() -> list[int]:
    names = ".dynamic", ".gnu.version_r", ".note.gnu.build-id", ".nv_fatbin", ".cask_resource"
    return places(_original(), *names, most=512)


def _consequences(facts: LibraryFacts) -> None:
    """What follows from facts must follow from strange ones too."""
    resolve_needed([facts], names_in=lambda _: (), files=())
    served_gpus([facts])
    minimum_driver([facts])
    oldest_manylinux([facts])


def test_the_undamaged_library_is_understood() -> None:
    facts = read_library(BytesReader(_original()))
    assert facts.problem is None
    assert sum(code.count for code in facts.device_code) == 9


@given(damaged(_original, _places))
def test_damaged_libraries(content: bytes) -> None:
    facts = read_library(BytesReader(content))
    assert facts.size_bytes == len(content)
    assert facts.problem is None or facts.problem.startswith("mill.whl: lib/libmill.so")
    _consequences(facts)


@given(damaged(_original, _places), st.integers(0, 10**6), st.integers(0, 255))
def test_damaged_streams(content: bytes, place: int, byte: int) -> None:
    """Damage before compression gives the same facts; damage after it, a problem at most."""
    deflate = zlib.compressobj(1, wbits=-15)
    packed = bytearray(deflate.compress(content) + deflate.flush())
    assert _streamed(bytes(packed), content) == read_library(BytesReader(content, "member.so"))
    packed[place % len(packed)] = byte
    problem = _streamed(bytes(packed), content).problem
    assert problem is None or problem.startswith("mill.whl: member.so")


def _streamed(packed: bytes, content: bytes) -> LibraryFacts:
    """As the member of a wheel, whose checksum is that of ``content``."""
    with tempfile.NamedTemporaryFile() as file:
        file.write(packed)
        file.flush()
        with open_file(Path(file.name), "mill.whl") as reader:
            part = reader.part(start=0, size=len(packed), member="member.so")
            crc = zlib.crc32(content)
            try:
                return read_library(
                    InflatedReader(part, size=len(content), crc=crc, lookout=FatbinLookout())
                )
            except ArtifactError as error:
                return LibraryFacts(path="member.so", size_bytes=len(content), problem=str(error))

"""ELF files made by the compiler, compared with the output of readelf."""

import platform
import re
import struct
from pathlib import Path

import pytest

from built_libraries import CPP, BytesReader, build
from conftest import Need
from stoker.model.artifact import CxxAbi, ElfKind, LibraryFacts
from stoker.model.errors import ArtifactError
from stoker.outside import process
from stoker.wheel.elf.elf import Elf
from stoker.wheel.inspect.library import newest_versions, read_library
from stoker.wheel.reader import open_file


def _facts(path: Path) -> LibraryFacts:
    with open_file(path, path.name) as reader:
        return read_library(reader)


def test_what_the_loader_is_told(need: Need, tmp_path: Path) -> None:
    path = build(
        need,
        tmp_path,
        "-Wl,-soname,libmill.so.2",
        "-Wl,--enable-new-dtags",
        "-Wl,-rpath,$ORIGIN:/a",
    )
    facts = _facts(path)
    dynamic = process.check([need("readelf"), "-dW", path], timeout=30)
    assert facts.needed == tuple(re.findall(r"NEEDED.*\[(.*)\]", dynamic))
    assert "libstdc++.so.6" in facts.needed
    assert (facts.soname, facts.kind) == ("libmill.so.2", ElfKind.LIBRARY)
    assert (facts.rpath, facts.runpath) == ((), ("$ORIGIN", "/a"))
    assert facts.machine == platform.machine()
    assert facts.problem is None


def test_an_old_rpath_is_told_apart(need: Need, tmp_path: Path) -> None:
    path = build(need, tmp_path, "-Wl,--disable-new-dtags", "-Wl,-rpath,$ORIGIN/../lib")
    facts = _facts(path)
    assert (facts.rpath, facts.runpath) == (("$ORIGIN/../lib",), ())


def test_sections_and_symbol_versions(need: Need, tmp_path: Path) -> None:
    path = build(need, tmp_path, "-g")
    facts = _facts(path)
    listed = process.check([need("readelf"), "-SW", path], timeout=30)
    rows = re.findall(r"\] (\S+) +(\S+) +[0-9a-f]+ [0-9a-f]+ ([0-9a-f]+)", listed)
    sizes = {name: int(size, 16) for name, kind, size in rows if kind not in ("NULL", "NOBITS")}
    assert facts.sections == {name: size for name, size in sizes.items() if size}
    versions = process.check([need("readelf"), "-VW", path], timeout=30)
    assert facts.versions == newest_versions(re.findall(r"Name: (\S+)", versions))
    assert {"GLIBCXX", "CXXABI"} <= set(facts.versions)


def test_stripped_or_not(need: Need, tmp_path: Path) -> None:
    path = build(need, tmp_path)
    assert not _facts(path).stripped
    process.check([need("strip"), path], timeout=30)
    assert _facts(path).stripped


def test_build_id(need: Need, tmp_path: Path) -> None:
    facts = _facts(build(need, tmp_path, "-Wl,--build-id=0x00ff12"))
    assert facts.build_id == "00ff12"
    assert _facts(build(need, tmp_path, "-Wl,--build-id=none")).build_id is None


@pytest.mark.parametrize("moved", [True, False])
def test_notes_that_patchelf_has_moved(need: Need, tmp_path: Path, moved: bool) -> None:
    """It overwrites them with X and leaves the segment there, as in NVIDIA's libcufft.so.11."""
    path = build(need, tmp_path, "-Wl,--build-id=0x00ff12", "-Wl,-z,noseparate-code")
    content = bytearray(path.read_bytes())
    file = Elf(BytesReader(bytes(content)))
    (table,) = struct.unpack_from("<Q", content, 0x28)
    names = [index for index, name in enumerate(file.section_names) if name.startswith(".note")]
    for index in names:
        section = file.sections[index]
        start, end = section.offset, section.offset + section.file_size
        if moved:
            struct.pack_into("<Q", content, table + 64 * index + 24, len(content))
            content += content[start:end]
        content[start:end] = b"X" * section.file_size
    path.write_bytes(content)
    facts = _facts(path)
    assert (facts.problem, facts.build_id) == (None, "00ff12" if moved else None)


@pytest.mark.parametrize(("new", "expected"), [(1, CxxAbi.CXX11), (0, CxxAbi.OLD)])
def test_cxx_abi(need: Need, tmp_path: Path, new: int, expected: CxxAbi) -> None:
    assert _facts(build(need, tmp_path, f"-D_GLIBCXX_USE_CXX11_ABI={new}")).cxx_abi is expected


def test_no_cxx_abi_without_strings(need: Need, tmp_path: Path) -> None:
    assert _facts(build(need, tmp_path, source="int one() { return 1; }")).cxx_abi is None


def test_property_notes(need: Need, tmp_path: Path) -> None:
    """Without the start files of the system, which may be built without the marks."""
    flags = {
        "aarch64": (("-mbranch-protection=standard",), ("bti", "pac")),
        "x86_64": (("-fcf-protection=full",), ("ibt", "shstk")),
    }
    marks, expected = flags[platform.machine()]
    source = "int one() { return 1; }"
    assert _facts(build(need, tmp_path, "-nostdlib", *marks, source=source)).isa == expected


@pytest.mark.parametrize(
    ("flags", "expected"),
    [(("-c",), ElfKind.OBJECT), (("-pie",), ElfKind.PROGRAM), (("-static",), ElfKind.PROGRAM)],
)
def test_kinds(need: Need, tmp_path: Path, flags: tuple[str, ...], expected: ElfKind) -> None:
    facts = _facts(build(need, tmp_path, *flags, source=CPP + "int main() { return 0; }"))
    assert (facts.kind, facts.problem) == (expected, None)
    assert facts.needed == () or flags == ("-pie",)


def test_a_narrow_file_in_the_other_byte_order() -> None:
    """One program header and two section headers, as a 32-bit PowerPC would have them."""
    names = b"\0.shstrtab\0"
    header = b"\x7fELF\x01\x02\x01".ljust(16, b"\0") + struct.pack(
        ">HHIIIIIHHHHHH", 3, 20, 1, 0, 52, 100, 0, 52, 32, 1, 40, 2, 1
    )
    segment = struct.pack(">8I", 1, 0, 0x1000, 0x1000, 84, 84, 5, 4096)
    null, table = bytes(40), struct.pack(">10I", 1, 3, 0, 0, 84, len(names), 0, 0, 1, 0)
    content = (header + segment + names).ljust(100, b"\0") + null + table
    elf = Elf(BytesReader(content))
    assert elf.section_names == ("", ".shstrtab")
    assert (elf.segments[0].address, elf.segments[0].flags) == (0x1000, 5)
    assert elf.machine == "machine 20"


def test_the_newest_version_is_the_greatest_number() -> None:
    names = [
        "GLIBC_2.9",
        "GLIBC_2.17",
        "GLIBCXX_3.4.30",
        "GLIBCXX_3.4.9",
        "GLIBC_PRIVATE",
        "x.so.1",
    ]
    assert newest_versions(names) == {"GLIBC": "2.17", "GLIBCXX": "3.4.30"}


def test_a_version_of_absurd_length_is_none() -> None:
    assert newest_versions([f"GLIBC_{'9' * 5000}"]) == {}


def test_relative_relocations_need_their_glibc() -> None:
    assert newest_versions(["GLIBC_2.17", "GLIBC_ABI_DT_RELR"]) == {"GLIBC": "2.36"}


SECTIONS_OFFSET, SEGMENT_SIZE, SEGMENTS, SECTION_SIZE, SECTIONS, NAMES = 40, 54, 56, 58, 60, 62


@pytest.fixture
def library(need: Need, tmp_path: Path) -> bytes:
    return build(need, tmp_path).read_bytes()


@pytest.mark.parametrize(
    ("field", "form", "value", "words"),
    [
        (SECTIONS_OFFSET, "<Q", 2**63, "beyond the end"),
        (SECTION_SIZE, "<H", 63, "section headers of 63 bytes"),
        (SECTIONS, "<H", 0xFFFF, "beyond the end"),
        (SEGMENTS, "<H", 0xFFFF, "a table of 65535 headers"),
        (SEGMENT_SIZE, "<H", 8, "program headers of 8 bytes"),
        (NAMES, "<H", 0xFFF0, "section names in section 65520"),
        (4, "<B", 9, "unknown class 9"),
    ],
)
def test_broken_headers(library: bytes, field: int, form: str, value: int, words: str) -> None:
    broken = bytearray(library)
    struct.pack_into(form, broken, field, value)
    facts = read_library(BytesReader(bytes(broken)))
    assert facts.problem is not None
    assert words in facts.problem
    assert facts.problem.startswith("mill.whl: lib/libmill.so")
    assert facts.size_bytes == len(library)


@pytest.mark.parametrize("share", [0.0, 0.001, 0.3, 0.9, 0.999])
def test_a_file_cut_short(library: bytes, share: float) -> None:
    facts = read_library(BytesReader(library[: int(len(library) * share)]))
    assert facts.problem is not None
    assert " at byte " in facts.problem


def test_a_chain_of_versions_that_does_not_end(library: bytes) -> None:
    """Every record claims 65535 versions and leads to the one right behind it."""
    elf = Elf(BytesReader(library))
    ((_, versions),) = elf.named(".gnu.version_r")
    endless = struct.pack("<HHIII", 1, 0xFFFF, 1, 0, 1)
    broken = bytearray(library)
    broken[versions.offset : versions.offset + 16] = endless
    with pytest.raises(ArtifactError, match="too many version records"):
        _ = Elf(BytesReader(bytes(broken))).needed_versions


def test_a_string_table_as_large_as_claimed_is_not_read(library: bytes) -> None:
    tag = library.index(struct.pack("<qQ", 10, len(_dynamic_strings(library))))
    broken = bytearray(library)
    struct.pack_into("<Q", broken, tag + 8, 2**40)
    facts = read_library(BytesReader(bytes(broken)))
    assert facts.problem is not None
    assert f"a table of {2**40} bytes" in facts.problem


def _dynamic_strings(library: bytes) -> bytes:
    return Elf(BytesReader(library)).dynamic_strings.content


def test_another_kind_of_file() -> None:
    with pytest.raises(ArtifactError, match="not an ELF file"):
        Elf(BytesReader(b"MZ" + bytes(100)))

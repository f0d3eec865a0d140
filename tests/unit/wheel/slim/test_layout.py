"""Libraries with made-up device code, cut and then loaded by the real loader."""

import shutil
import struct
import subprocess
import sys
from pathlib import Path

import pytest

from built_libraries import CUBIN, PTX, entry, region
from conftest import Need
from slim_libraries import LARGE, build_library, code, cubins, listed, loaded, said_to_be, slim
from stoker.model.slimming import SlimLayout
from stoker.wheel.elf import elf
from stoker.wheel.elf.edit import ElfEdit, make_patch
from stoker.wheel.elf.elf import Elf
from stoker.wheel.reader import open_file

ARCHS = 80, 90, 100
LAYOUTS = pytest.mark.parametrize("pin", [False, True], ids=["move", "pin"])


def kept(seed: int, arch: int = 90, size: int = LARGE) -> bytes:
    """What a region is once only one architecture is left."""
    return region([entry(CUBIN, arch, code(1000 * seed + arch, size))])


def segments(path: Path) -> list[elf.Segment]:
    with open_file(path) as reader:
        return Elf(reader).segments_of(elf.LOAD)


@LAYOUTS
@pytest.mark.parametrize("alignment", [8, 256])
def test_what_is_kept_is_where_wrappers_point(
    need: Need, tmp_path: Path, pin: bool, alignment: int
) -> None:
    regions = [cubins(seed, *ARCHS) for seed in range(4)]
    path = build_library(need, tmp_path, regions, alignment=alignment)
    made = tmp_path / "made.so"
    summary = slim(path, made, "sm_90", pin=pin).summary
    assert (summary.kept, summary.dropped, summary.stubs) == (4, 8, 0)
    assert summary.layout is (SlimLayout.PIN if pin else SlimLayout.MOVE)
    assert summary.skipped_because is None
    # At most a page is lost at either end of what is cut.
    lost = 2 * (4 if pin else 1) * 0x10000
    assert summary.before_bytes - summary.after_bytes >= 8 * LARGE - lost
    assert listed(made) == [["sm_90"]] * 4
    expected = [kept(seed) for seed in range(4)]
    assert loaded(made, {seed: len(one) for seed, one in enumerate(expected)}) == expected


def test_architectures_are_counted(need: Need, tmp_path: Path) -> None:
    ptx = entry(PTX, 90, b".version 8.0")
    path = build_library(need, tmp_path, [region([ptx, entry(CUBIN, 90, b"x" * 64)])])
    summary = slim(path, tmp_path / "made.so", "sm_90").summary
    rows = {row.arch: (row.kept, row.dropped, row.kept_bytes) for row in summary.archs}
    assert rows == {"sm_90": (1, 0, 64), "compute_90": (0, 1, 0)}


@LAYOUTS
def test_no_region_is_left_empty(need: Need, tmp_path: Path, pin: bool) -> None:
    """The smallest cubin stays, rather than smaller PTX."""
    foreign = [
        entry(PTX, 100, b"ptx"),
        entry(CUBIN, 80, code(1)),
        entry(CUBIN, 86, b"small" * 100),
        entry(CUBIN, 100, code(2)),
    ]
    path = build_library(need, tmp_path, [cubins(1, *ARCHS), region(foreign), cubins(3, *ARCHS)])
    made = tmp_path / "made.so"
    summary = slim(path, made, "sm_90", pin=pin).summary
    assert (summary.kept, summary.stubs) == (3, 1)
    assert listed(made) == [["sm_90"], ["sm_86"], ["sm_90"]]
    stub = region([foreign[2]])
    assert loaded(made, {1: len(stub), 2: 100}) == [stub, kept(3)[:100]]


@pytest.mark.parametrize("serves", [True, False])
def test_what_is_not_linked_serves_no_gpu(need: Need, tmp_path: Path, serves: bool) -> None:
    """The PTX that is left over from linking would run on the target, but never runs."""
    (tmp_path / "left.bin").write_bytes(region([entry(PTX, 90, b"ptx"), entry(CUBIN, 80, b"sm")]))
    lines = [
        '.section __nv_relfatbin,\\"a\\"',
        ".balign 8",
        '.incbin \\"left.bin\\"',
        ".text",
    ]
    left_over = 'asm("' + "\\n".join(lines) + '");'
    linked = cubins(1, 80, 90, *([100] if serves else []))
    path = build_library(need, tmp_path, [linked], more=left_over)
    summary = slim(path, tmp_path / "made.so", "sm_100", "compute_90").summary
    assert (summary.kept, summary.stubs) == (2, 0 if serves else 1)
    assert summary.serves is serves


def test_a_region_without_cubins_keeps_what_is_smallest(need: Need, tmp_path: Path) -> None:
    only_ptx = region([entry(PTX, 100, b"x" * 800), entry(PTX, 90, b"x" * 80)])
    path = build_library(need, tmp_path, [only_ptx])
    slim(path, tmp_path / "made.so", "sm_90")
    assert listed(tmp_path / "made.so") == [["compute_90"]]


def test_what_nothing_refers_to_stays_at_its_place(need: Need, tmp_path: Path) -> None:
    """Code may know its address without any relocation; so may those behind it be moved."""
    more = "const void* orphan(void) { return region1; }"
    regions = [cubins(seed, *ARCHS) for seed in range(4)]
    path = build_library(need, tmp_path, regions, wrapped=[0, 2, 3], more=more)
    made = tmp_path / "made.so"
    assert slim(path, made, "sm_90").summary.layout is SlimLayout.MOVE
    look = """
import ctypes, sys
library = ctypes.CDLL(sys.argv[1])
library.orphan.restype = ctypes.c_void_p
sys.stdout.buffer.write(ctypes.string_at(library.orphan(), int(sys.argv[2])))
"""
    arguments = [sys.executable, "-c", look, str(made), str(len(kept(1)))]
    assert subprocess.run(arguments, capture_output=True, check=True).stdout == kept(1)
    assert loaded(made, {3: len(kept(3))}) == [kept(3)]


def test_a_region_that_is_pointed_into_stays_whole(need: Need, tmp_path: Path) -> None:
    more = "const char* inside = region1 + 80; const char* others = region2;"
    regions = [cubins(seed, *ARCHS) for seed in range(3)]
    path = build_library(need, tmp_path, regions, more=more)
    made = tmp_path / "made.so"
    assert slim(path, made, "sm_90").summary.dropped == 4
    assert listed(made) == [["sm_90"], ["sm_80", "sm_90", "sm_100"], ["sm_90"]]
    assert loaded(made, {1: len(regions[1]), 2: 100}) == [regions[1], kept(2)[:100]]


def test_another_pointer_to_a_region_moves_along(need: Need, tmp_path: Path) -> None:
    more = """
static const char* volatile other = region2;
int same(void) { return other == region_of(2); }
"""
    path = build_library(need, tmp_path, [cubins(seed, *ARCHS) for seed in range(3)], more=more)
    made = tmp_path / "made.so"
    slim(path, made, "sm_90")
    look = "import ctypes, sys; print(ctypes.CDLL(sys.argv[1]).same())"
    done = subprocess.run(
        [sys.executable, "-c", look, str(made)], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "1"


def test_a_wrapper_of_something_else_pins_everything(need: Need, tmp_path: Path) -> None:
    more = "WRAPPER odd = {0x466243b1, 1, text, 0};"
    path = build_library(need, tmp_path, [cubins(seed, *ARCHS) for seed in range(3)], more=more)
    made = tmp_path / "made.so"
    summary = slim(path, made, "sm_90").summary
    assert (summary.layout, summary.dropped) == (SlimLayout.PIN, 6)
    assert loaded(made, {2: len(kept(2))}) == [kept(2)]


def test_a_region_with_a_public_name_does_not_move(need: Need, tmp_path: Path) -> None:
    more = 'asm(".globl public_name\\n .set public_name, region1");'
    path = build_library(need, tmp_path, [cubins(seed, *ARCHS) for seed in range(2)], more=more)
    made = tmp_path / "made.so"
    slim(path, made, "sm_90")
    look = """
import ctypes, sys
library = ctypes.CDLL(sys.argv[1])
sys.stdout.buffer.write(bytes((ctypes.c_char * 100).in_dll(library, "public_name")))
"""
    arguments = [sys.executable, "-c", look, str(made)]
    assert subprocess.run(arguments, capture_output=True, check=True).stdout == kept(1)[:100]


def test_what_was_cut_reads_as_zeros(need: Need, tmp_path: Path) -> None:
    """A read beyond a region must not crash."""
    path = build_library(need, tmp_path, [cubins(1, *ARCHS)])
    made = tmp_path / "made.so"
    slim(path, made, "sm_90")
    (found,) = loaded(made, {0: 3 * LARGE})
    assert found.startswith(kept(1))
    assert not any(found[len(kept(1)) :])


@LAYOUTS
def test_a_slimmed_library_stays_as_it_is(need: Need, tmp_path: Path, pin: bool) -> None:
    path = build_library(need, tmp_path, [cubins(seed, *ARCHS) for seed in range(3)])
    once, twice = tmp_path / "once.so", tmp_path / "twice.so"
    slim(path, once, "sm_90", pin=pin)
    for strip in (False, True):
        slim(path, once, "sm_90", pin=pin, strip=strip)
        plan = slim(once, twice, "sm_90", pin=pin, strip=strip)
        assert not plan.changes
        assert (plan.summary.kept, plan.summary.layout) == (3, None)
        assert plan.summary.skipped_because is None


@LAYOUTS
@pytest.mark.parametrize("pin_again", [False, True], ids=["then-move", "then-pin"])
def test_a_slimmed_library_can_be_slimmed_further(
    need: Need, tmp_path: Path, pin: bool, pin_again: bool
) -> None:
    path = build_library(need, tmp_path, [cubins(seed, *ARCHS) for seed in range(3)])
    once, twice = tmp_path / "once.so", tmp_path / "twice.so"
    first = slim(path, once, "sm_80", "sm_100", pin=pin).summary
    second = slim(once, twice, "sm_100", pin=pin_again).summary
    assert second.after_bytes < first.after_bytes < path.stat().st_size
    assert listed(twice) == [["sm_100"]] * 3
    expected = [kept(seed, 100) for seed in range(3)]
    assert loaded(twice, {seed: len(one) for seed, one in enumerate(expected)}) == expected


def test_headers_grow_where_they_are_if_there_is_room(need: Need, tmp_path: Path) -> None:
    room = "-Wl,--section-start=.note.gnu.build-id=0x600"
    regions = [cubins(seed, *ARCHS) for seed in range(3)]
    path = build_library(need, tmp_path, regions, room, "-Wl,--build-id")
    made = tmp_path / "made.so"
    slim(path, made, "sm_90")
    with open_file(made) as reader:
        assert Elf(reader).header.segments_offset == 64
    assert len(segments(made)) == len(segments(path)) + 1
    assert loaded(made, {2: len(kept(2))}) == [kept(2)]


def test_headers_move_if_there_is_none(need: Need, tmp_path: Path) -> None:
    path = build_library(need, tmp_path, [cubins(1, *ARCHS)])
    slim(path, tmp_path / "made.so", "sm_90")
    with open_file(tmp_path / "made.so") as reader:
        file = Elf(reader)
        assert file.header.segments_offset > LARGE
        assert file.load_at(file.header.segments_offset) is not None


def test_small_code_is_dropped_even_if_no_page_is_freed(need: Need, tmp_path: Path) -> None:
    """Zeros take no room in a wheel."""
    path = build_library(need, tmp_path, [cubins(seed, *ARCHS, size=300) for seed in range(3)])
    made = tmp_path / "made.so"
    summary = slim(path, made, "sm_90").summary
    assert summary.before_bytes - summary.after_bytes in (0, 4096)
    assert listed(made) == [["sm_90"]] * 3
    assert made.read_bytes().count(code(1080, 300)) == 0
    assert loaded(made, {1: len(kept(1, size=300))}) == [kept(1, size=300)]


@LAYOUTS
def test_symbols_follow(need: Need, tmp_path: Path, pin: bool) -> None:
    path = build_library(need, tmp_path, [cubins(seed, *ARCHS) for seed in range(3)])
    made = tmp_path / "made.so"
    slim(path, made, "sm_90", pin=pin)
    table = subprocess.run([need("nm"), made], capture_output=True, text=True, check=True).stdout
    address = int(
        next(line for line in table.splitlines() if line.endswith("region2")).split()[0], 16
    )
    with open_file(made) as reader:
        found = reader.read(Elf(reader).offset_of(address), 100)
    assert found == kept(2)[:100]


@LAYOUTS
def test_scattered_code_leaves_what_is_around_it(need: Need, tmp_path: Path, pin: bool) -> None:
    scattered = (
        b"an index of 16 b" + cubins(1, *ARCHS) + b"more data 16 by." + cubins(2, *ARCHS) + b"end"
    )
    (tmp_path / "cask.bin").write_bytes(scattered)
    more = """
asm(".section .cask_resource,\\"a\\"\\n .balign 16");
asm("cask: .incbin \\"cask.bin\\"\\n .text");
extern const char cask[] __attribute__((visibility("hidden")));
WRAPPER scattered = {0x466243b1, 1, cask + 16, 0};
const void* resource(void) { return cask; }"""
    path = build_library(need, tmp_path, [cubins(0, *ARCHS)], more=more)
    made = tmp_path / "made.so"
    summary = slim(path, made, "sm_90", pin=pin).summary
    assert summary.dropped == 6
    assert summary.before_bytes - summary.after_bytes > 6 * LARGE - 6 * 0x10000
    assert listed(made) == [["sm_90"]] * 3
    look = """
import ctypes, sys
library = ctypes.CDLL(sys.argv[1])
library.resource.restype = ctypes.c_void_p
sys.stdout.buffer.write(ctypes.string_at(library.resource(), int(sys.argv[2])))
"""
    arguments = [sys.executable, "-c", look, str(made), str(len(scattered))]
    found = subprocess.run(arguments, capture_output=True, check=True).stdout
    middle = 16 + len(cubins(1, *ARCHS))
    assert found.startswith(b"an index of 16 b" + kept(1))
    assert found[middle:].startswith(b"more data 16 by." + kept(2))
    assert found.endswith(b"end")


def test_stripping(need: Need, tmp_path: Path) -> None:
    names = "".join(f"int {'long' * 60}{number}(void) {{ return 1; }}\n" for number in range(1500))
    path = build_library(need, tmp_path, [cubins(seed, *ARCHS) for seed in range(2)], more=names)
    plain, stripped = tmp_path / "plain.so", tmp_path / "stripped.so"
    slim(path, plain, "sm_90")
    slim(path, stripped, "sm_90", strip=True)
    assert stripped.stat().st_size < plain.stat().st_size - 300_000
    with open_file(stripped) as reader:
        assert all(section.type != elf.SYMBOL_TABLE for section in Elf(reader).sections)
    assert loaded(stripped, {1: len(kept(1))}) == [kept(1)]


def test_stripping_takes_space_that_edits_left_behind(need: Need, tmp_path: Path) -> None:
    names = "".join(f"int {'long' * 60}{number}(void) {{ return 1; }}\n" for number in range(1500))
    path = build_library(need, tmp_path, [], "-s", more=names)
    edited, stripped = tmp_path / "edited.so", tmp_path / "stripped.so"
    with open_file(path) as reader:
        patch = make_patch(Elf(reader), ElfEdit(rpath="$ORIGIN/elsewhere"))
        edited.write_bytes(b"".join(patch.applied([path.read_bytes()])))
    plan = slim(edited, stripped, strip=True)
    assert plan.summary.layout is None
    assert stripped.stat().st_size <= path.stat().st_size + 2 * 0x10000 < edited.stat().st_size
    assert loaded(stripped, {}) == []


def test_nothing_is_dead_space_without_sections(need: Need, tmp_path: Path) -> None:
    """Space outside of sections may contain anything."""
    path = build_library(need, tmp_path, [cubins(1, *ARCHS)])
    content = bytearray(path.read_bytes())
    with open_file(path) as reader:
        sections = Elf(reader).header.sections_offset
    struct.pack_into("<Q", content, 40, 0)  # where section headers are
    struct.pack_into("<HH", content, 60, 0, 0)  # how many, and the one with the names
    del content[sections:]
    path.write_bytes(content)
    plan = slim(path, tmp_path / "made.so", "sm_90", strip=True)
    assert not plan.changes


@LAYOUTS
def test_a_program_at_fixed_addresses(need: Need, tmp_path: Path, pin: bool) -> None:
    """Its wrappers have no relocations; its code is small, since its headers must stay."""
    main = """
int main(void) {
    const unsigned char* region = region_of(1);
    return region[0] == 0x50 && *(const unsigned short*)(region + 16 + 28) == 90 ? answer() : 1;
}"""
    path = build_library(
        need,
        tmp_path,
        [cubins(seed, *ARCHS, size=300) for seed in range(3)],
        more=main,
        kind=["-no-pie"],
        name="program",
    )
    made = tmp_path / "made"
    summary = slim(path, made, "sm_90", pin=pin).summary
    assert summary.layout is (SlimLayout.PIN if pin else SlimLayout.MOVE)
    made.chmod(0o755)
    assert subprocess.run([made], check=False).returncode == 42


def test_a_program_without_room_is_left(need: Need, tmp_path: Path) -> None:
    main = "int main(void) { return answer(); }"
    path = build_library(
        need, tmp_path, [cubins(1, *ARCHS)], more=main, kind=["-pie", "-fPIE"], name="program"
    )
    plan = slim(path, tmp_path / "made", "sm_90")
    assert not plan.changes
    assert "without space for more program headers" in (plan.summary.skipped_because or "")
    assert plan.summary.after_bytes == plan.summary.before_bytes


@LAYOUTS
@pytest.mark.parametrize(("machine", "page"), [(62, 0x1000), (183, 0x10000)])
def test_pages_are_those_of_the_machine(
    need: Need, tmp_path: Path, pin: bool, machine: int, page: int
) -> None:
    flag = "-Wl,-z,max-page-size=65536"  # the default for aarch64, not for x86-64
    path = build_library(need, tmp_path, [cubins(seed, *ARCHS) for seed in range(3)], flag)
    path.write_bytes(said_to_be(machine, path))
    made = tmp_path / "made.so"
    summary = slim(path, made, "sm_90", pin=pin).summary
    assert summary.layout is (SlimLayout.PIN if pin else SlimLayout.MOVE)
    assert all((one.address - one.offset) % page == 0 for one in segments(made))
    cuts = 3 if pin else 1
    assert (
        6 * LARGE - (2 * cuts + 1) * page < summary.before_bytes - summary.after_bytes <= 6 * LARGE
    )
    assert listed(made) == [["sm_90"]] * 3


def test_packed_relocations(need: Need, tmp_path: Path) -> None:
    """As newer linkers write them: places in a bitmap, numbers at the places."""
    more = """
__attribute__((section(".places"), used, aligned(8))) static const long packed_places[8] = {2};
"""
    flags = ("-Wl,--spare-dynamic-tags=8",)
    path = build_library(
        need, tmp_path, [cubins(seed, *ARCHS) for seed in range(3)], *flags, more=more
    )
    _pack_relocations(path)
    assert loaded(path, {1: 100}) == [cubins(1, *ARCHS)[:100]]
    made = tmp_path / "made.so"
    assert slim(path, made, "sm_90").summary.layout is SlimLayout.MOVE
    expected = [kept(seed) for seed in range(3)]
    assert loaded(made, {seed: len(one) for seed, one in enumerate(expected)}) == expected


def _pack_relocations(path: Path) -> None:
    """Take the relocations of wrappers out of the one table and put them into the other."""
    content = bytearray(path.read_bytes())
    with open_file(path) as reader:
        file = Elf(reader)
        names = ".rela.dyn", ".places", ".nvFatBinSegment"
        rela, relr, wrappers = (file.named(name)[0][1] for name in names)
        # Without the number of relative relocations, which is no longer right.
        entries = [(tag, value) for tag, value in file.dynamic if tag != 0x6FFFFFF9]
    for offset in range(rela.offset, rela.offset + rela.size, 24):
        place, _, number = struct.unpack_from("<QQq", content, offset)
        if wrappers.address <= place < wrappers.address + wrappers.size:
            struct.pack_into("<q", content, file.offset_of(place), number)
            struct.pack_into("<QQq", content, offset, 0, 0, 0)
    first = wrappers.address + 8
    struct.pack_into("<QQ", content, relr.offset, first, 0b1001000 | 1)  # 24 and 48 bytes on
    dynamic = file.segments_of(elf.DYNAMIC)[0]
    entries += [(36, relr.address), (35, 16), (37, 8)]
    assert (len(entries) + 1) * 16 <= dynamic.file_size
    for index, (tag, value) in enumerate([*entries, (0, 0)]):
        struct.pack_into("<qQ", content, dynamic.offset + 16 * index, tag, value)
    path.write_bytes(content)


def test_objects_and_other_machines_are_left(need: Need, tmp_path: Path) -> None:
    regions = [cubins(1, *ARCHS, size=300)]
    unlinked = build_library(need, tmp_path, regions, kind=["-c", "-fPIC"], name="one.o")
    assert "not a linked library" in (
        slim(unlinked, tmp_path / "x", "sm_90").summary.skipped_because or ""
    )
    path = build_library(need, tmp_path, regions)
    content = bytearray(path.read_bytes())
    content[18:20] = (243).to_bytes(2, "little")
    path.write_bytes(content)
    summary = slim(path, tmp_path / "x", "sm_90").summary
    assert "riscv64" in (summary.skipped_because or "")
    assert (summary.after_bytes, summary.layout) == (summary.before_bytes, None)


def test_no_device_code_is_nothing_to_do(tmp_path: Path) -> None:
    path = tmp_path / "python"
    shutil.copy(Path(sys.executable).resolve(), path)
    plan = slim(path, tmp_path / "made", "sm_90")
    assert not plan.changes
    assert plan.summary.skipped_because is None


def test_what_is_no_library_is_said(tmp_path: Path) -> None:
    path = tmp_path / "text.so"
    path.write_text("INPUT(libother.so)" * 10)
    assert "not an ELF file" in (slim(path, tmp_path / "x").summary.skipped_because or "")

"""Inputs made to cost more than their size explains. Each took minutes or gigabytes once; the
timeout is that of a machine that does much else.
"""

import gzip
import io
import resource
import struct
import tarfile
import zipfile
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path

import pytest

import wheel_files
from built_libraries import BytesReader
from fuzz_targets import REFUSED, TARGETS, Member, described
from stoker.builds.acquire.archive import unpack
from stoker.model.artifact import Symbols
from stoker.model.errors import ArtifactError
from stoker.outside.demangle import demangled
from stoker.outside.terminal import rendered
from stoker.wheel.elf.elf import DYNAMIC_SYMBOLS, Elf
from stoker.wheel.elf.tables import read_pointers, read_symbols
from stoker.wheel.inspect.facts_page import inspection_page
from stoker.wheel.inspect.inspecting import inspect
from stoker.wheel.inspect.loads_with import torch_needs
from stoker.wheel.verify.cpu_level import read_local_functions
from stoker.wheel.verify.verifying import verify

pytestmark = pytest.mark.timeout(60)

LOAD, DYNAMIC, NOTE = 1, 2, 4
SYMBOLS, STRINGS = 2, 3
NEEDED, STRTAB, STRSZ, SONAME, RPATH = 1, 5, 10, 14, 15
RELRSZ, RELR = 35, 36
MARK = struct.pack("<IHHQ", 0xBA55ED50, 1, 16, 0)  # an empty region of device code

Segment = tuple[int, int, int]  # type, offset, size
Section = tuple[str, int, int, int, int, int]  # name, type, offset, size, link, info


def elf(body: bytes, segments: Iterable[Segment] = (), sections: Iterable[Section] = ()) -> bytes:
    """A library: header, ``body`` at byte 64, section names, tables. Addresses are offsets."""
    segments, sections = list(segments), list(sections)
    names = b"\0" + b"".join(name.encode() + b"\0" for name, *_ in sections) + b".names\0"
    place = 64 + len(body)
    rows, at = [bytes(64)], 1
    for name, kind, offset, size, link, info in sections:
        fields = (at, kind, 2, offset, offset, size, link, info, 8, 0)
        rows.append(struct.pack("<IIQQQQIIQQ", *fields))
        at += len(name) + 1
    rows.append(struct.pack("<IIQQQQIIQQ", at, STRINGS, 0, 0, place, len(names), 0, 0, 1, 0))
    table = place + len(names)
    headers = table + 64 * len(rows)
    whole = headers + 56 * (len(segments) + 1)
    loads = [(LOAD, 0, whole), *segments]
    packed = [struct.pack("<IIQQQQQQ", k, 6, o, o, o, s, s, 8) for k, o, s in loads]
    start = b"\x7fELF\x02\x01\x01".ljust(16, b"\0") + struct.pack(
        "<HHIQQQIHHHHHH",
        *(3, 62, 1, 0, headers, table, 0, 64, 56, len(loads), 64, len(rows), len(rows) - 1),
    )
    return start + body + names + b"".join(rows) + b"".join(packed)


def dynamic(entries: Iterable[tuple[int, int]], strings: bytes) -> bytes:
    """A library with that dynamic section and string table."""
    entries = list(entries)
    size = 16 * (len(entries) + 3)
    told = [*entries, (STRTAB, 64 + size), (STRSZ, len(strings)), (0, 0)]
    body = b"".join(struct.pack("<qQ", *entry) for entry in told)
    return elf(body + strings, [(DYNAMIC, 64, size)])


def wheel(folder: Path, **libraries: bytes) -> Path:
    named = {f"mill/{name}.so": content for name, content in libraries.items()}
    return wheel_files.make_wheel(
        folder, wheel_files.wheel_bytes({**wheel_files.members(), **named})
    )


def shown(path: Path) -> None:
    with suppress(*REFUSED):
        rendered(inspection_page(inspect(str(path))), 200)


def test_a_library_with_thousands_of_needed_names_and_search_folders(tmp_path: Path) -> None:
    strings = b"\0" + b"/a:" * 5000 + b"\0" + b"".join(b"n%d.so\0" % n for n in range(3000))
    starts = [at + 1 for at in range(15_001, len(strings) - 1) if strings[at] == 0]
    content = dynamic([(RPATH, 1), *((NEEDED, at) for at in starts)], strings)
    shown(wheel(tmp_path, one=content, two=content + b"\0", three=content + b"\0\0"))


def needing(names: Iterable[str], *, soname: str = "", rpath: str = "") -> bytes:
    """A library that needs others."""
    places, strings = [], b"\0"
    for tag, name in ((SONAME, soname), (RPATH, rpath), *((NEEDED, one) for one in names)):
        if name:
            places.append((tag, len(strings)))
            strings += name.encode() + b"\0"
    return dynamic(places, strings)


@pytest.mark.slow
def test_many_libraries_with_thousands_of_needed_names_and_search_folders(tmp_path: Path) -> None:
    folders = ":".join(f"$ORIGIN/{number}" for number in range(256))
    content = needing((f"n{number}.so" for number in range(3500)), rpath=folders)
    shown(wheel(tmp_path, **{f"l{number}": content for number in range(40)}))


@pytest.mark.slow
def test_libraries_that_all_need_one_another(tmp_path: Path) -> None:
    """Each is in a folder of its own, so none is on the search path of another."""
    names = [f"lib{number}.so" for number in range(300)]
    members = {
        f"mill/{name}/{name}": needing((one for one in names if one != name), soname=name)
        for name in names
    }
    path = wheel_files.make_wheel(
        tmp_path, wheel_files.wheel_bytes({**wheel_files.members(), **members})
    )
    assert not verify(path).ok


def test_libraries_that_all_need_one_another_and_pytorch() -> None:
    names = [f"lib{number}.so" for number in range(300)]
    undefined = frozenset(f"_ZN2at{len(str(number)) + 1}f{number}Ev" for number in range(400))
    libraries = [
        Symbols(
            file=name,
            machine="x86_64",
            needed=(*names, "libtorch.so"),
            exported=frozenset(),
            undefined=undefined,
        )
        for name in names
    ]
    needs = torch_needs(libraries)
    assert needs is not None
    assert frozenset(needs.symbols) == undefined


@pytest.mark.slow
def test_thousands_of_requirements_and_a_need_of_pytorch(tmp_path: Path) -> None:
    lines = "".join(f"Requires-Dist: a{number}>=1,<2,!=1.5\n" for number in range(6000))
    metadata = wheel_files.METADATA.replace(b"\n\n", b"\n" + lines.encode() + b"\n")
    members = {
        **wheel_files.members(),
        "mill/libmill.so": needing(["libtorch.so"]),
        f"{wheel_files.DIST_INFO}/METADATA": metadata,
    }
    shown(wheel_files.make_wheel(tmp_path, wheel_files.wheel_bytes(members)))


def test_names_of_c_plus_plus_that_repeat_what_repeats() -> None:
    """Each part has the one before twice, so that 300 characters become gigabytes."""
    digits = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ"
    parts = "".join(f"S0_IS{digit}_S{digit}_E" for digit in digits[1:30])
    name = f"_ZN2at1fE1AIiiE{parts}"
    assert demangled(name) == name
    pack = f"_ZN2at1fIJ{'i' * 9000}EJ{'i' * 9000}EEvDp1AIJT_DpT0_EE"
    assert demangled(pack) == pack
    usual = "at::grind(at::Tensor const&, at::Tensor const&, at::Tensor const&)"
    assert demangled("_ZN2at5grindERKNS_6TensorES2_S2_") == usual


def test_a_library_whose_strings_all_overlap(tmp_path: Path) -> None:
    strings = b"\0" + b"a" * 16_000 + b"\0"
    content = dynamic(((NEEDED, 1 + n) for n in range(4000)), strings)
    shown(wheel(tmp_path, **{f"l{n}": content + bytes(n) for n in range(40)}))


@pytest.mark.slow
def test_many_libraries_with_thousands_of_missing_names(tmp_path: Path) -> None:
    def library(number: int) -> bytes:
        names = [b"lib%d_%d.so" % (number, n) for n in range(4000)]
        starts, at = [], 1
        for name in names:
            starts.append((NEEDED, at))
            at += len(name) + 1
        return dynamic(starts, b"\0" + b"\0".join(names) + b"\0")

    shown(wheel(tmp_path, **{f"l{n}": library(n) for n in range(60)}))


@pytest.mark.slow
def test_empty_regions_of_device_code_to_the_end(tmp_path: Path) -> None:
    """A wheel of less than a megabyte that unpacks to a hundred times as much."""
    count = (60 << 20) // len(MARK)
    content = elf(MARK * count, sections=[(".nv_fatbin", 1, 64, len(MARK) * count, 0, 0)])
    shown(wheel(tmp_path, one=content))


@pytest.mark.slow
def test_notes_that_all_lie_in_one_place(tmp_path: Path) -> None:
    note = struct.pack("<III", 0, 0, 0)
    content = elf(note * 5400, [(NOTE, 64, 64_800)] * 64)
    shown(wheel(tmp_path, **{f"l{n}": content + bytes(n) for n in range(200)}))


def test_device_code_of_a_hundred_thousand_architectures(tmp_path: Path) -> None:
    def region(number: int) -> bytes:
        fields = (2, 0x0101, 64, 0, 0, 0, 0, 1, number, 0, 0, 0x11, 0, 0)
        entry = struct.pack("<HHIQIIHHIIIQQQ", *fields)
        return struct.pack("<IHHQ", 0xBA55ED50, 1, 16, len(entry)) + entry

    code = b"".join(map(region, range(60_000)))
    content = elf(code, sections=[(".nv_fatbin", 1, 64, len(code), 0, 0)])
    shown(wheel(tmp_path, **{f"l{n}": content + bytes(n) for n in range(6)}))


def test_metadata_of_millions_of_fields(tmp_path: Path) -> None:
    contents = wheel_files.members()
    contents[f"{wheel_files.DIST_INFO}/METADATA"] = b"Requires-Dist: a\n" * 300_000
    contents[f"{wheel_files.DIST_INFO}/WHEEL"] = (
        b"Tag: " + b"a.b.c.d.e.f-a.b.c.d.e.f-a.b.c\n" * 99_999
    )
    path = wheel_files.make_wheel(tmp_path, wheel_files.wheel_bytes(contents))
    shown(path)
    (tmp_path / "again").mkdir()
    with suppress(*REFUSED):
        TARGETS["wheel"](path.read_bytes(), tmp_path / "again")


def test_names_of_thousands_of_folders(tmp_path: Path) -> None:
    names = {f"{n}/{'a/' * 2000}x": b"" for n in range(400)}
    path = wheel_files.make_wheel(tmp_path, wheel_files.zipped({**names, **wheel_files.members()}))
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    shown(path)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 300 << 10  # KiB


def test_symbols_whose_names_have_no_end() -> None:
    count, text = 200_000, b"a" * (4 << 20)
    symbols = struct.pack("<IBBHQQ", 1, 4, 0, 1, 0, 0) + b"".join(
        struct.pack("<IBBHQQ", n, 2, 0, 1, n, 0) for n in range(count - 1)
    )
    sections = [
        ("symbols", SYMBOLS, 64, len(symbols), 2, count),
        ("strings", STRINGS, 64 + len(symbols), len(text), 0, 0),
    ]
    with suppress(*REFUSED):
        read_local_functions(Elf(BytesReader(elf(symbols + text, sections=sections))))


def test_sections_of_symbols_that_all_lie_in_one_place() -> None:
    size = 24 * 40_000
    sections = [("s", DYNAMIC_SYMBOLS, 64, size, 0, 0)] * 20_000
    with suppress(*REFUSED):
        for _ in read_symbols(Elf(BytesReader(elf(bytes(size), sections=sections))), 11, range(1)):
            pass


def test_packed_relocations_of_more_places_than_the_file_has_bytes() -> None:
    words = struct.pack("<Q", 64) + struct.pack("<Q", 2**64 - 1) * 60_000
    entries = [(RELR, 64 + 16 * 5), (RELRSZ, len(words)), (0, 0), (0, 0), (0, 0)]
    body = b"".join(struct.pack("<qQ", *entry) for entry in entries) + words
    segments = [(DYNAMIC, 64, 80), *((LOAD, 64, 8) for _ in range(1000))]
    with suppress(*REFUSED):
        for _ in read_pointers(Elf(BytesReader(elf(body, segments))), range(1)):
            pass


def _unpacked(content: bytes, folder: Path) -> None:
    (folder / "archive").write_bytes(content)
    (folder / "into").mkdir()
    with suppress(*REFUSED):
        unpack(folder / "archive", folder / "into")


def test_a_link_to_a_target_of_a_megabyte(tmp_path: Path) -> None:
    target = io.BytesIO()
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as opened:
        for name in ("a", "b"):
            info = zipfile.ZipInfo(name)
            info.external_attr = 0o120777 << 16
            opened.writestr(info, "a/" * (1 << 19))
    _unpacked(target.getvalue(), tmp_path)


def test_thousands_of_links_through_one_another(tmp_path: Path) -> None:
    links = [
        Member(b"l%d" % n, b"./x/.." * 500 + b"/l%d" % (n + 1), 0o120777, tarfile.SYMTYPE)
        for n in range(900)
    ]
    with suppress(*REFUSED):
        TARGETS["archive"](b"tar:" + described(*links), tmp_path)


def test_extended_headers_of_digits(tmp_path: Path) -> None:
    """Python's own reader takes time with the square of a run of digits."""
    info = tarfile.TarInfo("x")
    info.type, info.size = tarfile.XHDTYPE, 1 << 20
    header = info.tobuf(tarfile.USTAR_FORMAT)
    _unpacked((header + b"9" * (1 << 20)) * 3 + bytes(1024), tmp_path)


@pytest.mark.slow
def test_an_archive_of_very_many_empty_files(tmp_path: Path) -> None:
    header = tarfile.TarInfo("f").tobuf(tarfile.USTAR_FORMAT)
    (tmp_path / "archive").write_bytes(gzip.compress(header * 200_000 + bytes(1024)))
    (tmp_path / "into").mkdir()
    with pytest.raises(ArtifactError, match="far above its size"):
        unpack(tmp_path / "archive", tmp_path / "into")


@pytest.mark.slow
@pytest.mark.parametrize(
    "content",
    [
        lambda: b"\n" * (3 << 20),
        lambda: b"a\r" * (3 << 19),
        lambda: b"".join(b"%d\n" % n for n in range(700_000)),
        lambda: b"error: \n" * (6 << 17),
        lambda: b"CMake Error at x:1 (f):\n" + b"  CMake Error at\n    a b\n" * (1 << 17),
    ],
    ids=["newlines", "returns", "numbers", "errors", "messages"],
)
def test_a_log_of_very_short_lines(content: Callable[[], bytes], tmp_path: Path) -> None:
    TARGETS["log"](content(), tmp_path)


@pytest.mark.parametrize(
    ("reader", "content"),
    [
        ("cmake", lambda: b"if(A)\n" * 30_000 + b'option(X "help" OFF)\n' * 10_000),
        ("cmake", lambda: b"if(A)\n" + b"elseif(B)\n" * 30_000 + b'option(X "help" OFF)\n' * 9000),
        ("cmake", lambda: b"if(" + b"A " * 99_999 + b")\nelse()\n" + b'option(X "h" OFF)\n' * 9000),
        ("cmake", lambda: b"#[[" * 400_000),
        ("cmake", lambda: b"set(" + b'a"' * 400_000),
        ("tree", lambda: b".gitmodules\x1f\x1f\x1f" + b"\n" * (1 << 20)),
        ("tree", lambda: b".gitmodules\x1f\x1f\x1fpath = x" + b" " * (1 << 20) + b"y"),
        ("tree", lambda: b"setup.py\x1f\x1f\x1f(" + b"\n" * (1 << 20)),
        ("tree", lambda: b"requirements-build.txt\x1f\x1f\x1f" + b"!\n" * (1 << 19)),
        ("tree", lambda: b"requirements-build.txt\x1f\x1f\x1f" + b"x\n" * (1 << 19)),
        ("tree", lambda: b"PKG-INFO\x1f\x1f\x1f" + b"A:\n" * (1 << 20)),
        ("tree", lambda: b"pyproject.toml\x1f\x1f\x1f" + b"a." * 300_000 + b"a = 1"),
        (
            "tree",
            lambda: (
                b"build.ninja\x1f\x1f\x1fx = " + b"y" * (1 << 20) + b"\nbuild " + b"${x} " * 99_999
            ),
        ),
        ("toml", lambda: b"[defaults]\ndefine." + b"a." * 300_000 + b"a = 1"),
        ("toml", lambda: b"".join(b"[variants.v%d]\nblas = 'mkl'\n" % n for n in range(20_000))),
        ("toml", lambda: b"x = [\n[" + b" " * (1 << 19) + b"\n]]\n"),
        ("command", lambda: b"c++ -c @x\n" + b"a.c " * 100_000),
        ("command", lambda: b"c++ -c /" + b"pip-a-" * 60_000 + b" a.c"),
        ("words", lambda: b"a-" * 100_000),
        ("page", lambda: b"<a href='" * 100_000),
        ("page", lambda: b"<!--" * 300_000),
        ("page", lambda: b"<" * 300_000),
    ],
)
def test_a_text_made_to_be_read_again_and_again(
    reader: str, content: Callable[[], bytes], tmp_path: Path
) -> None:
    with suppress(*REFUSED):
        TARGETS[reader](content(), tmp_path)


def test_requirement_files_that_include_one_another_in_a_long_chain(tmp_path: Path) -> None:
    (tmp_path / "CMakeLists.txt").write_text("project(mill)\n")
    for number in range(1500):
        name = "requirements-build.txt" if not number else f"r{number}.txt"
        (tmp_path / name).write_text(f"-r r{number + 1}.txt\nx{number}\n")
    TARGETS["cmake"](b"project(mill)\n", tmp_path)

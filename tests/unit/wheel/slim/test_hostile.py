"""Libraries made to cost time and memory: what slimming spends on one is bounded by its size."""

import struct
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from built_libraries import CUBIN, LZ4, entry, region
from stoker.model.variant import GpuTarget
from stoker.wheel.elf import elf
from stoker.wheel.slim.arch_list import kept_words

MIB = 1 << 20
LARGE = bytes(300 << 10)
CODE = region([entry(CUBIN, arch, LARGE) for arch in (80, 86, 90)])
RELATIVE = 1027  # a type of relocation of aarch64
SYMBOL = struct.Struct("<IBBHQQ")
RELA = struct.Struct("<QIIq")
LOADS, DYNAMIC_SIZE = 1000, 112
_SECTIONS = {  # by part: name, type, flags
    "code": (".nv_fatbin", 1, elf.ALLOCATED),
    "wrappers": (".nvFatBinSegment", 1, elf.ALLOCATED),
    "rodata": (".rodata", 1, elf.ALLOCATED),
    "symbols": (".symtab", elf.SYMBOL_TABLE, 0),
    "names": (".shstrtab", 3, 0),
}

Part = bytes | Callable[[Mapping[str, int]], bytes]


def library(*, copies: Mapping[str, int] | None = None, loads: int = 1, **parts: Part) -> bytes:
    """A library of aarch64 whose addresses are its offsets.

    A part is its bytes, or makes them from where the parts before it lie. ``copies`` says how
    many sections there are of a part.
    """
    content = bytearray(64 + 56 * (loads + 1))
    places: dict[str, int] = {}
    sizes: dict[str, int] = {}
    names = b"\0" + b"".join(name.encode() + b"\0" for name, _, _ in _SECTIONS.values())
    everything: dict[str, Part] = {
        "dynamic": bytes(DYNAMIC_SIZE),
        "code": CODE,
        "wrappers": lambda at: struct.pack("<IIQQ", 0x466243B1, 1, at["code"], 0),
        "rela": pointer,
        **parts,
        "names": names,
    }
    for name, part in everything.items():
        content += bytes(-len(content) % 8)
        places[name] = len(content)
        content += part(places) if callable(part) else part
        sizes[name] = len(content) - places[name]
    headers = [bytes(64)]
    for name, (word, kind, flags) in _SECTIONS.items():
        at = places.get(name, 0)
        name_at, address = names.index(word.encode() + b"\0"), at if flags else 0
        row = (name_at, kind, flags, address, at, sizes.get(name, 0), 0, 0, 8, 0)
        headers += [struct.pack("<IIQQQQIIQQ", *row)] * ((copies or {}).get(name, 1) if at else 0)
    content += bytes(-len(content) % 8)
    sections = len(content)
    content += b"".join(headers)
    size, dynamic = len(content), places["dynamic"]
    tags = [(7, places["rela"]), (8, sizes["rela"]), (9, RELA.size)]
    if "relr" in places:
        tags += [(36, places["relr"]), (35, sizes["relr"])]
    struct.pack_into(f"<{2 * len(tags)}Q", content, dynamic, *(n for tag in tags for n in tag))
    segments = [struct.pack("<IIQQQQQQ", elf.LOAD, 6, 0, 0, 0, size, size, 0x1000)]
    segments += [
        struct.pack("<IIQQQQQQ", elf.LOAD, 4, 0, (1 << 40) + 0x10000 * number, 0, 16, 16, 1)
        for number in range(loads - 1)
    ]
    place = dynamic, dynamic, 0, DYNAMIC_SIZE, DYNAMIC_SIZE, 8
    segments.append(struct.pack("<IIQQQQQQ", elf.DYNAMIC, 6, *place))
    content[64 : 64 + 56 * len(segments)] = b"".join(segments)
    counts = 64, 56, len(segments), 64, len(headers), len(headers) - 1
    fields = elf.SHARED, 183, 1, 0, 64, sections, 0, *counts
    content[:64] = b"\x7fELF\x02\x01\x01" + bytes(9) + struct.pack("<HHIQQQIHHHHHH", *fields)
    return bytes(content)


def pointer(at: Mapping[str, int], count: int = 1) -> bytes:
    """Relocations of the first wrapper, all alike."""
    return RELA.pack(at["wrappers"] + 8, RELATIVE, 0, at["code"]) * count


def symbols(count: int) -> Part:
    return lambda at: SYMBOL.pack(0, 0, 0, 1, at["code"], 0) * count


def bitmaps(count: int) -> Part:
    """Packed relocations of all words of the part ``data``."""
    return lambda at: struct.pack("<Q", at["data"]) + b"\xff" * 8 * (count // 63)


def lz4_zeros(size: int) -> bytes:
    """So many zeros, 255 to a byte."""
    length = size - 1 - 5 - 19
    match = b"\x1f\0\x01\0" + b"\xff" * (length // 255) + bytes([length % 255])
    return match + b"\x50" + bytes(5)


def bomb(size: int) -> bytes:
    return entry(CUBIN, 90, lz4_zeros(size), flags=LZ4, unpacked=size)


# A process that is waited for would count the memory that this one had when it started it.
MEASURED = """
import atexit, sys
from stoker.__main__ import main
def peak():
    lines = open("/proc/self/status").read().splitlines()
    print("\\n", next(int(line.split()[1]) << 10 for line in lines if line.startswith("VmHWM")))
atexit.register(peak)
sys.exit(main())
"""
CASES: dict[str, Callable[[], bytes]] = {
    "relocations": lambda: library(rela=lambda at: pointer(at, 300_000)),
    "packed relocations": lambda: library(
        data=lambda at: struct.pack("<Q", at["code"]) * 500_000, relr=bitmaps(499_000)
    ),
    "segments": lambda: library(data=bytes(4 * MIB), relr=bitmaps(MIB // 2 - 64), loads=LOADS),
    "symbols": lambda: library(symbols=symbols(300_000)),
    "symbol tables": lambda: library(symbols=symbols(1000), copies={"symbols": 60_000}),
    "regions": lambda: library(code=CODE + region([entry(CUBIN, 80, b"")]) * 30_000),
    "pointers into regions": lambda: library(
        code=CODE + region([entry(CUBIN, 80, b"")]) * 30_000,
        rela=lambda at: b"".join(
            RELA.pack(8, RELATIVE, 0, at["code"] + len(CODE) + 80 * number + 8)
            for number in range(30_000)
        ),
    ),
    "architectures": lambda: library(
        code=region([entry(CUBIN, arch, b"") for arch in range(60_000)])
    ),
    "packed code": lambda: library(code=region([entry(CUBIN, 80, LARGE), *[bomb(1 << 30)] * 3])),
    "much packed code": lambda: library(
        code=region([entry(CUBIN, 80, LARGE), *[bomb(100 * MIB)] * 6])
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES)
def test_memory_and_time(case: str, tmp_path: Path) -> None:
    """The time limit is far above what is needed, and far below what squares of counts take."""
    content = CASES[case]()
    path, made = tmp_path / "libmill.so", tmp_path / "made.so"
    path.write_bytes(content)
    words = ["slim", str(path), "--for", "sm90", "-o", str(made), "--recompress", "zstd"]
    command = ["timeout", "240", sys.executable, "-c", MEASURED, *words]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    *_, peak = done.stdout.split()
    said = done.stderr
    assert done.returncode in (0, 1), said
    assert "Traceback" not in said
    assert made.exists() or "was not changed" in said
    assert int(peak) < 400 * MIB + 8 * len(content)


@pytest.mark.parametrize(
    "words",
    [b"sm_80 " * MIB, b"sm_80\0" * MIB, b"sm_80 sm_90\0" * 3],
    ids=["a list without end", "many lists", "three lists"],
)
def test_lists_of_architectures(words: bytes, tmp_path: Path) -> None:
    path = tmp_path / "libtorch_python.so"
    path.write_bytes(library(rodata=words, copies={"rodata": 1}))
    assert kept_words(path, [GpuTarget(arch="9.0")]) is None
    path.write_bytes(library(rodata=b"text\0sm_80 sm_90\0more\0"))
    assert kept_words(path, [GpuTarget(arch="9.0")]) == ("sm_90",)
    path.write_bytes(library(rodata=b"text\0sm_80 sm_90\0", copies={"rodata": 1000}))
    assert kept_words(path, [GpuTarget(arch="9.0")]) is None

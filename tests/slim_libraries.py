"""Libraries whose device code is made up but whose pointers, segments and loader are real.

``region_of(number)`` of a library gives the address that its wrapper holds once it is loaded.
"""

import random
import re
import struct
import subprocess
import sys
from collections.abc import Collection, Sequence
from pathlib import Path

from built_libraries import CUBIN, entry, region
from conftest import Need
from stoker.outside import process
from stoker.wheel.elf import elf
from stoker.wheel.elf.elf import Elf
from stoker.wheel.elf.fatbin import device_regions, read_wrappers
from stoker.wheel.reader import open_file
from stoker.wheel.slim.library import LibraryPlan, SlimOptions, plan_library, write_library
from stoker.wheel.slim.regions import Choose

LARGE = 200 << 10  # several pages of the largest size

_SOURCE = """
struct wrapper { int mark, version; const void* region; void* list; };
// nvcc aligns them to 8 bytes; for x86-64 gcc alone would leave gaps between them.
#define WRAPPER __attribute__((section(".nvFatBinSegment"), used, aligned(8))) static struct wrapper
static const char text[] = "text before and after";
static int zeros[50000];
static __thread int of_thread;
int answer(void) { return text[3] == 't' && !zeros[777] && !of_thread++ ? 42 : 0; }
"""
_LIBRARY = ("-shared", "-fPIC")


def code(seed: int, size: int = LARGE) -> bytes:
    """Return bytes that occur nowhere else."""
    return random.Random(seed).randbytes(size)


def cubins(seed: int, *archs: int, size: int = LARGE) -> bytes:
    """Return a region with one entry for each architecture."""
    return region([entry(CUBIN, arch, code(1000 * seed + arch, size)) for arch in archs])


def build_library(
    need: Need,
    folder: Path,
    regions: Sequence[bytes],
    *flags: str,
    wrapped: Collection[int] | None = None,
    more: str = "",
    alignment: int = 8,
    name: str = "libmill.so",
    kind: Sequence[str] = _LIBRARY,
) -> Path:
    """Build a library with gcc. Regions in ``wrapped`` (default: all) get a wrapper."""
    source = [_SOURCE]
    for number, content in enumerate(regions):
        (folder / f"{number}.bin").write_bytes(content)
        lines = [
            '.section .nv_fatbin,\\"a\\"',
            f".balign {alignment}",
            f'region{number}: .incbin \\"{number}.bin\\"',
            ".text",
        ]
        source.append('asm("' + "\\n".join(lines) + '");')
        source.append(f'extern const char region{number}[] __attribute__((visibility("hidden")));')
    wrapped = range(len(regions)) if wrapped is None else sorted(wrapped)
    source += [
        f"WRAPPER wrapper{number} = {{0x466243b1, 1, region{number}, 0}};" for number in wrapped
    ]
    cases = [f"if (number == {number}) return wrapper{number}.region;" for number in wrapped]
    source.append(f"const void* region_of(int number) {{ {' '.join(cases)} return 0; }}")
    path = folder / f"{name}.c"
    path.write_text("\n".join([*source, more]))
    command = [need("gcc"), "-O1", *kind, str(path), "-o", str(folder / name), *flags]
    process.check(command, timeout=120, cwd=folder)
    return folder / name


def said_to_be(machine: int, path: Path) -> bytes:
    """Return a library with another machine in its header; it can be read but not loaded."""
    relative = {62: 8, 183: 1027}  # x86-64 and aarch64
    content = bytearray(path.read_bytes())
    with open_file(path) as reader:
        file = Elf(reader)
        ((_, table),) = file.named(".rela.dyn")
    struct.pack_into("<H", content, 18, machine)
    for offset in range(table.offset, table.offset + table.size, 24):
        (kind,) = struct.unpack_from("<I", content, offset + 8)
        if kind == relative[file.header.machine]:
            struct.pack_into("<I", content, offset + 8, relative[machine])
    return bytes(content)


def only(*archs: str) -> Choose:
    """Return a choice of entries by the names of their architectures."""
    return lambda entries: [index for index, one in enumerate(entries) if one.arch in archs]


def slim(path: Path, made: Path, *archs: str, **options: bool) -> LibraryPlan:
    """Plan a library, and write it if it changes; ``options`` are those of ``SlimOptions``."""
    with open_file(path) as reader:
        plan = plan_library(reader, only(*archs), SlimOptions(**options))
        if plan.changes:
            write_library(plan, reader, made)
            assert made.stat().st_size == plan.summary.after_bytes
    return plan


def listed(path: Path) -> list[list[str]]:
    """Return the architectures in each region."""
    with open_file(path) as reader:
        return [[one.arch for one in found.entries] for _, found in device_regions(Elf(reader))]


_LOADED = """
import ctypes, sys
library = ctypes.CDLL(sys.argv[1])
library.region_of.restype = ctypes.c_void_p
assert library.answer() == 42
for number, size in zip(sys.argv[2::2], sys.argv[3::2]):
    sys.stdout.buffer.write(ctypes.string_at(library.region_of(int(number)), int(size)))
"""


def loaded(path: Path, sizes: dict[int, int]) -> list[bytes]:
    """Load the library; return the first bytes of each region that a wrapper points to."""
    words = [str(word) for pair in sizes.items() for word in pair]
    done = subprocess.run(
        [sys.executable, "-c", _LOADED, str(path.resolve()), *words],
        capture_output=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr.decode()
    found, start = [], 0
    for size in sizes.values():
        found.append(done.stdout[start : start + size])
        start += size
    assert start == len(done.stdout)
    return found


_WRAPPED = """
import ctypes, os, sys
path = os.path.realpath(sys.argv[1])
library = ctypes.CDLL(path)
maps = [line.split() for line in open("/proc/self/maps") if line.rstrip().endswith(path)]
base = min(int(line[0].partition("-")[0], 16) for line in maps) - int(sys.argv[2])
for wrapper in sys.argv[3:]:
    region = ctypes.c_uint64.from_address(base + int(wrapper) + 8).value
    print(ctypes.string_at(region, 80).hex())
"""


def wrapped(path: Path) -> list[bytes]:
    """Return the start of every region in memory, found through its wrapper as CUDA does."""
    with open_file(path) as reader:
        file = Elf(reader)
        wrappers = [str(wrapper.address) for wrapper in read_wrappers(file)]
        first = file.segments_of(elf.LOAD)[0].address // 4096 * 4096
    done = subprocess.run(
        [sys.executable, "-c", _WRAPPED, path, str(first), *wrappers],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    return [bytes.fromhex(line) for line in done.stdout.split()]


def listed_by(cuobjdump: str, path: Path) -> list[str]:
    """Return what cuobjdump lists, cubins first: ``sm_90.cubin``, ``sm_90.ptx``."""
    found = []
    for kind in ("elf", "ptx"):
        printed = process.check([cuobjdump, f"-l{kind}", "-all", path], timeout=120)
        found += re.findall(r"\.(sm_\w+\.(?:cubin|ptx))", printed)
    return found

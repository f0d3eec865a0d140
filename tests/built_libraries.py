"""Libraries for tests, built by real compilers or with hand-packed device code.

This module does not use the readers under test.
"""

import struct
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

from conftest import Need
from stoker.outside import process
from stoker.wheel.reader import Reader

CUBIN, PTX, LTOIR = 2, 1, 8
LZ4, ZSTD, ARCH_SPECIFIC, FAMILY_SPECIFIC = 0x2000, 0x8000, 0x100000, 0x200000
BASE_FLAGS = 0x11  # 64-bit, Linux

CPP = """
#include <stdexcept>
#include <string>
std::string greet(const std::string& name) {
    if (name.empty()) throw std::runtime_error(name);
    return "hello " + name;
}
"""

KERNEL = """
__global__ void scale(float* data, float factor) { data[threadIdx.x] *= factor; }
extern "C" void launch_scale(float* data) { scale<<<1, 32>>>(data, 2.0f); }
"""


class BytesReader(Reader):
    """Reads bytes in memory through the interface of a file."""

    def __init__(self, content: bytes, member: str = "lib/libmill.so"):
        super().__init__(size=len(content), file="mill.whl", member=member)
        self._content = content

    def _read(self, offset: int, length: int) -> bytes:
        assert 0 <= offset <= offset + length <= len(self._content)
        return self._content[offset : offset + length]


def build(
    need: Need, folder: Path, *flags: str, source: str = CPP, name: str = "libmill.so"
) -> Path:
    """Compile with g++, by default to a shared library. Return its path."""
    code, target = folder / f"{name}.cpp", folder / name
    if source == CPP and all(flag.startswith("-Wl,") for flag in flags):
        code = code.with_suffix(".o")
        code.write_bytes(_compiled(need("g++")))
    else:
        code.write_text(source)
    kind = () if {"-c", "-static", "-pie"} & set(flags) else ("-shared",)
    process.check(
        [need("g++"), "-O1", "-fPIC", *kind, code, "-o", target, *flags], timeout=120, cwd=folder
    )
    return target


@cache
def _compiled(compiler: str) -> bytes:
    """Return the object of CPP: many libraries of tests differ only in how they are linked."""
    with TemporaryDirectory() as folder:
        Path(folder, "a.cpp").write_text(CPP)
        process.check([compiler, "-O1", "-fPIC", "-c", "a.cpp"], timeout=120, cwd=Path(folder))
        return Path(folder, "a.o").read_bytes()


def build_cuda(need: Need, folder: Path, *flags: str, name: str = "libscale.so") -> Path:
    """Compile a library with a kernel, using nvcc and the architectures in the flags."""
    code, target = folder / f"{name}.cu", folder / name
    code.write_text(KERNEL)
    command = [need("nvcc"), "-shared", "-Xcompiler", "-fPIC", "-cudart=shared", *flags]
    process.check([*command, code, "-o", target], timeout=280, cwd=folder)
    return target


def with_device_code(need: Need, folder: Path, content: bytes, section: str = ".nv_fatbin") -> Path:
    """Return a library that has ``content`` as the section of that name."""
    (folder / "code.bin").write_bytes(content)
    source = f"""
    asm(".section {section},\\"a\\"\\n .balign 8\\n .incbin \\"code.bin\\"\\n .text\\n");
    int here() {{ return 1; }}
    """
    return build(need, folder, "-Wl,-soname,libmill.so", source=source)


def entry(
    kind: int,
    arch: int,
    payload: bytes,
    *,
    flags: int = 0,
    unpacked: int = 0,
    header: int = 64,
    compressed: int | None = None,
) -> bytes:
    """Return one fatbin entry with its payload padded to eight bytes."""
    if compressed is None:
        compressed = len(payload) if flags & (LZ4 | ZSTD) else 0
    padded = payload.ljust(-(-len(payload) // 8) * 8, b"\0")
    head = struct.pack(
        "<HHIQIIHHIIIQQQ",
        *(kind, 0x0101, header, len(padded), compressed, 0, 0, 1, arch, 0, 0),
        *(BASE_FLAGS | flags, 0, unpacked),
    )
    return head.ljust(header, b"\0") + padded


def region(entries: Iterable[bytes], padding: int = 8) -> bytes:
    """Return a fatbin region, padded with zeros to a multiple of ``padding``."""
    content = b"".join(entries)
    whole = struct.pack("<IHHQ", 0xBA55ED50, 1, 16, len(content)) + content
    return whole.ljust(-(-len(whole) // padding) * padding, b"\0")

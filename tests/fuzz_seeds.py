"""Valid inputs that fuzzing starts from, and the keywords of each reader. They are small, so that
most mutations hit something that is read.
"""

import bz2
import gzip
import io
import json
import lzma
import shutil
import tarfile
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import lz4.block
import zstandard

import wheel_files
from built_libraries import ARCH_SPECIFIC, CUBIN, LZ4, PTX, ZSTD, build, entry, region
from catalogue_wheels import published
from fuzz_targets import Member, described
from stoker.catalogue.document import encoded, with_wheels
from stoker.catalogue.values import PublishedCatalogue
from stoker.govern.command_line import step_of
from stoker.knowledge.failures import failures

_SMALL = ("-Wl,-z,max-page-size=4096", "-nostartfiles", "-s")
_CODE = b"code of a kernel " * 4


def _device_code() -> bytes:
    packed = lz4.block.compress(_CODE, store_size=False)
    zstd = zstandard.ZstdCompressor().compress(_CODE)
    return region(
        [
            entry(CUBIN, 80, _CODE),
            entry(CUBIN, 90, packed, flags=ARCH_SPECIFIC | LZ4, unpacked=len(_CODE)),
            entry(CUBIN, 100, zstd, flags=ZSTD, unpacked=len(_CODE)),
            entry(PTX, 120, b".version 9.0"),
        ],
        256,
    )


def _library(source: str, *flags: str) -> bytes:
    def find(tool: str) -> str:
        return shutil.which(tool) or tool

    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "code.bin").write_bytes(_device_code() * 2)
        return build(find, Path(folder), *flags, source=source).read_bytes()


def _elf() -> Iterator[bytes]:
    text = "#include <string>\nstd::string f(const std::string& x) { return x + x; }\n"
    text += "static int g(int x) { return x * 3; }\nint (*h)(int) = g;\n"
    named = ("-Wl,-rpath,$ORIGIN/../lib", "-Wl,-soname,libmill.so.1")
    yield _library(text, "-Wl,-z,max-page-size=4096", *named)
    yield _library(text, *_SMALL, *named)
    yield _library("int main() { return 0; }", "-c")
    yield _library(text, *_SMALL, "-Wl,-z,pack-relative-relocs")
    yield _wrapped()


def _wrapped() -> bytes:
    """Return a library with device code in a wrapper, as nvcc writes it."""
    section = '.section .nv_fatbin,\\"a\\"\\n .balign 8\\nC: .incbin \\"code.bin\\"\\n .text\\n'
    wrapper = (
        '.section .nvFatBinSegment,\\"aw\\"\\n .balign 8\\n .int 0x466243b1, 1\\n .quad C, 0\\n'
    )
    return _library(f'asm("{section}{wrapper} .text\\n"); int f() {{ return 1; }}\n', *_SMALL)


def _fatbin() -> Iterator[bytes]:
    yield _device_code()
    yield _device_code() * 3
    yield b"cask index" + _device_code() + b"more" + _device_code()
    yield _wrapped()


def _wheel() -> Iterator[bytes]:
    contents = wheel_files.members(**{"mill/libx.so": _wrapped()})
    contents["mill/lib/libmill.so"] = b"text"
    contents["mill/__init__.py"] = b"x = 1\n"
    yield wheel_files.wheel_bytes(contents)
    contents = {name: text for name, text in contents.items() if name != "mill/libx.so"}
    yield wheel_files.wheel_bytes(contents)
    yield wheel_files.zipped(contents, describe=True, zip64=True)
    metadata = b"Requires-Dist: nvidia-cudnn-cu12>=9; extra == 'x'\nRequires-Python: >=3.11\n"
    contents[f"{wheel_files.DIST_INFO}/METADATA"] = metadata + wheel_files.METADATA
    record = Member(f"{wheel_files.DIST_INFO}/RECORD".encode(), b"")
    yield described(*(Member(name.encode(), text) for name, text in contents.items()), record)
    contents["mill/libx.so"] = _wrapped()
    yield described(*(Member(name.encode(), text) for name, text in contents.items()), record)


def _archive() -> Iterator[bytes]:
    members = (
        Member(b"pkg-1/", b"", 0o040755, tarfile.DIRTYPE),
        Member(b"pkg-1/CMakeLists.txt", b"project(pkg)\n"),
        Member(b"pkg-1/run", b"#!/bin/sh\n", 0o100755),
        Member(b"pkg-1/link", b"src/../run", 0o120777, tarfile.SYMTYPE),
        Member(b"pkg-1/src/a.cpp", b"int main() {}\n"),
        Member(b"pkg-1/deep", b"link", 0o120777, tarfile.SYMTYPE),
        Member(b"pkg-1/" + b"long/" * 30 + b"name", b"x"),
    )
    hard = Member(b"pkg-1/hard", b"pkg-1/run", 0o100644, tarfile.LNKTYPE)
    yield b"zip:" + described(*members)
    yield b"tar:" + described(*members, hard)
    yield wheel_files.zipped({m.name.decode(): m.content for m in members[1:]})
    plain = io.BytesIO()
    with tarfile.open(fileobj=plain, mode="w", format=tarfile.PAX_FORMAT) as opened:
        for member in members[1:3]:
            info = tarfile.TarInfo(member.name.decode() + "\u00e9")
            info.size, info.mtime = len(member.content), 1e9 + 0.5
            opened.addfile(info, io.BytesIO(member.content))
    yield plain.getvalue()
    for pack in (gzip.compress, lzma.compress, bz2.compress):
        yield pack(plain.getvalue())


def _log() -> Iterator[bytes]:
    """Return the examples of the known causes, and the prefixes that CI systems add."""
    for cause in list(failures().values())[::3]:
        for example in cause.example[:1]:
            yield example.log.encode()
    yield (
        b"\xef\xbb\xbf2024-05-01T10:00:00.123Z [12/90] Building CXX object a.o\r\n"
        b"\x1b[31mFAILED: \x1b[0ma.o\n/usr/bin/c++ -c a.cpp\n"
        b"a.cpp:3:5: error: \xe2\x80\x98x\xe2\x80\x99\n"
        b"    3 | x\n      | ^\nninja: build stopped: subcommand failed.\n"
        b"CMake Error at CMakeLists.txt:7 (message):\n  Could not find\n  anything\n\n\n"
    )


_CMAKE = b"""cmake_minimum_required(VERSION 3.18)
project(mill VERSION 1.2 LANGUAGES CXX CUDA) # comment
#[[ bracket
comment ]]
option(USE_CUDA "Use CUDA" ON)
cmake_dependent_option(USE_NCCL "Use NCCL" ON "USE_CUDA;NOT WIN32" OFF)
set(MILL_LEVEL 3 CACHE STRING "How \\"fine\\"")
if(USE_CUDA AND (NOT APPLE OR ${X_$ENV{Y}}))
  set(list a;b "c d" [=[raw ]] text]=] $<TARGET:x> -DNAME="two words" @AT@)
elseif(DEFINED FOO)
  find_package(CUDAToolkit REQUIRED)
else()
  list(APPEND FLAGS ${MORE})
endif()
"""


def _cmake() -> Iterator[bytes]:
    yield _CMAKE
    yield b"if(A)\n" * 20 + b'option(X "help" OFF)\n' + b"endif()\n" * 20


def _tree() -> Iterator[bytes]:
    pyproject = b"""[build-system]
requires = ["setuptools>=64", "torch==2.9.*; python_version > '3.8'"]
build-backend = "setuptools.build_meta"
[project]
name = "mill"
version = "1.2"
"""
    setup = b"""import torch
from torch.utils.cpp_extension import CUDAExtension
__version__ = "1.2"
setup(name="mill", version=__version__, ext_modules=[CUDAExtension("m", ["a.cu"])])
"""
    ninja = b"""cflags = -O2
rule cc
  command = cc -o $out
build a.o: cc ../a.c | x.h || gen$ erated
build lib$:x.so: cc a.o ${cflags}
default lib$:x.so
"""
    requirements = b"# needed\nnumpy>=1.2,<3 \\\n  --hash=sha256:00\n-r version.txt\ntorch\n"
    log = b"# ninja log v5\n0\t1500\t16999\ta.o\tdeadbeef\n10\t20\t3\tlib.so\tfeed\n"
    modules = b'[submodule "x"]\n\tpath = third_party/x\n\turl = https://host.invalid/x\n'
    info = b"Metadata-Version: 2.1\nName: mill\nVersion: 1.2.3\n\nText\n"
    first = (("pyproject.toml", pyproject), ("setup.py", setup), ("version.txt", b"1.2.0a0\n"))
    headers = (
        b"# ninjadeps\n\x04\0\0\0\x08\0\0\0a.o\0\xff\xff\xff\xff\x08\0\0\0x.h\0\xfe\xff\xff\xff"
        b"\x10\0\0\x80\0\0\0\0\x01\0\0\0\0\0\0\0\x01\0\0\0"
    )
    rest = (
        ("build.ninja", ninja),
        (".ninja_log", log),
        (".ninja_deps", headers),
        (".gitmodules", modules),
    )
    more = (("requirements-build.txt", requirements), ("PKG-INFO", info), *first[:1])
    for files in (first, rest, more):
        yield described(*(Member(name.encode(), content) for name, content in files))


_TOML = b"""# stoker.toml
[defaults]
variant = "cu130-sm90"
blas = 'mkl'
features = ["distributed", "nccl"]
define = { USE_MPI = true, MAX = 12, NAME = "x" }
description = \"\"\"
several
[lines] = x
\"\"\"
[variants.fleet]
variant = "8.0;9.0+PTX"
python = "3.12"
[variants."h 100"]
build_type = "Debug"
define.USE_MKLDNN = false
"""

_WIRE = (
    b"ask\t2\t7\t4242\t/build\t1\tc++\t-O2\t-c\t../a.cpp\t-o\ta.o\\t\\\\\n"
    b"started\t4243\nmemory\t1000\t2000\t0\ndone\t0\t0\t1500000\t1400000\t99999\t12345\ttail\\n\n"
    b"killed\t1\t2\t3\t4\nclient\t7\tninja -j8\t/build\nfinish\t1\nask\t99\t1\t2\n"
)

_COMMANDS = (
    b"ccache /usr/bin/c++ -I/src/include -isystem /x -O2 -MD -MT a.o -MF a.o.d -o a.o -c a.cpp",
    b"nvcc -gencode arch=compute_90,code=[sm_90a,sm_80] --options-file a.rsp -c k.cu\n'a b' \"open",
    b"c++ -shared -o lib.so @objects.rsp -Wl,-soname,x a.o b.o\na.o b.o 'c d.o' x.a",
    b"ar qc libx.a a.o b.o",
    b"gfortran -c x.f90 -ox.o -MFdir/x.d -Wp,-MMD,x.d",
)

_HTML = b"""<!DOCTYPE html><html><head><base href="../files/"></head><body>
<a href="mill-1.2.tar.gz#sha256=00ff">mill</a><a href='https://[::1]:8/mill-1.3.zip'>x</a>
<a href="mill-1.2-py3-none-any.whl" data-yanked>w</a></body></html>"""


def _trace() -> Iterator[bytes]:
    step = {
        "output": "a/x.o",
        "wall_s": 12.5,
        "cpu_s": 12,
        "peak_bytes": 500_000_000,
        "byte_seconds": 5.1e9,
        "profile": [10, 100, 40],
        "flags": ["-O2"],
        "archs": ["90"],
        "threads": 2,
        "input_bytes": 100,
    }
    other = {"source": "b.cu", "start_s": 1, "end_s": 3.5, "peak_mb": 12, "needs": ["a/x.o"]}
    yield json.dumps({"what": "mill", "note": "n", "steps": [step, other]}).encode()
    yield json.dumps({"steps": [{**other, "peak_gb": 1.5, "killed": True}]}).encode()


def _past() -> Iterator[bytes]:
    """Rows of a history: known by their command, or by their source only, with and without a
    profile.
    """
    row = {
        "key": step_of(("g++", "-c", "a.cpp", "-o", "a.o"), "/", "/").key,
        "role": "compile C++",
        "source": "a.cpp",
        "output": "a.o",
        "directory": "",
        "compiler": "g++",
        "flags": "[]",
        "archs": "[]",
        "threads": 1,
        "input_bytes": 100,
        "collector": "free",
        "started": 0.5,
        "wall_s": 12.5,
        "cpu_s": 12.0,
        "peak_bytes": 500_000_000,
        "byte_seconds": 5.1e9,
        "profile": "\u000a\u0064\u0028",
        "mode": "default",
        "outcome": "done",
        "status": 0,
        "explanation": "null",
    }
    idle = {**row, "profile": "", "wall_s": 100.0, "byte_seconds": 1e6, "peak_bytes": 1 << 33}
    kernel = {**row, "role": "compile CUDA", "source": "b.cu", "archs": '["90", "100"]'}
    lean = {**row, "mode": "lean", "peak_bytes": 300_000_000, "key": "x"}
    threads = {**kernel, "mode": "threads", "threads": 2}
    for rows in ((row, row, lean), (idle, {**row, "key": "y"}), (kernel, threads)):
        yield "\n".join(json.dumps(each) for each in rows).encode()


def _phases() -> Iterator[bytes]:
    """As clang and nvcc write them."""
    args = {"detail": "a.h"}
    event = {"ph": "X", "pid": 1, "tid": 2, "ts": 5, "dur": 9000, "name": "Source", "args": args}
    name = {"ph": "M", "pid": 1, "name": "process_name", "args": {"name": "clang"}}
    yield json.dumps({"traceEvents": [event, name, {}], "beginningOfTime": 17}).encode()
    yield b"source file name , phase name , x , y , arch , tool, metric , unit\n" * 2 + (
        b"a.cu , cicc , a.ii , a.ptx , compute_90 , nvcc , 2502.4561 , ms\n" * 2
    )


def _page() -> Iterator[bytes]:
    yield _HTML
    file = {"url": "mill-1.2.tar.gz", "hashes": {"sha256": "00"}, "size": 12}
    yield json.dumps({"files": [file], "meta": {"api-version": "1.1"}}).encode()


def _catalogue() -> Iterator[bytes]:
    wheels = [published("cu128-sm90"), published("cpu-avx2"), published("cu128-sm80+ptx")]
    extension = published("cu128-sm90", project="flash-attn", torch="2.9", requires=("torch>=2",))
    yield encoded(with_wheels(PublishedCatalogue(), [*wheels, extension]))
    yield encoded(with_wheels(PublishedCatalogue(), wheels[:1]))


_SAID = (
    *(b"cu130-sm90-avx512", b"h100 with AVX-512", b"8.0;8.6;9.0+PTX", b"rocm6.4-gfx942+gfx90a"),
    *(b"cpu-native", b"python312packages.torch-cuda", b"8G", b"1.5GiB", b"30d", b"12 h", b"py3.12"),
    *(b"mill==1.2", b"https://user@host.invalid/x.git@v1", b"git@host.invalid:a/b.git", b"~x/y"),
    *(b"mkl-debug-asan-nodistributed", b"sm80+sm90a+ptx-linux_x86_64", b"cuda-12.8"),
)

SEEDS: dict[str, Callable[[], Iterator[bytes]]] = {
    "elf": _elf,
    "fatbin": _fatbin,
    "wheel": _wheel,
    "archive": _archive,
    "log": _log,
    "cmake": _cmake,
    "tree": _tree,
    "toml": lambda: iter((_TOML, _TOML.split(b"description")[0])),
    "words": lambda: iter(_SAID),
    "wire": lambda: iter((_WIRE, *_WIRE.splitlines())),
    "trace": _trace,
    "past": _past,
    "phases": _phases,
    "command": lambda: iter(_COMMANDS),
    "page": _page,
    "catalogue": _catalogue,
}

_NAMES = (b"..", b"a/../../b", b"\x1e\n", b"\x1f", b"\x1f0\x1f33188\x1f", b"\x1f2\x1f41471\x1f")
WORDS: dict[str, tuple[bytes, ...]] = {
    "elf": (b"\x7fELF\x02\x01\x01", b"GLIBC_2.99999999999", b"$ORIGIN"),
    "fatbin": (b"\x50\xed\x55\xba\x01\0\x10\0", b"\x28\xb5\x2f\xfd", b"\x7fELF"),
    "wheel": (
        *_NAMES,
        b"PK\x01\x02",
        b"PK\x03\x04",
        b"PK\x05\x06",
        b"\nTag: a-b-c-d",
        b"Version: ",
    ),
    "archive": (*_NAMES, b"ustar", b"PK\x03\x04", b"pkg-1/link", b"\x1f1\x1f33188\x1f"),
    "log": (b"error: ", b"FAILED: ", b"\nCMake Error at x:1 (f):\n  ", b"\xff\xfe", b"fatal "),
    "cmake": (b"if(", b")\n", b"[==[", b"]==]", b"#[[", b'option(A "b" ON)', b"${", b"$ENV{"),
    "tree": (*_NAMES, b"==", b"[project]\n", b"version = '", b"setup(", b"import torch\n", b"$"),
    "toml": (b"[variants.x]\n", b'"""', b"'''", b" = ", b"{", b"define.", b"\n[[", b"1979-05-27"),
    "words": (b"+ptx", b"sm", b"cu", b"==", b"@", b"://", b"[", b"rocm", b"gfx", b"py", b"."),
    "wire": (b"\t", b"\\t", b"\\", b"\nask\t2\t", b"\ndone\t", b"-3", b"c++"),
    "trace": (b"-1", b"1e308", b"NaN", b"null", b"[]", b"9" * 20, b'"threads": -3,', b'"role": "'),
    "past": (b"-1", b"1e308", b"1e-300", b"null", b"[]", b"9" * 20, b"0", b'"lean"', b'"low"'),
    "phases": (b"-1", b"1e308", b"NaN", b"null", b"[]", b"{}", b"9" * 20, b" , ", b'"', b"Total "),
    "command": (
        b"-o",
        b" @x ",
        b" --options-file ",
        b"-MF",
        b"-gencode ",
        b".cu ",
        b"../",
        b"sm_9",
    ),
    "catalogue": (b"sm_", b"compute_", b"lto_90", b"9" * 30, b"-1", b"null", b"..", b"+", b"torch"),
    "page": (b"<a href=", b"http://[x", b"<base href=", b"&#", b"mill-", b".tar.gz", b'"url": "'),
}

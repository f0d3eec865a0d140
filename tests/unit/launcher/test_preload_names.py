"""How the preloaded library classifies programs and command lines."""

import ctypes
import shlex
import subprocess

import pytest

from stoker.knowledge.tools import names
from unit.launcher.conftest import ROOT, names_option


@pytest.fixture(scope="module")
def compilers(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    """What recognizes programs, for its functions to be called."""
    library = tmp_path_factory.mktemp("compilers") / "compilers.so"
    parts = ("compilers", "probes", "caching", "custom", "build_tools")
    sources = [str(ROOT / "launcher" / f"{name}.c") for name in parts]
    warnings = [
        "-Wall",
        "-Wextra",
        "-Wpedantic",
        "-Wconversion",
        "-Werror",
        names_option(library.parent),
    ]
    command = ["cc", "-std=c11", "-shared", "-fPIC", *warnings, *sources, "-o", str(library)]
    subprocess.run(command, check=True)
    loaded = ctypes.CDLL(str(library))
    for name in ("is_compiler", "is_probe", "is_custom_command", "remove_preload_library"):
        getattr(loaded, name).restype = ctypes.c_bool
    for name in ("is_remote_compile", "is_compiler_wrapper", "is_distributor"):
        getattr(loaded, name).restype = ctypes.c_bool
    return loaded


def words(command: str | list[str]) -> ctypes.Array[ctypes.c_char_p]:
    parts = shlex.split(command) if isinstance(command, str) else command
    return (ctypes.c_char_p * (len(parts) + 1))(*(part.encode() for part in parts), None)


NAMES = """
cc c++ gcc g++ clang clang++ nvcc hipcc icx icpx gfortran flang flang-new rustc
ld ld.bfd ld.gold ld.lld lld mold wasm-ld ld.lld-15 aarch64-linux-gnu-ld.gold
gcc-12 g++-13 clang++-15 clang-15.0.7 aarch64-linux-gnu-gcc-12 c89-gcc x86_64-w64-mingw32-g++
armv7a-linux-androideabi21-clang++ g++-real gcc-13.orig nvcc.real cc1 cc1plus cicc ptxas
"""
OTHERS = """
gcc-ar gcc-ranlib-12 clang-format clang-tidy-14 ccache distcc yacc bcc sh ld-linux.so.2 ldd ldconfig
-real g++-real2 make-real
cc1. -12 12 . c+ gccgo cpp as ar nvcc_wrapper g++x rustdoc make ninja python3.11 cmake zig
"""


@pytest.mark.parametrize("name", NAMES.split())
def test_compilers_by_name(compilers: ctypes.CDLL, name: str) -> None:
    assert compilers.is_compiler(name.encode(), None)


@pytest.mark.parametrize("name", ["", *OTHERS.split()])
def test_other_programs(compilers: ctypes.CDLL, name: str) -> None:
    assert not compilers.is_compiler(name.encode(), None)
    assert not compilers.is_compiler(name.encode(), b"")
    assert not compilers.is_compiler(name.encode(), b":xx:zi:zigg:")


def test_the_library_knows_the_names_of_the_governor(compilers: ctypes.CDLL) -> None:
    for group in ("compilers", "linkers", "back_ends"):
        assert all(compilers.is_compiler(name.encode(), None) for name in names(group))
    assert all(compilers.is_compiler_wrapper(name.encode()) for name in names("wrappers"))
    assert all(compilers.is_distributor(name.encode()) for name in names("distributors"))


def test_names_of_the_users(compilers: ctypes.CDLL) -> None:
    for name in (b"zig", b"swiftc", b"x"):
        assert compilers.is_compiler(name, b"zig:x::swiftc")
    assert not compilers.is_compiler(b"zig:x", b"zig:x")


PROBES = """
gcc
gcc --version
gcc -c a.c --version
gcc -v
gcc -dumpmachine
gcc -dumpversion -m64
gcc -print-search-dirs
gcc --print-file-name=libc.so
gcc -### -c a.c
gcc -E -v -
gcc -xc++ -E -v /dev/null
gcc -x c -E -dM - -o -
gcc -E a.c
gcc -M a.c
gcc -Wl,--version
gcc -Werror -Wfoo -c -x c /dev/null -o x.o
gcc -c a.c -o /dev/null
gcc -o conftest -g -O2 conftest.c -lm
g++ -c -g -O2 conftest.cpp
gcc _configtest.c -o _configtest
gcc CMakeCCompilerId.c
g++ -std=c++11 CMakeCXXCompilerId.cpp
nvcc -ccbin g++ CMakeCUDACompilerId.cu
nvcc -v __cmake_determine_cuda
cc -o CMakeFiles/cmTC_71a38.dir/ABI.c.o -c /usr/share/cmake/Modules/CMakeCCompilerABI.c
cc -v -Wl,-v -rdynamic CMakeFiles/cmTC_71a38.dir/testCCompiler.c.o -o cmTC_71a38
c++ -c /b/CMakeFiles/CMakeScratch/TryCompile-abc/src.cxx -o x.o
c++ -c /b/CMakeFiles/CMakeTmp/src.cxx -o x.o
cc /b/meson-private/tmp1/testfile.c -o /b/meson-private/tmp1/output.exe
cc -o sanity_check_for_c.exe sanity_check_for_c.c
cc -c ../.sconf_temp/conftest_1.c -o x.o
nvcc -V
nvcc --list-gpu-arch
nvcc --dryrun -c a.cu
nvcc -gencode arch=compute_90,code=sm_90 --version
nvcc .c -Xcompiler --version
nvcc .c -Xcompiler=-dumpfullversion,-dumpversion
clang -target x86_64-linux-gnu -print-target-triple
rustc -vV
rustc - --crate-name ___ --print=file-names --crate-type bin
rustc --print sysroot
ld
ld -v
ld --version
ld --help
ld -m elf_x86_64 --verbose
gcc -o
gcc -I
"""
STEPS = """
gcc -c a.c
gcc -c a.c -o a.o
gcc -v -c a.c
gcc -E a.c -o a.i
gcc a.o b.o -o program
gcc -x c -c - -o a.o
gcc @objects.rsp -o program
gcc -MD -MF a.d -MT a.o -c a.c -o a.o
g++ -I /b/CMakeFiles/CMakeTmp -c a.cc -o a.o
g++ -Wl,--print-map a.o -o program
g++ -c /home/me/conftests/a.cc -o a.o
nvcc -t 4 -c a.cu -o a.o
nvcc --options-file a.rsp
nvcc -Xcompiler -fPIC,-Wall -Xcompiler=-O2 -c a.cu -o a.o
nvcc -dlink a.o -o b.o
rustc --crate-name x src/main.rs --emit=link --out-dir target
rustc --print native-static-libs src/lib.rs
rustc --print=link-args src/lib.rs
ld -r a.o -o b.o
ld --print-map a.o -o program
cc1plus -quiet a.cc -o /tmp/a.s
"""


def lines(text: str) -> list[str]:
    return text.strip().splitlines()


@pytest.mark.parametrize("command", lines(PROBES))
def test_probes(compilers: ctypes.CDLL, command: str) -> None:
    assert compilers.is_probe(command.split()[0].encode(), words(command), False)


@pytest.mark.parametrize("command", lines(STEPS))
def test_steps(compilers: ctypes.CDLL, command: str) -> None:
    assert not compilers.is_probe(command.split()[0].encode(), words(command), False)


def test_the_preprocessor_of_a_cache(compilers: ctypes.CDLL) -> None:
    assert compilers.is_probe(b"gcc", words("gcc -E -o /cache/tmp/x.i a.c"), True)
    assert not compilers.is_probe(b"gcc", words("gcc -c -o a.o a.c"), True)


CUSTOM = """
python3 generate.py --out x.h
protoc --cpp_out=. a.proto
sh -c "cd /b && python3 generate.py > x.h"
bash -ec "python3 generate.py; mkdir -p x"
sh -c "cmake -E env PYTHONPATH=/x python3 generate.py"
sh -c "A=1 B='x y' ./generate && cp x y"
sh -c "if test -f x; then ./generate x; fi"
sh generate.sh
ar rcs libx.a a.o
sh -c "cd /home/me/make-believe/build && ./generate"
sh -c "python3 build.py --compiler=/usr/bin/g++"
sh -c "timeout 10 gcc -c a.c"
setpriv --reuid=1000 gcc -c a.c
sh -c "exec 9>lock; flock 9; gcc -c a.c"
sh -c "gcc -c a.c && ./a.out > log 2>&1"
sh -c "gcc -c a.c 2>&1 | tee log"
sh -c "cmake --build ."
sh -c "cmake -P script.cmake"
sh -c "cmake -S . -B x"
sh -c "python3 setup.py build_ext"
cargo build
"""
NOT_CUSTOM = """
true
sh -c :
sh -c "cmake -E touch x"
sh -c "cd /b && /usr/bin/cmake -E copy a b && cmake -E echo done"
mkdir -p x
sh -c "rm -f x && ln -s a b && touch c"
gcc -c a.c
sh -c "cd x && /usr/bin/x86_64-linux-gnu-g++-12 -c a.cc"
sh -c "/usr/bin/ccache /usr/bin/cc -c a.c"
sh -c "gcc -c a.c -o a.o > log 2>&1 && ccache g++ -c b.cc"
sh -c "gcc '-DLIST=f(1;2)' -c a.c"
make -C sub
sh -c "cd sub && ninja"
sh -c ""
"""


@pytest.mark.parametrize("command", lines(CUSTOM))
def test_custom_commands(compilers: ctypes.CDLL, command: str) -> None:
    assert compilers.is_custom_command(words(command), None)


@pytest.mark.parametrize("command", lines(NOT_CUSTOM))
def test_commands_that_need_no_permit_of_their_own(compilers: ctypes.CDLL, command: str) -> None:
    assert not compilers.is_custom_command(words(command), None)


def test_a_compiler_of_the_users_in_a_custom_command(compilers: ctypes.CDLL) -> None:
    assert compilers.is_custom_command(words("sh -c 'zig build-exe a.zig'"), b"swiftc")
    assert not compilers.is_custom_command(words("sh -c 'zig build-exe a.zig'"), b"zig")


@pytest.mark.parametrize(
    ("value", "left"),
    [
        ("/x/libstoker-preload.so", ""),
        ("libstoker-preload.so", ""),
        ("/x/libstoker-preload.so:/a.so", "/a.so"),
        ("/a.so:/x/libstoker-preload.so:/b.so", "/a.so:/b.so"),
        ("/a.so /x/libstoker-preload.so  /b.so ", "/a.so:/b.so"),
        ("::/x/libstoker-preload.so:/y/libstoker-preload.so:", ""),
        ("/a.so", "/a.so"),
        ("/x/libstoker-preload.so.1:/mylibstoker-preload.so", None),
        ("", ""),
    ],
)
def test_our_library_in_a_list(compilers: ctypes.CDLL, value: str, left: str | None) -> None:
    buffer = ctypes.create_string_buffer(value.encode())
    left = value if left is None else left
    assert compilers.remove_preload_library(buffer) == bool(left)
    assert buffer.value.decode() == left


def test_it_calls_nothing(compilers: ctypes.CDLL) -> None:
    """Not even the C library: it runs between vfork and exec."""
    shown = subprocess.run(
        ["nm", "--dynamic", "--undefined-only", compilers._name], capture_output=True, check=True
    ).stdout.decode()
    calls = {line.split()[-1].split("@")[0] for line in shown.splitlines()}
    weak = {"_ITM_deregisterTMCloneTable", "_ITM_registerTMCloneTable"}
    assert calls - weak <= {"__cxa_finalize", "__gmon_start__", "strlen"}


@pytest.mark.parametrize(
    ("command", "remote"),
    [
        ("distcc g++ -c a.cpp -o a.o", True),
        ("distcc /usr/bin/gcc-12 -c a.c", True),
        ("distcc g++ -E a.cpp", False),
        ("distcc g++ a.o -o a", False),
        ("distcc nvcc -MD -c a.cu -o a.o", False),
        ("distcc clang++ -x cuda -c a.cpp", False),
        ("ccache g++ -c a.cpp", False),
        ("distcc --scan-includes", False),
        ("distcc", False),
    ],
)
def test_what_distributors_send(compilers: ctypes.CDLL, command: str, remote: bool) -> None:
    assert compilers.is_remote_compile(command.split()[0].encode(), words(command)) is remote


@pytest.mark.parametrize(
    ("given", "made"),
    [
        ("ninja", "ninja -j64"),
        ("/usr/bin/ninja -C build -j1 all", "/usr/bin/ninja -j64 -C build all"),
        ("ninja -j 4 -k 0", "ninja -j64 -k 0"),
        ("ninja -C j -t targets", "ninja -j64 -C j -t targets"),
        ("samu -j8", "samu -j64"),
        ("make", "make"),
        ("make all", "make all"),
        ("make -j", "make -j64"),
        ("make -j all", "make -j64 all"),
        ("gmake --jobs=3 -C x", "gmake -j64 -C x"),
        ("make --jobs 3 x", "make -j64 x"),
        ("make -j2 -- -j3", "make -j64 -- -j3"),
        ("make -just-print -jx", "make -just-print -jx"),
    ],
)
def test_the_window_of_jobs(compilers: ctypes.CDLL, given: str, made: str) -> None:
    arguments = words(given)
    written = (ctypes.c_char_p * (len(arguments) + 1))()
    compilers.write_jobs(written, arguments, b"-j64")
    assert [word.decode() for word in iter(iter(written).__next__, None)] == made.split()

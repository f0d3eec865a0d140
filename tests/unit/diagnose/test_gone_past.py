"""What a build said before it continued is not the cause of an error in a later source."""

from io import BytesIO

import pytest

from stoker.diagnose.sieve import read_log
from stoker.diagnose.values import Status
from stoker.diagnose.verdict import diagnose

BY_MAKE = """gcc -O2 -c -o mill.o mill.c
mill.c:12:5: error: too many initializers for 'grind'
make[1]: *** [Makefile:3: mill.o] Error 1
make: *** [Makefile:9: all] Error 2
"""
BY_NINJA = """-- Configuring done (1.2s)
-- Build files have been written to: /src/build
[1/20] Building CXX object wheel.o
[2/20] Building CXX object mill.o
FAILED: mill.o
/usr/bin/c++ -c mill.cc -o mill.o
mill.cc:12:5: error: too many initializers for 'grind'
ninja: build stopped: subcommand failed.
"""
BY_MSBUILD = """  Building Custom Rule C:/src/CMakeLists.txt
  mill.cpp
C:\\src\\mill.cpp(12,5): error C2078: too many initializers [C:\\src\\build\\mill.vcxproj]
"""
BY_NVCC = """[ 50%] Building CUDA object CMakeFiles/mill.dir/mill.cu.o
/src/mill.cu(12): error: too many initializer values
1 error detected in the compilation of "/src/mill.cu".
"""
TOLERATED = [
    "configure: WARNING: nasm not found, assembly is disabled",
    "./configure: line 200: pkg-config: command not found",
    "error: could not lock config file /root/.gitconfig: Permission denied",
    "-- No package 'libsystemd' found",
    "--   Package 'wheel', required by 'virtual:world', not found",
    "CMake Warning at CMakeLists.txt:3 (message):\n  NCCL not found.  Compiling without it\n",
    "error: pathspec 'v1.0' did not match any file(s) known to git",
    "fatal: No names found, cannot describe anything.",
    "/bin/sh: 1: lsb_release: not found",
    "bash: line 3: nvcc: command not found",
    "which: no nvcc in (/usr/local/bin:/usr/bin)",
    "cp: cannot stat 'README': No such file or directory",
    (
        "WARNING: Retrying (Retry(total=4, connect=None)) after connection broken by "
        "'ReadTimeoutError(\"HTTPSConnectionPool: Read timed out.\")': /simple/wheel/"
    ),
    "E: Unable to locate package libwheel-dev",
    "UserWarning: CUDA initialization: The NVIDIA driver on your system is too old",
    "UserWarning: Failed to initialize NumPy: _ARRAY_API not found",
    "ImportError: libcuda.so.1: cannot open shared object file: No such file or directory",
    "cc1plus: warning: unrecognized command line option '-Wno-wheel'",
]


@pytest.mark.parametrize(
    "after", [BY_MAKE, BY_NINJA, BY_MSBUILD, BY_NVCC], ids=["make", "ninja", "msbuild", "nvcc"]
)
@pytest.mark.parametrize("line", TOLERATED)
def test_a_build_that_continued_was_not_stopped(line: str, after: str) -> None:
    assert diagnose(read_log(BytesIO(f"{line}\n{after}".encode()))).status is Status.UNKNOWN


def test_a_header_that_a_configure_missed_may_be_the_cause() -> None:
    log = """configure: error: zlib.h not found
gcc -O2 -c -o mill.o mill.c
mill.c:1:10: fatal error: zlib.h: No such file or directory
make: *** [Makefile:3: mill.o] Error 1
"""
    found = diagnose(read_log(BytesIO(log.encode())))
    assert found.findings[0].cause == "system-headers-missing"


def test_a_build_that_gave_up_was_stopped() -> None:
    log = "/bin/sh: 1: flex: not found\nmake: *** [Makefile:3: lexer.c] Error 127\n"
    found = diagnose(read_log(BytesIO(log.encode())))
    assert found.findings[0].cause == "build-tool-missing"

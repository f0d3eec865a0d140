"""Causes and fixes of one field of tools, which say nothing of failures outside of it."""

from pathlib import Path

import pytest

from diagnosed import BOOKWORM, answer, machine, only

OUTSIDE = {
    "torch-version-abi-mismatch": (
        (
            "error: [('a.egg-info', 'a.dist-info', '[WinError 127] The specified procedure could "
            "not be found')]\n"
        ),
        "ImportError: /env/mill.so: undefined symbol: _ZN4mill12attach_stoneEv\n",
    ),
    "oom-nvcc": (
        (
            "  process didn't exit successfully: `/opt/bin/rustc --crate-name mill` (signal: 9, "
            "SIGKILL: kill)\n"
        ),
        'ERROR: process "/bin/sh -c make" did not complete successfully: exit code: 137\n',
        "Compiling flash_storage.c\nKilled\n",
    ),
    "oom-host-compiler": (
        "LLVM ERROR: out of memory\nnvcc error   : 'cicc' died with status 0xC0000409\n",
    ),
    "cpu-arch-unsupported": (
        "mill.h:17: Error: bad instruction `mill_set(STONE,2)'\n",
        "mill.h:3: Error: unrecognized opcode `typedef unsigned int stone'\n",
    ),
    "esp-idf-interface": (
        "drivers/mill.c:3:10: fatal error: soc/stone/wheel.h: No such file or directory\n",
        (
            "Set Target to: linux, new sdkconfig will be created.\n"
            "CMake Error at /opt/esp-idf/tools/cmake/build.cmake:323 (message):\n"
            "  Failed to resolve component 'driver' required by component 'main'\n"
        ),
    ),
    "ros-package-missing": (
        "/opt/ros/jazzy/include/mill/a.hpp:4:10: fatal error: wheel/b.hpp: No such file\n",
    ),
    "stated-by-tool": (
        "Error: Shape mismatch in argument 'stone' at (1): it must be of rank two\n",
    ),
}


@pytest.mark.parametrize(
    ("cause", "log"), [(cause, log) for cause, logs in OUTSIDE.items() for log in logs]
)
def test_a_cause_is_not_named_outside_of_its_field(cause: str, log: str, tmp_path: Path) -> None:
    found = answer(log, machine(tmp_path, BOOKWORM)).findings
    assert cause not in [one.cause for one in found]


@pytest.mark.parametrize(
    ("first", "other", "helps"),
    [
        ("b.o:(.bss+0x0)", "a.o:(.bss+0x0)", True),
        ("b.o:/src/mill.h:3", "a.o:/src/mill.h:3", True),
    ],
)
def test_common_variables_are_offered_for_objects_of_c(
    first: str, other: str, helps: bool, tmp_path: Path
) -> None:
    log = f"/usr/bin/ld: {first}: multiple definition of `stone'; {other}: first defined here\n"
    found = only(log + "collect2: error: ld returned 1 exit status\n", machine(tmp_path, BOOKWORM))
    assert found.cause == "duplicate-symbols"
    assert ("-fcommon" in str(found.advice)) == helps


@pytest.mark.parametrize(
    ("log", "said", "unsaid"),
    [
        ("gfortran: fatal error: cannot execute 'f951': execvp: No such file\n", "fortran", "g++"),
        (
            "x86_64-conda-linux-gnu-c++: fatal error: cannot execute 'cc1plus': execvp: No such\n",
            "conda",
            "apt-get",
        ),
        (
            "Error: CliError { cargo cinstall\nfeature `edition2024` is required\n",
            "cargo-c",
            "rustup",
        ),
        (
            (
                "PLEASE submit a bug report to https://github.com/llvm/llvm-project/issues/ and "
                "include the crash backtrace.\n"
            ),
            "another release",
            "--cpus 1",
        ),
        (
            (
                "a.obj : fatal error LNK1112: module machine type 'x64' conflicts with target "
                "machine type 'ARM64'\n"
            ),
            "ARM64",
            "docker",
        ),
        ("OpenWrt\nERROR: unable\n  liba1 (no such package):\n", "one release", "apk"),
        ("ERROR: unable\n  liba (no such package):\n  libb (no such package):\n", "liba libb", "*"),
    ],
)
def test_a_fix_is_of_the_tool_that_failed(log: str, said: str, unsaid: str, tmp_path: Path) -> None:
    text = str(answer(log, machine(tmp_path, BOOKWORM)).findings[0].advice)
    assert said in text
    assert unsaid not in text

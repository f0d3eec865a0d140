"""Fixes that could not help, or that would do harm, whatever the cause is."""

import os
from io import BytesIO
from pathlib import Path

import pytest

from diagnosed import BOOKWORM, answer, commands, cuda, machine, of_elsewhere, only
from stoker.diagnose.about import About
from stoker.diagnose.sieve import read_log
from stoker.diagnose.verdict import diagnose
from stoker.outside.process import run


def test_commands_for_sh_are_not_offered_where_cmake_chose_an_sdk_of_windows() -> None:
    log = """-- Selecting Windows SDK version 10.0.22621.0 to target Windows 10.0.26100.
CMake Error at CMakeLists.txt:14 (find_package):
  Could not find a package configuration file provided by "OpenCV" with any of
  the following names:

    OpenCVConfig.cmake
"""
    assert not diagnose(read_log(BytesIO(log.encode()))).findings[0].fix


def test_a_package_that_refuses_something_is_not_installed(tmp_path: Path) -> None:
    head = "CMake Error at /usr/lib/cmake/{}/{}Config.cmake:9 (message):\n"
    rest = "  Could NOT find CURL (missing: CURL_LIBRARY)\n-- Configuring incomplete\n"
    here = machine(tmp_path, BOOKWORM)
    other, own = (answer(head.format(name, name) + rest, here) for name in ("Foo", "CURL"))
    assert "libcurl4" in str(other.findings[0].advice)
    assert "apt" not in str(own.findings[0].advice)


NO_PORT = """\
src/simd.c:12:2: error: #error "Unsupported architecture"
make: *** [Makefile:5: simd.o] Error 1
"""
OTHER_HASH = """\
error: hash mismatch in fixed-output derivation '/nix/store/8y2-mill.tar.gz.drv':
         specified: sha256-AAAA
            got:    sha256-BBBB
"""
NO_TOOLKIT = """\
CMake Error at CMakeLists.txt:3 (find_package):
  Could NOT find CUDA (missing: CUDA_TOOLKIT_ROOT_DIR)
-- Configuring incomplete, errors occurred!
"""
KILLED = """\
FAILED: CMakeFiles/a.dir/a.cu.o
nvcc -c a.cu -o a.cu.o
Killed
ninja: build stopped: subcommand failed.
"""


@pytest.mark.parametrize(
    ("log", "variable"),
    [
        (OTHER_HASH, "PIP_"),
        (NO_TOOLKIT, "USE_CUDA"),
        (KILLED, "export MAX_JOBS"),
    ],
)
def test_a_fix_sets_no_variable_of_a_tool_that_is_not_there(
    log: str, variable: str, tmp_path: Path
) -> None:
    first = answer(log, machine(tmp_path, BOOKWORM)).findings[0]
    lines = [line for fix in first.advice for line in fix.commands]
    others = [line for line in lines if variable in line and "CMAKE_" not in line]
    assert first.advice
    assert not others


@pytest.mark.parametrize(
    ("line", "command"),
    [
        ("gcc (Debian 12.2.0-14) 12.2.0", "apt-get install -y libjpeg62-turbo-dev"),
        ("/usr/lib64/ccache/cc -c a.c", "dnf install -y libjpeg-turbo-devel"),
        ("==> Starting build() of makepkg", "pacman -S --noconfirm libjpeg-turbo"),
        ("/nix/store/8y2-gcc-15.2.0/bin/cc -c a.c", ""),
    ],
)
def test_packages_are_those_of_the_system_of_the_log(
    line: str, command: str, tmp_path: Path
) -> None:
    log = (
        f"{line}\na.c:1:10: fatal error: jpeglib.h: No such file or directory\n"
        "make: *** [Makefile:5: a.o] Error 1\n"
    )
    about = About(here=machine(tmp_path, BOOKWORM))
    first = diagnose(read_log(BytesIO(log.encode())), about=about).findings[0]
    found = "\n".join(line for fix in first.advice[:1] for line in fix.commands)
    assert command in found
    assert command or "install" not in found


def test_a_target_that_the_log_refuses_is_not_prescribed(tmp_path: Path) -> None:
    here = machine(tmp_path, BOOKWORM)
    cuda(tmp_path, "13.0")
    log = "torch\nnvcc fatal   : Unsupported gpu architecture 'compute_120'\n"
    values = [
        line for fix in only(log, here).advice for line in fix.commands if "ARCH_LIST" in line
    ]
    assert values == ["export TORCH_CUDA_ARCH_LIST=11.0+PTX"]


@pytest.mark.parametrize(
    ("line", "reads"),
    [
        ("error: failed to run custom build command for `candle-kernels v0.1`", False),
        ("make: *** [Makefile:3: a.o] Error 1", False),
        ("  File setup.py, line 3, in torch.utils.cpp_extension", True),
    ],
)
def test_a_variable_is_set_only_for_what_reads_it(line: str, reads: bool, tmp_path: Path) -> None:
    here = machine(tmp_path, BOOKWORM)
    cuda(tmp_path, "13.0")
    log = f"nvcc fatal   : Unsupported gpu architecture 'compute_120'\n{line}\n"
    assert ("TORCH_CUDA_ARCH_LIST" in str(answer(log, here).findings[0].advice)) is reads


@pytest.mark.parametrize(
    ("log", "given", "left_out"),
    [
        (
            (
                "a.c:3:5: error: unused variable 'x' [-Werror=unused-variable]\n"
                "a.c:4:5: error: 'y' may be used uninitialized [-Werror=maybe-uninitialized]\n"
                "cc1: all warnings being treated as errors\n"
            ),
            '-Wno-error=unused-variable -Wno-error=maybe-uninitialized" CXXFLAGS',
            "-Wno-error=unused-variable,",
        ),
        (
            (
                "error: linking with `cc` failed: exit status: 1\n"
                "  = note: rust-lld: error: undefined symbol: FcPatternCreate\n"
                'error: could not compile `mill` (bin "mill") due to 1 previous error\n'
            ),
            "RUSTFLAGS",
            "LDLIBS",
        ),
    ],
    ids=["an option for each warning", "the linker of cargo by its own variable"],
)
def test_options_reach_the_failing_tool(
    log: str, given: str, left_out: str, tmp_path: Path
) -> None:
    found = commands(only(log, machine(tmp_path, BOOKWORM)))
    assert given in found
    assert left_out not in found


def test_a_broken_cache_is_left_out_completely(tmp_path: Path) -> None:
    log = "sccache: error: Server startup failed: no\nerror: build failed\n"
    found = commands(only(log, machine(tmp_path, BOOKWORM)))
    assert "RUSTC_WRAPPER= " in found
    assert "unset CMAKE_C_COMPILER_LAUNCHER" in found
    other = "sccache: error: failed to execute compile\nninja: build stopped: subcommand failed.\n"
    assert only(other, machine(tmp_path / "b", BOOKWORM)).cause == "compiler-cache-broken"


@pytest.mark.parametrize(
    ("file", "helps"), [("/tmp/ccAb12Cd.s", True), ("a.o", False), ("/build/liba.so", False)]
)
def test_another_folder_for_temporary_files_helps_only_them(
    file: str, helps: bool, tmp_path: Path
) -> None:
    log = f"fatal error: error writing to {file}: No space left on device\n"
    assert ("TMPDIR" in str(only(log, machine(tmp_path, BOOKWORM)).advice)) is helps


def test_no_file_of_the_system_changes_its_owner(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    here = machine(tmp_path, BOOKWORM, HOME=str(tmp_path))
    for path, offered in ((f"{tmp_path}/cache/a", True), ("/usr/lib/python3/dist-packages", False)):
        found = answer(f"mkdir: {path}: Permission denied\n", here)
        assert ("chown" in str([one.advice for one in found.findings])) is offered


def test_an_option_against_an_error_comes_after_that_of_the_project(tmp_path: Path) -> None:
    """The last option for one warning wins, and a project puts its own after those of CFLAGS."""
    source = tmp_path / "a.c"
    source.write_text("int f(void) { int unused; return 0; }\n")
    own = f"${{CC:-cc}} ${{CFLAGS:-}} -Wall -Werror=unused-variable -c {source} -o {tmp_path}/a.o"
    log = (
        f"cc -Wall -Werror=unused-variable -c {source}\n"
        f"{source}:1:19: error: unused variable 'unused' [-Werror=unused-variable]\n"
    )
    found = only(log, machine(tmp_path, BOOKWORM))
    fixed = "\n".join(["set -e", *found.advice[0].commands, own])
    env = {"PATH": os.environ["PATH"]}
    assert run(["sh", "-c", own], timeout=60, env=env).status == 1
    assert run(["sh", "-c", fixed], timeout=60, env=env, cwd=tmp_path).ok, fixed


def test_git_is_told_of_one_folder_only(tmp_path: Path) -> None:
    here = machine(tmp_path, BOOKWORM)
    for line in ("detected dubious ownership in repository at '/src'", "dubious ownership"):
        found = only(f"fatal: detected {line.removeprefix('detected ')}\n", here)
        assert found.cause == "git-dubious-ownership"
        assert "*" not in "".join(word for fix in found.advice for word in fix.commands)


def test_a_function_of_python_that_is_not_declared_is_never_left_undeclared() -> None:
    log = (
        "gcc -DPy_LIMITED_API=51052544 -I/usr/include/python3.13 -c mill.c -o mill.o\n"
        "mill.c:706:9: error: implicit declaration of function 'PyUnstable_Code_New' "
        "[-Wimplicit-function-declaration]\n"
        "error: command '/usr/bin/gcc' failed with exit code 1\n"
    )
    found = diagnose(read_log(BytesIO(log.encode())))
    commands = [line for one in found.findings for fix in one.advice for line in fix.commands]
    assert not any("implicit-function-declaration" in line for line in commands)


@pytest.mark.parametrize(
    ("message", "package"),
    [
        ("the libmill library is missing", ""),
        ("Required math library not found", ""),
        ("C compiler cannot create executables", ""),
        ("cannot find the flags to link with Boost system", ""),
    ],
)
def test_what_configure_says_is_lacking_is_installed_if_a_package_has_it(
    message: str, package: str, tmp_path: Path
) -> None:
    found = answer(f"configure: error: {message}\n", machine(tmp_path, BOOKWORM)).findings
    assert [one.cause for one in found if one.cause == "system-headers-missing"] == (
        ["system-headers-missing"] if package else []
    )
    assert not package or package in commands(found[0])


FIXES = [
    ("mill.cpp:8:2: internal compiler error: in init_wheel, at cp/mill.cc:67", "another release"),
    ("mill.cpp:8:2: internal compiler error: Segmentation fault", "with one job"),
    ("m.cpp(1): error C2220: warning treated as error\nm.cpp(1): warning C4455: suffix", "C4455"),
    ("ld: error: undefined symbol: std::__ndk1::basic_filebuf<char>::close()", "Android's NDK"),
    ("LINK : fatal error LNK1181: cannot open input file 'python312.lib'", "python312.lib"),
]


@pytest.mark.parametrize(("log", "words"), FIXES)
def test_the_first_fix_is_for_this_form_of_the_failure(
    log: str, words: str, tmp_path: Path
) -> None:
    found = answer(f"{log}\nmake: *** [Makefile:4: mill] Error 1\n", machine(tmp_path, BOOKWORM))
    assert words in found.findings[0].advice[0].text


@pytest.mark.parametrize(
    ("log", "command"),
    [
        ("c++: error: unrecognized command-line option '-fsycl'", "export CC=icx CXX=icpx"),
        (
            "/usr/lib/gcc/13/include/avx2intrin.h:1:1: error: inlining failed in call to 'f'",
            'export CFLAGS="${CFLAGS:-} -mavx2" CXXFLAGS="${CXXFLAGS:-} -mavx2"',
        ),
        ("ModuleNotFoundError: No module named 'numpy.distutils'", ". .venv-3.11/bin/activate"),
        ("You have not agreed to the Xcode license agreements.", "sudo xcodebuild -license accept"),
        ("ERROR: This rule has been removed from Bazel.", "export USE_BAZEL_VERSION=7.x"),
        ("m.cpp:3:6: error: 'expected' in namespace 'std' does not name a type", "-std=c++23"),
    ],
)
def test_the_command_names_what_the_message_names(log: str, command: str, tmp_path: Path) -> None:
    found = diagnose(read_log(BytesIO(log.encode())), about=About(here=machine(tmp_path, BOOKWORM)))
    assert command in "\n".join(found.findings[0].advice[0].commands)


def test_a_setting_that_the_log_shows_is_not_offered_again(tmp_path: Path) -> None:
    killed = "c++: fatal error: Killed signal terminated program cc1plus"
    setting = "export MAX_JOBS=2 CMAKE_BUILD_PARALLEL_LEVEL=2 MAKEFLAGS=-j2"
    here = machine(tmp_path, BOOKWORM)
    assert setting in commands(of_elsewhere(killed, here))
    assert setting not in commands(of_elsewhere(f"{setting}\n{killed}", here))

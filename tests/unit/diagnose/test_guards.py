"""Answers that would be wrong whatever the cause is."""

from io import BytesIO
from pathlib import Path

import pytest

from diagnosed import BOOKWORM, answer, commands, machine, only
from stoker.diagnose.sieve import read_log
from stoker.diagnose.values import Status
from stoker.diagnose.verdict import diagnose


@pytest.mark.parametrize(
    "log",
    [
        "[3/9] Building CXX object a.o\nKilled\n",
        "building\nerror: something odd happened\ndone\n",
        "ERROR: the frobnicator is broken\n",
        "Run make\nProcess completed with exit code 2.\n",
        "The command '/bin/sh -c pip install .' returned a non-zero code: 137\n",
        "thread 4321 panic: index out of bounds\n",
        "go build -x .\nruntime/cgo: C:\\Go\\pkg\\tool\\cgo.exe: exit status 2\n",
        "./main.go:5:2: undefined: foo\nexit status 2\n",
        "main.obj : unresolved external symbol f referenced in function main\n",
        "/opt/rocm/include/hip/a.h:3:5: note: initializing argument 2 of 'int f(int, char)'\n",
    ],
)
def test_an_error_is_never_nothing(log: str, tmp_path: Path) -> None:
    assert answer(log, machine(tmp_path, BOOKWORM)).status in (Status.FAILED, Status.UNKNOWN)


def test_notes_of_warnings_are_no_failure(tmp_path: Path) -> None:
    log = "a.c:3:5: warning: passing argument 1 of 'f'\na.h:1:6: note: declared here\n"
    assert answer(log, machine(tmp_path, BOOKWORM)).status is Status.NOTHING_FAILED


def test_what_a_back_end_says_is_shown_and_not_that_it_failed(tmp_path: Path) -> None:
    log = """  \u00d7 Failed to build `mill==1.0`
  ├─▶ The build backend returned an error
  ╰─▶ Call to `setuptools.build_meta.build_wheel` failed (exit status: 1)

      [stderr]
      error: the grindstone is worn out
"""
    found = answer(log, machine(tmp_path, BOOKWORM))
    assert found.status is Status.UNKNOWN
    assert found.unexplained[-1].text.strip() == "error: the grindstone is worn out"
    assert not any("backend returned" in line.text for line in found.unexplained)


@pytest.mark.parametrize(
    ("caller", "causes"),
    [
        ("tools/build.py", False),
    ],
)
def test_a_package_that_calls_what_the_project_replaced_is_of_another_release(
    caller: str, causes: bool, tmp_path: Path
) -> None:
    log = f"""Traceback (most recent call last):
  File "setup.py", line 200, in <module>
    setup(
  File "{caller}", line 800, in wrap
    _compile(
TypeError: compile_all() got an unexpected keyword argument 'with_sycl'
"""
    found = answer(log, machine(tmp_path, BOOKWORM)).findings
    assert [one.cause for one in found] == (["dependency-api-changed"] if causes else [])


def test_a_log_that_is_a_text_of_json_is_read_as_lines(tmp_path: Path) -> None:
    log = r'{"log": "make\ncc -c a.c\na.c:1:10: fatal error: zstd.h: No such file or directory\n"}'
    assert only(log, machine(tmp_path, BOOKWORM)).cause == "system-headers-missing"


def test_a_log_that_was_pasted_as_one_line_is_read_as_lines(tmp_path: Path) -> None:
    log = (
        "[3/9] Building CXX object a.o FAILED: a.o /usr/bin/c++ -O2 -c a.cpp -o a.o a.cpp:1:10: "
        "fatal error: zstd.h: No such file or directory 1 | #include <zstd.h> | ^~~~~~~~ "
        "compilation terminated. ninja: build stopped: subcommand failed.\n"
    )
    found = only(log, machine(tmp_path, BOOKWORM))
    assert found.cause == "system-headers-missing"
    assert found.evidence[0].text.startswith("a.cpp:1:10: fatal error: zstd.h")
    assert found.evidence[0].line == 1


@pytest.mark.parametrize(
    ("file", "causes"),
    [
        ("third_party/fmt/a.h", []),
        ("build/_deps/fmt-src/a.h", []),
        ("src/not-there.cpp", []),
        ("/home/me/project/a.cpp", []),
        ("/tmp/pip-req-build-x1/a.cpp", []),
        ("/tmp/pip-install-x1/foo_2/a.cpp", []),
        ("/venv/lib/python3.11/site-packages/torch/include/a.h", []),
    ],
)
def test_only_files_of_the_folder_of_the_run_are_the_users_source(
    file: str, causes: list[str], tmp_path: Path
) -> None:
    tree = tmp_path / "tree"
    for name in ("src/a.cpp", "third_party/fmt/a.h", "build/_deps/fmt-src/a.h"):
        (tree / name).parent.mkdir(parents=True)
        (tree / name).touch()
    log = f"{file}:3:5: error: expected ';' before 'x'\n"
    found = answer(log, machine(tmp_path, BOOKWORM), str(tree))
    assert [finding.cause for finding in found.findings] == causes
    assert found.status is (Status.FAILED if causes else Status.UNKNOWN)


def test_a_missing_file_of_others_is_no_cause(tmp_path: Path) -> None:
    log = "/tmp/pip-install-x/mill.cpp:1:10: fatal error: mill/gate.h: No such file or directory\n"
    found = answer(log, machine(tmp_path, BOOKWORM))
    assert found.status is Status.UNKNOWN
    assert [one.text for one in found.unexplained] == [log.strip()]


def test_a_makefile_is_no_program(tmp_path: Path) -> None:
    """The configure step of sentencepiece had failed; `apt-file search Makefile` was its fix."""
    log = (
        "-- Configuring incomplete, errors occurred!\n"
        "gmake: Makefile: No such file or directory\n"
        "gmake: *** No rule to make target 'Makefile'.  Stop.\n"
    )
    found = answer(log, machine(tmp_path, BOOKWORM))
    assert "build-tool-missing" not in [one.cause for one in found.findings]


def test_an_error_of_meson_is_a_failure(tmp_path: Path) -> None:
    log = (
        "Build type: native build\n\nmeson.build:40:0: ERROR: Expecting rbracket got comma.\n,\n^\n"
    )
    found = answer(
        f"{log}For a block that started at 39,21\n  [\n  ^\n", machine(tmp_path, BOOKWORM)
    )
    assert found.status is not Status.NOTHING_FAILED


def test_that_a_build_failed_is_no_requirement(tmp_path: Path) -> None:
    log = (
        "error: mill\nmaturin failed\n  Caused by: Failed to build a native library through cargo\n"
    )
    found = [one.cause for one in answer(log, machine(tmp_path, BOOKWORM)).findings]
    assert "stated-by-tool" not in found


def test_a_file_that_a_downloaded_dependency_lacks_is_of_another_release(tmp_path: Path) -> None:
    log = (
        "CMake Error at test/CMakeLists.txt:125 (include):\n"
        "  include could not find requested file:\n\n"
        "    /b/_deps/sluice-src/contrib/Sluice.cmake\n\n\n"
        "-- Configuring incomplete, errors occurred!\n"
    )
    first = answer(log, machine(tmp_path, BOOKWORM)).findings[0]
    assert first.cause == "dependency-api-changed"
    assert "sluice" in first.title


def test_a_namespace_without_a_name_is_of_its_library(tmp_path: Path) -> None:
    log = (
        "a.cpp:3:6: error: no member named 'arcLength' in namespace 'cv'\n1 error generated.\n"
        "make: *** [Makefile:5: a.o] Error 1\n"
    )
    assert "OpenCV" in answer(log, machine(tmp_path, BOOKWORM)).findings[0].title


def test_the_newest_python_that_a_library_supports_is_named(tmp_path: Path) -> None:
    log = (
        "error: the configured Python interpreter version (3.14) is newer than PyO3's maximum "
        "supported version (3.13)\n"
    )
    here = machine(tmp_path, BOOKWORM, "python3.13")
    assert "Python 3.13" in str(only(log, here).advice)


def test_a_name_that_clang_does_not_find_is_included(tmp_path: Path) -> None:
    log = (
        "a.cpp:9:42: error: no member named 'inserter' in namespace 'std'\n1 error generated.\n"
        "make: *** [Makefile:5: a.o] Error 1\n"
    )
    assert "-include iterator" in commands(only(log, machine(tmp_path, BOOKWORM)))


@pytest.mark.parametrize(
    ("file", "is_own"),
    [
        ("src/play.c", False),
        ("/b/ffmpeg-player/play.c", False),
        ("/b/ffmpeg-7.1/libavcodec/play.c", True),
    ],
)
def test_the_source_of_a_library_is_not_for_another_release_of_it(
    file: str, is_own: bool, tmp_path: Path
) -> None:
    log = f"{file}:4:1: error: unknown type name 'AVMill'\nmake: *** [Makefile:5: a.o] Error 1\n"
    found = [one.cause for one in answer(log, machine(tmp_path, BOOKWORM)).findings]
    assert ("dependency-api-changed" not in found) is is_own


def test_a_change_of_a_newer_release_is_not_the_cause(tmp_path: Path) -> None:
    """gcc 15 changed the meaning of (); where the log shows gcc 13, it is something else."""
    error = "a.c:1:2: error: too many arguments to function 'f'; expected 0, have 3\n"
    here = machine(tmp_path, BOOKWORM)
    for version, causes in (
        ("13.2.0", []),
        ("15.1.0", ["gcc-c23-default"]),
        ("", ["gcc-c23-default"]),
    ):
        tool = f"-- The C compiler identification is GNU {version}\n" if version else ""
        found = answer(tool + error, here)
        assert [one.cause for one in found.findings] == causes


def test_a_warning_of_a_missing_library_is_not_the_cause() -> None:
    log = (
        "ld: warning: Could not find or use auto-linked library 'mill': library 'mill' not found\n"
        'Undefined symbols for architecture arm64:\n  "_grind", referenced from:\n'
        "      _main in main.o\n"
        "clang: error: linker command failed with exit code 1 (use -v to see invocation)\n"
    )
    found = diagnose(read_log(BytesIO(log.encode())))
    assert "system-library-missing" not in {one.cause for one in found.findings}


def test_what_a_test_of_configure_printed_is_no_failure_if_configure_continued() -> None:
    log = (
        "checking for python extension module directory... /usr/lib/python3\n"
        "Traceback (most recent call last):\n"
        '  File "<string>", line 1, in <module>\n'
        "ModuleNotFoundError: No module named 'distutils'\n"
        'configure: WARNING: "Python headers not found - python bindings will not be made"\n'
        "config.status: creating Makefile\nmake[1]: Nothing to be done for 'all'.\n"
    )
    assert diagnose(read_log(BytesIO(log.encode()))).status is Status.NOTHING_FAILED


def test_the_type_that_a_template_returns_names_no_library() -> None:
    for symbol, causes in (
        ("mill::grind<absl::Status>(int)", []),
        ("absl::lts_20250127::Status mill::grind<int>(int const&)", []),
        ("absl::lts_20250127::Status::ToString() const", ["protobuf-abseil-mismatch"]),
    ):
        log = f"a.cc:(.text+0x9): undefined reference to `{symbol}'\nld returned 1 exit status\n"
        found = diagnose(read_log(BytesIO(log.encode()))).findings
        assert [one.cause for one in found] == causes

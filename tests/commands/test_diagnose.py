"""`stoker diagnose` and `stoker diagnose --explain` on the output of real tools."""

import contextlib
import fcntl
import json
import os
import struct
import subprocess
import sys
import termios
from pathlib import Path

import msgspec
import pytest

from conftest import Need, Stoker
from governed import STOKER

KILLED = "nvcc error   : 'cicc' died due to signal 9 (Kill signal)\n"
WARNINGS = """
cmake_minimum_required(VERSION 3.18)
project(warned LANGUAGES CXX)
include(CheckCXXSourceCompiles)
check_cxx_source_compiles("int main() { return nothing; }" HAS_NOTHING)
find_package(NoSuchLibrary)
find_library(MKL mkl_no_such)
execute_process(COMMAND git describe --tags WORKING_DIRECTORY /)
message(WARNING "MKL could not be found.  Defaulting to Eigen")
message("error: this is only a message of ours: fatal error: not really")
file(WRITE ${CMAKE_BINARY_DIR}/a.cpp "int error_handler() { int unused; return 0; }")
add_library(error STATIC ${CMAKE_BINARY_DIR}/a.cpp)
target_compile_options(error PRIVATE -Wall)
"""
PROJECT = """
[build-system]
requires = []
build-backend = "back_end"
backend-path = ["."]
[project]
name = "made-here"
version = "1"
"""
BACK_END = """
import sys, zipfile

METADATA = "Metadata-Version: 2.1\\nName: made-here\\nVersion: 1\\n"
WHEEL = "Wheel-Version: 1.0\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n"

def build_wheel(folder, config_settings=None, metadata_directory=None):
    print("a.cpp:1:2: warning: unused error: -Werror", file=sys.stderr)
    name = "made_here-1-py3-none-any.whl"
    with zipfile.ZipFile(f"{folder}/{name}", "w") as wheel:
        wheel.writestr("made_here-1.dist-info/METADATA", METADATA)
        wheel.writestr("made_here-1.dist-info/WHEEL", WHEEL)
        wheel.writestr("made_here-1.dist-info/RECORD", "")
    return name
"""


def output_of(*command: str | Path, cwd: Path) -> str:
    done = subprocess.run(
        command, cwd=cwd, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False
    )
    return done.stdout


@pytest.fixture
def log(tmp_path: Path) -> Path:
    path = tmp_path / "build.log"
    path.write_text(KILLED)
    return path


def test_a_cause_is_status_0_and_its_page_has_the_line(stoker: Stoker, log: Path) -> None:
    done = stoker("diagnose", str(log), COLUMNS="300")
    assert done.returncode == 0
    assert "oom-nvcc" in done.stdout
    assert f"{log}:1: nvcc error" in done.stdout


def test_json_is_as_documented(stoker: Stoker, log: Path) -> None:
    found = json.loads(stoker("diagnose", "--json", str(log)).stdout)
    assert found["status"] == "failed"
    first = found["findings"][0]
    assert first["cause"] == "oom-nvcc"
    assert 0.5 < first["confidence"] <= 1
    assert first["evidence"][0]["line"] == 1
    assert first["evidence"][0]["text"] == KILLED.strip()
    assert first["why"]
    assert first["fix"][0]["text"]
    assert all(link.startswith("https://") for link in first["links"])


def test_fix_script_is_only_printed(stoker: Stoker, log: Path) -> None:
    done = stoker("diagnose", "--fix-script", str(log))
    assert done.stdout.startswith("#!/bin/sh\n")
    assert "\nset -e\n" in done.stdout


def test_standard_input() -> None:
    done = subprocess.run(
        [STOKER, "diagnose", "-"], input=KILLED, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0
    assert "oom-nvcc" in done.stdout


@pytest.mark.parametrize(
    ("arguments", "part"),
    [
        (("diagnose", "no-such.log"), "there is no log or run 'no-such.log'"),
        (("diagnose", "4711"), "the history has no run '4711'"),
        (("diagnose", "--json", "--fix-script", "-"), "choose one of"),
        (("diagnose",), "no run that failed is kept"),
        (("diagnose", "--explain", "oom"), "did you mean oom-host-compiler or oom-nvcc?"),
        (("diagnose", "--explain", "--stage", "compil"), "did you mean compile"),
    ],
)
def test_wrong_arguments_have_a_clear_error(
    stoker: Stoker, arguments: tuple[str, ...], part: str
) -> None:
    done = stoker(*arguments)
    assert done.returncode == 2
    assert part in done.stderr
    assert "Traceback" not in done.stderr


def test_a_folder_without_logs_is_none(stoker: Stoker, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    assert stoker("diagnose", "empty", cwd=tmp_path).returncode == 2


def test_a_real_missing_header_is_found(stoker: Stoker, need: Need, tmp_path: Path) -> None:
    (tmp_path / "a.cpp").write_text("#include <cublas_v2.h>\n")
    flags = ("-nostdinc", "-I.", "-fdiagnostics-color=always")
    (tmp_path / "a.log").write_text(output_of(need("c++"), *flags, "-c", "a.cpp", cwd=tmp_path))
    found = json.loads(stoker("diagnose", "--json", "a.log", cwd=tmp_path).stdout)
    assert found["findings"][0]["cause"] == "cuda-dev-headers-missing"


def test_a_real_configure_and_build_full_of_warnings_did_not_fail(
    stoker: Stoker, need: Need, tmp_path: Path
) -> None:
    (tmp_path / "CMakeLists.txt").write_text(WARNINGS)
    configure = output_of(need("cmake"), "-S", ".", "-B", "b", "-G", "Ninja", cwd=tmp_path)
    (tmp_path / "configure.log").write_text(configure)
    build = output_of(need("cmake"), "--build", "b", "--verbose", cwd=tmp_path)
    (tmp_path / "both.log").write_text(configure + build)
    assert "warning" in build
    for log in ("configure.log", "both.log"):
        assert stoker("diagnose", log, cwd=tmp_path).returncode == 3, configure + build


def test_a_real_cmake_error_is_found(stoker: Stoker, need: Need, tmp_path: Path) -> None:
    (tmp_path / "CMakeLists.txt").write_text("cmake_minimum_required(VERSION 99.0)\n")
    (tmp_path / "a.log").write_text(output_of(need("cmake"), ".", cwd=tmp_path))
    found = json.loads(stoker("diagnose", "--json", "a.log", cwd=tmp_path).stdout)
    assert found["findings"][0]["cause"] == "cmake-too-old"


def test_a_real_pip_install_did_not_fail(stoker: Stoker, tmp_path: Path) -> None:
    project = tmp_path / "project"
    project.mkdir()
    (project / "pyproject.toml").write_text(PROJECT)
    (project / "back_end.py").write_text(BACK_END)
    pip = (sys.executable, "-m", "pip", "install", "-v", "--no-index", "--no-build-isolation")
    output = output_of(*pip, "--target", tmp_path / "to", project, cwd=tmp_path)
    assert "Successfully installed" in output
    (tmp_path / "pip.log").write_text(output)
    assert stoker("diagnose", "pip.log", cwd=tmp_path).returncode == 3


def test_a_run_folder_is_read_by_its_failed_stage(stoker: Stoker, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    folder.mkdir()
    (folder / "1-configure.log").write_text("CMake Error: this one was fixed\n")
    (folder / "2-compile.log").write_text(KILLED)
    stages = [
        {"stage": "configure", "end": "done", "wall_s": 1.0, "log": "1-configure.log"},
        {"stage": "compile", "end": "failed", "wall_s": 1.0, "log": "2-compile.log"},
    ]
    (folder / "record.json").write_bytes(msgspec.json.encode({"stages": stages, "tree": "/a"}))
    found = json.loads(stoker("diagnose", "--json", str(folder)).stdout)
    assert [one["cause"] for one in found["findings"]] == ["oom-nvcc"]
    assert found["findings"][0]["evidence"][0]["file"] == "2-compile.log"


def test_a_run_folder_without_a_failed_stage_shows_the_recorded_error(
    stoker: Stoker, tmp_path: Path
) -> None:
    stages = [{"stage": "verify", "end": "done", "wall_s": 1.0, "log": "7-verify.log"}]
    record = {"stages": stages, "error": "mill.whl is the wheel of another variant"}
    (tmp_path / "record.json").write_bytes(msgspec.json.encode(record))
    done = stoker("diagnose", str(tmp_path))
    assert done.returncode == 1
    assert "record.json: mill.whl is the wheel of another variant" in done.stdout


def test_a_run_folder_with_a_broken_record_is_read_all_the_same(
    stoker: Stoker, tmp_path: Path
) -> None:
    (tmp_path / "record.json").write_text("{")
    (tmp_path / "a.log").write_text(KILLED)
    assert stoker("diagnose", str(tmp_path)).returncode == 0


def test_stoker_run_names_the_cause_where_its_output_stays(tmp_path: Path) -> None:
    script = f'echo "{KILLED.strip()}"; exit 3'
    with (tmp_path / "a.log").open("w") as stream:
        stream.write("nvcc fatal   : Unsupported gpu architecture 'compute_30'\n")
        stream.flush()
        done = subprocess.run(
            [STOKER, "run", "--", "sh", "-c", script], stdout=stream, stderr=stream, check=False
        )
    assert done.returncode == 3
    text = (tmp_path / "a.log").read_text()
    assert "(oom-nvcc, " in text
    assert "(unsupported-gpu-arch-dropped" not in text  # it was there before the run


SECRET = "Zq8Xv7Lm2Np4Rt6Wy9Bc"
FAILING = """
echo "export MY_TOKEN=$MY_TOKEN"
echo "fetching https://user:$MY_TOKEN@example.org/a.tar.gz"
echo "$MY_TOKEN"
test -t 1 && echo "a terminal of $(stty size <&2 | tr ' ' x)"
echo "mill.c:1:10: fatal error: zstd.h: No such file or directory" >&2
exit 2
"""


def at_a_terminal(*command: str, home: Path, cwd: Path) -> tuple[int, str]:
    """Run a command at a terminal of 30 lines and 100 columns; return its status and the screen."""
    ours, theirs = os.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 30, 100, 0, 0))
    environment = os.environ | {"STOKER_HOME": str(home), "MY_TOKEN": SECRET, "TERM": "xterm"}
    child = subprocess.Popen(
        command,
        cwd=cwd,
        env=environment,
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        start_new_session=True,
    )
    os.close(theirs)
    screen = b""
    with contextlib.suppress(OSError):  # the other end is closed
        while chunk := os.read(ours, 4096):
            screen += chunk
    os.close(ours)
    return child.wait(), screen.decode()


def test_a_run_that_fails_at_a_terminal_is_explained_at_once_and_later(tmp_path: Path) -> None:
    home = tmp_path / "home"
    run = (STOKER, "run", "--", "sh", "-c", FAILING)
    status, screen = at_a_terminal(*run, home=home, cwd=tmp_path)
    assert status == 2
    assert "a terminal of 30x100" in screen
    assert screen.count("zstd.h: No such file") == 2  # of the compiler, and as evidence
    assert "system-headers-missing" in screen
    assert "Fix: " in screen
    _, later = at_a_terminal(STOKER, "diagnose", home=home, cwd=tmp_path)
    assert "system-headers-missing" in later
    _, listed = at_a_terminal(STOKER, "history", "--json", home=home, cwd=tmp_path)
    last = json.loads(listed)["runs"][0]
    assert last["summary"]["status"] == 2
    assert last["directory"] == str(tmp_path)
    assert "zstd.h" in last["cause"]
    _, again = at_a_terminal(STOKER, "diagnose", str(last["id"]), home=home, cwd=tmp_path)
    assert later.endswith(again)
    assert "the last run that failed: run 1, `sh -c" in later
    kept = [path for path in home.rglob("*") if path.is_file()]
    assert any(b"zstd.h" in path.read_bytes() for path in kept)
    assert not any(SECRET.encode() in path.read_bytes() for path in kept)
    assert all(path.stat().st_mode & 0o077 == 0 for path in kept if path.suffix == ".log")


def test_a_run_whose_output_goes_to_a_pipe_is_explained_too(tmp_path: Path) -> None:
    environment = os.environ | {"STOKER_HOME": str(tmp_path / "home"), "MY_TOKEN": SECRET}
    run = (STOKER, "run", "--", "sh", "-c", FAILING)
    done = subprocess.run(run, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert done.stdout.splitlines()[-1] == SECRET
    assert "system-headers-missing" in done.stderr


def test_explain_prints_a_page_and_a_list(stoker: Stoker) -> None:
    assert "stoker run -- " in stoker("diagnose", "--explain", "oom-nvcc").stdout
    listed = stoker("diagnose", "--explain", "--stage", "link").stdout
    assert "libtorch-cuda-too-big" in listed
    assert "oom-nvcc" not in listed
    assert (
        json.loads(stoker("diagnose", "--explain", "oom-nvcc", "--json").stdout)["name"]
        == "oom-nvcc"
    )


def test_a_log_is_diagnosed_without_the_code_for_runs(stoker: Stoker, tmp_path: Path) -> None:
    log = tmp_path / "build.log"
    log.write_text("a.cpp:3:10: fatal error: Eigen/Dense: No such file or directory\n")
    done = stoker("diagnose", str(log), PYTHONPROFILEIMPORTTIME="1")
    assert "stoker.diagnose.verdict" in done.stderr
    imported = {line.rpartition("|")[2].strip() for line in done.stderr.splitlines()}
    needless = {"hashlib", "importlib.resources", "sqlite3", "stoker.diagnose.kept"}
    needless |= {"stoker.machine.memory", "stoker.model.runs", "subprocess"}
    assert not needless & imported


def test_no_program_that_a_log_names_is_started(stoker: Stoker, tmp_path: Path) -> None:
    """`stoker diagnose`, the Python interface and a failed run, each with the name of a program of
    an attacker in the log.
    """
    evil = tmp_path / "evil" / "bin" / "python3"
    evil.parent.mkdir(parents=True)
    evil.write_text(f"#!/bin/sh\ntouch {tmp_path}/marker\necho 3.11 1 0\n")
    evil.chmod(0o755)
    log = tmp_path / "build.log"
    for name in ("/proc/self/cwd/evil/bin/python3", str(evil)):
        log.write_text(f"{name} setup.py build\nModuleNotFoundError: No module named 'numpy'\n")
        found = stoker("diagnose", str(log), cwd=tmp_path)
        assert "numpy-missing" in found.stdout
        stoker("run", "--", "sh", "-c", f"cat {log}; exit 1", cwd=tmp_path)
        stoker("diagnose", "--fix-script", cwd=tmp_path)
        code = f"import stoker; print(stoker.diagnose({str(log)!r}).findings[0].cause)"
        done = subprocess.run(
            [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True
        )
        assert done.stdout == "numpy-missing\n"
        assert not (tmp_path / "marker").exists()


def test_a_command_of_a_log_is_no_command_of_the_fixes(stoker: Stoker, tmp_path: Path) -> None:
    log = tmp_path / "build.log"
    killed = "c++: fatal error: Killed signal terminated program cc1plus"
    for words in ("; touch MARKER #", "$(touch MARKER)"):
        log.write_text(f"$ make -v{words}\n{killed}\n")
        for option in ("--fix-script", "--json"):
            assert "MARKER" not in stoker("diagnose", str(log), option).stdout


def test_a_terminal_obeys_nothing_of_a_log(stoker: Stoker, tmp_path: Path) -> None:
    strange = "a\u202e\x9b2J\x1b]0;x\x07.cpp"
    error = f"{strange}:1:10: fatal error: zstd.h: No such file or directory\n"
    log = tmp_path / "build.log"
    log.write_text(error)
    home = tmp_path / "home"
    forms: tuple[tuple[str, ...], ...] = ((str(log),), (str(log), "--fix-script"))
    runs = [("diagnose", *words) for words in forms]
    runs += [("diagnose", f"{log}\u202e\x9b"), ("inspect", "\u202e\x9b.whl")]
    for words in runs:
        _, shown = at_a_terminal(STOKER, *words, home=home, cwd=tmp_path)
        assert not {"\u202e", "\x9b", "\x07"} & set(shown), words
    _, shown = at_a_terminal(STOKER, "diagnose", str(log), "--json", home=home, cwd=tmp_path)
    piped = stoker("diagnose", str(log), "--json").stdout
    assert not {"\u202e", "\x9b"} & set(shown)
    assert "\u202e" in json.loads(piped)["findings"][0]["evidence"][0]["text"]
    assert json.loads(shown) == json.loads(piped)


@pytest.fixture
def mill(tmp_path: Path, stoker: Stoker) -> Path:
    """A tree that an older C++ compiles, and whose build has failed under stoker."""
    (tmp_path / "mill.cpp").write_text(
        "int grind(int a) throw(int) { return a; }\nint main() { return grind(0); }\n"
    )
    (tmp_path / "Makefile").write_text(
        "CXXFLAGS = -O1\nmill: mill.cpp\n\t$(CXX) $(CXXFLAGS) -o $@ $<\n"
    )
    assert stoker("run", "--", "make", cwd=tmp_path).returncode != 0
    return tmp_path


def tried(stoker: Stoker, folder: Path, *options: str) -> subprocess.CompletedProcess[str]:
    done = stoker("diagnose", "--try", *options, cwd=folder, timeout=600)
    if "on copies of folders here" in done.stderr:
        pytest.skip(done.stderr)
    return done


def test_a_cause_is_proven_by_the_change_that_lets_the_command_pass(
    stoker: Stoker, mill: Path
) -> None:
    done = tried(stoker, mill, "--json")
    found = json.loads(done.stdout)
    assert done.returncode == 0
    assert found["findings"][0]["cause"] == "cxx17-default"
    assert found["findings"][0]["confidence"] == 1
    fix = found["findings"][0]["fix"][0]
    assert fix["build"] == "make 'CXX=c++ -std=gnu++14'"
    assert [trial["end"] for trial in found["trials"]][::2] == ["same-error", "passed"]
    assert sorted(file.name for file in mill.iterdir()) == ["Makefile", "mill.cpp"]
    script = "\n".join([*fix["commands"], fix["build"]])
    assert subprocess.run(["sh", "-ec", script], cwd=mill, check=False).returncode == 0


def test_results_of_tests_of_the_compiler_that_the_failed_run_left_are_not_used(
    stoker: Stoker, tmp_path: Path
) -> None:
    (tmp_path / "probe.c").write_text("int restrict = 0;\n")  # valid before C99 only
    (tmp_path / "mill.c").write_text("#ifndef OLD\n#error this is no old C\n#endif\n")
    (tmp_path / "Makefile").write_text(
        "mill.o: flags\n\t$(CC) `cat flags` -c mill.c\n"
        "flags:\n\tif $(CC) -c probe.c; then echo -DOLD; else echo -DNEW; fi > $@\n"
    )
    assert stoker("run", "--", "sh", "-c", "make", cwd=tmp_path).returncode != 0
    done = tried(stoker, tmp_path, "--json")
    found = json.loads(done.stdout)
    assert found["trials"][-1]["end"] == "passed"
    fix = found["findings"][0]["fix"][0]
    script = "\n".join([*fix["commands"], fix["build"]])
    assert subprocess.run(["sh", "-ec", script], cwd=tmp_path, check=False).returncode == 0


def test_a_command_that_passes_now_proves_nothing(stoker: Stoker, mill: Path) -> None:
    (mill / "mill.cpp").write_text("int main() { return 0; }\n")
    done = tried(stoker, mill)
    assert (done.returncode, "passes as it is now" in done.stdout) == (3, True)


def test_a_log_from_elsewhere_is_never_tried(stoker: Stoker, tmp_path: Path) -> None:
    log = tmp_path / "build.log"
    log.write_text("$ make\nmake: *** [Makefile:3: mill] Error 1\n")
    for what in (str(log), "-"):
        done = stoker("diagnose", "--try", what)
        assert done.returncode == 2
        assert "only commands that stoker itself ran" in done.stderr

"""`stoker run` as a wrapper: the command is the same as without it, only better chosen."""

import os
import shutil
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from conftest import Stoker
from governed import STOKER, Build, finished, wait_until
from small_disks import small_disk
from stoker.flows.running import jobs_of

Need = Callable[[str], str]

# Steps that end only when eight of them have begun: with fewer jobs at once they give up.
TOGETHER = """
touch "begun-$1"
for i in $(seq 600); do
    [ $(ls begun-* | wc -l) -ge 8 ] && exit 0
    sleep 0.05
done
exit 1
"""
SUMMARY = {
    "status", "steps", "wall_s", "cpu_s", "governor_cpu_s", "peak_bytes", "limit_bytes",
    "oom_kills", "preemptions", "retries", "lower_bound_s", "reserving_bound_s",
}  # fmt: skip


# -- status, output, input ---------------------------------------------------------------------


@pytest.mark.parametrize(
    ("script", "status"),
    [
        ("exit 0", 0),
        ("exit 3", 3),
        ("exit 255", 255),
        ("kill -9 $$", 128 + signal.SIGKILL),
        ("kill -SEGV $$", 128 + signal.SIGSEGV),
    ],
)
def test_the_status_is_the_commands_own(build: Build, script: str, status: int) -> None:
    assert build.run("sh", "-c", script).status == status


def test_stdout_is_the_commands_own_and_ours_goes_to_stderr(build: Build) -> None:
    done = build.run("sh", "-c", "printf 'no end of line'; printf mine >&2")
    assert done.out == b"no end of line"
    assert done.err.startswith("mine")
    assert "stoker: 0 steps" in done.err


@pytest.mark.parametrize("progress", ["quiet", "json"])
def test_quiet_and_json_say_nothing_in_words(build: Build, progress: str) -> None:
    build.step("one", "true")
    done = build.run(options=["--progress", progress])
    kinds = [msgspec.json.decode(line)["event"] for line in done.err.splitlines()]
    assert [kind for kind in kinds if kind in ("waits", "starts", "ends")] == (
        ["waits", "starts", "ends"] if progress == "json" else []
    )


def test_stdin_is_the_commands_own(build: Build) -> None:
    done = subprocess.run(
        [STOKER, "run", "--", "cat"],
        env=build.environment,
        input=b"\0 to be read",
        capture_output=True,
        check=False,
    )
    assert done.stdout == b"\0 to be read"


@pytest.mark.parametrize("redirection", ["2>&-", "2>/dev/full", "<&-"])
def test_streams_that_cannot_be_used(build: Build, redirection: str) -> None:
    build.step("one", "true")
    script = f"'{STOKER}' run -- sh -c 'ninja && exit 3' {redirection}"
    done = subprocess.run(
        ["sh", "-c", script], cwd=build.folder, env=build.environment, capture_output=True,
        check=False,
    )  # fmt: skip
    assert done.returncode == 3
    assert build.made() == {"one"}


def test_a_folder_that_is_gone(build: Build) -> None:
    script = f"mkdir gone; cd gone; rmdir ../gone; '{STOKER}' run -- true"
    done = subprocess.run(
        ["sh", "-c", script], cwd=build.folder, env=build.environment, capture_output=True,
        check=False,
    )  # fmt: skip
    assert done.returncode == 5
    assert b"Traceback" not in done.stderr


def test_a_command_that_does_not_exist(build: Build) -> None:
    done = build.run("no-such-command", "-j4")
    assert (done.status, done.out) == (127, b"")
    assert "no-such-command" in done.err
    assert "Traceback" not in done.err


def test_a_command_that_cannot_be_executed(build: Build) -> None:
    (build.folder / "data").write_text("no program")
    assert build.run("./data").status == 126


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--memory", "8Q"], "not an amount of memory"),
        (["--memory", "inf"], "not an amount of memory"),
        (["--keep-free", "-1G"], "not an amount of memory"),
        (["--policy", "adaptiv"], "did you mean adaptive"),
        (["--policy", "fixed:0"], "fixed:0"),
        (["--cpus", "0"], "--cpus"),
    ],
)
def test_bad_options_are_said_before_anything_begins(
    build: Build, options: list[str], said: str
) -> None:
    done = build.run("touch", "ran", options=options)
    assert done.status == 2
    assert said in done.err
    assert "Traceback" not in done.err
    assert not (build.folder / "ran").exists()


def test_threads_that_nvcc_takes_from_its_environment(build: Build, need: Need) -> None:
    words = [need("nvcc"), "-std=c++17", "-c", "a.cu", "-o", "a.o"]
    (build.folder / "a.cu").touch()
    done = build.run(str(build.launcher), *words, NVCC_APPEND_FLAGS="--threads 3")
    assert done.status == 0, done
    (attempt,) = build.attempts()
    assert attempt.record.step.threads == 3


# -- the summary -------------------------------------------------------------------------------


def test_the_summary_has_all_it_must_have(build: Build) -> None:
    build.step("one", "true")
    build.step("two", "true")
    file = build.folder / "summary.json"
    assert build.run(options=["--summary", str(file)]).status == 0
    summary = msgspec.json.decode(file.read_bytes())
    assert set(summary) >= SUMMARY
    assert (summary["status"], summary["steps"], summary["oom_kills"]) == (0, 2, 0)
    assert 0 < summary["peak_bytes"] < summary["limit_bytes"]


def test_a_summary_that_cannot_be_written_does_not_change_the_status(build: Build) -> None:
    done = build.run("sh", "-c", "exit 3", options=["--summary", "/proc/no/summary"])
    assert done.status == 3
    assert "/proc/no/summary" in done.err
    assert "Traceback" not in done.err


def test_a_summary_of_a_failed_build_says_so(build: Build) -> None:
    build.step("one", "exit 7")
    file = build.folder / "summary.json"
    status = build.run(options=["--summary", str(file)]).status
    assert msgspec.json.decode(file.read_bytes())["status"] == status != 0


# -- the window --------------------------------------------------------------------------------


@pytest.fixture
def together(build: Build) -> Build:
    """A build that ends well only if eight jobs run at once. They do not ask: they only wait."""
    for number in range(8):
        build.step(f"step{number}", f"set -- {number}\n({TOGETHER})", before="")
    steps = " ".join(f"step{number}" for number in range(8))
    (build.folder / "Makefile").write_text(
        f"all: {steps}\nstep%:\n\tsh ./$@.sh\n"
        "through-ninja:\n\tninja -j2\nthrough-make:\n\t$(MAKE) all\n"
    )
    return build


@pytest.mark.parametrize(
    "words",
    [
        ("ninja",),
        ("ninja", "-j1"),
        ("ninja", "-j", "1", "-d", "stats"),
        ("make",),
        ("make", "-j2"),
        ("make", "--jobs=2"),
        ("make", "-j", "2", "all"),
        ("make", "through-ninja"),
        ("make", "through-make"),
        ("sh", "-c", "ninja -j1"),
    ],
    ids=" ".join,
)
def test_the_jobs_of_a_command_give_way_to_the_window(
    together: Build, words: tuple[str, ...], need: Need
) -> None:
    need(words[0])
    done = together.run(*words)
    assert done.status == 0, done
    assert len(together.made()) == 8


def test_jobs_in_makes_own_variable_give_way_too(together: Build, need: Need) -> None:
    need("make")
    done = together.run("make", MAKEFLAGS="-k -j2")
    assert done.status == 0, done


def test_the_jobs_are_the_cpus_if_they_are_to_be_respected(build: Build) -> None:
    build.step("one", "true")
    assert build.summary("ninja", "-j1", options=["--respect-jobs"]).cpus == 1


@pytest.mark.parametrize(
    ("line", "jobs"),
    [
        ("ninja", None),
        ("ninja -j8", 8),
        ("ninja -j 8 -v", 8),
        ("make --jobs=8", 8),
        ("cmake --build . --parallel 8", 8),
        ("make -j", None),
        ("ninja -j0", None),
        ("echo 8 8", None),
        ("ninja -jx", None),
    ],
)
def test_jobs_of_a_command(line: str, jobs: int | None) -> None:
    assert jobs_of(line.split()) == jobs


# -- builds in builds --------------------------------------------------------------------------


def test_nested_builds_ask_the_same_governor(build: Build, tmp_path: Path, need: Need) -> None:
    need("make")
    inner = Build(tmp_path / "inner", build.home)
    inner.step("in1", "true")
    inner.step("in2", "true")
    made = tmp_path / "made"
    made.mkdir()
    (made / "Makefile").write_text("all: a b\na b:\n\tcc -c -o $@ ../source.c\n")
    (tmp_path / "source.c").write_text("int one(void) { return 1; }\n")
    build.step("ninja-in-ninja", f"ninja -C {inner.folder}", before="")
    build.step("make-in-ninja", f"make -C {made}", before="")
    build.step("own", "true")
    assert build.summary().steps == 5


def test_a_step_within_a_step_does_not_ask_again(build: Build) -> None:
    build.step("outer", f"'{build.launcher}' sh -c '\"$0\" true' '{build.launcher}'")
    assert build.summary(options=["--cpus", "1"]).steps == 1


# -- compilers ---------------------------------------------------------------------------------


def test_a_compile_error_is_shown_as_the_compiler_printed_it(build: Build, need: Need) -> None:
    need("cc")
    (build.folder / "bad.c").write_text('#warning "first\\tthis"\nint f(void) { return x; }\n')
    build.step("bad", "echo attempt >> attempts\ncc -fdiagnostics-color=always -c bad.c -o bad.o")
    plain = subprocess.run(
        ["ninja", "-j1"], cwd=build.folder, env=build.environment, capture_output=True, check=False
    )
    (build.folder / "attempts").unlink()
    governed = build.run()
    assert governed.out == plain.stdout
    assert b"bad.c:2" in governed.out
    assert governed.status == plain.returncode
    assert (build.folder / "attempts").read_text() == "attempt\n"


def test_a_limit_of_the_users_own_is_no_lack_of_memory(build: Build, need: Need) -> None:
    need("cc")
    (build.folder / "large.c").write_text('#include <stdlib.h>\nchar text[] = "x";\n' * 1000)
    build.step("large", "echo attempt >> attempts\nulimit -v 40000\ncc -c large.c -o large.o")
    done = build.run()
    assert done.status != 0
    assert (build.folder / "attempts").read_text() == "attempt\n"
    assert len(build.attempts()) == 1


@pytest.mark.parametrize(
    "name", ["with spaces and 'quotes'", "Größe ☃", os.fsdecode(b"not \xff utf-8"), "a\nb"]
)
def test_names_of_any_kind(tmp_path: Path, build: Build, need: Need, name: str) -> None:
    need("make")
    try:
        folder = tmp_path / name
        folder.mkdir()
    except OSError:
        pytest.skip("this file system does not take such a name")
    other = Build(folder, build.home)
    (folder / f"{name}.c").write_text("int one(void) { return 1; }\n")
    (folder / "Makefile").write_text('one.o: ; cc -c "$$NAME.c" -o "$$NAME.o"\n')
    assert other.summary("make", NAME=name).steps == 1
    assert (folder / f"{name}.o").exists()


def test_a_home_with_spaces(tmp_path: Path, build: Build, need: Need) -> None:
    need("make")
    home = tmp_path / "a home"
    (build.folder / "one.c").write_text("int one(void) { return 1; }\n")
    (build.folder / "Makefile").write_text("one.o: one.c ; cc -c one.c -o $@\n")
    build.home = home
    assert build.summary("make", STOKER_HOME=str(home)).steps == 1


def test_a_home_too_deep_for_a_socket(tmp_path: Path, build: Build) -> None:
    home = tmp_path / ("deep" * 30)
    build.step("one", "true")
    build.home = home
    assert build.summary(STOKER_HOME=str(home)).steps == 1


def test_only_compilers_that_are_there_seem_to_be(build: Build) -> None:
    done = build.run("sh", "-c", "command -v cc && ! command -v no-such-arch-linux-gcc")
    assert done.status == 0
    assert done.out.startswith(os.fsencode(build.home))
    bare = build.folder / "bare"
    bare.mkdir()
    for tool in ("sh", "env"):
        (bare / tool).symlink_to(shutil.which(tool) or "")
    assert build.run("sh", "-c", "command -v cc", PATH=str(bare)).status == 127


# -- what cannot be written, or opened ----------------------------------------------------------


def test_a_home_that_cannot_be_written_governs_nothing_and_runs_the_command(
    build: Build, tmp_path: Path
) -> None:
    build.step("one", "true", before="")
    with small_disk(tmp_path / "home", "ro") as home:
        for name in ("STOKER_HOME", "XDG_DATA_HOME", "XDG_STATE_HOME", "XDG_CACHE_HOME"):
            build.environment.pop(name, None)
        build.environment |= {"HOME": str(home), "XDG_RUNTIME_DIR": str(tmp_path / "run")}
        (tmp_path / "run").mkdir(mode=0o700)
        done = build.run("sh", "-c", "ninja && exit 3")
        assert done.status == 3, done
        assert build.made() == {"one"}
        assert "the build is not governed" in done.err
        assert "STOKER_HOME" in done.err
        build.environment["STOKER_HOME"] = str(home / "stoker")
        again = build.run("sh", "-c", "exit 3")
        assert (again.status, "STOKER_HOME" in again.err) == (3, True), again
        wait_until(lambda: not list((tmp_path / "run").rglob("*.sock")), "its governor has ended")


def test_a_governor_that_does_not_start_leaves_the_command_to_itself(build: Build) -> None:
    """Its log cannot be written, and there is nobody to tell."""
    build.step("one", "true", before="")
    (build.home / "run").mkdir(mode=0o700)
    with small_disk(build.home / "run" / "full", "size=4k,nr_inodes=2") as full:
        environment = {"STOKER_HOME": str(full), "XDG_RUNTIME_DIR": str(full)}
        done = build.run("sh", "-c", "ninja && exit 3", **environment)
        assert done.status == 3, done
        assert "the build is not governed" in done.err
    assert build.made() == {"one"}


@pytest.mark.parametrize("limit", ["-Sn", "-n"])
def test_a_window_wider_than_the_files_that_may_be_open(build: Build, limit: str) -> None:
    """A soft limit is raised; a hard one narrows the window."""
    for number in range(100):
        build.step(f"step{number}", "true")
    few = ["sh", "-c", f'ulimit {limit} 64; exec "$@"', "few"]
    done = finished(build.start(options=["--cpus", "128"], prefix=few))
    assert done.status == 0, done
    assert len(build.made()) == 100


def test_the_limit_of_files_is_raised_no_further_than_the_window_needs(build: Build) -> None:
    few = ["sh", "-c", 'ulimit -Sn 64; exec "$@"', "few"]
    done = finished(build.start("sh", "-c", "ulimit -Sn", options=["--cpus", "4"], prefix=few))
    assert 64 < int(done.out) <= 128
    plenty = ["sh", "-c", 'ulimit -Sn 512; exec "$@"', "plenty"]
    done = finished(build.start("sh", "-c", "ulimit -Sn", options=["--cpus", "4"], prefix=plenty))
    assert int(done.out) == 512


# -- CUDA ---------------------------------------------------------------------------------------


def test_a_script_named_nvcc_is_not_the_toolkit(build: Build) -> None:
    home, scripts = build.folder / "cuda", build.folder / "local/bin"
    for folder, body in (
        (home / "bin", f'[ "$1" != --dryrun ] || echo "#$ TOP={home}/bin/.." >&2'),
        (scripts, f'exec {home}/bin/nvcc "$@"'),
    ):
        folder.mkdir(parents=True)
        (folder / "nvcc").write_text(f"#!/bin/sh\n{body}\n")
        (folder / "nvcc").chmod(0o755)
    path = f"{scripts}:{os.environ['PATH']}"
    for name in ("CUDA_HOME", "CUDA_PATH"):
        build.environment.pop(name, None)
    done = build.run("sh", "-c", 'printf %s "$CUDA_HOME"', PATH=path)
    assert done.out.decode() == str(home)
    done = build.run("sh", "-c", 'printf %s "$CUDA_HOME"', PATH=path, CUDA_PATH="/named")
    assert done.out.decode() == "/named"


# -- ccache ------------------------------------------------------------------------------------


def test_a_hit_of_ccache_never_asks(build: Build, need: Need) -> None:
    need("ccache")
    (build.folder / "one.c").write_text("int one(void) { return 1; }\n")
    compiles = "echo compiled >> compiled\nccache cc -c one.c -o one.o"
    build.step("one", compiles, before="")
    cache = {"CCACHE_DIR": str(build.folder / "cache")}
    assert build.summary(**cache).steps == 1
    (build.folder / "one").unlink()
    assert build.summary(**cache).steps == 0
    assert (build.folder / "compiled").read_text() == "compiled\n" * 2


# -- CMake -------------------------------------------------------------------------------------


SLOW = """
#include <regex>
bool a(const char* text) { return std::regex_match(text, std::regex("a+")); }
"""


@pytest.fixture
def project(build: Build, need: Need) -> Build:
    need("cmake")
    need("c++")
    (build.folder / "CMakeLists.txt").write_text(
        "cmake_minimum_required(VERSION 3.18)\nproject(small CXX)\n"
        "set(CMAKE_CXX_FLAGS -O2)\nadd_library(small OBJECT a.cpp b.cpp)\n"
    )
    for name in ("a", "b"):
        (build.folder / f"{name}.cpp").write_text(f"int {name}() {{ return 1; }}\n")
    return build


def configure(build: Build, *options: str) -> None:
    subprocess.run(
        ["cmake", "-G", "Ninja", "-B", "out", *options],
        cwd=build.folder,
        env=build.environment,
        check=True,
        capture_output=True,
    )


def test_what_never_asked_is_said_and_attach_mends_it(project: Build) -> None:
    (project.folder / "a.cpp").write_text(SLOW)  # some seconds of a compiler's time
    configure(project)
    done = project.run("cmake", "--build", "out", "-j1")
    assert done.status == 0, done
    assert "stoker attach" in done.err
    words = [STOKER, "attach", "out"]
    asked = subprocess.run(
        words, cwd=project.folder, env=project.environment, input="n\n", capture_output=True,
        text=True, check=False,
    )  # fmt: skip
    assert "2 objects will be compiled again" in asked.stdout
    for said in ("attached", "nothing to do"):
        done2 = subprocess.run(
            [*words, "--yes"], cwd=project.folder, env=project.environment, capture_output=True,
            text=True, check=True,
        )  # fmt: skip
        assert said in done2.stdout
    (project.folder / "a.cpp").write_text("int a() { return 1; }\n")
    assert project.summary("cmake", "--build", "out").steps == 2


def test_attach_leaves_a_cache_where_it_is(project: Build) -> None:
    configure(project, "-DCMAKE_CXX_COMPILER_LAUNCHER=ccache")
    attached = subprocess.run(
        [STOKER, "attach", "out"], cwd=project.folder, env=project.environment,
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert "CXX: ccache is in place" in attached.stdout
    assert "nothing to do" in attached.stdout


def test_attach_to_what_is_no_build_folder(stoker: Stoker) -> None:
    done = stoker("attach", ".")
    assert done.returncode == 2
    assert "no build folder" in done.stderr


def test_cmake_under_stoker_finds_the_compiler_itself(project: Build) -> None:
    done = project.run("cmake", "-G", "Ninja", "-B", "out")
    assert done.status == 0, done
    cache = (project.folder / "out/CMakeCache.txt").read_text()
    compiler = next(line for line in cache.splitlines() if line.startswith("CMAKE_CXX_COMPILER:"))
    assert str(project.home) not in compiler
    assert project.launcher in cache
    assert project.summary("cmake", "--build", "out").steps == 2

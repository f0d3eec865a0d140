"""`stoker run` as a wrapper: the command behaves as it does without stoker."""

import os
import signal
import subprocess
from pathlib import Path

import msgspec
import pytest

from conftest import Need
from governed import STOKER, Build, finished, wait_until
from small_disks import small_disk
from stoker.govern.client.native import stable_native
from stoker.govern.history.store import History
from stoker.model.errors import ExitStatus

SUMMARY = {
    "status", "steps", "wall_s", "cpu_s", "governor_cpu_s", "peak_bytes", "limit_bytes",
    "oom_kills", "preemptions", "retries", "lower_bound_s", "governed_s",
}  # fmt: skip


@pytest.mark.parametrize(
    ("script", "status"),
    [
        ("exit 0", 0),
        ("exit 3", 3),
        ("exit 255", 255),
        ("kill -9 $$", -signal.SIGKILL),
        ("kill -SEGV $$", -signal.SIGSEGV),
    ],
)
def test_the_status_is_the_commands_own(build: Build, script: str, status: int) -> None:
    assert build.run("sh", "-c", script).status == status


def test_stdout_is_the_commands_own_and_ours_goes_to_stderr(build: Build) -> None:
    done = build.run("sh", "-c", "printf 'no end of line'; printf mine >&2")
    assert done.out == b"no end of line"
    assert done.err.startswith("mine")
    assert "stoker: 0 steps" in done.err


def test_settings_come_from_the_file_and_the_environment(build: Build) -> None:
    build.step("one", "true")
    (build.folder / "stoker.toml").write_text(
        '[defaults]\nmemory = "512M"\ncpus = 3\npolicy = "levels"\nprogress = "quiet"\n'
    )
    summary = build.summary()
    assert (summary.limit_bytes, summary.cpus, summary.policy) == (512 << 20, 3, "levels")
    summary = build.summary(options=["--cpus", "1"], STOKER_POLICY="fixed:2", STOKER_CPUS="2")
    assert (summary.cpus, summary.policy) == (1, "fixed:2")
    named = f"stoker: settings of {build.folder / 'stoker.toml'}\n"
    assert build.run("true").err == named
    assert build.run("true", options=["--progress", "quiet"]).err == ""
    (build.folder / "stoker.toml").write_text('[defaults]\nmemory = "8Q"\n')
    refused = build.run("true")
    assert refused.status == 2
    assert "stoker.toml:2: --memory 8Q: not an amount of memory" in refused.err


def test_a_launcher_of_an_untrusted_file_is_not_started(build: Build) -> None:
    evil = build.folder / "evil.sh"
    evil.write_text(f'#!/bin/sh\ntouch {build.folder}/started\nexec "$@"\n')
    evil.chmod(0o755)
    file = build.folder / "stoker.toml"
    file.write_text(f'[defaults]\ncompiler_launcher = "{evil}"\ncache = "none"\n')
    (build.folder / "a.c").touch()
    done = build.run("gcc", "-c", "a.c")
    assert done.status == 0, done.err
    assert "stoker.toml:2: ignored" in done.err
    assert not (build.folder / "started").exists()
    trusted = subprocess.run(
        [STOKER, "plan", "--trust", file], env=build.environment, capture_output=True, check=True
    )
    assert f"stoker.toml:2: compiler_launcher = {evil}" in trusted.stdout.decode()
    assert build.run("gcc", "-c", "a.c").status == 0
    assert (build.folder / "started").exists()


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


ODD_COMPILES = (
    "ulimit -v 20000; gcc -c a.c -o o",
    "ulimit -f 0; gcc -c a.c -o o",
    "ulimit -d 2000; gcc -c a.c -o o",
    "gcc -c bad.c -o o 2>&-",
    "gcc -c a.c -o o >&- 2>&-",
    "gcc -c bad.c -o o 2>/dev/full",
    "echo old > f; gcc -S a.c -o /dev/stdout >> f",
    "echo old > f; gcc -S a.c -o /dev/stdout > f",
    "echo old > f; gcc -S a.c -o /dev/fd/3 3>> f",
    "gcc -S -x c - -o f < a.c",
    "cat a.c | gcc -S -x c - -o f",
)


def test_compiles_with_limits_and_strange_streams_end_as_they_would(build: Build) -> None:
    """The same status, messages and files as without stoker."""
    (build.folder / "a.c").write_text("int main(void) { return 0; }\n")
    (build.folder / "bad.c").write_text("int main(void) { return missing; }\n")
    lines = (f"rm -f o f; ( {each} ); echo status $?; cat f" for each in ODD_COMPILES)
    (build.folder / "odd.sh").write_text("exec 2>&1\n" + "\n".join(lines) + "\n")
    plain = subprocess.run(["sh", "odd.sh"], cwd=build.folder, capture_output=True, check=False)
    done = build.run("sh", "odd.sh", options=["--progress", "quiet"])
    assert plain.stdout.count(b"status") == len(ODD_COMPILES)
    assert done.out == plain.stdout


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
        (["-j4"], "--cpus N uses at most N CPUs"),
        (["--memory", "inf"], "not an amount of memory"),
        (["--keep-free", "-1G"], "not an amount of memory"),
        (["--keep-free", "900T"], "leaves no memory"),
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


def test_the_summary_has_all_it_must_have(build: Build) -> None:
    build.step("one", "sleep 0.5")  # long enough to be measured
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
    folder = tmp_path / name
    folder.mkdir()
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
        for option, limit in (("--memory", "8G"), ("--keep-free", "100M")):
            refused = build.run("sh", "-c", "exit 3", options=[option, limit])
            assert refused.status == ExitStatus.STORAGE, refused
            assert f"{option} cannot be kept" in refused.err
            assert "STOKER_HOME" in refused.err
        wait_until(lambda: not list((tmp_path / "run").rglob("*.sock")), "its governor has ended")


@pytest.mark.parametrize("files", [8, 20, 32, 40])
def test_too_few_files_that_may_be_open(build: Build, files: int) -> None:
    build.step("one", "true")
    done = finished(build.start(prefix=["sh", "-c", f'ulimit -n {files} && exec "$@"', "sh"]))
    if files < 40:
        assert done.status == ExitStatus.USAGE, done
        assert f"may open {files} files" in done.err
        assert "ulimit -n 1024" in done.err
    else:
        assert (done.status, build.made()) == (0, {"one"}), done


def test_a_compiler_that_may_open_few_files(build: Build, need: Need) -> None:
    need("gcc")
    (build.folder / "a.c").write_text("int a;\n")
    for files in (5, 6, 8, 12):
        done = build.run("sh", "-c", f"ulimit -n {files}; gcc -c a.c -o {files}.o")
        assert (done.status, (build.folder / f"{files}.o").exists()) == (0, True), done


def test_a_governor_that_does_not_start_leaves_the_command_to_itself(build: Build) -> None:
    """The governor cannot write its log, so the command runs without it."""
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
    assert 64 < int(done.out) <= 192
    plenty = ["sh", "-c", 'ulimit -Sn 512; exec "$@"', "plenty"]
    done = finished(build.start("sh", "-c", "ulimit -Sn", options=["--cpus", "4"], prefix=plenty))
    assert int(done.out) == 512


def test_a_hit_of_ccache_never_asks(build: Build, need: Need) -> None:
    need("ccache")
    need("make")
    (build.folder / "one.c").write_text("int one(void) { return 1; }\n")
    recipe = "echo compiled >> compiled; ccache cc -c one.c -o one.o"
    (build.folder / "Makefile").write_text(f"one.o: ; {recipe}\n")
    cache = {"CCACHE_DIR": str(build.folder / "cache"), "STOKER_CACHE": "auto"}
    assert build.summary("make", **cache).steps == 1
    (build.folder / "one.o").unlink()
    assert build.summary("make", **cache).steps == 0
    assert (build.folder / "compiled").read_text() == "compiled\n" * 2


def test_the_history_knows_hits_of_ccache(build: Build, need: Need) -> None:
    need("ccache")
    for name in ("one", "two"):
        (build.folder / f"{name}.c").write_text(f"int {name}(void) {{ return 1; }}\n")
    compile_both = "ccache cc -c one.c -o one.o && ccache cc -c two.c -o two.o"
    cache = {"CCACHE_DIR": str(build.folder / "cache"), "STOKER_CACHE": "auto"}
    assert build.run("sh", "-c", compile_both, **cache).status == 0
    (build.folder / "two.c").write_text("int two(void) { return 2; }\n")
    assert build.run("sh", "-c", compile_both, **cache).status == 0
    with History(build.home / "state" / "history.sqlite") as history:
        second, first = (run.summary for run in history.runs())
    assert first
    assert second
    assert (first.cache_hits, first.steps) == (0, 2)
    assert (second.cache_hits, second.steps) == (1, 1)


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


def cache_of(project: Build) -> str:
    return (project.folder / "out/CMakeCache.txt").read_text()


def test_cmake_under_stoker_finds_the_compiler_itself(project: Build) -> None:
    """Nothing of stoker's is left in the folder: ninja, run by hand, is the user's own."""
    done = project.run("cmake", "-G", "Ninja", "-B", "out")
    assert done.status == 0, done
    assert project.attempts() == []
    assert "CMAKE_CXX_COMPILER:" in cache_of(project)
    for file in (project.folder / "out").rglob("*"):
        assert not file.is_file() or os.fsencode(project.home) not in file.read_bytes()
    assert project.summary("cmake", "--build", "out").steps == 2


def test_the_launcher_variables_on_request(project: Build) -> None:
    done = project.run("cmake", "-G", "Ninja", "-B", "out", options=["--via", "launcher"])
    assert done.status == 0, done
    remembered = stable_native().remembered  # it follows an upgrade
    assert f"CMAKE_CXX_COMPILER_LAUNCHER:STRING={remembered}" in cache_of(project)
    assert project.summary("cmake", "--build", "out").steps == 2

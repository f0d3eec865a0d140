"""Temporary files and full disks under `stoker run` and `stoker build`."""

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from builds import Project
from conftest import Need, Stoker
from governed import WAIT, Build, finished, wait_until
from memory_groups import MakeGroup
from small_disks import small_disk

MIB = 1 << 20
MEMORY = Path("/dev/shm")
TELL = 'echo "$TMPDIR" > $0.tmp'

in_memory = pytest.mark.skipif(
    not os.access(MEMORY, os.W_OK) or shutil.disk_usage(MEMORY).free < 2 << 30,
    reason="there is no file system in memory",
)


def told(build: Build, name: str) -> Path:
    """The TMPDIR of a step."""
    file = build.folder / f"{name}.sh.tmp"
    wait_until(lambda: file.exists() and file.read_text().endswith("\n"), f"{name} runs")
    return Path(file.read_text().strip())


@pytest.fixture(autouse=True)
def _no_tmpdir_of_the_users(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("TMPDIR", "TEMP", "TMP"):
        monkeypatch.delenv(name, raising=False)


@pytest.mark.parametrize("tmp", ["disk", pytest.param("ram", marks=in_memory)])
def test_a_folder_of_the_run_that_goes_with_it(build: Build, tmp: str) -> None:
    build.step("one", f"{TELL}\n{WAIT}")
    run = build.start(options=["--tmp", tmp])
    folder = told(build, "one")
    assert folder.is_dir()
    assert folder.is_relative_to(MEMORY) == (tmp == "ram")
    (folder.parent / "left").write_bytes(b"x")
    build.let_go()
    assert finished(run).status == 0
    assert not folder.parent.exists()


def test_tmpdir_of_the_user_stays_the_place(build: Build, tmp_path: Path) -> None:
    build.step("one", TELL)
    assert build.run(TMPDIR=str(tmp_path)).status == 0
    assert told(build, "one").is_relative_to(tmp_path)


def test_kill_9_leaves_it_to_the_next_run(build: Build, tmp_path: Path) -> None:
    (tmp_path / "own").mkdir()
    build.environment["TMPDIR"] = str(tmp_path / "own")  # runs of other tests clean up in /tmp
    build.step("one", f"{TELL}\n{WAIT}")
    run = build.start(options=["--tmp", "disk"])
    folder = told(build, "one").parent
    os.kill(run.pid, signal.SIGKILL)
    run.communicate()
    build.wait_for_end()
    assert folder.is_dir()
    build.let_go()
    assert build.run(options=["--tmp", "disk"]).status == 0
    assert not folder.exists()


def test_bytes_written_are_told(build: Build) -> None:
    for name in ("one", "two"):
        build.step(name, "head -c 20000000 /dev/zero > large")
    if build.summary("ninja", "one").written_bytes is None:
        pytest.skip("this system does not count what is written")
    assert "written" in build.run("ninja", "two").err


@in_memory
def test_files_in_memory_count_as_other_usage_and_new_steps_use_the_disk(
    build: Build, make_group: MakeGroup
) -> None:
    """Run in a cgroup of its own, so that no other process changes what is measured."""
    write = "head -c 250000000 /dev/zero > $TMPDIR/large"
    build.step("one", f"{TELL}\n{write}\n{WAIT}")
    build.step("two", "until [ -e switched ]; do sleep 0.05; done", before="")
    build.step("three", TELL, needs=["two"])
    group = make_group("scratch")
    group.set_limit(2000 * MIB)  # a tenth of it is less than the file
    options = ["--tmp", "ram", "--cpus", "2", "--progress", "json"]
    run = build.start(prefix=group.enter, options=options)
    assert run.stderr is not None
    assert told(build, "one").is_relative_to(MEMORY)
    largest = 0
    for line in run.stderr:
        event = json.loads(line)
        largest = max(largest, event.get("other_usage", 0))
        if "go to disk" in event.get("text", ""):
            (build.folder / "switched").touch()
        if largest > 250_000_000 and "three" in build.made():
            build.let_go()
    assert largest > 250_000_000
    assert not told(build, "three").is_relative_to(MEMORY)
    assert finished(run).status == 0
    assert build.made() == {"one", "two", "three"}
    build.wait_for_end()


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A small file system."""
    with small_disk(tmp_path / "disk", "size=64m") as folder:
        yield folder


def test_a_disk_that_fills_up_stops_the_run_with_its_state_kept(
    disk: Path, stoker_home: Path, need: Need
) -> None:
    need("ninja")
    build = Build(disk / "build", stoker_home)
    build.step("one", "true")
    build.step("two", f"head -c 67000000 /dev/zero > large || true\n{WAIT}", needs=["one"])
    done = build.run()
    assert done.status == 5, done
    assert "the build was stopped" in done.err
    assert "stoker clean --all" in done.err
    assert build.made() == {"one"}
    build.wait_for_end()
    (build.folder / "large").unlink()
    build.let_go()
    build.step("two", "true", needs=["one"])
    assert build.run().status == 0
    assert len(build.attempts()) == 1  # what was done is not done again
    assert build.made() == {"one", "two"}
    build.wait_for_end()


GROWING = """
cmake_minimum_required(VERSION 3.18)
project(growing NONE)
add_custom_command(OUTPUT small COMMAND ${CMAKE_COMMAND} -E touch small)
add_custom_command(OUTPUT large DEPENDS small COMMAND sh ${CMAKE_SOURCE_DIR}/grow.sh)
add_custom_target(everything ALL DEPENDS large)
install(FILES ${CMAKE_BINARY_DIR}/small DESTINATION .)
"""


@pytest.fixture
def growing(tmp_path: Path, need: Need) -> Path:
    need("ninja")
    need("cmake")
    tree = tmp_path / "growing"
    tree.mkdir()
    (tree / "CMakeLists.txt").write_text(GROWING)
    (tree / "grow.sh").write_text("echo made > large\n")
    return tree


def build_folder(home: Path) -> Path:
    (found,) = (home / "cache/builds").glob("growing-*/build")
    return found


@pytest.mark.slow
@in_memory
def test_build_tree_in_memory(stoker: Stoker, growing: Path, stoker_home: Path) -> None:
    words = ("build", str(growing), "--variant", "cpu")
    done = stoker(*words, "--build-in-ram")
    assert done.returncode == 0, done.stderr
    link = build_folder(stoker_home)
    home = link.resolve()
    assert home.is_relative_to(MEMORY)
    again = stoker(*words)
    assert again.returncode == 0, again.stderr
    assert "compile    unchanged" in again.stderr
    shutil.rmtree(home)  # as after a reboot
    again = stoker(*words)
    assert again.returncode == 0, again.stderr
    assert "compile    unchanged" not in again.stderr
    assert stoker("clean", str(growing), "--yes").returncode == 0
    assert not home.exists()


@pytest.mark.slow
@in_memory
def test_build_tree_on_disk_stays_there_unless_the_build_starts_fresh(
    stoker: Stoker, growing: Path, stoker_home: Path
) -> None:
    words = ("build", str(growing), "--variant", "cpu")
    assert stoker(*words).returncode == 0
    refused = stoker(*words, "--build-in-ram")
    assert refused.returncode == 2
    assert "is on disk already" in refused.stderr
    assert "--fresh" in refused.stderr
    assert stoker(*words, "--build-in-ram", "--fresh").returncode == 0
    home = build_folder(stoker_home).resolve()
    assert home.is_relative_to(MEMORY)
    assert stoker("clean", str(growing), "--yes").returncode == 0
    assert not home.exists()


@pytest.mark.slow
@in_memory
def test_fresh_build_in_memory_of_a_tree_built_in_place(stoker: Stoker, tmp_path: Path) -> None:
    project = Project(stoker, tmp_path, "small-pytorch")
    words = ("--build-in-ram", "--target", "c10")
    project.built(*words)
    home = (project.tree / "build").readlink()
    (home / "old").touch()
    assert project.built(*words, "--fresh").ends["compile"] == "done"
    assert (project.tree / "build/CMakeCache.txt").exists()
    assert not (project.tree / "build/old").exists()
    assert stoker("clean", str(project.tree), "--yes").returncode == 0
    assert not home.exists()
    assert not (project.tree / "build").is_symlink()


@pytest.mark.slow
@in_memory
def test_build_tree_that_outgrows_memory_continues_on_disk(
    growing: Path, stoker_home: Path, make_group: MakeGroup
) -> None:
    (growing / "grow.sh").write_text(
        "head -c 600000000 /dev/zero > filler; until [ -e stop ]; do sleep 0.1; done\n"
    )
    words = [sys.executable, "-m", "stoker", "build", str(growing), "--variant", "cpu"]
    group = make_group("tree")
    group.set_limit(1000 * MIB)

    def run(*command: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            command, capture_output=True, text=True, cwd=growing.parent, timeout=200, check=False
        )

    done = run(*group.enter, *words, "--build-in-ram")
    assert done.returncode == 5, done.stderr
    assert "the build was stopped" in done.stderr
    folder = build_folder(stoker_home)
    assert not folder.is_symlink()
    assert (folder / "filler").stat().st_size > 300_000_000
    made = (folder / "small").stat().st_mtime_ns
    (growing / "grow.sh").write_text("echo made > large\n")
    done = run(*words)
    assert done.returncode == 0, done.stderr
    assert (folder / "small").stat().st_mtime_ns == made

"""Runs that share a user and a machine, but not their history or their version."""

import json
import os
import shutil
import site
import subprocess
import sys
from pathlib import Path

import pytest

from conftest import Need, Stoker, made_once
from governed import WAIT, Build, finished, wait_until
from small_disks import small_disk

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="session")
def earlier(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The environment of a Python in which another version of stoker is installed, with launchers
    that speak another protocol.
    """

    def install(folder: Path) -> None:
        for part in ("src", "launcher"):
            shutil.copytree(ROOT / part, folder / part)
        shutil.copy(ROOT / "CMakeLists.txt", folder)
        for name, before, after in (
            ("src/stoker/__init__.py", '__version__ = "', '__version__ = "0.'),
            ("src/stoker/govern/protocol.py", "\nVERSION = ", "\nVERSION = 9"),
            ("launcher/launcher.h", "PROTOCOL_VERSION = ", "PROTOCOL_VERSION = 9"),
        ):
            text = (folder / name).read_text()
            assert before in text
            (folder / name).write_text(text.replace(before, after))
        made = str(folder / "made")
        for words in (["-S", str(folder), "-B", made], ["--build", made]):
            subprocess.run(["cmake", *words], check=True, capture_output=True)
        for name, place in (("stoker-launcher", "bin"), ("libstoker-preload.so", "lib")):
            (folder / "src/stoker" / place).mkdir(exist_ok=True)
            shutil.copy(folder / "made" / name, folder / "src/stoker" / place)

    folder = made_once(tmp_path_factory, "earlier", install)
    return {"PYTHONPATH": os.pathsep.join([f"{folder}/src", *site.getsitepackages()])}


def test_a_version_that_was_installed_during_a_build_does_not_change_it(
    build: Build, earlier: dict[str, str], tmp_path: Path, need: Need
) -> None:
    need("cmake")
    build.step("one", f"touch one-runs; {WAIT}", before="")
    build.step("two", "true", needs=["one"], before="")
    other = Build(tmp_path / "other", build.home)
    other.step("three", "true", before="")
    python = [f"{sys.base_prefix}/bin/python3", "-m", "stoker", "run", "--", "ninja"]
    with subprocess.Popen(
        python, cwd=build.folder, env=build.environment | earlier, stderr=subprocess.PIPE, text=True
    ) as old:
        wait_until((build.folder / "one-runs").exists, "the first step runs")
        assert other.summary().steps == 1
        build.let_go()
        said = old.communicate(timeout=100)[1]
    assert (old.returncode, build.made()) == (0, {"one", "two"}), said
    assert "2 steps" in said
    assert "could not reach" not in said


def test_the_error_of_another_runs_history_is_not_ours(build: Build, tmp_path: Path) -> None:
    """Both have one governor: one user, and one memory limit."""
    build.step("one", "touch one-runs; until [ -e go ]; do sleep 0.05; done")
    (tmp_path / "other").mkdir()
    other = Build(tmp_path / "other/build", build.home)
    other.step("two", "true")
    runtime = tmp_path / "runtime"
    runtime.mkdir(mode=0o700)
    common = {"STOKER_HOME": "", "XDG_RUNTIME_DIR": str(runtime), "HOME": str(tmp_path / "home")}
    with small_disk(tmp_path / "full", "size=64k") as full:
        (full / "filling").write_bytes(b"x" * (48 << 10))
        first = build.start(**common, XDG_STATE_HOME=str(full))
        wait_until((build.folder / "one-runs").exists, "the first step runs")
        done = finished(other.start(**common, XDG_STATE_HOME=str(tmp_path / "good")))
        build.let_go()
        of_first = finished(first)
        assert (done.status, of_first.status) == (0, 0)
        assert "history" in of_first.err, of_first
        assert str(full) not in done.err, done
        assert len(list(runtime.rglob("*.sock"))) <= 1
        wait_until(lambda: not list(runtime.rglob("*.sock")), "the governor has ended")


def test_a_removed_history_gives_no_number_again(build: Build, stoker: Stoker) -> None:
    build.step("one", "echo the first failure >&2; exit 3")
    assert build.run().status != 0
    (number,) = (path.stem for path in (build.home / "state/failed").glob("*.json"))
    (build.home / "state/history.sqlite").unlink()
    build.wait_for_end()
    build.step("one", "true")
    assert build.run().status == 0
    shown = json.loads(stoker("history", "--json").stdout)
    (run,) = shown["runs"]
    assert (run["id"] > int(number), run["cause"]) == (True, ""), run

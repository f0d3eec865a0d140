"""Runs that share a user and a machine, but not their history or their version."""

import json
from pathlib import Path

from conftest import Stoker
from governed import Build, finished, wait_until
from small_disks import small_disk


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

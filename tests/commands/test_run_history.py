"""Builds whose history is locked, damaged or invalid: they neither wait for it nor fail."""

import json
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from builds import Project
from conftest import Stoker
from governed import WAIT, Build, finished, wait_until
from stoker.govern.history.store import History


def history_of(home: Path) -> Path:
    return home / "state" / "history.sqlite"


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Another process writes, and does not end."""
    History(path).close()
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        yield


def change(path: Path, statement: str) -> None:
    with closing(sqlite3.connect(path)) as database:
        database.execute(statement)
        database.commit()


def test_a_locked_history_holds_no_step_up(build: Build) -> None:
    """A governor that waits 5 seconds for each would not be done before the test gives up."""
    for number in range(30):
        build.step(f"step{number}", "true")
    with locked(history_of(build.home)):
        done = build.run(options=["--cpus", "1"])
        assert done.status == 0, done
        build.wait_for_end()
    assert len(build.made()) == 30


def test_what_a_passing_lock_held_up_is_kept_after_all(build: Build) -> None:
    build.step("one", "true")
    build.step("two", f"touch begun; {WAIT}", needs=["one"])
    with locked(history_of(build.home)):
        run = build.start(options=["--progress", "log"])
        wait_until((build.folder / "begun").exists, "the second step runs")
        assert run.stderr is not None
        said = ""
        while "history is not written" not in said:
            said = run.stderr.readline().decode()
            assert said, "the run has ended"
    while "the history is written again" not in said:
        said = run.stderr.readline().decode()
        assert said, "the run has ended"
    build.let_go()
    done = finished(run)
    assert done.status == 0, done
    assert "history" not in done.err
    assert len(build.attempts()) == 2


@pytest.mark.slow
def test_a_damaged_history_does_not_change_how_a_build_ends(
    stoker: Stoker, tmp_path: Path, stoker_home: Path
) -> None:
    project, path = Project(stoker, tmp_path, "mini-cmake"), history_of(stoker_home)
    with History(path) as history:
        for number in range(2000):
            history.start_run(f"run number {number}", "/")
    content = bytearray(path.read_bytes())
    page = content.index(b"run number 1/") // 4096 * 4096
    content[page : page + 4096] = b"\xff" * 4096
    path.write_bytes(content)
    done = project.build()
    assert done.returncode == 0, done.stderr
    assert "the record is not complete: the history was damaged" in done.stderr
    assert path.with_name("history.sqlite.corrupt").exists()
    assert json.loads(stoker("history", "--json").stdout)["runs"] == []


def test_a_row_that_cannot_be_does_not_stop_the_next_run(build: Build) -> None:
    build.step("one", "true")
    assert build.run().status == 0
    change(history_of(build.home), "UPDATE attempt SET threads = -3")
    build.step("two", "true")
    done = build.run()
    assert done.status == 0, done
    assert len(build.attempts()) == 1


@pytest.mark.parametrize(
    "figure",
    ['"peak_bytes": 1e30', '"threads": 1e30', f'"input_bytes": 1{"0" * 30}', '"threads": -3'],
)
def test_a_trace_that_cannot_be_is_not_imported(
    stoker: Stoker, tmp_path: Path, figure: str
) -> None:
    trace = tmp_path / "trace.json"
    trace.write_text(
        '{"steps": [{"output": "a", "wall_s": 1, "peak_mb": 1}, '
        f'{{"output": "b", "wall_s": 1, "peak_bytes": 1, {figure}}}]}}'
    )
    done = stoker("history", "--import", str(trace))
    assert done.returncode == 2
    assert "Traceback" not in done.stderr
    assert "trace.json" in done.stderr
    assert json.loads(stoker("history", "--json").stdout)["runs"] == []


@pytest.mark.parametrize("words", [["history"], ["simulate", "--cpus", "1", "--memory", "1G"]])
@pytest.mark.parametrize("digits", [30, 250, 5000])
def test_a_run_of_any_number_of_digits(stoker: Stoker, words: list[str], digits: int) -> None:
    done = stoker(*words, "9" * digits)
    assert done.returncode in (2, 5)
    assert "Traceback" not in done.stderr


def test_a_step_that_waited_is_explained_during_the_run_and_afterwards(
    build: Build, stoker: Stoker
) -> None:
    """One CPU and two steps: one of them waits while the other one runs."""
    build.step("one", "sleep 1")
    build.step("two", "sleep 1")
    summary = build.folder / "summary.json"
    done = build.run(options=["--cpus", "1", "--explain", "--summary", str(summary)])
    assert done.status == 0, done
    assert "in all for a free CPU" in done.err
    run = json.loads(summary.read_text())["run"]
    waits = [sum(each.explanation.waits.values()) for each in build.attempts() if each.explanation]
    assert len(waits) == 2
    assert max(waits) > min(waits)
    page = stoker("history", str(run), "--step", "one")
    assert page.returncode == 0, page
    assert page.stdout.startswith("one\n")
    assert "it waited" in page.stdout
    assert "it finished after" in page.stdout
    unknown = stoker("history", str(run), "--step", "three")
    assert unknown.returncode == 2
    assert f"no step of run {run} has 'three' in its name" in unknown.stderr


def test_verbose_logs_each_decision_with_its_reason(build: Build, stoker: Stoker) -> None:
    build.step("one", "sleep 1")
    build.step("two", "sleep 1")
    words = ("run", "--cpus", "1", "--", "ninja", "-C", str(build.folder))
    assert "stoker.governor" not in stoker(*words).stderr
    (build.folder / "one").unlink()
    (build.folder / "two").unlink()
    done = stoker("-v", *words)
    logged = [line for line in done.stderr.splitlines() if line.startswith("stoker.governor: ")]
    started = sorted(line.split(": ")[1].rpartition("/")[2] for line in logged)
    assert started == ["one", "two"]
    assert all("predicted peak" in line for line in logged)
    assert any("waited" in line and "for a free CPU" in line for line in logged)


def test_runs_without_steps_are_listed_only_if_asked(build: Build, stoker: Stoker) -> None:
    assert stoker("run", "--", "sh", "-c", "exit 3").returncode == 3
    assert "1 run without steps: --all shows all runs" in stoker("history").stdout
    build.step("one", "true")
    assert build.run().status == 0
    listed = stoker("history").stdout
    assert "exit 3" not in listed
    assert "1 run without steps: --all shows all runs" in listed
    assert "exit 3" in stoker("history", "--all").stdout
    for words, runs in ((["history"], [2]), (["history", "--all"], [2, 1])):
        found = json.loads(stoker(*words, "--json").stdout)["runs"]
        assert [run["id"] for run in found] == runs

"""`stoker report` of real runs: a whole one, one that was killed, and what it refuses."""

import json
import re
import signal
import time
from pathlib import Path
from typing import Any

import pytest

from conftest import PROJECTS, Need, Stoker
from generated_runs import generated_attempts, write_run
from governed import Build, finished, wait_until
from stoker.govern.history.store import History


def data_of(page: str) -> Any:
    """Return the data that a page contains."""
    return json.loads(page.partition('type="application/json">')[2].partition("</script>")[0])


def reported(stoker: Stoker, *words: str, cwd: Path | None = None) -> Any:
    done = stoker("report", "--json", *words, cwd=cwd)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_a_real_run_with_its_critical_path(build: Build, stoker: Stoker) -> None:
    # A path counts CPU time, so that steps which shared a CPU do not count more than others.
    build.step("a.o", "n=0; while [ $n -lt 200000 ]; do n=$((n + 1)); done")
    build.step("b.o", "sleep 0.1")
    build.step("lib", "sleep 0.1", needs=["a.o", "b.o"])
    assert build.run().status == 0
    data = reported(stoker)["shown"]
    with History() as history:
        (run,) = history.runs()
    assert run.summary
    assert data["wall_s"] == run.summary.wall_s
    assert data["has_graph"]
    outputs = [data["columns"]["output"][index] for index in data["path"]]
    assert outputs == ["a.o", "lib"]


def test_times_count_from_the_start_of_the_run(
    build: Build, stoker: Stoker, tmp_path: Path
) -> None:
    """Also if the run joins a governor that another run has started long before."""
    build.step("first", "touch begun; while [ ! -e go ]; do sleep 0.05; done")
    first = build.start()
    wait_until((build.folder / "begun").exists, "the first run has its governor")
    time.sleep(2)
    other = Build(tmp_path / "other", build.home)
    other.step("second", "sleep 0.1")
    assert other.run().status == 0
    data = reported(stoker)["shown"]
    (build.folder / "go").touch()
    assert finished(first).status == 0
    columns = data["columns"]
    assert columns["output"] == ["second"]
    assert columns["asked"][0] <= columns["started"][0]
    assert columns["started"][0] + columns["seconds"][0] <= data["wall_s"]


def test_a_run_that_was_killed(build: Build, stoker: Stoker) -> None:
    build.step("a.o", "sleep 0.1")
    build.step("b.o", "echo $$ > started; exec sleep 600", needs=["a.o"])
    run = build.start()
    build.pid("started")
    wait_until(build.attempts, "the history has the first step")
    run.send_signal(signal.SIGKILL)
    build.wait_for_end()
    data = reported(stoker)["shown"]
    assert not data["complete"]
    assert data["columns"]["output"][0] == "a.o"  # b.o follows if the governor outlived the run


def test_the_latest_run_that_has_steps_is_shown_and_named(build: Build, stoker: Stoker) -> None:
    build.step("a.o", "true")
    assert build.run().status == 0
    assert stoker("run", "--", "sh", "-c", "exit 3").returncode == 3
    done = stoker("report", "--json", "--no-what-if")
    assert json.loads(done.stdout)["shown"]["id"] == 1
    assert re.fullmatch(r"stoker: run 1 of [\d: -]+: ninja\n", done.stderr)
    assert "stoker: run 1 of" in stoker("report", "--trace").stderr
    refused = stoker("report", "2")
    assert refused.returncode == 2
    assert "run 2 has no measured steps: sh -c 'exit 3'" in refused.stderr


def test_the_file_is_written_and_named(stoker: Stoker, stoker_home: Path, tmp_path: Path) -> None:
    run = write_run(stoker_home, "one", generated_attempts(5))
    done = stoker("report", str(run), "-o", "page.html")
    assert (done.returncode, done.stdout) == (0, "page.html\n")
    assert "simulating 5 steps: twice the memory" in done.stderr
    assert (tmp_path / "page.html").read_text().startswith("<!doctype html>")


def test_runs_are_found_by_number_folder_or_as_the_latest(
    stoker: Stoker, stoker_home: Path
) -> None:
    first = write_run(stoker_home, "one", generated_attempts(5))
    second = write_run(stoker_home, "two", generated_attempts(6))
    quick = ("--no-what-if",)
    assert reported(stoker, *quick)["shown"]["id"] == second
    assert reported(stoker, str(first), *quick)["shown"]["id"] == first
    folder = stoker_home / "state" / "runs" / "one"
    assert reported(stoker, f"{folder}/", *quick)["shown"]["id"] == first


def test_prices_give_costs(stoker: Stoker, stoker_home: Path, tmp_path: Path) -> None:
    run = write_run(stoker_home, "one", generated_attempts(5))
    (tmp_path / "stoker.toml").write_text(
        "[prices]\ncurrency = 'EUR'\ncpu_hour = 0.5\ngib_hour = 0.25\n"
        "[prices.machines.large]\ncpus = 64\nmemory = '256G'\nhour = 36\n"
    )
    data = reported(stoker, str(run))
    wall = data["shown"]["wall_s"]
    assert data["cost"] == pytest.approx(wall / 3600 * (16 * 0.5 + 32 * 0.25))
    large = next(row for row in data["what_if"] if row["name"] == "large")
    assert large["cost"] == pytest.approx(large["result"]["wall_s"] / 100)


@pytest.mark.slow
def test_a_build_writes_its_report(stoker: Stoker, need: Need) -> None:
    need("ninja")
    words = ("build", str(PROJECTS / "mini-cmake"), "--install-tree", "--report")
    done = stoker(*words)
    assert done.returncode == 0, done.stderr
    (line,) = [line for line in done.stderr.splitlines() if "report in" in line]
    page = Path(line.partition("report in ")[2])
    assert page.parent.parent.name == "runs"
    data = data_of(page.read_text())["shown"]
    assert data["build"]["title"].startswith("mini")
    assert "compile" in [stage["stage"] for stage in data["build"]["stages"]]
    assert data["has_graph"]
    assert data["steps"] > 0


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("cpu = 1", "Object contains unknown field `cpu`"),
        ("cpu_hour = -1", "Expected `float` >= 0.0"),
        ("[prices.machines.m]\ncpus = 1\nmemory = 'much'\nhour = 1", "not an amount of memory"),
    ],
)
def test_wrong_prices_are_refused(
    stoker: Stoker, stoker_home: Path, tmp_path: Path, text: str, message: str
) -> None:
    write_run(stoker_home, "one", generated_attempts(5))
    (tmp_path / "stoker.toml").write_text(f"[prices]\n{text}\n")
    done = stoker("report")
    assert done.returncode == 2
    assert "stoker.toml:1" in done.stderr
    assert message in done.stderr


def test_an_unknown_run_is_refused(stoker: Stoker, stoker_home: Path) -> None:
    assert stoker("report").returncode == 2
    write_run(stoker_home, "one", generated_attempts(5))
    done = stoker("report", "7")
    assert done.returncode == 2
    assert "the history has no run '7'" in done.stderr

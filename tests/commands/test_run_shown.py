"""The display of a run: the limit in force, its own memory, its own steps."""

import subprocess
from pathlib import Path

import msgspec
import pytest

from governed import WAIT, Build, finished, wait_until
from stoker.model.events import AnyEvent, Overview

MIB = 1 << 20


def overviews(err: str) -> list[Overview]:
    events = [msgspec.json.decode(line, type=AnyEvent) for line in err.splitlines()]
    return [event for event in events if isinstance(event, Overview)]


def next_overview(run: subprocess.Popen[bytes]) -> Overview:
    assert run.stderr is not None
    for line in run.stderr:
        event = msgspec.json.decode(line, type=AnyEvent)
        if isinstance(event, Overview):
            return event
    raise AssertionError("the run has ended")


def test_the_limit_and_the_peak_are_the_builds_own(build: Build) -> None:
    """Far below what the processes of this machine use, which count in neither."""
    build.step("one", "sleep 1")
    build.step("two", "sleep 1")
    file = build.folder / "summary.json"
    done = build.run(options=["--memory", "64M", "--progress", "json", "--summary", str(file)])
    assert done.status == 0, done
    views = overviews(done.err)
    assert {view.limit for view in views} == {64 * MIB}
    summary = msgspec.json.decode(file.read_bytes())
    assert summary["limit_bytes"] == 64 * MIB
    assert max(view.used for view in views) <= summary["peak_bytes"] < 64 * MIB
    assert build.summary(options=["--memory", "64M"]).limit_bytes == 64 * MIB  # nothing to do


def test_a_run_that_died_does_not_count_in_the_one_beside_it(build: Build, tmp_path: Path) -> None:
    build.step("first", f"touch begun; {WAIT}")
    for number in range(20):
        build.step(f"step{number}", "true", needs=["first"])
    # With a name as CMake's rules have, so that the steps to come are expected to ask.
    rules = build.folder / "build.ninja"
    rules.write_text(
        rules.read_text().replace("rule step", "rule LINK").replace(": step", ": LINK")
    )
    other = Build(tmp_path / "other", build.home)
    other.step("one", f"touch begun; {WAIT}")
    first = build.start(options=["--cpus", "2", "--progress", "json"])
    while next_overview(first).total < 21:
        pass
    second = other.start(options=["--cpus", "2", "--progress", "json"])
    wait_until((other.folder / "begun").exists, "the step of the second runs")
    while not (view := next_overview(second)).running:
        pass
    assert view.total == 1  # it never counts what is another run's
    first.kill()
    finished(first)
    assert [next_overview(second).total for _ in range(3)] == [1, 1, 1]
    other.let_go()
    assert finished(second).status == 0


@pytest.mark.slow
def test_a_second_run_ends_while_the_first_still_has_long_steps(
    build: Build, tmp_path: Path
) -> None:
    for number in range(20):
        build.step(f"long{number}", "sleep 2")
    other = Build(tmp_path / "other", build.home)
    for number in range(3):
        other.step(f"short{number}", "true")
    first = build.start(options=["--cpus", "1", "--progress", "json"])
    while not next_overview(first).running:
        pass
    assert other.run(options=["--cpus", "1"]).status == 0
    assert first.poll() is None
    first.kill()
    finished(first)

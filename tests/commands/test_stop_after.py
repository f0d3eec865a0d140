"""`--stop-after`: a build in jobs with a time limit."""

import sqlite3
from pathlib import Path

import pytest

from governed import Build
from stoker.model.runs import Outcome

pytestmark = pytest.mark.slow


def known_to_take(build: Build, **wall_s: float) -> None:
    """Change how long the history says that steps took, and remove what they made."""
    with sqlite3.connect(build.home / "state" / "history.sqlite") as history:
        for name, taken in wall_s.items():
            history.execute("UPDATE attempt SET wall_s = ? WHERE output = ?", (taken, name))
    history.close()
    for name in build.made():
        Path(build.folder, name).unlink()


def test_a_build_stops_in_time_and_the_same_command_continues(build: Build) -> None:
    build.step("one", "[ ! -e slow ] || sleep 12; echo one >> ran")
    build.step("two", "echo two >> ran", needs=["one"])
    assert build.run().status == 0
    known_to_take(build, one=12, two=110)
    Path(build.folder, "slow").touch()
    Path(build.folder, "ran").unlink()
    first = build.run(options=("--stop-after", "2m"))
    assert first.status == 75, first
    assert build.made() == {"one"}
    assert "1 waiting step was not started" in first.err
    assert "`stoker run --stop-after 2m -- ninja` continues" in first.err
    assert build.run(options=("--stop-after", "1h")).status == 0
    assert Path(build.folder, "ran").read_text() == "one\ntwo\n"


def test_a_step_that_never_fits_is_named_and_no_job_repeats_it_for_ever(build: Build) -> None:
    build.step("one", "true")
    assert build.run().status == 0
    known_to_take(build, one=7200)
    done = build.run(options=("--stop-after", "1h"))
    assert done.status == 1, done
    assert "one takes about 2 h 0 min: it does not fit into --stop-after 1 h 0 min" in done.err
    assert "no step could be started in 1 h 0 min" in done.err


def test_a_step_that_runs_on_is_ended_and_what_was_made_stays(build: Build) -> None:
    """The history says that it takes no time."""
    build.step("one", "[ ! -e slow ] || sleep 8")
    build.step("two", "[ ! -e slow ] || { touch begun; sleep 600; }", needs=["one"])
    assert build.run().status == 0
    known_to_take(build)
    Path(build.folder, "slow").touch()
    done = build.run(options=("--stop-after", "40s", "--stop-grace", "1s"))
    assert Path(build.folder, "begun").exists(), done
    assert done.status == 75, done
    assert build.made() == {"one"}
    assert "the 40 s of --stop-after are over: 1 step was stopped before the end" in done.err
    assert "`stoker run --stop-after 40s --stop-grace 1s -- ninja` continues" in done.err
    assert build.attempts()[-1].outcome is Outcome.DEADLINE
    # The next job knows how long it ran.
    with sqlite3.connect(build.home / "state" / "history.sqlite") as history:
        history.execute("UPDATE attempt SET wall_s = 7200 WHERE outcome = ?", (Outcome.DEADLINE,))
    history.close()
    Path(build.folder, "begun").unlink()
    repeated = build.run(options=("--stop-after", "1h"))
    assert repeated.status == 1, repeated
    assert not Path(build.folder, "begun").exists()
    assert "it does not fit into --stop-after 1 h 0 min" in repeated.err

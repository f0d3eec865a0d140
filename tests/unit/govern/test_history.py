"""History: what goes in comes out; bad files and full disks do not stop a build."""

import sqlite3
from pathlib import Path

import pytest

from stoker.govern.history import History
from stoker.model.govern import Role, Step, StepRecord
from stoker.model.runs import Attempt, Outcome, RunSummary

STEP = Step(
    key="k", role=Role.CUDA, source="a/é b.cu", output="a.o", compiler="nvcc",
    flags=("-O3", "-DX='1 2'"), archs=("90", "90a"), threads=2, input_bytes=5,
)  # fmt: skip
RECORD = StepRecord(step=STEP, seconds=2.5, cpu_seconds=2.0, peak=1 << 31, byte_seconds=1e9)


def attempt(outcome: Outcome = Outcome.DONE) -> Attempt:
    return Attempt(record=RECORD, started=1.0, outcome=outcome, status=0)


def summary() -> RunSummary:
    return RunSummary(
        status=0, steps=1, wall_s=1.0, cpu_s=1.0, governor_cpu_s=0.1, peak_bytes=1, limit_bytes=2,
        oom_kills=0, preemptions=0, retries=0, lower_bound_s=None, reserving_bound_s=None,
        policy="adaptive", cpus=2,
    )  # fmt: skip


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "history.sqlite"


def test_attempts_come_back_as_they_were(path: Path) -> None:
    history = History(path)
    run = history.start_run("ninja", "/build")
    history.add(run, attempt())
    history.end_run(run, summary())
    history.close()
    again = History(path)
    assert again.attempts(run) == (attempt(),)
    assert again.recent() == (RECORD,)
    (kept,) = again.runs()
    assert (kept.command, kept.directory, kept.summary) == ("ninja", "/build", summary())


def test_only_finished_attempts_are_learned_from(path: Path) -> None:
    history = History(path)
    run = history.start_run("ninja", "/build")
    for outcome in Outcome:
        history.add(run, attempt(outcome))
    assert len(history.recent()) == 1
    assert len(history.attempts(run)) == len(Outcome)


def test_a_corrupt_file_is_set_aside(path: Path) -> None:
    path.write_bytes(b"this is no database, but long enough to be taken for one" * 100)
    history = History(path)
    assert history.problem is None
    history.add(history.start_run("ninja", "/"), attempt())
    assert history.recent() == (RECORD,)
    assert path.with_name("history.sqlite.corrupt").exists()


def test_a_folder_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    history = History(tmp_path / "file" / "history.sqlite")
    assert history.problem is not None
    assert "history is not kept" in history.problem
    history.add(history.start_run("ninja", "/"), attempt())
    assert history.recent() == (RECORD,)


def test_another_version_is_left_alone_and_the_build_goes_on(path: Path) -> None:
    database = sqlite3.connect(path)
    database.execute("PRAGMA user_version = 99")
    database.close()
    before = path.read_bytes()
    history = History(path)
    assert "another version" in (history.problem or "")
    history.add(history.start_run("ninja", "/"), attempt())
    history.close()
    assert path.read_bytes() == before


def test_a_file_that_is_corrupt_in_its_middle_is_set_aside(path: Path) -> None:
    history = History(path)
    run = history.start_run("ninja", "/")
    for _ in range(200):
        history.add(run, attempt())
    history.close()
    content = bytearray(path.read_bytes())
    content[len(content) // 2 :] = b"\xff" * (len(content) - len(content) // 2)
    path.write_bytes(content)
    history = History(path)
    assert history.recent() == ()
    assert path.with_name("history.sqlite.corrupt").exists()
    history.add(history.start_run("ninja", "/"), attempt())
    assert history.recent() == (RECORD,)


def test_two_at_once(path: Path) -> None:
    one, two = History(path), History(path)
    first, second = one.start_run("a", "/"), 0
    one.add(first, attempt())
    one.flush()
    second = two.start_run("b", "/")
    two.add(second, attempt())
    two.flush()
    assert first != second
    assert len(one.recent()) == 2

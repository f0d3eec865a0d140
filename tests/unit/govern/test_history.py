"""History: what goes in comes out; bad files and full disks do not stop a build."""

import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

import governed_steps as make
from stoker.govern.history import History
from stoker.model.govern import Role, Step, StepRecord
from stoker.model.runs import Attempt, Outcome, RunSummary

STEP = Step(
    key="k", role=Role.CUDA, source="a/é b.cu", output="a.o", compiler="nvcc",
    directory="/home/me/é b/build",
    flags=("-O3", "-DX='1 2'"), archs=("90", "90a"), threads=2, input_bytes=5,
)  # fmt: skip
RECORD = StepRecord(
    step=STEP, seconds=2.5, cpu_seconds=2.0, peak=1 << 31, byte_seconds=1e9,
    profile=make.profile(0, 20, 100, 40),
)  # fmt: skip

# What stoker wrote before steps had profiles.
VERSION_1 = """
CREATE TABLE run (
    id INTEGER PRIMARY KEY,
    started REAL NOT NULL,
    ended REAL,
    command TEXT NOT NULL,
    directory TEXT NOT NULL,
    summary TEXT
);
CREATE TABLE attempt (
    id INTEGER PRIMARY KEY,
    run INTEGER NOT NULL REFERENCES run ON DELETE CASCADE,
    key TEXT NOT NULL,
    role TEXT NOT NULL,
    source TEXT NOT NULL,
    output TEXT NOT NULL,
    compiler TEXT NOT NULL,
    flags TEXT NOT NULL,
    archs TEXT NOT NULL,
    threads INTEGER NOT NULL,
    input_bytes INTEGER NOT NULL,
    started REAL NOT NULL,
    seconds REAL NOT NULL,
    cpu_seconds REAL NOT NULL,
    peak INTEGER NOT NULL,
    byte_seconds REAL,
    outcome TEXT NOT NULL,
    status INTEGER NOT NULL
);
CREATE INDEX attempt_run ON attempt (run);
INSERT INTO run (started, command, directory) VALUES (1.0, 'make', '/old');
INSERT INTO attempt (run, started, seconds, cpu_seconds, peak, byte_seconds, outcome, status,
    key, role, source, output, compiler, flags, archs, threads, input_bytes)
    VALUES (1, 2.0, 8.0, 7.0, 1000, 4000.0, 'done', 0,
    'k', 'compile C++', 'a.cpp', 'a.o', 'g++', '["-O2"]', '[]', 1, 0);
PRAGMA user_version = 1;
"""
VERSION_2 = VERSION_1.replace("user_version = 1", "user_version = 2").replace(
    "status INTEGER NOT NULL\n", "status INTEGER NOT NULL,\n    profile BLOB NOT NULL DEFAULT x''\n"
)
OLD_RECORD = StepRecord(
    step=Step(
        key="k", role=Role.CXX, source="a.cpp", output="a.o", compiler="g++", flags=("-O2",)
    ),
    seconds=8.0, cpu_seconds=7.0, peak=1000, byte_seconds=4000.0,
)  # fmt: skip


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


def test_a_newer_version_is_left_alone_and_the_build_goes_on(path: Path) -> None:
    database = sqlite3.connect(path)
    database.execute("PRAGMA user_version = 99")
    database.close()
    before = path.read_bytes()
    history = History(path)
    assert "a newer stoker wrote it" in (history.problem or "")
    history.add(history.start_run("ninja", "/"), attempt())
    history.close()
    assert path.read_bytes() == before


# -- from version 1 -----------------------------------------------------------------------------


@pytest.fixture(params=[VERSION_1, VERSION_2], ids=["version 1", "version 2"])
def old(path: Path, request: pytest.FixtureRequest) -> Path:
    database = sqlite3.connect(path)
    database.execute("PRAGMA journal_mode = WAL")
    database.executescript(request.param)
    database.close()
    return path


def version(path: Path) -> int:
    database = sqlite3.connect(path)
    try:
        return int(database.execute("PRAGMA user_version").fetchone()[0])
    finally:
        database.close()


def test_an_older_file_is_read_and_goes_on(old: Path) -> None:
    history = History(old)
    assert history.problem is None
    assert history.recent() == (OLD_RECORD,)
    assert [run.command for run in history.runs()] == ["make"]
    history.add(history.start_run("ninja", "/"), attempt())
    history.close()
    assert version(old) == 3
    assert set(History(old).recent()) == {OLD_RECORD, RECORD}


def test_an_upgraded_file_is_like_a_new_one(old: Path, tmp_path: Path) -> None:
    new = tmp_path / "new.sqlite"
    columns = []
    for file in (old, new):
        History(file).close()
        database = sqlite3.connect(file)
        columns.append(database.execute("PRAGMA table_info(attempt)").fetchall())
        database.close()
    assert columns[0] == columns[1]


OPEN = """
import sys
from pathlib import Path
from stoker.govern.history import History
print("ready", flush=True)
sys.stdin.readline()
history = History(Path(sys.argv[1]))
print(history.problem, len(history.recent()))
"""


def test_two_processes_upgrade_at_once(old: Path) -> None:
    openers = [
        subprocess.Popen(
            [sys.executable, "-c", OPEN, old],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for _ in range(3)
    ]
    for opener in openers:
        assert opener.stdout is not None
        assert opener.stdout.readline() == "ready\n"
    for opener in openers:
        assert opener.stdin is not None
        opener.stdin.write("\n")
        opener.stdin.flush()
    assert [opener.communicate(timeout=60)[0] for opener in openers] == ["None 1\n"] * 3
    assert version(old) == 3


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

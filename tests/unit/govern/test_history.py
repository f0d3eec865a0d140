"""The history returns what was stored; damaged files and full disks do not stop a build."""

import os
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from msgspec.structs import replace

import governed_steps as make
from stoker.govern.history.store import History
from stoker.model.errors import StorageError
from stoker.model.govern import Basis, Collector, CompileMode, Reason, Role, Step, StepRecord
from stoker.model.runs import Attempt, Explanation, Intervention, Outcome

STEP = Step(
    key="k", role=Role.CUDA, source="a/é b.cu", output="a.o", compiler="nvcc",
    directory="/home/me/é b/build",
    flags=("-O3", "-DX='1 2'"), archs=("90", "90a"), threads=2, input_bytes=5,
)  # fmt: skip
RECORD = StepRecord(
    step=STEP, wall_s=2.5, cpu_s=2.0, peak_bytes=1 << 31, byte_seconds=1e9,
    profile=make.profile(0, 20, 100, 40),
)  # fmt: skip

# What stoker wrote before steps had profiles.
EXPLANATION = Explanation(
    asked=0.5,
    needs_bytes=1000,
    basis=Basis.EXACT,
    waits={Reason.MEMORY: 3.5},
    pauses=(Intervention(at=1.0, reason=Reason.GROWTH, used_bytes=9, limit_bytes=10, wall_s=2.0),),
    killed=Intervention(at=4.0, reason=Reason.OOM, used_bytes=10, limit_bytes=10),
)


def attempt(outcome: Outcome = Outcome.DONE) -> Attempt:
    return Attempt(record=RECORD, started=1.0, outcome=outcome, status=0)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "history.sqlite"


def test_attempts_come_back_as_they_were(path: Path) -> None:
    with History(path) as history:
        run = history.start_run("ninja", "/build")
        history.add(run, attempt())
        history.end_run(run, make.run_summary())
    with History(path) as again:
        assert again.attempts(run) == (attempt(),)
        assert again.recent() == (RECORD,)
        (kept,) = again.runs()
    assert (kept.command, kept.directory, kept.summary) == ("ninja", "/build", make.run_summary())


def test_only_finished_attempts_are_learned_from(path: Path) -> None:
    """One that was ended at the deadline of its run took at least what was measured."""
    with History(path) as history:
        run = history.start_run("ninja", "/build")
        for outcome in Outcome:
            history.add(run, attempt(outcome))
        assert history.recent() == (RECORD, replace(RECORD, killed=True))
        assert len(history.attempts(run)) == len(Outcome)


def test_an_error_in_the_block_keeps_nothing_of_it(path: Path) -> None:
    with suppress(ZeroDivisionError), History(path) as history:
        history.start_run("ninja", "/")
        raise ZeroDivisionError
    with History(path) as history:
        assert history.runs() == ()


def corrupt(path: Path) -> Path:
    return path.with_name(f"{path.name}.corrupt")


def filled(path: Path, attempts: int = 200) -> int:
    with History(path) as history:
        run = history.start_run("ninja", "/")
        for _ in range(attempts):
            history.add(run, attempt())
    return run


def test_a_corrupt_file_is_set_aside(path: Path) -> None:
    path.write_bytes(b"this is no database, but long enough to be taken for one" * 100)
    filled(path, 1)
    with History(path) as history:
        assert history.recent() == (RECORD,)
    assert corrupt(path).exists()


def test_a_file_that_is_corrupt_in_its_middle_is_set_aside(path: Path) -> None:
    filled(path)
    content = bytearray(path.read_bytes())
    content[len(content) // 2 :] = b"\xff" * (len(content) - len(content) // 2)
    path.write_bytes(content)
    with pytest.raises(StorageError, match=r"damaged.*sqlite\.corrupt"), History(path) as history:
        history.recent()
    assert corrupt(path).exists()
    filled(path, 1)
    with History(path) as history:
        assert history.recent() == (RECORD,)


def test_two_who_find_the_same_damage_set_one_file_aside(path: Path) -> None:
    filled(path)
    first, second = History(path), History(path)
    content = path.read_bytes()
    path.write_bytes(content[:4096] + b"\xff" * (len(content) - 4096))
    for history in (first, second):
        with pytest.raises(StorageError, match="damaged"):
            history.recent()
        history.close()
        filled(path, 1)
    with History(path) as history:
        assert len(history.recent()) == 2
    assert corrupt(path).stat().st_size == len(content)


def test_closing_a_file_that_was_set_aside_leaves_the_new_one_alone(path: Path) -> None:
    filled(path)
    content = path.read_bytes()
    path.write_bytes(content[:4096] + b"\xff" * (len(content) - 4096))
    late = History(path)
    with pytest.raises(StorageError, match="damaged"), History(path) as history:
        history.recent()
    with History(path) as new:
        new.add(new.start_run("ninja", "/"), attempt())
        new.commit()
        late.close()
        assert path.with_name("history.sqlite-wal").exists()
    with History(path) as history:
        assert history.recent() == (RECORD,)


@pytest.mark.parametrize("table", ["run", "attempt"])
def test_a_table_that_is_gone_is_damage(path: Path, table: str) -> None:
    filled(path, 1)
    database = sqlite3.connect(path)
    database.execute(f"DROP TABLE {table}")
    database.close()
    with pytest.raises(StorageError, match="damaged"), History(path) as history:
        history.add(history.start_run("ninja", "/"), attempt())
    assert corrupt(path).exists()
    filled(path, 1)


@contextmanager
def replaced(path: Path, by: Path, flags: int) -> Iterator[None]:
    """The connection that has the file open reads from another one."""
    (number,) = (
        int(link.name)
        for link in Path("/proc/self/fd").iterdir()
        if link.is_symlink() and str(link.readlink()) == str(path)
    )
    real, other = os.dup(number), os.open(by, flags)
    os.dup2(other, number)
    os.close(other)
    try:
        yield
    finally:
        os.dup2(real, number)
        os.close(real)


@pytest.mark.parametrize("fault", ["every read fails", "its size is wrong"])
def test_a_disk_that_does_not_answer_is_no_damage(path: Path, fault: str) -> None:
    run = filled(path)
    before = path.read_bytes()
    by, flags = (path, os.O_WRONLY) if fault == "every read fails" else (path.parent, os.O_RDONLY)
    for read in (History.recent, History.runs, lambda history: history.attempts(run)):
        history = History(path)
        with replaced(path, by, flags), pytest.raises(StorageError, match="cannot use the history"):
            read(history)
        history.close()
    assert not corrupt(path).exists()
    assert path.read_bytes() == before


def test_a_locked_file_is_no_damage(path: Path) -> None:
    filled(path)
    other = sqlite3.connect(path)
    other.execute("PRAGMA locking_mode = EXCLUSIVE")
    other.execute("BEGIN IMMEDIATE")
    with pytest.raises(StorageError, match="database is locked"):
        History(path, timeout_s=0.1)
    other.close()
    assert not corrupt(path).exists()
    with History(path) as history:
        assert len(history.recent()) == 200


def test_a_folder_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StorageError, match="cannot use the history"):
        History(tmp_path / "file" / "history.sqlite")


def test_a_newer_version_is_left_alone(path: Path) -> None:
    database = sqlite3.connect(path)
    database.execute("PRAGMA user_version = 99")
    database.close()
    before = path.read_bytes()
    with pytest.raises(StorageError, match="a newer stoker wrote it"):
        History(path)
    assert path.read_bytes() == before


@pytest.mark.parametrize(
    ("column", "value"),
    [
        ("threads", -3),
        ("threads", 1 << 40),
        ("threads", "many"),
        ("input_bytes", -1),
        ("wall_s", -1.0),
        ("wall_s", float("inf")),
        ("wall_s", b"soon"),
        ("cpu_s", -1.0),
        ("byte_seconds", -1.0),
        ("peak_bytes", -1),
        ("peak_bytes", 1.5),
        ("peak_bytes", (1 << 63) - 1),
        ("profile", b"\xff" * 128),
        ("profile", 5),
        ("role", "cook"),
        ("outcome", "won"),
        ("flags", "[1]"),
        ("archs", "no JSON"),
        ("source", b"bytes"),
        ("started", "early"),
    ],
)
def test_a_row_that_cannot_be_is_skipped(path: Path, column: str, value: object) -> None:
    run = filled(path, 3)
    database = sqlite3.connect(path)
    database.execute(f"UPDATE attempt SET {column} = ? WHERE id = 2", (value,))
    database.commit()
    database.close()
    with History(path) as history:
        assert len(history.attempts(run)) == 2
        if column not in ("outcome", "started"):
            assert history.recent() == (RECORD, RECORD)
    assert not corrupt(path).exists()


def test_text_that_is_not_unicode_is_read_all_the_same(path: Path) -> None:
    run = filled(path, 1)
    database = sqlite3.connect(path)
    database.execute("UPDATE attempt SET source = CAST(x'ff612e63' AS TEXT)")
    database.execute("UPDATE run SET command = CAST(x'ff' AS TEXT)")
    database.commit()
    database.close()
    with History(path) as history:
        assert history.attempts(run)[0].record.step.source == "\ufffda.c"
        assert history.runs()[0].command == "\ufffd"


def test_a_run_whose_summary_cannot_be_read_has_none(path: Path) -> None:
    for value in ('{"status": 0}', "no JSON", b"\0", 7):
        with History(path) as history:
            run = history.start_run("ninja", "/")
            history.end_run(run, make.run_summary())
        database = sqlite3.connect(path)
        database.execute("UPDATE run SET summary = ? WHERE id = ?", (value, run))
        database.commit()
        database.close()
    with History(path) as history:
        assert [run.summary for run in history.runs()] == [None] * 4


def test_a_run_that_cannot_be_is_skipped(path: Path) -> None:
    for _ in range(3):
        filled(path, 1)
    database = sqlite3.connect(path)
    database.execute("UPDATE run SET started = 'early' WHERE id = 1")
    database.execute("UPDATE run SET started = 1e300 WHERE id = 3")  # no date
    database.commit()
    database.close()
    with History(path) as history:
        assert [run.id for run in history.runs()] == [2]


def test_a_run_beyond_all_numbers_has_no_steps(path: Path) -> None:
    with History(path) as history:
        assert history.attempts(10**30) == ()


def test_the_explanation_of_an_attempt_comes_back(path: Path) -> None:
    with History(path) as history:
        run = history.start_run("ninja", "/build")
        history.add(run, replace(attempt(), explanation=EXPLANATION))
        history.add(run, attempt())
    with History(path) as again:
        assert [each.explanation for each in again.attempts(run)] == [EXPLANATION, None]


def test_two_at_once(path: Path) -> None:
    with History(path) as one, History(path) as two:
        first = one.start_run("a", "/")
        one.add(first, attempt())
        one.commit()
        second = two.start_run("b", "/")
        two.add(second, attempt())
        two.commit()
        assert first != second
        assert len(one.recent()) == 2


def test_the_mode_of_an_attempt_is_kept(path: Path) -> None:
    step = replace(RECORD.step, collector=Collector.FREE)
    record = replace(RECORD, step=step, mode=CompileMode.LEAN)
    with History(path) as history:
        lean = Attempt(record=record, started=1.0, outcome=Outcome.DONE)
        history.add(history.start_run("make", "/"), lean)
    with History(path) as history:
        assert history.recent() == (record,)

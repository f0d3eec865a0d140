"""The thread that writes the history: no step waits for it, and delayed writes succeed later."""

import sqlite3
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest
from msgspec.structs import replace

import governed_steps as make
from governed import wait_until
from governed_steps import GB
from stoker.govern.history.store import History
from stoker.govern.server.history_writer import HistoryWriter
from stoker.model.govern import Basis, StepRecord
from stoker.model.runs import Attempt, Outcome

SUMMARY = make.run_summary()


def attempt(record: StepRecord | None = None) -> Attempt:
    return Attempt(record=record or make.record("a"), started=1.0, outcome=Outcome.DONE)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "history.sqlite"


@pytest.fixture
def writer(path: Path) -> Iterator[HistoryWriter]:
    History(path).close()
    writer = HistoryWriter(path, timeout_s=0.05)
    yield writer
    writer.close(timeout=60)


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Another process writes, and does not end."""
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    try:
        yield
    finally:
        other.close()


def attempts(path: Path) -> dict[str, int]:
    """How many each run has, by its command."""
    with History(path) as history:
        return {run.command: len(history.attempts(run.id)) for run in history.runs()}


def test_all_that_was_put_is_there_after_the_end(writer: HistoryWriter, path: Path) -> None:
    runs = [writer.start_run(name, "/") for name in ("one", "two", "three")]
    for run in runs[:2]:
        writer.add(run, attempt())
    writer.end_run(runs[0], SUMMARY)
    writer.close(timeout=60)
    assert writer.problem is None
    assert [run.settled for run in runs] == [True, False, False]
    assert attempts(path) == {"one": 1, "two": 1, "three": 0}
    with History(path) as history:
        assert [run.summary for run in history.runs()] == [None, None, SUMMARY]


def test_a_run_is_settled_when_its_rows_can_be_read(writer: HistoryWriter, path: Path) -> None:
    run = writer.start_run("ninja", "/")
    for _ in range(100):
        writer.add(run, attempt())
    writer.end_run(run, SUMMARY)
    wait_until(lambda: run.settled, "it is settled")
    assert attempts(path) == {"ninja": 100}


def test_what_a_passing_lock_held_up_is_written_later(writer: HistoryWriter, path: Path) -> None:
    run = writer.start_run("ninja", "/")
    writer.add(run, attempt())
    wait_until(lambda: attempts(path) == {"ninja": 1}, "it is written")
    with locked(path):
        for _ in range(100):
            writer.add(run, attempt())
        wait_until(lambda: writer.problem, "the lock is found")
        assert "database is locked" in (writer.problem or "")
        assert attempts(path) == {"ninja": 1}
    wait_until(lambda: writer.problem is None, "it is written")
    assert attempts(path) == {"ninja": 101}


def test_a_lock_from_the_beginning_to_the_end(path: Path) -> None:
    History(path).close()
    with locked(path):
        writer = HistoryWriter(path, timeout_s=0.05)
        run = writer.start_run("ninja", "/")
        for _ in range(10_000):  # more than it keeps
            writer.add(run, attempt())
        writer.end_run(run, SUMMARY)
        wait_until(lambda: run.settled, "it has tried")
        writer.close(timeout=60)
    assert attempts(path) == {}


def test_the_end_of_a_run_is_kept_where_not_every_attempt_can_be(
    writer: HistoryWriter, path: Path
) -> None:
    with locked(path):
        run = writer.start_run("ninja", "/")
        for _ in range(10_000):
            writer.add(run, attempt())
        writer.end_run(run, SUMMARY)
    writer.close(timeout=60)
    with History(path) as history:
        (kept,) = history.runs()
        assert kept.summary == SUMMARY
        assert 1000 < len(history.attempts(kept.id)) < 10_000


def test_closing_does_not_wait_for_a_lock(path: Path) -> None:
    History(path).close()
    with locked(path):
        writer = HistoryWriter(path, timeout_s=600.0)
        writer.start_run("ninja", "/")
        writer.close(timeout=0.1)
        assert "history" in {thread.name for thread in threading.enumerate()}


def test_damage_in_mid_run_begins_a_new_history(writer: HistoryWriter, path: Path) -> None:
    run = writer.start_run("ninja", "/")
    writer.add(run, attempt())
    wait_until(lambda: path.exists() and attempts(path) == {"ninja": 1}, "it is written")
    damage = sqlite3.connect(path)
    damage.execute("DROP TABLE attempt")
    damage.close()
    writer.add(run, attempt())
    writer.end_run(run, SUMMARY)
    writer.close(timeout=60)
    assert attempts(path) == {"ninja": 1}
    assert path.with_name("history.sqlite.corrupt").exists()


def test_a_history_that_another_process_removed_begins_again(
    writer: HistoryWriter, path: Path
) -> None:
    run = writer.start_run("ninja", "/")
    writer.add(run, attempt())
    wait_until(lambda: attempts(path) == {"ninja": 1}, "it is written")
    for file in path.parent.glob("history.sqlite*"):
        file.unlink()
    writer.add(run, attempt())
    writer.close(timeout=60)
    assert attempts(path) == {"ninja": 1}


@pytest.mark.parametrize("fault", [{"peak_bytes": 1 << 70}, {"byte_seconds": "\udc80"}])
def test_a_value_that_no_database_holds_is_left_out(
    writer: HistoryWriter, path: Path, fault: dict[str, object]
) -> None:
    run = writer.start_run("ninja", "/")
    writer.add(run, attempt(replace(make.record("a"), **fault)))
    writer.add(run, attempt())
    writer.close(timeout=60)
    assert attempts(path) == {"ninja": 1}


def test_a_history_that_cannot_be_used_is_no_reason_to_stop(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    writer = HistoryWriter(tmp_path / "file" / "history.sqlite")
    assert writer.predictor().predict(make.record("a").step).basis is Basis.PRIOR
    assert "history is not written" in (writer.problem or "")
    run = writer.start_run("ninja", "/")
    writer.end_run(run, SUMMARY)
    wait_until(lambda: run.settled, "it has tried")
    writer.close(timeout=60)


def test_what_was_learned_is_read_at_once(writer: HistoryWriter, path: Path) -> None:
    with History(path) as history:
        history.add(history.start_run("ninja", "/"), attempt())
    with locked(path):
        assert writer.predictor().predict(make.record("a").step).basis is Basis.EXACT


def test_what_was_learned_is_stored_and_only_later_records_are_read(tmp_path: Path) -> None:
    path = tmp_path / "history.sqlite"
    first, last = (make.record(name, peak=GB) for name in ("first", "last"))
    with History(path) as history:
        run = history.start_run("ninja", "/")
        for _ in range(300):
            history.add(run, Attempt(record=first, started=0.0, outcome=Outcome.DONE))
    writer = HistoryWriter(path)
    writer.keep_learned()
    with History(path) as history:
        stored = history.last_attempt()
        assert history.recent(after=stored) == ()
        history.add(run, Attempt(record=last, started=0.0, outcome=Outcome.DONE))
        assert history.recent(after=stored) == (last,)
    predictor = writer.predictor()
    for record in (first, last):
        assert predictor.predict(record.step).basis is Basis.EXACT
    with History(path) as history:
        history.forget([run])
    assert writer.predictor().predict(first.step).basis is Basis.PRIOR
    writer.close(timeout=60)


def test_knowledge_that_cannot_be_read_is_learned_again(tmp_path: Path) -> None:
    path, record = tmp_path / "history.sqlite", make.record("a", peak=GB)
    writer = HistoryWriter(path)
    with History(path) as history:
        run = history.start_run("ninja", "/")
        for _ in range(300):
            history.add(run, Attempt(record=record, started=0.0, outcome=Outcome.DONE))
    writer.keep_learned()
    with closing(sqlite3.connect(path)) as database, database:
        database.execute("UPDATE learned SET content = x'00'")
    assert writer.predictor().predict(record.step).basis is Basis.EXACT
    writer.close(timeout=60)

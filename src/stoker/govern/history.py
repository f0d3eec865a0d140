"""What was measured, kept in SQLite: runs, and every attempt of every step.

Survives kill -9 (write-ahead log) and a corrupt file (set aside, started anew). When the disk is
full, learning stops and the build goes on.
"""

import sqlite3
import time
from collections.abc import Collection, Iterable
from contextlib import suppress
from pathlib import Path

import msgspec

from stoker.model.errors import StorageError
from stoker.model.govern import Role, Step, StepRecord
from stoker.model.runs import Attempt, Outcome, Run, RunSummary
from stoker.outside import folders

# What makes a file of each version one of the next; a new file is of version 0.
_UPGRADES = (
    (
        """
CREATE TABLE run (
    id INTEGER PRIMARY KEY,
    started REAL NOT NULL,
    ended REAL,
    command TEXT NOT NULL,
    directory TEXT NOT NULL,
    summary TEXT
)""",
        """
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
)""",
        "CREATE INDEX attempt_run ON attempt (run)",
    ),
    ("ALTER TABLE attempt ADD COLUMN profile BLOB NOT NULL DEFAULT x''",),
    ("ALTER TABLE attempt ADD COLUMN directory TEXT NOT NULL DEFAULT ''",),
)
_VERSION = len(_UPGRADES)
_STEP_COLUMNS = "key, role, source, output, directory, compiler, flags, archs, threads, input_bytes"
_PATIENCE = 5.0  # seconds for others who write
_RECENT = 20_000  # attempts: several builds of PyTorch


class History:
    """One connection. Rows are committed by ``flush``, a few times a second at most."""

    def __init__(self, path: Path | None = None):
        self.path = path or folders.state() / "history.sqlite"
        self.problem: str | None = None
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self._database = _open(self.path)
        except (sqlite3.Error, OSError, StorageError) as error:
            # Learning for this run only is better than not building.
            self.problem = f"history is not kept in {self.path}: {error}"
            self._database = _open(Path(":memory:"))

    def close(self) -> None:
        self.flush()
        self._database.close()

    def start_run(self, command: str, directory: str) -> int:
        return self._write(
            "INSERT INTO run (started, command, directory) VALUES (?, ?, ?)",
            (time.time(), command, directory),
        )

    def end_run(self, run: int, summary: RunSummary) -> None:
        self._write(
            "UPDATE run SET ended = ?, summary = ? WHERE id = ?",
            (time.time(), msgspec.json.encode(summary).decode(), run),
        )
        self.flush()

    def add(self, run: int, attempt: Attempt) -> None:
        step, record = attempt.record.step, attempt.record
        self._write(
            "INSERT INTO attempt (run, started, seconds, cpu_seconds, peak, byte_seconds, profile,"
            f" outcome, status, {_STEP_COLUMNS}) VALUES ({', '.join('?' * 19)})",
            (
                run,
                attempt.started,
                record.seconds,
                record.cpu_seconds,
                record.peak,
                record.byte_seconds,
                bytes(record.profile),
                attempt.outcome.value,
                attempt.status,
                step.key,
                step.role.value,
                step.source,
                step.output,
                step.directory,
                step.compiler,
                msgspec.json.encode(step.flags).decode(),
                msgspec.json.encode(step.archs).decode(),
                step.threads,
                step.input_bytes,
            ),
        )

    def flush(self) -> None:
        try:
            self._database.commit()
        except sqlite3.Error as error:
            self._lose(error)

    def recent(self) -> tuple[StepRecord, ...]:
        """The latest finished attempts, oldest first, to learn from."""
        condition = "outcome = ? ORDER BY id DESC LIMIT ?"
        try:
            latest = list(self._attempts(condition, (Outcome.DONE, _RECENT)))
        except (
            sqlite3.DatabaseError,
            ValueError,
            msgspec.MsgspecError,
        ):  # whole at its beginning, but not throughout
            self._database.close()
            _set_aside(self.path)
            self._database = _connect(self.path)
            return ()
        return tuple(attempt.record for attempt in reversed(latest))

    def attempts(self, run: int) -> tuple[Attempt, ...]:
        """Of one run, in the order they began."""
        return tuple(self._attempts("run = ? ORDER BY started, id", (run,)))

    def runs(self) -> tuple[Run, ...]:
        """Newest first."""
        rows = self._database.execute(
            "SELECT id, started, ended, command, directory, summary FROM run ORDER BY id DESC"
        )
        return tuple(
            Run(
                id=row[0],
                started=row[1],
                ended=row[2],
                command=row[3],
                directory=row[4],
                summary=msgspec.json.decode(row[5], type=RunSummary) if row[5] else None,
            )
            for row in rows
        )

    def attempts_by_run(self) -> dict[int, int]:
        """How many each run has."""
        return dict(self._database.execute("SELECT run, count(*) FROM attempt GROUP BY run"))

    def forget(self, runs: Collection[int]) -> None:
        """Delete runs with all that was measured in them, and give the space back."""
        rows = [(run,) for run in runs]
        try:
            self._database.executemany("DELETE FROM attempt WHERE run = ?", rows)
            self._database.executemany("DELETE FROM run WHERE id = ?", rows)
            self._database.commit()
            self._database.execute("VACUUM")
        except sqlite3.Error as error:
            self._lose(error)

    def _attempts(self, condition: str, values: tuple[object, ...]) -> Iterable[Attempt]:
        rows = self._database.execute(
            "SELECT started, outcome, status, seconds, cpu_seconds, peak, byte_seconds, profile,"
            f" {_STEP_COLUMNS} FROM attempt WHERE {condition}",
            values,
        )
        for started, outcome, status, seconds, cpu_seconds, peak, area, profile, *step in rows:
            record = StepRecord(
                step=_step(*step),
                seconds=seconds,
                cpu_seconds=cpu_seconds,
                peak=peak,
                byte_seconds=area,
                profile=tuple(profile),
            )
            yield Attempt(record=record, started=started, outcome=Outcome(outcome), status=status)

    def _write(self, statement: str, values: tuple[object, ...]) -> int:
        try:
            return self._database.execute(statement, values).lastrowid or 0
        except sqlite3.Error as error:
            self._lose(error)
            return 0

    def _lose(self, error: sqlite3.Error) -> None:
        """What was not committed; what comes may find room again."""
        self.problem = self.problem or f"history is not kept in {self.path}: {error}"
        with suppress(sqlite3.Error):
            self._database.rollback()


def _step(
    key: str,
    role: str,
    source: str,
    output: str,
    directory: str,
    compiler: str,
    flags: str,
    archs: str,
    threads: int,
    input_bytes: int,
) -> Step:
    return Step(
        key=key,
        role=Role(role),
        source=source,
        output=output,
        directory=directory,
        compiler=compiler,
        flags=msgspec.json.decode(flags, type=tuple[str, ...]),
        archs=msgspec.json.decode(archs, type=tuple[str, ...]),
        threads=threads,
        input_bytes=input_bytes,
    )


def _open(path: Path) -> sqlite3.Connection:
    try:
        return _connect(path)
    except sqlite3.DatabaseError as error:
        if isinstance(error, sqlite3.OperationalError):
            raise  # the disk or the lock, not the content
        _set_aside(path)
        return _connect(path)


def _connect(path: Path) -> sqlite3.Connection:
    database = sqlite3.connect(path, timeout=_PATIENCE)
    version = _version(database)
    if version > _VERSION:
        database.close()
        raise StorageError(f"a newer stoker wrote it (schema {version}); move it away")
    _use_log(database)
    database.execute("PRAGMA synchronous = NORMAL")
    if version < _VERSION:
        _upgrade(database)
    return database


def _use_log(database: sqlite3.Connection) -> None:
    """Where another does the same to a new file SQLite does not wait, as it does elsewhere."""
    deadline = time.monotonic() + _PATIENCE
    while True:
        try:
            database.execute("PRAGMA journal_mode = WAL")
        except sqlite3.OperationalError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.01)
        else:
            return


def _upgrade(database: sqlite3.Connection) -> None:
    """All or nothing; whoever comes second finds it done."""
    database.execute("BEGIN IMMEDIATE")
    for statements in _UPGRADES[_version(database) :]:
        for statement in statements:
            database.execute(statement)
    database.execute(f"PRAGMA user_version = {_VERSION}")
    database.commit()


def _version(database: sqlite3.Connection) -> int:
    return int(database.execute("PRAGMA user_version").fetchone()[0])


def _set_aside(path: Path) -> None:
    """Keep a corrupt file for whoever wants to look, with its log, and start anew."""
    for suffix in ("", "-wal", "-shm"):
        with suppress(FileNotFoundError):
            file = path.with_name(path.name + suffix)
            file.rename(path.with_name(f"{path.name}.corrupt{suffix}"))

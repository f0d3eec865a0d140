"""What was measured, kept in SQLite: runs, and every attempt of every step.

Survives kill -9 (write-ahead log). A file in which SQLite finds damage is set aside, and a new one
begins; a file that is locked, or a disk that is full, is left as it is. Both are a StorageError to
the caller. Rows are validated when they are read; attempts that cannot be read are skipped, and
``unreadable`` names them.
"""

import sqlite3
import time
from collections.abc import Collection, Iterator
from contextlib import closing, contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

import msgspec

from stoker.model.errors import StorageError, UsageError
from stoker.model.govern import MOST_ROWS, StepRecord
from stoker.model.runs import Attempt, Outcome, Run, RunSummary, build_command
from stoker.model.value import prepared
from stoker.outside import folders, locks

_VERSION = 1
_SCHEMA = (
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
    directory TEXT NOT NULL,
    compiler TEXT NOT NULL,
    flags TEXT NOT NULL,
    archs TEXT NOT NULL,
    threads INTEGER NOT NULL,
    input_bytes INTEGER NOT NULL,
    collector TEXT NOT NULL,
    started REAL NOT NULL,
    wall_s REAL NOT NULL,
    cpu_s REAL NOT NULL,
    peak_bytes INTEGER NOT NULL,
    byte_seconds REAL,
    profile BLOB NOT NULL,
    mode TEXT NOT NULL,
    outcome TEXT NOT NULL,
    status INTEGER NOT NULL,
    explanation TEXT NOT NULL
)""",
    "CREATE INDEX attempt_run ON attempt (run)",
)
_LEARNED = "CREATE TABLE IF NOT EXISTS learned (kind TEXT, attempt INTEGER, content BLOB)"
_RUN_COLUMNS = "id, started, ended, command, directory, summary"
_STEP_COLUMNS = (
    "key, role, source, output, directory, compiler, flags, archs, threads, input_bytes, collector"
)
_RECORD_COLUMNS = "wall_s, cpu_s, peak_bytes, byte_seconds, profile, mode"
_ATTEMPT_COLUMNS = f"started, outcome, status, explanation, {_RECORD_COLUMNS}, {_STEP_COLUMNS}"
_NAMES = _ATTEMPT_COLUMNS.split(", ")
_AS_JSON = ("flags", "archs", "explanation")
# SQLite's codes for a damaged file. ERROR means that a table or column is missing.
_DAMAGE = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_ERROR)
_REFUSED = (
    sqlite3.SQLITE_FULL,
    sqlite3.SQLITE_READONLY,
    sqlite3.SQLITE_CANTOPEN,
    sqlite3.SQLITE_PERM,
)
_TIMEOUT_S = 5.0  # seconds to wait for a lock
_LARGEST_ID = (1 << 63) - 1

_Identity = tuple[int, int] | None  # of a file: its device and number


class DamagedError(StorageError):
    """The file was damaged and has been set aside: a history that is opened now is a new one."""

    def __init__(self, path: Path):
        super().__init__(
            f"the history was damaged: it is kept as {_aside(path)}, and a new one begins"
        )


class History:
    """One connection. Use it in a ``with`` block: leaving it commits, unless there was an error.

    ``timeout_s``: seconds to wait for another process that has locked the file.
    """

    def __init__(self, path: Path | None = None, *, timeout_s: float = _TIMEOUT_S):
        self.path = path or folders.history()
        self._timeout_s = timeout_s
        self._database = _open(self.path, timeout_s)
        self.file = _identity(self.path)
        self.unreadable: list[str] = []  # sources of attempts that could not be read

    def __enter__(self) -> "History":
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        try:
            if error is None:
                self.commit()
        finally:
            self.close()

    def close(self) -> None:
        """Close the file. Uncommitted changes are lost."""
        self._database.close()

    @property
    def has_moved(self) -> bool:
        """Whether the file was removed or set aside since it was opened."""
        return _identity(self.path) != self.file

    def commit(self) -> None:
        with self._checked():
            self._database.commit()

    def start_run(self, command: str, directory: str, started: float | None = None) -> int:
        """Add a run and return its id. ``started`` is in seconds since the epoch; the default is
        now. A number whose output was kept is not given again, also after the history was removed.
        """
        kept = (path.stem for path in folders.failed_runs(self.path).glob("*.json"))
        last = max((int(name) for name in kept if name.isdecimal()), default=0)
        return self._write(
            "INSERT INTO run (id, started, command, directory) "
            "SELECT max(?, coalesce(max(id), 0)) + 1, ?, ?, ? FROM run",
            (last, time.time() if started is None else started, command, directory),
        )

    def end_run(self, run: int, summary: RunSummary) -> None:
        self._write(
            "UPDATE run SET ended = ?, summary = ? WHERE id = ?",
            (time.time(), msgspec.json.encode(summary).decode(), run),
        )

    def complete_run(self, run: int, summary: RunSummary) -> None:
        """Store the summary of a run that has ended, with what only its own process knows."""
        text = msgspec.json.encode(summary).decode()
        self._write("UPDATE run SET summary = ? WHERE id = ?", (text, run))

    def add(self, run: int, attempt: Attempt) -> None:
        marks = ", ".join("?" for _ in _NAMES)
        statement = f"INSERT INTO attempt (run, {_ATTEMPT_COLUMNS}) VALUES (?, {marks})"
        self._write(statement, (run, *_row(attempt)))

    def recent(self, after: int = 0) -> tuple[StepRecord, ...]:
        """Return the latest attempts that say how much their steps need, oldest first, for the
        predictor. ``after`` is the number of an attempt, as ``last_attempt`` returns it.
        """
        condition = "id > ? AND outcome IN (?, ?) ORDER BY id DESC LIMIT ?"
        latest = self._attempts(condition, (after, Outcome.DONE, Outcome.DEADLINE, MOST_ROWS))
        return tuple(attempt.record for attempt in reversed(latest))

    def last_attempt(self) -> int:
        """Return the number of the latest attempt; 0 if there is none."""
        return int(self._read("SELECT coalesce(max(id), 0) FROM attempt")[0][0])

    def learned(self, kind: str) -> tuple[int, bytes] | None:
        """Return what ``keep_learned`` has stored of this kind, with the last attempt in it."""
        if not self._read("SELECT 1 FROM sqlite_master WHERE name = 'learned'"):
            return None
        rows = self._read("SELECT attempt, content FROM learned WHERE kind = ?", (kind,))
        return rows[0] if rows and isinstance(rows[0][1], bytes) else None

    def keep_learned(self, kind: str, attempt: int, content: bytes) -> None:
        """Store what was learned from all attempts up to this one, in place of what was there.
        ``kind`` says which program can read it.
        """
        self._write(_LEARNED, ())
        self._write("DELETE FROM learned", ())
        self._write("INSERT INTO learned VALUES (?, ?, ?)", (kind, attempt, content))

    def attempts(self, run: int) -> tuple[Attempt, ...]:
        """Return the attempts of one run, in the order in which they started."""
        if run > _LARGEST_ID:
            return ()
        return tuple(self._attempts("run = ? ORDER BY started, id", (run,)))

    def runs(self) -> tuple[Run, ...]:
        """Return all runs, newest first."""
        rows = self._read(f"SELECT {_RUN_COLUMNS} FROM run ORDER BY id DESC")
        return tuple(run for row in rows if (run := _run(row)))

    def find(self, word: str | None) -> Run:
        """Return the run with that number, or of that run folder; the latest one that has steps
        if not given.
        """
        runs = self.runs()
        if word is None:
            measured = self.attempts_by_run()
            for run in runs:
                if run.id in measured:
                    return run
            raise UsageError(
                "the history has no run with steps",
                hints=["`stoker run -- ninja` measures a build"],
            )
        for run in runs:
            if str(run.id) == word or run.command == build_command(Path(word).name):
                return run
        raise UsageError(
            f"the history has no run '{word}'",
            hints=["`stoker history` lists the runs", "or give the run folder of a build"],
        )

    def attempts_by_run(self) -> dict[int, int]:
        """Return the number of attempts of each run."""
        return dict(self._read("SELECT run, count(*) FROM attempt GROUP BY run"))

    def forget(self, runs: Collection[int]) -> None:
        """Delete runs with all that was measured in them, and give the space back."""
        rows = [(run,) for run in runs]
        with self._checked():
            self._database.executemany("DELETE FROM attempt WHERE run = ?", rows)
            self._database.executemany("DELETE FROM run WHERE id = ?", rows)
            self._database.execute(_LEARNED)
            self._database.execute("DELETE FROM learned")
            self._database.commit()
            self._database.execute("VACUUM")

    def _attempts(self, condition: str, values: tuple[object, ...]) -> list[Attempt]:
        rows = self._read(f"SELECT {_ATTEMPT_COLUMNS} FROM attempt WHERE {condition}", values)
        found = []
        for row in rows:
            if attempt := _attempt(row):
                found.append(attempt)
            else:
                self.unreadable.append(str(row[_NAMES.index("source")]))
        return found

    def _read(self, statement: str, values: tuple[object, ...] = ()) -> list[tuple[Any, ...]]:
        with self._checked():
            return self._database.execute(statement, values).fetchall()

    def _write(self, statement: str, values: tuple[object, ...]) -> int:
        with self._checked():
            return self._database.execute(statement, values).lastrowid or 0

    @contextmanager
    def _checked(self) -> Iterator[None]:
        """Convert every error of the file into a StorageError; set a damaged file aside."""
        try:
            yield
        except sqlite3.DatabaseError as error:
            if _is_damage(error) and self._set_aside():
                raise DamagedError(self.path) from error
            raise _unusable(self.path, error) from error

    def _set_aside(self) -> bool:
        try:
            return _set_aside(self.path, self.file, self._timeout_s)
        except OSError as error:
            raise _unusable(self.path, error) from error


def _run(row: tuple[Any, ...]) -> Run | None:
    values = dict(zip(_RUN_COLUMNS.split(", "), row, strict=True))
    try:
        summary = msgspec.json.decode(
            values["summary"] or b"null", type=prepared(RunSummary | None)
        )
    except (msgspec.MsgspecError, TypeError):
        summary = None  # written by another version, perhaps; the run is still valid
    try:
        return msgspec.convert(values | {"summary": summary}, prepared(Run))
    except msgspec.ValidationError:
        return None


def _row(attempt: Attempt) -> Iterator[object]:
    """Yield the values of an attempt in the order of their columns."""
    values = msgspec.to_builtins(attempt)
    values |= values["record"] | values["record"]["step"]
    values["profile"] = bytes(values["profile"])
    for name in _NAMES:
        value = values[name]
        yield msgspec.json.encode(value).decode() if name in _AS_JSON else value


def _attempt(row: tuple[Any, ...]) -> Attempt | None:
    """Return the attempt of a row; ``None`` if the row has a value that stoker never writes."""
    values = dict(zip(_NAMES, row, strict=True))
    try:
        for name in _AS_JSON:
            values[name] = msgspec.json.decode(values[name])
        values["profile"] = tuple(values["profile"])
        step = {name: values.pop(name) for name in _STEP_COLUMNS.split(", ")}
        record = {name: values.pop(name) for name in _RECORD_COLUMNS.split(", ")}
        record["killed"] = values["outcome"] == Outcome.DEADLINE
        return msgspec.convert(values | {"record": record | {"step": step}}, prepared(Attempt))
    except (msgspec.MsgspecError, TypeError):
        return None


def _open(path: Path, timeout_s: float) -> sqlite3.Connection:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        found = _identity(path)
        try:
            return _connect(path, timeout_s)
        except sqlite3.DatabaseError as error:
            if not (_is_damage(error) and _set_aside(path, found, timeout_s)):
                raise
            return _connect(path, timeout_s)
    except (sqlite3.Error, OSError) as error:
        raise _unusable(path, error) from error


def _unusable(path: Path, reason: Exception) -> StorageError:
    if isinstance(reason, OSError):
        return folders.unwritable(path, reason, doing="use the history")
    code = _code(reason)
    hints = folders.home_hints(path, full=code == sqlite3.SQLITE_FULL) if code in _REFUSED else ()
    return StorageError(f"cannot use the history {path}: {reason}", hints=hints)


def _connect(path: Path, timeout_s: float) -> sqlite3.Connection:
    database = sqlite3.connect(path, timeout=timeout_s)
    # A row with invalid text must not make the whole table unreadable.
    database.text_factory = partial(str, encoding="utf-8", errors="replace")
    try:
        version = _version(database)
        if version > _VERSION:
            raise StorageError(
                f"cannot use the history {path}: a newer stoker wrote it (schema {version}); "
                "move it away"
            )
        _use_log(database, timeout_s)
        database.execute("PRAGMA synchronous = NORMAL")
        if version < _VERSION:
            _create(database)
    except BaseException:
        database.close()
        raise
    return database


def _use_log(database: sqlite3.Connection, timeout_s: float) -> None:
    """Switch to the write-ahead log. SQLite does not wait for another process that does
    the same.
    """
    deadline = time.monotonic() + timeout_s
    while True:
        try:
            database.execute("PRAGMA journal_mode = WAL")
        except sqlite3.OperationalError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.01)
        else:
            return


def _create(database: sqlite3.Connection) -> None:
    """Create the tables completely or not at all; a second process finds them done."""
    database.execute("BEGIN IMMEDIATE")
    if _version(database) == 0:
        for statement in _SCHEMA:
            database.execute(statement)
        database.execute(f"PRAGMA user_version = {_VERSION}")
    database.commit()


def _version(database: sqlite3.Connection) -> int:
    return int(database.execute("PRAGMA user_version").fetchone()[0])


def _is_damage(error: sqlite3.DatabaseError) -> bool:
    """Return whether an error means a damaged file; locks, full disks and failing disks do not."""
    return _code(error) in _DAMAGE


def _code(error: Exception) -> int:
    """Return SQLite's primary code of an error; 0 if it has none."""
    return int(getattr(error, "sqlite_errorcode", sqlite3.SQLITE_OK)) & 0xFF


def _is_sound(path: Path, timeout_s: float) -> bool:
    """Return whether SQLite finds no fault in the file and it is a history, or cannot check now."""
    with closing(sqlite3.connect(path, timeout=timeout_s)) as database:
        try:
            for table, columns in (("run", _RUN_COLUMNS), ("attempt", _ATTEMPT_COLUMNS)):
                database.execute(f"SELECT {columns} FROM {table} LIMIT 0")
            checked = database.execute("PRAGMA quick_check(1)").fetchall()
            return _version(database) >= _VERSION and checked == [("ok",)]
        except sqlite3.DatabaseError as error:
            return not _is_damage(error)


def _set_aside(path: Path, damaged: _Identity, timeout_s: float) -> bool:
    """Keep a damaged file and its log for examination.

    True where another file may take its name now: another process may have found the same damage
    first. False where the file is found to be sound.
    """
    with locks.held(path.with_name(f"{path.name}.lock"), waiting=lambda: None):
        if _identity(path) != damaged:
            return True
        if _is_sound(path, timeout_s):
            return False
        # SQLite does not touch files of this name again where it finds that its own has moved.
        for suffix in ("", "-wal", "-shm"):
            with suppress(FileNotFoundError):
                path.with_name(path.name + suffix).rename(f"{_aside(path)}{suffix}")
    return True


def _identity(path: Path) -> _Identity:
    """Return a value that identifies the file whatever its name; ``None`` if there is no file."""
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino


def _aside(path: Path) -> Path:
    return path.with_name(f"{path.name}.corrupt")

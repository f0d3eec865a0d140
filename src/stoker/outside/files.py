"""Writes outputs that appear whole or not at all: under a temporary name, then renamed.

Temporary folders are deleted with their process, or by the next one if it is killed.
"""

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO, TypeVar

import msgspec

from stoker.model.errors import StokerError, StorageError, StorageErrors, UsageError
from stoker.model.value import UNDECODABLE, prepared
from stoker.outside import locks
from stoker.outside.deleting import ASIDE, remove_file, remove_tree
from stoker.outside.folders import entries, nearest_existing, unwritable

T = TypeVar("T")
Stamp = tuple[int, int, int, int]
_OWN_PAGE = b'<meta name="generator" content="stoker">'
_HEAD = 4096  # bytes in which a page names what made it


def sha256_of(path: Path) -> str:
    """Return the SHA-256 digest of a file's content."""
    import hashlib  # loads OpenSSL, which most commands can do without

    with StorageErrors("read", path), path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def stamp_of(file: Path) -> Stamp:
    """Return values that change if the file is replaced or modified."""
    status = file.stat()
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns


def read_json(path: Path, kind: type[T]) -> T | None:
    """Return the value in a JSON file; ``None`` if it is missing, damaged or of another kind."""
    with suppress(OSError, *UNDECODABLE):
        return msgspec.json.decode(path.read_bytes(), type=prepared(kind))
    return None


def write_whole(path: Path, content: bytes | str, *, private: bool = False) -> None:
    """Replace or make a file in one step; only the user can read a ``private`` one."""
    with file_made_whole(path) as stream:
        if private:
            os.fchmod(stream.fileno(), 0o600)
        stream.write(content.encode() if isinstance(content, str) else content)


def write_named(path: Path, content: bytes | str) -> None:
    """Write a file that the user named. A regular file is replaced in one step; a device, a pipe
    or our own output is written to. A link stays, and what it leads to is written.
    """
    try:
        stream = _opened_through(path)
        if stream is None:
            write_whole(Path(os.path.realpath(path)), content)
            return
        with stream:
            stream.write(content.encode() if isinstance(content, str) else content)
    except OSError as error:
        raise unwritable(path, error) from error


def write_page(path: Path, page: str, *, force: bool = False) -> None:
    """Write a page as `write_named` does, but replace only a page of stoker, or with ``force``."""
    if not force and path.is_file():
        try:
            with path.open("rb") as stream:
                is_own = _OWN_PAGE in (head := stream.read(_HEAD)) or not head
        except OSError as error:
            raise unwritable(path, error) from error
        if not is_own:
            raise UsageError(
                f"{path} exists and is not a page of stoker",
                hints=["choose another file with -o", "or delete it first"],
            )
    write_named(path, page)


def _opened_through(path: Path) -> BinaryIO | None:
    """Open a special file, such as our own stdout, for writing; ``None`` for a regular or missing
    file.
    """
    try:
        status = path.stat()
    except FileNotFoundError:
        return None
    for descriptor in (1, 2):  # opened again, it would be truncated
        with suppress(OSError):
            if os.path.samestat(status, os.fstat(descriptor)):
                return os.fdopen(os.dup(descriptor), "wb")
    return None if stat.S_ISREG(status.st_mode) else path.open("wb")


@contextmanager
def file_made_whole(path: Path, *, aside: Path | None = None) -> Iterator[BinaryIO]:
    """Give a file to write; it becomes ``path`` only if nothing failed. Until then it is ``aside``,
    by default beside ``path``.
    """
    aside = aside or path.with_name(f".{path.name}{ASIDE}{os.urandom(8).hex()}")
    try:
        if path.exists() and not (path.is_symlink() or path.is_file() or path.is_dir()):
            raise StorageError(f"cannot write {path}: it is a device or pipe, not a regular file")
        for folder in (path.parent, aside.parent):
            folder.mkdir(parents=True, exist_ok=True)
        try:
            with aside.open("xb", buffering=1 << 20) as stream:
                yield stream
                stream.flush()
                os.fsync(stream.fileno())
            aside.replace(path)
        except BaseException:
            with suppress(OSError):
                remove_file(aside)
            raise
    except OSError as error:
        raise unwritable(path, error) from error


@contextmanager
def folder_made_whole(path: Path, *, mode: int = 0o755) -> Iterator[Path]:
    """Give a folder beside ``path`` to fill; it becomes ``path`` only if nothing failed."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        import tempfile

        aside = Path(tempfile.mkdtemp(prefix=f".{path.name}{ASIDE}", dir=path.parent))
    except OSError as error:
        raise unwritable(path.parent, error, doing="write in") from error
    try:
        yield aside
        aside.chmod(mode)
        aside.rename(path)
    except OSError as error:
        raise unwritable(path, error, doing="make") from error
    finally:
        remove_tree(aside)


def leftovers(folder: Path, name: str | None = None) -> list[Path]:
    """Return the incomplete or half-deleted folders beside ``folder / name``, or beside any name.
    Those of a running process look the same as those of a killed one; the caller must distinguish
    them.
    """
    found = entries(folder, f".{name}{ASIDE}" if name else ".")
    return [path for path in found if ASIDE in path.name and path.is_dir()]


def size_on_disk(folder: Path) -> int:
    """Return the bytes that the content of a folder takes on disk. A file with several names counts
    once, an unreadable one not at all.
    """
    seen: dict[tuple[int, int], int] = {}
    for place, subfolders, names in os.walk(folder):
        for name in (*subfolders, *names):
            with suppress(OSError):
                status = Path(place, name).lstat()
                seen[status.st_dev, status.st_ino] = status.st_blocks * 512
    return sum(seen.values())


def room_on_disk(path: Path) -> tuple[int, int]:
    """Return the size of the file system that holds ``path``, and the bytes that users can fill."""
    found = os.statvfs(path)
    return found.f_blocks * found.f_frsize, found.f_bavail * found.f_frsize


def folder_problem(folder: Path) -> str | None:
    """Return why nothing can be written in a folder, which need not exist yet; None if it can."""
    nearest = nearest_existing(folder)
    if not nearest.is_dir() or not os.access(nearest, os.W_OK | os.X_OK):
        why = "it is not writable" if nearest.is_dir() else f"{nearest} is not a folder"
        return f"cannot write in {folder}: {why}"
    return None


@contextmanager
def folder_of_process(parent: Path, prefix: str) -> Iterator[Path]:
    """Create and yield a new folder in ``parent``, and delete the folders of killed processes."""
    sweep(parent, prefix)
    path = parent / f"{prefix}{os.getpid()}-{os.urandom(4).hex()}"
    # The lock is created first and deleted last: a folder without a held lock is a leftover.
    with locks.held(_lock_of(path)):
        try:
            try:
                path.mkdir(mode=0o700)
            except OSError as error:
                raise unwritable(parent, error, doing="write in") from error
            yield path
        finally:
            _remove_temporary(path)


def sweep(parent: Path, prefix: str) -> None:
    """Delete the folders that killed processes left in ``parent``."""
    found = entries(parent, prefix)
    for path in {path.with_suffix("") if path.suffix == ".lock" else path for path in found}:
        # Deleted while its lock is held, so that no process that starts to use it is disturbed.
        with suppress(OSError, StokerError):
            lock = _lock_of(path)
            # A folder in use is left alone at once: to wait for its lock would delay each run by
            # a sixth of a second for each other run.
            if _is_mine(path) and _is_mine(lock) and not locks.is_held(lock):
                with locks.held(lock):
                    _remove_temporary(path)


def _is_mine(path: Path) -> bool:
    """Return whether the folder belongs to this user: other users' folders must not be deleted."""
    return not os.path.lexists(path) or path.lstat().st_uid == os.geteuid()


def _remove_temporary(path: Path) -> None:
    """Remove a folder. Ignore files that cannot be removed, so that they do not hide the result."""
    remove_tree(path)
    with suppress(OSError):
        remove_file(_lock_of(path))


def _lock_of(path: Path) -> Path:
    return path.with_name(f"{path.name}.lock")

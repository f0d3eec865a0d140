"""Outputs appear whole or not at all: made aside, then renamed."""

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from stoker.model.errors import StorageError


def write_whole(path: Path, content: bytes | str) -> None:
    """Replace or make a file in one step."""
    text = content.encode() if isinstance(content, str) else content
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, aside = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
        try:
            with os.fdopen(handle, "wb") as stream:
                stream.write(text)
                stream.flush()
                os.fsync(stream.fileno())
            Path(aside).replace(path)
        except BaseException:
            with suppress(OSError):
                Path(aside).unlink()
            raise
    except OSError as error:
        raise StorageError(f"cannot write {path}: {error.strerror}") from error


@contextmanager
def folder_made_whole(path: Path) -> Iterator[Path]:
    """Give a folder beside ``path`` to fill; it becomes ``path`` only if nothing failed."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        aside = Path(tempfile.mkdtemp(prefix=f".{path.name}.", dir=path.parent))
    except OSError as error:
        raise StorageError(f"cannot write in {path.parent}: {error.strerror}") from error
    try:
        yield aside
        aside.chmod(0o755)
        aside.rename(path)
    except OSError as error:
        raise StorageError(f"cannot make {path}: {error.strerror}") from error
    finally:
        shutil.rmtree(aside, ignore_errors=True)

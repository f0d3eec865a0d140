"""Deletes files and folders. This is the only module that does, and it follows no link.

A name in a folder that others can write may be a link to anything, and may become one at any time.
Folders are therefore opened one inside the other, without following links, and their content is
deleted by name in the open folder.
"""

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from stoker.model.errors import StorageError, StorageErrors

ASIDE = ".stoker-"  # in the name of what is being made or deleted
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


def remove_file(path: Path, *, below: Path | None = None) -> None:
    """Delete a file, or a link and not what it leads to; nothing happens if there is none. If
    ``below`` is given, the path must lead from there to the file without any link.
    """
    with suppress(FileNotFoundError), _parent(path, below) as folder:
        os.unlink(path.name, dir_fd=folder)


def remove_empty(folder: Path, *, below: Path | None = None) -> None:
    """Delete an empty folder; an ``OSError`` says that it is not empty."""
    with _parent(folder, below) as parent:
        os.rmdir(folder.name, dir_fd=parent)


def remove_tree(path: Path, *, below: Path | None = None, strict: bool = False) -> None:
    """Delete a folder and what is in it. What cannot be deleted stays, and so does all of it if
    ``path`` is a link; with ``strict`` that is an ``OSError``.
    """
    with suppress(*(() if strict else (OSError, StorageError))), _parent(path, below) as parent:
        _remove_folder(path.name, parent, strict=strict)


def remove_whole(path: Path) -> None:
    """Remove a folder: it disappears in one step, then its content is deleted. Links and files are
    refused.
    """
    if path.is_symlink():
        raise _is_link(path)
    if path.is_file():
        raise StorageError(f"cannot remove {path}: it is a file, not a folder")
    with StorageErrors("remove", path):
        aside = path.rename(path.with_name(f".{path.name}{ASIDE}{os.urandom(4).hex()}"))
        with suppress(FileNotFoundError):  # another process may be clearing leftovers
            remove_tree(aside, strict=True)


@contextmanager
def _parent(path: Path, below: Path | None) -> Iterator[int]:
    """Open the folder of a path, through folders only from ``below`` on."""
    base = path.parent if below is None else below
    names = path.relative_to(base).parts if base in path.parents else ("..",)
    if ".." in names:
        raise StorageError(f"cannot delete {path}: it leads out of {base}")
    folder = os.open(base, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        for name in names[:-1]:
            try:
                inner = os.open(name, _FOLDER, dir_fd=folder)
            except OSError:
                for one in reversed(path.parents):
                    if base in one.parents and one.is_symlink():
                        raise _is_link(one) from None
                raise
            os.close(folder)
            folder = inner
        yield folder
    finally:
        os.close(folder)


def _is_link(path: Path) -> StorageError:
    return StorageError(
        f"{path} is a symbolic link to {path.readlink()}: stoker does not follow it",
        hints=["remove the link, or what it leads to, yourself"],
    )


def _remove_folder(name: str, parent: int, *, strict: bool) -> None:
    mode = os.lstat(name, dir_fd=parent).st_mode
    if stat.S_ISDIR(mode) and mode & 0o700 != 0o700:
        os.chmod(name, 0o700, dir_fd=parent)  # a build may have made it read-only
    folder = os.open(name, _FOLDER, dir_fd=parent)
    try:
        with os.scandir(folder) as entries:
            found = [(entry.name, entry.is_dir(follow_symlinks=False)) for entry in entries]
        for inner, is_folder in found:
            with suppress(*((FileNotFoundError,) if strict else (OSError,))):
                if is_folder:
                    _remove_folder(inner, folder, strict=strict)
                else:
                    os.unlink(inner, dir_fd=folder)
    finally:
        os.close(folder)
    os.rmdir(name, dir_fd=parent)

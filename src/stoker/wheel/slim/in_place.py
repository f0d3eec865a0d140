"""Replaces files in place, all or none, and restores them on request.

A store next to them holds the originals and a journal. New files are prepared in the store, the
journal is written, and then each original gets a second name in the store before the new file is
renamed over the first. At every moment one of the names refers to the original. No file is ever
modified, because it may be shared: uv's cache shares files by hard links.

The name of the journal is the state of the store. A rename, which needs no disk space, changes
the state. The process can therefore be killed at any moment:

    no journal        no file has been replaced: the content of the store can be deleted
    replacing.json    some files may have been replaced: all have to be restored
    journal.json      all files are replaced, and their originals are kept
    discarding.json   all files are replaced, and some originals may have been deleted
"""

import filecmp
import os
import shutil
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from enum import StrEnum
from pathlib import Path

import msgspec

from stoker.model.artifact import TargetKind
from stoker.model.errors import StokerError, StorageError, StorageErrors, UsageError
from stoker.model.slimming import SLIM_MEMBER
from stoker.model.value import UNDECODABLE, Value, prepared
from stoker.outside import locks
from stoker.outside.deleting import remove_empty, remove_file, remove_tree
from stoker.outside.files import Stamp, file_made_whole, sha256_of, stamp_of, write_whole
from stoker.wheel.inspect.target import Target

STORE = "stoker-slim"  # the name of stores, after a dot if they are not in a dist-info folder
ORIGINALS, _NEW, _LOCK = "originals", "new", "lock"


class StoreState(StrEnum):
    """The state of a store, which is the name of its journal."""

    REPLACING = "replacing.json"
    KEPT = "journal.json"
    DISCARDING = "discarding.json"


class Replaced(Value, frozen=True, kw_only=True):
    """A new file, relative to the root. ``added`` means that it replaced no file."""

    path: str
    sha256: str
    added: bool


class Journal(Value, frozen=True, kw_only=True):
    """``root``, the folder of all files, is relative to the parent of the store, since an
    environment may be moved.
    """

    root: str
    files: tuple[Replaced, ...]


class Originals:
    """A store: the originals of replaced files, and new files while they are prepared. Files have
    the same names in it as below their common root.
    """

    def __init__(self, store: Path):
        self.store = store

    @classmethod
    def of(cls, target: Target) -> "Originals":
        """Return the store of what is slimmed in place. That of a distribution is in its dist-info
        folder, and is removed together with it.
        """
        if target.kind is TargetKind.FOLDER:
            return cls(target.path / f".{STORE}")
        if target.kind is TargetKind.LIBRARY:
            library = target.path.resolve()
            return cls(library.with_name(f".{library.name}.{STORE}"))
        return cls(target.path / STORE)

    def prepared(self, name: str) -> Path:
        """Return where the new version of a file is prepared."""
        return self.store / _NEW / name

    def original(self, name: str) -> Path:
        return self.store / ORIGINALS / name

    @property
    def journal(self) -> Path:
        """Return the path of the journal while the originals are kept."""
        return self.store / StoreState.KEPT

    @property
    def state(self) -> StoreState | None:
        """Return the state, or None if nothing has been replaced."""
        return next((state for state in StoreState if (self.store / state).exists()), None)

    @property
    def has_prepared(self) -> bool:
        return (self.store / _NEW).exists()

    @contextmanager
    def held(self) -> Iterator[None]:
        """Lock the store against other processes; create it if needed, remove it if empty."""
        lock = self.store / _LOCK
        busy = f"another stoker process is slimming or restoring {self.store.parent}"
        with locks.held(lock, busy=busy, hint="wait until it has finished, then try again"):
            try:
                yield
            finally:
                with suppress(OSError):
                    remove_file(lock)
                    remove_empty(self.store)

    def replace(self, root: Path, stamps: Mapping[str, Stamp | None]) -> None:
        """Replace all files below ``root`` with the prepared ones, or none.

        Every file must still match its stamp; a stamp of None means that no such file exists yet.
        """
        journal = Journal(
            root=os.path.relpath(root, self.store.parent),
            files=tuple(
                Replaced(path=name, sha256=sha256_of(self.prepared(name)), added=stamp is None)
                for name, stamp in stamps.items()
            ),
        )
        write_whole(self.store / StoreState.REPLACING, msgspec.json.encode(journal))
        try:
            for name, stamp in stamps.items():
                here = root / name
                with StorageErrors("replace", here):
                    if stamp is not None:
                        _second_name(here, self.original(name), stamp)
                    elif os.path.lexists(here):
                        raise _changed(here)
                    self.prepared(name).replace(here)
            self._advance(StoreState.KEPT)
        except BaseException:
            self._restore(root, journal.files)
            raise
        remove_tree(self.store / _NEW)

    def replaced(self) -> tuple[Path, tuple[Replaced, ...]]:
        """Return the root of the replaced files and these files, as the journal has them."""
        state = self.state
        if state is None:
            raise self.none_left()
        try:
            journal = msgspec.json.decode((self.store / state).read_bytes(), type=prepared(Journal))
        except (OSError, *UNDECODABLE) as error:
            raise StorageError(
                f"cannot read {self.store / state}: {error}",
                hints=[f"the originals are in {self.store / ORIGINALS}"],
            ) from None
        root = Path(os.path.normpath(self.store.parent.absolute() / journal.root))
        if not all(self._may_name(root, file.path) for file in journal.files):
            raise StorageError(
                f"{self.store / state} names files in other folders, so stoker did not write it",
                hints=[f"delete {self.store} if you do not trust it"],
            )
        return root, journal.files

    def _may_name(self, root: Path, name: str) -> bool:
        """Return whether a journal may name a file: an unknown folder may contain a forged one."""
        here, folder = root / name, self.store.parent
        if Path(name).is_absolute() or ".." in Path(name).parts:
            return False
        if not folder.absolute().is_relative_to(root):
            return False
        is_note = here.parent.suffix == ".dist-info" and here.name in ("RECORD", SLIM_MEMBER)
        is_installed = folder.suffix == ".dist-info" and not self.store.name.startswith(".")
        return is_note or is_installed or here.parent.resolve().is_relative_to(folder.resolve())

    def put_back(self) -> tuple[str, ...]:
        """Restore the originals and return their names; fail if a file was changed since."""
        root, files = self.replaced()
        for file in files:
            if not self._is_ours(root, file):
                raise UsageError(
                    f"{root / file.path} was changed or installed again after the slimming",
                    hints=["delete the kept originals with --discard"],
                )
        if self.state is StoreState.KEPT:
            self._advance(StoreState.REPLACING)
        self._restore(root, files)
        return tuple(file.path for file in files if not file.added)

    def put_back_ours(self) -> None:
        """Revert an interrupted replacement; files that were changed since stay as they are."""
        root, files = self.replaced()
        self._restore(root, [file for file in files if self._is_ours(root, file)])

    def _is_ours(self, root: Path, file: Replaced) -> bool:
        """Return whether a file is the one that stoker wrote, or still the original."""
        here, original = root / file.path, self.original(file.path)
        if file.added:
            return not here.is_file() or sha256_of(here) == file.sha256
        if not original.exists():  # an interrupted slimming had not replaced it yet
            return True
        return here.is_file() and (
            here.samefile(original)
            or sha256_of(here) == file.sha256
            or filecmp.cmp(here, original, shallow=False)
        )

    def _restore(self, root: Path, files: Sequence[Replaced]) -> None:
        """Restore the originals, however many files have been replaced."""
        try:
            for file in reversed(files):
                here, original = root / file.path, self.original(file.path)
                if original.exists():
                    original.replace(here)
                elif file.added and self._is_ours(root, file):
                    remove_file(here, below=root)
            self.clear()
        except OSError as error:
            raise StorageError(
                f"cannot restore the originals: {error.strerror or error}",
                hints=[f"they are in {self.store / ORIGINALS}", "try again with --undo"],
            ) from error

    def begin_discarding(self) -> int:
        """Mark the originals as discarded, which is final, and return their size in bytes."""
        _, files = self.replaced()
        if self.state is StoreState.KEPT:
            self._advance(StoreState.DISCARDING)
        kept = [self.original(file.path) for file in files]
        return sum(path.stat().st_size for path in kept if path.exists())

    def _advance(self, following: StoreState) -> None:
        assert self.state
        try:
            (self.store / self.state).replace(self.store / following)
        except OSError as error:
            raise StorageError(
                f"cannot write in {self.store}: {error.strerror or error}"
            ) from error

    def clear(self, *, only: Collection[str] | None = None) -> None:
        """Empty the store. The journal is deleted last, since it describes the rest."""
        with StorageErrors("delete", self.store):
            found = [path for path in self.store.iterdir() if only is None or path.name in only]
            for path in sorted(found, key=lambda path: path.name in set(StoreState)):
                if path.is_dir() and not path.is_symlink():
                    remove_tree(path, strict=True)
                elif path.name != _LOCK:
                    remove_file(path)

    def check_no_originals(self) -> None:
        """Raise an error if there are originals without a journal, so that none is deleted."""
        if any(path.is_file() for path in (self.store / ORIGINALS).rglob("*")):
            raise StorageError(
                f"{self.store} holds originals, but its journal is missing",
                hints=["move them back by hand, or delete them with --discard"],
            )

    def none_left(self) -> UsageError:
        return UsageError(
            f"there are no originals in {self.store}, so nothing can be restored",
            hints=[
                "use the same name or path as for the slimming",
                "install it again if the originals were discarded",
            ],
        )


def _second_name(file: Path, other: Path, stamp: Stamp) -> None:
    """Create a hard link, or a copy if the file system has no links."""
    other.parent.mkdir(parents=True, exist_ok=True)
    try:
        os.link(file, other)
    except OSError:
        with file_made_whole(other) as target, file.open("rb") as source:
            shutil.copyfileobj(source, target)
            target.flush()
            give(Path(target.name), file)
            shutil.copystat(file, target.name)
            if stamp_of(file) != stamp:
                raise _changed(file) from None
    else:
        if stamp_of(other) != stamp:
            remove_file(other)
            raise _changed(file)


def _changed(file: Path) -> StokerError:
    return StokerError(
        f"another process changed {file} during the slimming, so no file was replaced",
        hints=["wait until that process has finished, then try again"],
    )


def give(path: Path, like: Path) -> None:
    """Copy owner and permissions of another file, as far as the process is allowed to."""
    status = like.stat()
    with suppress(PermissionError):
        os.chown(path, status.st_uid, status.st_gid)
    shutil.copymode(like, path)

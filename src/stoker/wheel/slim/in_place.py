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
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from enum import StrEnum
from pathlib import Path

import msgspec

from stoker.model.artifact import TargetKind
from stoker.model.errors import StokerError, StorageError, StorageErrors, UsageError
from stoker.model.slimming import SLIM_MEMBER
from stoker.model.value import UNDECODABLE, Value
from stoker.outside import locks
from stoker.outside.deleting import remove_empty, remove_file, remove_tree
from stoker.outside.files import Stamp, file_made_whole, sha256_of, stamp_of, write_whole
from stoker.wheel.target import Target

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
    """``root`` is relative to the parent of the store, since an environment may be moved."""

    root: str
    files: tuple[Replaced, ...]


class Site(Value, frozen=True, kw_only=True):
    """The folder that contains all files, and the store inside it."""

    root: Path
    store: Path

    @property
    def journal(self) -> Path:
        """Return the path of the journal while the originals are kept."""
        return self.store / StoreState.KEPT

    def prepared(self, path: str) -> Path:
        """Return where the new version of ``path`` is prepared."""
        return self.store / _NEW / path

    def original(self, path: str) -> Path:
        return self.store / ORIGINALS / path


def store_of(target: Target) -> Path:
    """Return the folder for the originals of what is slimmed in place. That of a distribution is in
    its dist-info folder, and is removed together with it.
    """
    if target.kind is TargetKind.FOLDER:
        return target.path / f".{STORE}"
    if target.kind is TargetKind.LIBRARY:
        library = target.path.resolve()
        return library.with_name(f".{library.name}.{STORE}")
    return target.path / STORE


@contextmanager
def held_store(store: Path) -> Iterator[None]:
    """Lock a store against other processes; create it if needed, remove it if it ends empty."""
    lock = store / _LOCK
    busy = f"another stoker process is slimming or restoring {store.parent}"
    with locks.held(lock, busy=busy, hint="wait until it has finished, then try again"):
        try:
            yield
        finally:
            with suppress(OSError):
                remove_file(lock)
                remove_empty(store)


def state_of(store: Path) -> StoreState | None:
    """Return the state of a store, or None if nothing has been replaced."""
    return next((state for state in StoreState if (store / state).exists()), None)


def has_prepared(store: Path) -> bool:
    """Return whether the store holds prepared files."""
    return (store / _NEW).exists()


def replace_prepared(site: Site, stamps: Mapping[str, Stamp | None]) -> None:
    """Replace all files with the prepared ones, or none.

    Every file must still match its stamp; a stamp of None means that no such file exists yet.
    """
    journal = Journal(
        root=os.path.relpath(site.root, site.store.parent),
        files=tuple(
            Replaced(path=path, sha256=sha256_of(site.prepared(path)), added=stamp is None)
            for path, stamp in stamps.items()
        ),
    )
    write_whole(site.store / StoreState.REPLACING, msgspec.json.encode(journal))
    try:
        for file in journal.files:
            _replace(site, file, stamps[file.path])
        _advance(site.store, StoreState.REPLACING, StoreState.KEPT)
    except BaseException:
        _put_back(site, journal)
        raise
    remove_tree(site.store / _NEW)


def _replace(site: Site, file: Replaced, stamp: Stamp | None) -> None:
    here, original = site.root / file.path, site.original(file.path)
    with StorageErrors("replace", here):
        if stamp is not None:
            original.parent.mkdir(parents=True, exist_ok=True)
            _second_name(here, original, stamp)
        elif os.path.lexists(here):
            raise _changed(here)
        site.prepared(file.path).replace(here)


def _second_name(file: Path, other: Path, stamp: Stamp) -> None:
    """Create a hard link, or a copy if the file system has no links."""
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


def open_site(store: Path) -> tuple[Site, Journal]:
    """Return the site and the journal of a store."""
    state = state_of(store)
    if state is None:
        raise no_originals(store)
    try:
        content = (store / state).read_bytes()
        journal = msgspec.json.decode(content, type=Journal)
    except (OSError, *UNDECODABLE) as error:
        raise StorageError(
            f"cannot read {store / state}: {error}",
            hints=[f"the originals are in {store / ORIGINALS}"],
        ) from None
    site = Site(root=Path(os.path.normpath(store.parent.absolute() / journal.root)), store=store)
    if not all(_is_within(site, file.path) for file in journal.files):
        raise StorageError(
            f"{store / state} names files in other folders, so stoker did not write it",
            hints=[f"delete {store} if you do not trust it"],
        )
    return site, journal


def _is_within(site: Site, path: str) -> bool:
    """Return whether a journal may name a file: an unknown folder may contain a forged one."""
    here, folder = site.root / path, site.store.parent
    if Path(path).is_absolute() or ".." in Path(path).parts:
        return False
    if not folder.absolute().is_relative_to(site.root):
        return False
    is_note = here.parent.suffix == ".dist-info" and here.name in ("RECORD", SLIM_MEMBER)
    is_installed = folder.suffix == ".dist-info" and not site.store.name.startswith(".")
    return is_note or is_installed or here.parent.resolve().is_relative_to(folder.resolve())


def no_originals(store: Path) -> UsageError:
    return UsageError(
        f"there are no originals in {store}, so nothing can be restored",
        hints=[
            "use the same name or path as for the slimming",
            "install it again if the originals were discarded",
        ],
    )


def put_back(store: Path) -> tuple[str, ...]:
    """Restore the originals and return their names; fail if a file was changed since."""
    site, journal = open_site(store)
    for file in journal.files:
        if not _is_ours(site, file):
            raise UsageError(
                f"{site.root / file.path} was changed or installed again after the slimming",
                hints=["delete the kept originals with --discard"],
            )
    if state_of(store) is StoreState.KEPT:
        _advance(store, StoreState.KEPT, StoreState.REPLACING)
    _put_back(site, journal)
    return tuple(file.path for file in journal.files if not file.added)


def put_back_ours(store: Path) -> None:
    """Revert an interrupted replacement; files that were changed since stay as they are."""
    site, journal = open_site(store)
    ours = tuple(file for file in journal.files if _is_ours(site, file))
    _put_back(site, Journal(root=journal.root, files=ours))


def _is_ours(site: Site, file: Replaced) -> bool:
    """Return whether a file is the one that stoker wrote, or still the original."""
    here, original = site.root / file.path, site.original(file.path)
    if file.added:
        return not here.is_file() or sha256_of(here) == file.sha256
    if not original.exists():  # an interrupted slimming had not replaced it yet
        return True
    return here.is_file() and (
        here.samefile(original)
        or sha256_of(here) == file.sha256
        or filecmp.cmp(here, original, shallow=False)
    )


def _put_back(site: Site, journal: Journal) -> None:
    """Restore the originals, however many files have been replaced."""
    try:
        for file in reversed(journal.files):
            here, original = site.root / file.path, site.original(file.path)
            if original.exists():
                original.replace(here)
            elif file.added and _is_ours(site, file):
                remove_file(here, below=site.root)
        clear_store(site.store)
    except OSError as error:
        raise StorageError(
            f"cannot restore the originals: {error.strerror or error}",
            hints=[f"they are in {site.store / ORIGINALS}", "try again with --undo"],
        ) from error


def _advance(store: Path, state: StoreState, following: StoreState) -> None:
    try:
        (store / state).replace(store / following)
    except OSError as error:
        raise StorageError(f"cannot write in {store}: {error.strerror or error}") from error


def begin_discarding(store: Path) -> int:
    """Mark the originals as discarded, which is final, and return their size in bytes."""
    site, journal = open_site(store)
    if state_of(store) is StoreState.KEPT:
        _advance(store, StoreState.KEPT, StoreState.DISCARDING)
    originals = [site.original(file.path) for file in journal.files]
    return sum(path.stat().st_size for path in originals if path.exists())


def check_no_originals(store: Path) -> None:
    """Raise an error if the store holds originals without a journal, so none is deleted."""
    if any(path.is_file() for path in (store / ORIGINALS).rglob("*")):
        raise StorageError(
            f"{store} holds originals, but its journal is missing",
            hints=["move them back by hand, or delete them with --discard"],
        )


def clear_store(store: Path, *, only: Iterable[str] | None = None) -> None:
    """Empty a store. The journal is deleted last, since it describes the rest."""
    with StorageErrors("delete", store):
        found = [path for path in store.iterdir() if only is None or path.name in only]
        for path in sorted(found, key=lambda path: path.name in set(StoreState)):
            if path.is_dir() and not path.is_symlink():
                remove_tree(path, strict=True)
            elif path.name != _LOCK:
                remove_file(path)

"""Files replaced where they are, all or none, and put back on request.

A store beside them holds the originals and a journal. What is new is prepared in the store, the
journal is written, and then each original gets a second name in the store before the new file
takes the first: at every moment either name leads to the original, and no file is ever written
into. That matters where others share it, as uv's cache does by hard links.

The name of the journal says how far the work has come, and a rename, which needs no room on the
disk, is each step from one stage to the next. So a process may be killed at any moment:

    no journal        nothing has been replaced yet: what is in the store can be deleted
    replacing.json    any of the files may have been replaced: all are to be put back
    journal.json      all are replaced, and their originals are kept
    discarding.json   all are replaced, and any of the originals may have been deleted
"""

import filecmp
import hashlib
import os
import shutil
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from enum import StrEnum
from pathlib import Path

import msgspec

from stoker.model.errors import StokerError, StorageError, UsageError
from stoker.model.slim import SLIM_MEMBER
from stoker.model.value import Value
from stoker.outside import locks
from stoker.outside.files import file_made_whole, write_whole

ORIGINALS, _NEW, _LOCK = "originals", "new", "lock"

Stamp = tuple[int, int, int, int]


class Stage(StrEnum):
    """How far the work in a store has come; the name of its journal."""

    REPLACING = "replacing.json"
    KEPT = "journal.json"
    DISCARDING = "discarding.json"


class Replaced(Value, frozen=True, kw_only=True):
    """A file under the root, as it was put there. ``added``: there was none before."""

    path: str
    sha256: str
    added: bool


class Journal(Value, frozen=True, kw_only=True):
    """``root`` is relative to the folder of the store: an environment may be moved."""

    root: str
    files: tuple[Replaced, ...]


class Site(Value, frozen=True, kw_only=True):
    """Files under ``root``, and the folder below it where their originals go."""

    root: Path
    store: Path

    @property
    def journal(self) -> Path:
        """Where the journal is for as long as the originals are kept."""
        return self.store / Stage.KEPT

    def prepared(self, path: str) -> Path:
        """Where the file that is to take the place of ``path`` is made."""
        return self.store / _NEW / path

    def original(self, path: str) -> Path:
        return self.store / ORIGINALS / path


@contextmanager
def held(store: Path) -> Iterator[None]:
    """Keep other processes out of a store; it is made if need be, and removed if it ends empty."""
    lock = store / _LOCK
    try:
        with locks.held(lock):
            try:
                yield
            finally:
                with suppress(OSError):
                    lock.unlink()
                    store.rmdir()
    except locks.BusyError:
        raise StokerError(
            f"another stoker is slimming {store.parent}, or putting its originals back",
            hints=["wait until it has ended, then try again"],
        ) from None


def stage_of(store: Path) -> Stage | None:
    """None: nothing has been replaced."""
    return next((stage for stage in Stage if (store / stage).exists()), None)


def has_prepared(store: Path) -> bool:
    """Whether there is something to take the place of files."""
    return (store / _NEW).exists()


def stamp_of(file: Path) -> Stamp:
    """What tells whether a file is still the one that was read."""
    status = file.stat()
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns


def replace_prepared(site: Site, stamps: Mapping[str, Stamp | None]) -> None:
    """Put every prepared file in its place. All or none.

    Each has to be still what its stamp says; None: there is no such file yet.
    """
    journal = Journal(
        root=os.path.relpath(site.root, site.store.parent),
        files=tuple(
            Replaced(path=path, sha256=sha256(site.prepared(path)), added=stamp is None)
            for path, stamp in stamps.items()
        ),
    )
    write_whole(site.store / Stage.REPLACING, msgspec.json.encode(journal))
    try:
        for file in journal.files:
            _replace(site, file, stamps[file.path])
        _advance(site.store, Stage.REPLACING, Stage.KEPT)
    except BaseException:
        _put_back(site, journal)
        raise
    shutil.rmtree(site.store / _NEW, ignore_errors=True)


def _replace(site: Site, file: Replaced, stamp: Stamp | None) -> None:
    here, original = site.root / file.path, site.original(file.path)
    try:
        if stamp is not None:
            original.parent.mkdir(parents=True, exist_ok=True)
            _second_name(here, original, stamp)
        elif os.path.lexists(here):
            raise _changed(here)
        site.prepared(file.path).replace(here)
    except OSError as error:
        raise StorageError(f"cannot replace {here}: {error.strerror or error}") from error


def _second_name(file: Path, other: Path, stamp: Stamp) -> None:
    """A hard link, or a copy where the disk has none; a copy appears when it is whole."""
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
            other.unlink()
            raise _changed(file)


def _changed(file: Path) -> StokerError:
    return StokerError(
        f"{file} was changed by another process while it was slimmed: nothing is replaced",
        hints=["wait until nothing else writes there, then try again"],
    )


def give(path: Path, like: Path) -> None:
    """Owner and permissions of another file, as far as we may."""
    status = like.stat()
    with suppress(PermissionError):
        os.chown(path, status.st_uid, status.st_gid)
    shutil.copymode(like, path)


def open_site(store: Path) -> tuple[Site, Journal]:
    """What a store is about."""
    stage = stage_of(store)
    if stage is None:
        raise no_originals(store)
    try:
        content = (store / stage).read_bytes()
        journal = msgspec.json.decode(content, type=Journal)
    except (OSError, msgspec.DecodeError) as error:
        raise StorageError(
            f"cannot read {store / stage}: {error}", hints=[f"look into {store / ORIGINALS}"]
        ) from None
    site = Site(root=Path(os.path.normpath(store.parent.absolute() / journal.root)), store=store)
    if not all(_is_within(site, file.path) for file in journal.files):
        raise StorageError(
            f"{store / stage} names files elsewhere: stoker has not written it",
            hints=[f"delete {store} if you do not trust it"],
        )
    return site, journal


def _is_within(site: Site, path: str) -> bool:
    """Whether a journal may name a file: a folder from elsewhere may bring one along."""
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
        f"there are no originals in {store}: nothing can be undone",
        hints=["name it as you did when it was slimmed", "after --discard: install it again"],
    )


def put_back(store: Path) -> tuple[str, ...]:
    """Put the originals back; give back their names. What was changed since is not touched."""
    site, journal = open_site(store)
    for file in journal.files:
        if not _is_ours(site, file):
            raise UsageError(
                f"{site.root / file.path} is not what stoker left there: it was changed or "
                "installed again",
                hints=["--discard deletes the originals that were kept"],
            )
    if stage_of(store) is Stage.KEPT:
        _advance(store, Stage.KEPT, Stage.REPLACING)
    _put_back(site, journal)
    return tuple(file.path for file in journal.files if not file.added)


def put_back_ours(store: Path) -> None:
    """End a replacing that was interrupted; what was changed since stays as it is."""
    site, journal = open_site(store)
    ours = tuple(file for file in journal.files if _is_ours(site, file))
    _put_back(site, Journal(root=journal.root, files=ours))


def _is_ours(site: Site, file: Replaced) -> bool:
    """Whether a file is what was put there, or still the original."""
    here, original = site.root / file.path, site.original(file.path)
    if file.added:
        return not here.is_file() or sha256(here) == file.sha256
    if not original.exists():  # an interrupted slimming did not come this far
        return True
    return here.is_file() and (
        here.samefile(original)
        or sha256(here) == file.sha256
        or filecmp.cmp(here, original, shallow=False)
    )


def _put_back(site: Site, journal: Journal) -> None:
    """In any state between the first file replaced and the last."""
    try:
        for file in reversed(journal.files):
            here, original = site.root / file.path, site.original(file.path)
            if original.exists():
                original.replace(here)
            elif file.added and _is_ours(site, file):
                here.unlink(missing_ok=True)
        clear(site.store)
    except OSError as error:
        raise StorageError(
            f"cannot put the originals back: {error.strerror or error}",
            hints=[f"they are in {site.store / ORIGINALS}", "--undo tries it again"],
        ) from error


def _advance(store: Path, stage: Stage, following: Stage) -> None:
    try:
        (store / stage).replace(store / following)
    except OSError as error:
        raise StorageError(f"cannot write in {store}: {error.strerror or error}") from error


def begin_discarding(store: Path) -> int:
    """From here on the originals cannot be put back; give back how many bytes they have."""
    site, journal = open_site(store)
    if stage_of(store) is Stage.KEPT:
        _advance(store, Stage.KEPT, Stage.DISCARDING)
    originals = [site.original(file.path) for file in journal.files]
    return sum(path.stat().st_size for path in originals if path.exists())


def check_no_originals(store: Path) -> None:
    """Nothing may be deleted that only a journal, which is gone, could put back."""
    if any(path.is_file() for path in (store / ORIGINALS).rglob("*")):
        raise StorageError(
            f"the journal of {store} is gone, but not the originals in it",
            hints=["put them back yourself, or --discard deletes them"],
        )


def clear(store: Path, *, only: Iterable[str] | None = None) -> None:
    """Empty a store. Its journal goes last, since without it nothing is known of the rest."""
    try:
        found = [path for path in store.iterdir() if only is None or path.name in only]
        for path in sorted(found, key=lambda path: path.name in set(Stage)):
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path)
            elif path.name != _LOCK:
                path.unlink()
    except OSError as error:
        raise StorageError(f"cannot delete {store}: {error.strerror or error}") from error


def sha256(path: Path) -> str:
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()

"""Files replaced where they are, all or none, and put back on request.

A store beside them holds the originals and a journal. What is new is prepared in the store, the
journal is written, and then each original gets a second name in the store before the new file
takes the first: at every moment either name leads to the original, and no file is ever written
into. That matters where others share it, as uv's cache does by hard links.
"""

import hashlib
import os
import shutil
from collections.abc import Iterable
from pathlib import Path

import msgspec

from stoker.model.errors import StorageError, UsageError
from stoker.model.value import Value
from stoker.outside.files import write_whole

_JOURNAL, _ORIGINALS, _NEW = "journal.json", "originals", "new"


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
        return self.store / _JOURNAL

    def prepared(self, path: str) -> Path:
        """Where the file that is to take the place of ``path`` is made."""
        return self.store / _NEW / path

    def original(self, path: str) -> Path:
        return self.store / _ORIGINALS / path


def replace_prepared(site: Site, paths: Iterable[str]) -> None:
    """Put every prepared file in its place. All or none."""
    journal = Journal(
        root=os.path.relpath(site.root, site.store.parent),
        files=tuple(
            Replaced(
                path=path,
                sha256=sha256(site.prepared(path)),
                added=not os.path.lexists(site.root / path),
            )
            for path in paths
        ),
    )
    write_whole(site.journal, msgspec.json.encode(journal))
    try:
        for file in journal.files:
            _replace(site, file)
    except BaseException:
        _put_back(site, journal)
        raise
    shutil.rmtree(site.store / _NEW, ignore_errors=True)


def _replace(site: Site, file: Replaced) -> None:
    here, original = site.root / file.path, site.original(file.path)
    try:
        if not file.added:
            original.parent.mkdir(parents=True, exist_ok=True)
            _second_name(here, original)
        site.prepared(file.path).replace(here)
    except OSError as error:
        raise StorageError(f"cannot replace {here}: {error.strerror or error}") from error


def _second_name(file: Path, other: Path) -> None:
    """A hard link, or a copy where the disk has none."""
    try:
        os.link(file, other)
    except OSError:
        shutil.copy2(file, other)


def open_site(store: Path) -> tuple[Site, Journal]:
    """What a store is about."""
    try:
        content = (store / _JOURNAL).read_bytes()
        journal = msgspec.json.decode(content, type=Journal)
    except FileNotFoundError:
        raise UsageError(
            f"there are no originals in {store}: nothing can be undone",
            hints=["name it as you did when it was slimmed", "after --discard: install it again"],
        ) from None
    except (OSError, msgspec.DecodeError) as error:
        raise StorageError(f"cannot read {store / _JOURNAL}: {error}") from None
    return Site(root=Path(os.path.normpath(store.parent / journal.root)), store=store), journal


def undo(store: Path) -> tuple[str, ...]:
    """Put the originals back; give back their names. What was changed since is not touched."""
    site, journal = open_site(store)
    for file in journal.files:
        _check_ours(site, file)
    _put_back(site, journal)
    return tuple(file.path for file in journal.files if not file.added)


def _check_ours(site: Site, file: Replaced) -> None:
    here, original = site.root / file.path, site.original(file.path)
    untouched = not original.exists()  # an interrupted slimming did not come this far
    if untouched or (here.is_file() and (_is_ours(here, file) or here.samefile(original))):
        return
    raise UsageError(
        f"{here} is not what stoker left there: it was changed or installed again",
        hints=["--discard deletes the originals that were kept"],
    )


def _is_ours(here: Path, file: Replaced) -> bool:
    return sha256(here) == file.sha256


def _put_back(site: Site, journal: Journal) -> None:
    """In any state between the first file replaced and the last."""
    try:
        for file in reversed(journal.files):
            here, original = site.root / file.path, site.original(file.path)
            if original.exists():
                original.replace(here)
            elif file.added:
                here.unlink(missing_ok=True)
        shutil.rmtree(site.store)
    except OSError as error:
        raise StorageError(
            f"cannot put the originals back: {error.strerror or error}",
            hints=[f"they are in {site.store / _ORIGINALS}"],
        ) from error


def sha256(path: Path) -> str:
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()

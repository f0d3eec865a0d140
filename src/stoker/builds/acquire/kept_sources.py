"""Keeps complete source trees in stoker's cache for later builds.

Each is a folder with a record and the tree, and a lock file beside it: exclusive while the tree is
made, shared while it is built. The next process completes or replaces what a killed one left.
"""

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec

from stoker.builds.acquire import git
from stoker.builds.acquire.archive import unpack
from stoker.builds.acquire.naming import ARCHIVES, Named, parse_source
from stoker.model.errors import CommandError, MissingError, UsageError
from stoker.model.source import SourceKind
from stoker.model.value import Value
from stoker.outside import folders, locks
from stoker.outside import package_index as index
from stoker.outside.deleting import remove_file, remove_tree
from stoker.outside.files import read_json, sha256_of
from stoker.outside.long_work import Say
from stoker.source.git_state import submodule_states

_RECORD = "source.json"


class Acquired(Value, frozen=True, kw_only=True):
    """A source tree that is on this machine, whole, and what it was made from."""

    kind: SourceKind
    given: str  # as the user named it, without credentials
    path: str  # the tree's folder
    identity: str | None = None  # "commit 1a2b..." or "sha256 3c4d..."; a folder has none
    notes: tuple[str, ...] = ()


class Record(Value, frozen=True, kw_only=True):
    """The record beside a tree: where the tree is, below the record's folder, and its source."""

    kind: SourceKind
    given: str
    tree: str
    identity: str
    notes: tuple[str, ...] = ()


class _Wanted(Value, frozen=True, kw_only=True):
    """A tree to make. ``make`` fills a folder, under a lock with this descriptor, and returns what
    it made. One that ``resumes`` can use the rest of an earlier attempt.
    """

    key: str
    make: Callable[[Path, int], Record]
    resumes: bool = False
    notes: tuple[str, ...] = ()


def root() -> Path:
    return folders.cache() / "sources"


def lock_of(entry: Path) -> Path:
    """Return the lock of a folder in ``root()``, whether it is complete or being made."""
    return entry.with_name(f"{entry.name.removeprefix('.').removesuffix('.partial')}.lock")


def read_source_record(entry: Path) -> Record | None:
    """Return the record of a tree; ``None`` if the tree is incomplete."""
    record = read_json(entry / _RECORD, Record)
    return record if record and (entry / record.tree).is_dir() else None


@contextmanager
def acquired(given: str, *, say: Say, tag: str | None = None) -> Iterator[Acquired]:
    """Yield the tree that ``given`` names; `stoker clean --all` keeps it while the block runs."""
    named = parse_source(given, tag)
    if named.kind is SourceKind.FOLDER:
        path = Path(named.place)
        yield Acquired(kind=named.kind, given=named.shown, path=str(path), notes=_checked(path))
        return
    if named.kind is SourceKind.INDEX and named.reference is None:
        newest = index.newest_sdist(named.place, index.read_index())
        named = parse_source(f"{named.place}=={newest}")
        say(f"the newest release is {named.shown}")
    makers = {SourceKind.ARCHIVE: _of_archive, SourceKind.INDEX: _of_index}
    wanted = makers.get(named.kind, _of_git)(named, say)
    with _kept(wanted, say) as (path, record):
        yield Acquired(
            kind=record.kind,
            given=named.shown,
            path=str(path),
            identity=record.identity,
            notes=(*record.notes, *wanted.notes, *_checked(path)),
        )


def _checked(tree: Path) -> tuple[str, ...]:
    """Check that all submodules are present; note those that are at another commit."""
    if not (tree / ".gitmodules").is_file() or not (tree / ".git").exists():
        return ()
    try:
        states = submodule_states(tree)
    except (CommandError, MissingError) as error:
        return (f"submodules were not checked: {error.message}",)
    if lacking := [path for path, state in states.items() if state in "-U"]:
        raise git.incomplete(tree, lacking)
    moved = [path for path, state in states.items() if state == "+"]
    return (f"submodules at another commit than the tree names: {', '.join(moved)}",) * bool(moved)


@contextmanager
def _kept(wanted: _Wanted, say: Say) -> Iterator[tuple[Path, Record]]:
    """Yield the tree, which is made if necessary, under a shared lock."""
    entry = root() / wanted.key
    lock = lock_of(entry)

    def wait() -> None:
        say("waiting for another stoker that uses this source")

    while True:
        with locks.held(lock, shared=True, waiting=wait):
            if record := read_source_record(entry):
                yield entry / record.tree, record
                return
        with locks.held(lock, waiting=wait) as descriptor:
            if not read_source_record(entry):
                _make(wanted, entry, descriptor)


def _make(wanted: _Wanted, entry: Path, descriptor: int) -> None:
    work = entry.with_name(f".{entry.name}.partial")
    remove_tree(entry)  # damaged since it was made
    if not wanted.resumes:
        remove_tree(work)
    try:
        work.mkdir(exist_ok=True)
        record = wanted.make(work, descriptor)
        (work / _RECORD).write_bytes(msgspec.json.encode(record))
        work.rename(entry)
    except OSError as error:
        raise folders.unwritable(entry, error, doing="keep a source in") from error
    finally:
        if not wanted.resumes:
            remove_tree(work)


def _of_archive(named: Named, _: Say) -> _Wanted:
    archive = Path(named.place)
    digest = sha256_of(archive)

    def make(work: Path, _: int) -> Record:
        return Record(
            kind=named.kind,
            given=named.shown,
            tree=_unpacked(archive, work),
            identity=f"sha256 {digest}",
        )

    suffix = next((suffix for suffix in ARCHIVES if archive.name.endswith(suffix)), "")
    stem = folders.slug(archive.name.removesuffix(suffix))
    return _Wanted(key=f"{stem}-{digest[:12]}", make=make)


def _of_index(named: Named, say: Say) -> _Wanted:
    version = named.reference or ""

    def make(work: Path, _: int) -> Record:
        places = index.read_index()
        file = index.find_sdist(named.place, version, places)
        archive = index.download(file, work, places, say=say)
        digest = sha256_of(archive)
        tree = _unpacked(archive, work)
        remove_file(archive)
        return Record(
            kind=named.kind,
            given=named.shown,
            tree=tree,
            identity=f"sha256 {digest}",
            notes=() if file.sha256 else ("the index gives no checksum: nothing was compared",),
        )

    return _Wanted(key=folders.slug(f"{named.place}-{version}"), make=make)


def _of_git(named: Named, say: Say) -> _Wanted:
    try:
        found = git.find_commit(named.place, named.reference)
    except git.ServerUnreachableError as error:
        return _fetched_earlier(named, error)
    name = folders.slug(re.split(r"[/:]", named.place.rstrip("/"))[-1].removesuffix(".git"))

    def make(work: Path, descriptor: int) -> Record:
        tree, keep_open = work / name, (descriptor,)
        begun = tree.exists()
        try:
            commit = git.fetch_commit(named.place, found, tree, say=say, keep_open=keep_open)
        except (CommandError, UsageError):
            if not begun:
                raise
            say("what an earlier attempt left cannot be used: starting again")
            remove_tree(tree, strict=True)
            commit = git.fetch_commit(named.place, found, tree, say=say, keep_open=keep_open)
        identity = f"commit {commit}"
        return Record(kind=named.kind, given=named.shown, tree=name, identity=identity)

    reference = folders.slug(named.reference or "head")
    return _Wanted(key=f"{name}-{reference}-{found.commit[:12]}", make=make, resumes=True)


def _fetched_earlier(named: Named, error: MissingError) -> _Wanted:
    """Return the newest tree that came from the same place."""

    def make(work: Path, descriptor: int) -> Record:  # noqa: ARG001
        raise error

    records = {entry: read_source_record(entry) for entry in root().glob("[!.]*/")}
    same = [entry for entry, record in records.items() if record and record.given == named.shown]
    if not same:
        raise error
    newest = max(same, key=lambda entry: entry.stat().st_mtime)
    notes = (f"{error.message}: this is what was fetched from there earlier",)
    return _Wanted(key=newest.name, make=make, notes=notes)


def _unpacked(archive: Path, work: Path) -> str:
    """Return the tree's place below ``work``."""
    into = work / "unpacked"
    into.mkdir()
    return str(unpack(archive, into).relative_to(work))

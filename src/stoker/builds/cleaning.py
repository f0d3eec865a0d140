"""`stoker clean`: what stoker keeps on this machine, and what of it can be removed."""

import os
import time
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import suppress
from enum import StrEnum
from pathlib import Path

from stoker.builds import in_memory, work
from stoker.builds.acquire import kept_sources as sources
from stoker.builds.containers import content as containers
from stoker.builds.toolchains import kept_toolchains
from stoker.govern.history.store import History
from stoker.model.errors import StorageError, UsageError
from stoker.model.value import Value, duration, size
from stoker.outside import files, folders, kept_values, locks
from stoker.outside.deleting import remove_file, remove_whole
from stoker.outside.terminal import Group, Listing, Page, Text
from stoker.plan import run_folder

_MOST_OF_A_KIND = 12
_DAY = 86_400
_LONGEST_RUN = 7 * 86_400  # seconds; one that has not ended by then was killed


class CleanupKind(StrEnum):
    BUILDS = "builds"
    RUNS = "runs"
    SOURCES = "sources"
    TOOLCHAINS = "toolchains"
    CONTAINERS = "containers"
    ANSWERS = "answers"
    HISTORY = "history"


class CleanupItem(Value, frozen=True, kw_only=True):
    """A folder, or a run in the history. ``busy``: a process uses it now."""

    kind: CleanupKind
    name: str
    path: str
    size_bytes: int  # on disk
    used: float  # when it last was, in seconds since 1970
    busy: bool = False
    link: str = ""  # where a link of the user leads; it is never followed, nor removed
    lock: str = ""  # the lock file that its users hold


class Cleaning(Value, frozen=True, kw_only=True):
    """What is removed and what is kept."""

    chosen: tuple[CleanupItem, ...]
    spared: tuple[CleanupItem, ...]

    @property
    def bytes(self) -> int:
        return sum(kept.size_bytes for kept in self.chosen)


def choose_items(kept: Iterable[CleanupItem], *, before: float, keep: int = 0) -> Cleaning:
    """Choose what was last used before a time, except busy ones, links and the ``keep`` newest."""
    chosen: list[CleanupItem] = []
    spared: list[CleanupItem] = []
    seen = dict.fromkeys(CleanupKind, 0)
    for entry in sorted(kept, key=lambda entry: (list(CleanupKind).index(entry.kind), -entry.used)):
        seen[entry.kind] += 1
        free = not entry.busy and not entry.link
        goes = free and entry.used <= before and seen[entry.kind] > keep
        (chosen if goes else spared).append(entry)
    return Cleaning(chosen=tuple(chosen), spared=tuple(spared))


# Where each kind is, and the lock of each folder there.
_PLACES: dict[CleanupKind, tuple[Callable[[], Path], Callable[[Path], Path]]] = {
    CleanupKind.BUILDS: (folders.builds, work.build_lock),
    CleanupKind.RUNS: (run_folder.runs_folder, lambda path: path / run_folder.RUN_LOCK),
    CleanupKind.SOURCES: (sources.root, sources.lock_of),
    CleanupKind.TOOLCHAINS: (locks.toolchains_folder, locks.toolchain_lock),
    CleanupKind.CONTAINERS: (containers.containers_folder, containers.container_lock),
    CleanupKind.ANSWERS: (kept_values.root, lambda path: path.with_suffix(".lock")),
}


def kept(kind: CleanupKind) -> Iterator[CleanupItem]:
    """Return all items of one kind, including incomplete ones of killed processes."""
    if kind not in _PLACES:
        return
    root, lock_of = _PLACES[kind]
    if kind is CleanupKind.TOOLCHAINS:
        # This removes leftovers, except folders that are being made.
        kept_toolchains.installed_toolchains()
    for path in sorted(root().glob("*/" if kind is not CleanupKind.TOOLCHAINS else "[!.]*/")):
        yield from _described(kind, path, lock_of(path))


def kept_of(tree: Path) -> Iterator[CleanupItem]:
    """Return the build folders of one tree, including one inside the tree."""
    in_tree = work.in_tree_folder(tree)
    for path in folders.work_folders(tree):
        place = tree / "build" if path == in_tree else path
        if place.is_dir():
            yield from _described(CleanupKind.BUILDS, place, work.build_lock(path))


def remove_item(entry: CleanupItem) -> bool:
    """Remove a folder unless a process uses it; return whether it was removed."""
    path, lock = Path(entry.path), Path(entry.lock)
    if not path.exists():
        return True
    try:
        with locks.held(lock):
            in_memory.drop_memory_tree(_build_of(path))
            if path.exists():
                remove_whole(path)
            remove_file(lock)
    except locks.BusyError:
        return False
    return True


def _described(kind: CleanupKind, path: Path, lock: Path) -> Iterator[CleanupItem]:
    """Yield the item, unless it has been deleted meanwhile."""
    of_the_user = path.is_symlink() and not in_memory.is_in_memory(path)
    link = str(path.readlink()) if of_the_user else ""
    with suppress(FileNotFoundError):
        used = path.lstat().st_mtime
        with suppress(OSError):
            used = lock.stat().st_mtime
        build = _build_of(path)
        # The folder, and the part of it that is in memory.
        places = {path.resolve(), build.resolve()} if in_memory.is_in_memory(build) else {path}
        yield CleanupItem(
            kind=kind,
            name=path.name,
            path=str(path),
            size_bytes=0 if link else sum(map(files.size_on_disk, places)),
            used=used,
            busy=locks.is_held(lock),
            link=link,
            lock=str(lock),
        )


def _build_of(path: Path) -> Path:
    """Return the path that may be a link into memory: the build folder itself or one inside it."""
    return path if path.is_symlink() else path / "build"


def survey_all(kinds: Collection[CleanupKind], *, older_than: float, keep: int) -> Cleaning:
    """Return what can be removed of everything that stoker keeps."""
    found = [entry for kind in kinds for entry in kept(kind)]
    if CleanupKind.HISTORY in kinds:
        found += _history()
    return choose_items(found, before=time.time() - older_than, keep=keep)


def survey_tree(source: str, *, older_than: float, keep: int) -> Cleaning:
    """Return what can be removed of the builds of one source tree."""
    tree = Path(os.path.realpath(source))
    if not tree.is_dir():
        hints = ["`stoker clean builds` also removes builds of archives, URLs and packages"]
        raise UsageError(f"there is no folder {source}", hints=hints)
    return choose_items(kept_of(tree), before=time.time() - older_than, keep=keep)


def remove_chosen(cleaning: Cleaning) -> Cleaning:
    """Remove what was chosen; return what was removed, and what was spared or is in use by now. An
    item that cannot be removed is an error, which is raised after the other items were removed.
    """
    forgotten = [entry for entry in cleaning.chosen if entry.kind is CleanupKind.HISTORY]
    if forgotten:
        with History() as history:
            history.forget([int(entry.name) for entry in forgotten])
    gone, problems = list(forgotten), []
    for entry in cleaning.chosen:
        try:
            if entry not in forgotten and remove_item(entry):
                gone.append(entry)
        except StorageError as error:
            problems.append(error)
    if problems:
        raise problems[0]
    left = [entry for entry in cleaning.chosen if entry not in gone]
    return Cleaning(chosen=tuple(gone), spared=(*cleaning.spared, *left))


def _history() -> Iterator[CleanupItem]:
    """Return an item for each run; its size is its share of the file by the number of steps."""
    try:
        with History() as history:
            runs, counts = history.runs(), history.attempts_by_run()
            whole = history.path.stat().st_size
    except StorageError:
        return  # a full disk must not prevent cleaning up
    steps = sum(counts.values()) or 1
    for run in runs:
        yield CleanupItem(
            kind=CleanupKind.HISTORY,
            name=str(run.id),
            path=str(history.path),
            size_bytes=whole * counts.get(run.id, 0) // steps,
            used=run.ended or run.started,
            busy=run.ended is None and time.time() - run.started < _LONGEST_RUN,
        )


def cleaning_page(cleaning: Cleaning) -> Page:
    """Return the page: the largest items of each kind by name, the rest in one line, items in use
    by name.
    """
    table = Listing("kind", ">size", ">unused for", "")
    for kind in CleanupKind:
        of_kind = (kept for kept in cleaning.chosen if kept.kind is kind)
        entries = sorted(of_kind, key=lambda kept: -kept.size_bytes)
        for kept in entries[:_MOST_OF_A_KIND]:
            name = f"run {kept.name}" if kind is CleanupKind.HISTORY else kept.path
            age = time.time() - kept.used
            days = int(age / _DAY)
            unused = f"{days} d" if days > 1 else duration(max(0.0, age))
            table.add(kind.value, size(kept.size_bytes), unused, name)
        if rest := entries[_MOST_OF_A_KIND:]:
            amount = sum(kept.size_bytes for kept in rest)
            table.add(kind.value, size(amount), "", f"and {len(rest)} more")
    lines = [Text(f"in use: {kept.path}") for kept in cleaning.spared if kept.busy]
    lines += [
        Text(f"left alone, a link of your own: {kept.path} -> {kept.link}")
        for kept in cleaning.spared
        if kept.link
    ]
    return Group(table, *lines) if cleaning.chosen else Group(*lines)


def nothing_text(cleaning: Cleaning) -> str:
    """Return why there is nothing to remove."""
    if all(entry.link for entry in cleaning.spared):
        return "there is nothing to remove"
    kept = sum(entry.size_bytes for entry in cleaning.spared)
    return f"nothing to remove; {size(kept)} are in use or too new (--older-than, --keep)"

"""The folders that builds leave: builds, runs, sources, toolchains. Found, measured and removed.

Which of them should go is not decided here.
"""

from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

from stoker.build import memory_tree, work
from stoker.build.acquire import store as sources
from stoker.build.container import packages as containers
from stoker.build.toolchain import store as toolchains
from stoker.model.cleaning import CleanupItem, Kind
from stoker.outside import files, folders, locks
from stoker.plan import records

# Where each kind is, and the lock of each folder there.
_PLACES: dict[Kind, tuple[Callable[[], Path], Callable[[Path], Path]]] = {
    Kind.BUILDS: (folders.builds, work.lock_of),
    Kind.RUNS: (records.runs_folder, lambda path: path / records.RUN_LOCK),
    Kind.SOURCES: (sources.root, sources.lock_of),
    Kind.TOOLCHAINS: (locks.toolchains_folder, locks.toolchain_lock),
    Kind.CONTAINERS: (containers.root, containers.lock_of),
}


def kept(kind: Kind) -> Iterator[CleanupItem]:
    """Return all items of one kind, including incomplete ones of killed processes."""
    if kind not in _PLACES:
        return
    root, lock_of = _PLACES[kind]
    if kind is Kind.TOOLCHAINS:
        toolchains.installed()  # removes leftovers, except folders that are being made
    for path in sorted(root().glob("*/" if kind is not Kind.TOOLCHAINS else "[!.]*/")):
        yield from _described(kind, path, lock_of(path))


def kept_of(tree: Path) -> Iterator[CleanupItem]:
    """Return the build folders of one tree, including one inside the tree."""
    in_tree = work.in_tree_folder(tree)
    for path in folders.work_folders(tree):
        place = tree / "build" if path == in_tree else path
        if place.is_dir():
            yield from _described(Kind.BUILDS, place, work.lock_of(path))


def remove(entry: CleanupItem) -> bool:
    """Remove a folder unless a process uses it; return whether it was removed."""
    path, lock = Path(entry.path), Path(entry.lock)
    if not path.exists():
        return True
    try:
        with locks.held(lock):
            memory_tree.drop(_build_of(path))
            if path.exists():
                files.remove_whole(path)
            lock.unlink(missing_ok=True)
    except locks.BusyError:
        return False
    return True


def _described(kind: Kind, path: Path, lock: Path) -> Iterator[CleanupItem]:
    """Return the item; ``None`` if it has been deleted meanwhile."""
    link = _link_of_the_user(path)
    with suppress(FileNotFoundError):
        used = path.lstat().st_mtime
        with suppress(OSError):
            used = lock.stat().st_mtime
        yield CleanupItem(
            kind=kind,
            name=path.name,
            path=str(path),
            bytes=0 if link else sum(map(files.size_on_disk, _places(path))),
            used=used,
            busy=locks.is_held(lock),
            link=link,
            lock=str(lock),
        )


def _link_of_the_user(path: Path) -> str:
    own = path.is_symlink() and not memory_tree.is_in_memory(path)
    return str(path.readlink()) if own else ""


def _places(path: Path) -> set[Path]:
    """Return the folder and the part of it that is in memory."""
    build = _build_of(path)
    return {path.resolve(), build.resolve()} if memory_tree.is_in_memory(build) else {path}


def _build_of(path: Path) -> Path:
    """Return the path that may be a link into memory: the build folder itself or one inside it."""
    return path if path.is_symlink() else path / "build"

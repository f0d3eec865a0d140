"""Keeps toolchains: a folder each, with a manifest, complete or absent.

A folder has a temporary name while a toolchain is made in it, and a lock that tells whether its
maker still lives.
"""

import fcntl
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from stoker.knowledge.toolchains import kinds
from stoker.model.errors import UsageError, unknown
from stoker.model.value import Value
from stoker.outside import files, locks
from stoker.outside.deleting import remove_tree, remove_whole
from stoker.outside.files import read_json

MANIFEST = "stoker-toolchain.json"
_WORK = ".work"
_LOCK = "lock"
_YOUNG = 60  # seconds in which a maker has surely put its lock in place, or renamed the folder

root = locks.toolchains_folder


class Manifest(Value, frozen=True, kw_only=True):
    kind: str
    version: str  # of the main package
    requested: str
    components: tuple[str, ...]
    packages: dict[str, str]
    created: str
    size_bytes: int
    warnings: tuple[str, ...] = ()


class Toolchain(Value, frozen=True, kw_only=True):
    """An installed toolchain. ``environment`` has the variables by which other tools find it."""

    name: str
    path: str
    environment: dict[str, str]
    manifest: Manifest


def read_toolchain(path: Path) -> Toolchain | None:
    """Return the toolchain in a folder; ``None`` if it has no readable manifest."""
    manifest = read_json(path / MANIFEST, Manifest)
    if manifest is None:
        return None
    kind = kinds().get(manifest.kind)
    variables = kind.environment if kind else {}
    pointing = [name for part in manifest.components for name in variables.get(part, ())]
    return Toolchain(
        name=path.name,
        path=str(path),
        environment={name: str(path) for name in sorted(pointing)},
        manifest=manifest,
    )


def toolchain_at(path: Path) -> Toolchain:
    toolchain = read_toolchain(path)
    if toolchain is None:
        raise UsageError(f"{path} is not a toolchain that stoker made: it has no {MANIFEST}")
    return toolchain


def installed_toolchains() -> list[Toolchain]:
    """Return all toolchains in stoker's own folder, sorted by name."""
    sweep_leftovers(root())
    found = [read_toolchain(path) for path in sorted(root().glob("[!.]*"))]
    return [toolchain for toolchain in found if toolchain]


def remove_toolchain(word: str) -> Toolchain:
    """Remove a toolchain by its name, its requirement or, wherever it is, its folder."""
    named = root() / word.strip().replace("==", "-")
    path = (named if read_toolchain(named) else Path(word)).resolve()
    if not path.exists():
        hint = "`stoker toolchain list` lists them"
        raise unknown("toolchain", word, [each.name for each in installed_toolchains()], hint=hint)
    toolchain = toolchain_at(path)
    remove_whole(path)
    sweep_leftovers(path.parent, path.name)
    return toolchain


class Making(Value, frozen=True, kw_only=True):
    """A folder that is being made. ``home`` is the folder to fill; ``work`` inside it is deleted at
    the end.
    """

    home: Path
    work: Path
    lock: int  # a file descriptor, for programs that write here and may outlive us


@contextmanager
def making(path: Path) -> Iterator[Making]:
    """Yield a folder that becomes ``path`` if the block succeeds, and is deleted if it fails."""
    with files.folder_made_whole(path) as home:
        work = home / _WORK
        work.mkdir()
        with (work / "new").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            (work / "new").rename(work / _LOCK)  # where it is never seen free while we live
            yield Making(home=home, work=work, lock=lock.fileno())


def sweep_leftovers(folder: Path, name: str | None = None) -> list[Path]:
    """Delete what killed processes left of ``name``, or of any; return those being made."""
    asides = files.leftovers(folder, name)
    busy = [aside for aside in asides if _is_being_made(aside)]
    for aside in asides:
        if aside not in busy:
            remove_tree(aside)
    return busy


def _is_being_made(aside: Path) -> bool:
    try:
        with (aside / _WORK / _LOCK).open("r+") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except FileNotFoundError:
        with suppress(FileNotFoundError):
            return time.time() - aside.stat().st_mtime < _YOUNG
    except OSError:  # held, or another user's
        return True
    return False

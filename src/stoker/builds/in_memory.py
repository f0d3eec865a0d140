"""The build tree of a work folder in memory: a link in the work folder leads to it."""

import os
import re
import shutil
from pathlib import Path

from stoker.model.errors import StorageError, UsageError
from stoker.outside import folders
from stoker.outside.deleting import remove_file, remove_tree, remove_whole
from stoker.outside.folders import private_folder

_HOME = re.compile(r".+-[0-9a-f]{8}")


def memory_home_in(memory: Path, work: Path) -> Path:
    """Return the place in memory for the build of a work folder."""
    return private_folder(memory / _homes()) / f"{work.name}-{folders.signature(str(work))}"


def is_in_memory(build: Path) -> bool:
    """Return whether this is a link that ``put`` made; the user's own links are never followed."""
    if not build.is_symlink():
        return False
    home = build.readlink()
    return home.is_absolute() and home.parent.name == _homes() and bool(_HOME.fullmatch(home.name))


def is_lost(build: Path) -> bool:
    """Return whether the link exists but its target does not."""
    return is_in_memory(build) and not build.exists()


def put_in_memory(build: Path, home: Path) -> None:
    """Move the build folder to ``home``, which is empty unless it existed before."""
    if build.is_symlink() and not is_in_memory(build):
        raise UsageError(
            f"{build} is a link of your own, to {build.readlink()}",
            hints=["leave out --build-in-ram, or remove the link"],
        )
    if build.is_dir() and not build.is_symlink():
        raise UsageError(
            f"{build} is on disk already",
            hints=["--fresh starts again, in memory", "without --build-in-ram it resumes on disk"],
        )
    try:
        if not build.is_symlink():
            remove_tree(home)
            build.symlink_to(home)
        home.mkdir(exist_ok=True)
    except OSError as error:
        raise StorageError(f"cannot put {build} into memory: {error.strerror}") from error


def take_out(build: Path) -> None:
    """Move the tree to disk, in the place of the link. Files keep the times that ninja compares."""
    home = build.readlink()
    aside = build.with_name(f".{build.name}.from-memory")
    try:
        remove_tree(aside)
        shutil.copytree(home, aside, symlinks=True)
        remove_file(build)
        aside.rename(build)
    except (OSError, shutil.Error) as error:
        remove_tree(aside)
        raise StorageError(f"cannot move {build} from memory to disk: {error}") from error
    remove_tree(home)


def drop_memory_tree(build: Path) -> None:
    """Delete what is in memory for a build folder, and the link to it."""
    if is_in_memory(build):
        if build.exists():
            remove_whole(build.readlink())
        remove_file(build)


def _homes() -> str:
    return f"stoker-{os.getuid()}-builds"

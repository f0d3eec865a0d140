"""Looks for files and programs in folders that may be closed to this user, as they are after `su`.

``Path.is_file`` and the like raise an error there. A folder that cannot be seen has nothing for us.
"""

# ruff: noqa: PTH110, PTH112, PTH113, PTH207

import glob
import os
from collections.abc import Mapping
from pathlib import Path


def is_file(path: str | Path) -> bool:
    return os.path.isfile(path)


def is_folder(path: str | Path) -> bool:
    return os.path.isdir(path)


def exists(path: str | Path) -> bool:
    return os.path.exists(path)


def matching(folder: Path, pattern: str) -> list[Path]:
    """Return the paths below a folder that match a pattern, in any order."""
    return [folder / name for name in glob.glob(pattern, root_dir=folder, include_hidden=True)]


def find_program(name: str, environment: Mapping[str, str]) -> str | None:
    """Return the path of a program, as the C library finds it on the PATH. A run starts sooner with
    this than with shutil.
    """
    folders = [""] if "/" in name else os.get_exec_path(environment)
    paths = (f"{folder or '.'}/{name}" if "/" not in name else name for folder in folders)
    return next((path for path in paths if is_file(path) and os.access(path, os.X_OK)), None)

"""Which build folder is meant, and what its steps took."""

import os
from contextlib import suppress
from pathlib import Path
from posixpath import normpath

from stoker.govern.command_line import build_folder
from stoker.govern.history import History
from stoker.model.errors import StorageError, UsageError
from stoker.model.govern import Timing
from stoker.outside.folders import work_folders
from stoker.source.ninja import read_durations


def find_build(place: Path) -> Path:
    """Return the build folder itself, or the one that was used last for a source tree."""
    if not place.is_dir():
        raise UsageError(f"there is no folder {place}")
    tree = place.resolve()
    candidates = [place.absolute(), tree / "build", *(f / "build" for f in work_folders(tree))]
    built = [folder for folder in candidates if (folder / "build.ninja").is_file()]
    if not built:
        raise UsageError(
            f"there is no build.ninja in {place}, and stoker has not built this tree",
            hints=[
                "name a folder that ninja builds in, or a tree that `stoker build` has built",
                f"`cmake -G Ninja -S {place} -B build` makes one for a CMake project",
            ],
        )
    if built[0] == candidates[0]:
        return built[0]
    return max(built, key=lambda folder: (folder / "build.ninja").stat().st_mtime)


def timings_of(folder: Path) -> dict[str, Timing]:
    """Return what the steps took, by output. The history comes before ninja's log, whose times
    include the time that a step waited for its permit.
    """
    found = {name: Timing(seconds=seconds) for name, seconds in read_durations(folder).items()}
    name = build_folder(str(folder))
    with suppress(StorageError), History() as history:
        for record in history.recent():
            if record.step.directory == name and record.step.output:
                timing = Timing(seconds=record.wall_s, peak=record.peak_bytes)
                found[_relative(record.step.output, folder)] = timing
    return found


def _relative(output: str, folder: Path) -> str:
    return os.path.relpath(output, folder) if output.startswith("/") else normpath(output)

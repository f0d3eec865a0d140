"""`stoker clean` and `stoker gc`: find what can be removed, and remove what was chosen."""

import os
import time
from collections.abc import Collection, Iterator
from pathlib import Path

from stoker.build.kept import kept, kept_of
from stoker.build.kept import remove as remove_folder
from stoker.govern.history import History
from stoker.govern.storage import choose
from stoker.model.cleaning import Cleaning, CleanupItem, Kind
from stoker.model.errors import StorageError, UsageError

_LONGEST_RUN = 7 * 86_400  # seconds; one that has not ended by then was killed


def survey(kinds: Collection[Kind], *, older_than: float, keep: int) -> Cleaning:
    """Return what can be removed of everything that stoker keeps."""
    found = [entry for kind in kinds for entry in kept(kind)]
    if Kind.HISTORY in kinds:
        found += _history()
    return choose(found, before=time.time() - older_than, keep=keep)


def survey_tree(source: str, *, older_than: float, keep: int) -> Cleaning:
    """Return what can be removed of the builds of one source tree."""
    tree = Path(os.path.realpath(source))
    if not tree.is_dir():
        hints = ["`stoker gc builds` also removes builds of archives, URLs and packages"]
        raise UsageError(f"there is no folder {source}", hints=hints)
    return choose(kept_of(tree), before=time.time() - older_than, keep=keep)


def remove(cleaning: Cleaning) -> Cleaning:
    """Remove what was chosen; return what was removed, and what was spared or is in use by now. An
    item that cannot be removed is an error, which is raised after the other items were removed.
    """
    forgotten = [entry for entry in cleaning.chosen if entry.kind is Kind.HISTORY]
    _forget(forgotten)
    gone, problems = list(forgotten), []
    for entry in cleaning.chosen:
        try:
            if entry not in forgotten and remove_folder(entry):
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
            kind=Kind.HISTORY,
            name=str(run.id),
            path=str(history.path),
            bytes=whole * counts.get(run.id, 0) // steps,
            used=run.ended or run.started,
            busy=run.ended is None and time.time() - run.started < _LONGEST_RUN,
        )


def _forget(entries: Collection[CleanupItem]) -> None:
    if not entries:
        return
    with History() as history:
        history.forget([int(entry.name) for entry in entries])

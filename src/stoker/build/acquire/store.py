"""Keeps source trees in a folder of ours, each whole, for as long as somebody may build it again."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from stoker.model.errors import UsageError
from stoker.model.source import Acquired, SourceKind

Say = Callable[[str], None]


@contextmanager
def acquired(given: str, *, say: Say, tag: str | None = None) -> Iterator[Acquired]:
    """The tree that ``given`` names; `stoker gc` leaves it alone while the block runs."""
    if tag or not Path(given).is_dir():
        raise UsageError(f"{given} is not a folder")
    say(f"source: {given}")
    yield Acquired(kind=SourceKind.FOLDER, given=given, path=str(Path(given).resolve()))

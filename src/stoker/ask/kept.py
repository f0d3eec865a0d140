"""Keeps the answers of builds: they are the same as long as tree, settings and tools are."""

import hashlib
import os
from pathlib import Path

import msgspec

from stoker.ask.room import Left, Question, programs
from stoker.ask.values import Walls
from stoker.outside import folders
from stoker.outside.deleting import remove_file
from stoker.outside.files import read_json, write_whole

_LEFT_OUT = {".git", "__pycache__"}
_MOST_KEPT = 256  # answers, of some megabytes each for large projects


def tree_digest(tree: Path) -> str:
    """Return a value that changes with any file of the tree: names, sizes, times."""
    digest = hashlib.sha256()
    for folder, names, files in os.walk(tree):
        names[:] = sorted(name for name in names if name not in _LEFT_OUT)
        for name in sorted(files):
            path = os.path.join(folder, name)  # noqa: PTH118
            try:
                found = os.lstat(path)
            except OSError:
                continue
            digest.update(os.fsencode(f"{path}\0{found.st_size}\0{found.st_mtime_ns}\0"))
    return digest.hexdigest()


def key(question: Question, tree: str, walls: Walls) -> str:
    """Return a name for what the answer depends on. ``tree`` is the digest of the tree."""
    tools = [(path, _stamp(path)) for path in sorted(question.shown)]
    tools += [(path, _stamp(path)) for _, path in sorted(question.tools.items())]
    variables = sorted(question.environment.items())
    own = sorted((name, text) for name, text in programs().items() if name != "room.py")
    how = (walls, question.words, question.fetches, question.pretended)
    parts = (own, tree, how, variables, tools)
    return hashlib.sha256(msgspec.json.encode(parts)).hexdigest()[:32]


def _stamp(path: str) -> int:
    try:
        return Path(path).stat().st_mtime_ns
    except OSError:
        return 0


def recall(name: str) -> Left | None:
    return read_json(_file(name), Left)


def keep(name: str, left: Left) -> None:
    """Keep what a program left. One that failed or ran out of time may do better next time: what it
    lacks may be installed then.
    """
    if left.status == 0:
        _file(name).parent.mkdir(parents=True, exist_ok=True)
        write_whole(_file(name), msgspec.json.encode(left), private=True)
        by_age = sorted(_file(name).parent.glob("*.json"), key=lambda path: -_stamp(str(path)))
        for path in by_age[_MOST_KEPT:]:
            remove_file(path)


def _file(name: str) -> Path:
    return folders.cache() / "answers" / f"{name}.json"

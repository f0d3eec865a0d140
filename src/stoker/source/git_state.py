"""Which commit a tree is, where git knows."""

import re
from pathlib import Path

from stoker.model.build import GitState
from stoker.model.errors import MissingError
from stoker.outside import process

_LOGIN = re.compile(r"(?<=://)[^/@]+@")
_PATIENCE = 60.0  # seconds; a large tree on a slow disk


def read_git_state(tree: Path) -> GitState | None:
    """``None`` where the tree is not the top of a repository, or git is not there."""
    if not (tree / ".git").exists():
        return None
    commit, time = _ask(tree, "log", "-1", "--format=%H %ct").partition(" ")[::2]
    if not time.isdigit():
        return None
    origin = _ask(tree, "config", "--get", "remote.origin.url")
    return GitState(
        commit=commit,
        changed=bool(_ask(tree, "status", "--porcelain", "--untracked-files=no")),
        time=int(time),
        origin=_LOGIN.sub("", origin) or None,
    )


def _ask(tree: Path, *words: str) -> str:
    try:
        outcome = process.run(["git", "-C", tree, *words], timeout=_PATIENCE)
    except MissingError:
        return ""
    return outcome.stdout.strip() if outcome.ok else ""

"""Where stoker keeps things: XDG folders, moved together by ``STOKER_HOME``."""

import os
from pathlib import Path

from stoker.model.errors import UsageError


def _folder(kind: str, variable: str, fallback: str) -> Path:
    if home := os.environ.get("STOKER_HOME"):
        return Path(home).expanduser().absolute() / kind
    base = os.environ.get(variable)
    # The XDG specification says that a relative path there is to be ignored.
    if base and Path(base).is_absolute():
        return Path(base) / "stoker"
    try:
        return Path.home() / fallback / "stoker"
    except RuntimeError as error:
        raise UsageError("this user has no home folder", hints=["set STOKER_HOME"]) from error


def cache() -> Path:
    """What can be made again: downloads, build folders."""
    return _folder("cache", "XDG_CACHE_HOME", ".cache")


def state() -> Path:
    """What was learned: history and run records."""
    return _folder("state", "XDG_STATE_HOME", ".local/state")


def data() -> Path:
    """What was installed: toolchains."""
    return _folder("data", "XDG_DATA_HOME", ".local/share")

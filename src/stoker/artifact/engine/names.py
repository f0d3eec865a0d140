"""Which names a member may have, and their order. Pure: no file is looked at."""

import re
from collections.abc import Iterable

_FORBIDDEN = re.compile(r"[\x00-\x1f\x7f\\\ud800-\udfff]|^[A-Za-z]:")
_LONGEST = 4096  # no path is longer on Linux
_DEEPEST = 100  # folders in one another


def problem(name: str) -> str | None:
    """Why a name could end up outside the folder it is unpacked to, or None."""
    if _FORBIDDEN.search(name):
        return "the name has a backslash, a drive letter or something that is no character"
    if len(name) > _LONGEST:
        return "the name is too long"
    if name.startswith("/"):
        return "the name is an absolute path"
    parts = name.removesuffix("/").split("/")
    if ".." in parts:
        return "the name leads out of the wheel"
    if "." in parts or "" in parts:
        return "the name has an empty part"
    if len(parts) > _DEEPEST:
        return f"its folders are nested more than {_DEEPEST} deep"
    return None


def clash(names: Iterable[str]) -> str | None:
    """A name that is also a folder of another, such as ``a`` beside ``a/b``, or None."""
    files = set(names)
    folders: set[str] = set()
    for name in files:
        folder = name.rpartition("/")[0]
        while folder and folder not in folders:
            folders.add(folder)
            folder = folder.rpartition("/")[0]
    return min(files & folders, default=None)


def place(name: str) -> tuple[bool, bool, str]:
    """Sort key: dist-info last and RECORD at the very end, as the wheel format recommends."""
    folder, _, rest = name.partition("/")
    in_dist_info = folder.endswith(".dist-info")
    return in_dist_info, in_dist_info and rest == "RECORD", name

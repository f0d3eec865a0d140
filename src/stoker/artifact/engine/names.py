"""Checks the names of members, and orders them. Pure."""

import re
from collections.abc import Iterable

_FORBIDDEN = re.compile(r"[\x00-\x1f\x7f\\\ud800-\udfff]|^[A-Za-z]:")
_LONGEST = 4096  # the longest path on Linux
_DEEPEST = 100  # nested folders


def problem(name: str) -> str | None:
    """Return why a name is refused, for example because it leads to another folder, or None."""
    if _FORBIDDEN.search(name):
        return "the name has a backslash, a drive letter or an invalid character"
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
    """Return a name that is also a folder of another, such as ``a`` and ``a/b``, or None."""
    files = set(names)
    folders: set[str] = set()
    for name in files:
        folder = name.rpartition("/")[0]
        while folder and folder not in folders:
            folders.add(folder)
            folder = folder.rpartition("/")[0]
    return min(files & folders, default=None)


def place(name: str) -> tuple[bool, bool, str]:
    """Return a sort key: dist-info comes last and ends with RECORD, as the format recommends."""
    folder, _, rest = name.partition("/")
    in_dist_info = folder.endswith(".dist-info")
    return in_dist_info, in_dist_info and rest == "RECORD", name

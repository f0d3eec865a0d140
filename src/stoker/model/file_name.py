"""Names of files from outside: of links on pages, of packages in lock files."""

from typing import NewType
from urllib.parse import unquote, urlsplit

FileName = NewType("FileName", str)  # one name in one folder

_LONGEST = 255  # bytes, on nearly every file system


def file_name(text: str) -> FileName:
    """Return the name of a file. Raise ValueError for text that would lead out of its folder, that
    a terminal would obey, or that no file can have.
    """
    if text in ("", ".", "..") or {"/", "\\"} & {*text} or not text.isprintable():
        raise ValueError(f"{text!r} is not the name of a file")
    if len(text.encode()) > _LONGEST:
        raise ValueError("the name of a file is too long")
    return FileName(text)


def named_by(url: str) -> FileName:
    """Return the name that an address gives its file."""
    return file_name(unquote(urlsplit(url).path.rpartition("/")[2]))

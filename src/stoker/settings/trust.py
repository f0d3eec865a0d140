"""Files of settings that the user trusts, by their content.

A stoker.toml is found in the current folder, in a folder above it, or in a source tree, so another
user may have written it. One that another user owns or can write is ignored. Settings that start a
program or reach the network are taken only from a file that the user has trusted with
``stoker plan --trust FILE``, as git and direnv do. After a change the file is not trusted any more.
"""

import os
import stat
from pathlib import Path

from stoker.model.errors import unreadable
from stoker.outside.files import write_whole
from stoker.outside.folders import data, data_folder

_NAME = "trusted-settings"  # lines of a digest and a path, as sha256sum writes them


def text_digest(text: str) -> str:
    return _digest(text.encode())


def _digest(content: bytes) -> str:
    import hashlib  # loads OpenSSL, which most commands can do without

    return hashlib.sha256(content).hexdigest()


def is_safe(path: Path) -> bool:
    """Return whether no other user can have written the file, or the user trusts its content."""
    return not danger(path) or is_trusted(path, _digest_of(path))


def danger(path: Path) -> str | None:
    """Return who else can have written a file, for a message; None if no other user can."""
    try:
        link, file = path.lstat(), path.stat()
    except OSError as error:
        return error.strerror
    for found in (link, file):
        if found.st_uid not in _users():
            return f"it belongs to another user ({found.st_uid})"
    if file.st_mode & stat.S_IWOTH:
        return "every user can write it"
    # With a umask of 002 each user has a group of their own.
    if file.st_mode & stat.S_IWGRP and file.st_gid not in (0, os.getegid()):
        return f"users of a group ({file.st_gid}) can write it"
    return None


def _users() -> set[int]:
    """Return root, this user, and the one whose sudo made root of it."""
    asked = os.environ.get("SUDO_UID", "") if os.geteuid() == 0 else ""
    return {0, os.geteuid(), *([int(asked)] if asked.isdecimal() else [])}


def is_trusted(path: Path, digest: str) -> bool:
    """Return whether the user has trusted this content of this file."""
    return (digest, str(path.resolve())) in _entries()


def trust(path: Path) -> None:
    """Trust a file as it is now. An earlier trust of it ends."""
    place, digest = str(path.resolve()), _digest_of(path)
    kept = [entry for entry in _entries() if entry[1] != place]
    _write(data_folder(), [*kept, (digest, place)])


def repeat_trust(folder: Path) -> None:
    """Write what is trusted into the data folder of another stoker, which acts for this user."""
    if entries := _entries():
        folder.mkdir(parents=True, exist_ok=True)
        _write(folder, entries)


def _write(folder: Path, entries: list[tuple[str, str]]) -> None:
    text = "".join(f"{digest}  {place}\n" for digest, place in entries)
    write_whole(folder / _NAME, text.encode("utf-8", "surrogateescape"))


def _digest_of(path: Path) -> str:
    try:
        return _digest(path.read_bytes())
    except OSError as error:
        raise unreadable(path, error) from error


def _entries() -> list[tuple[str, str]]:
    try:
        text = (data() / _NAME).read_bytes().decode("utf-8", "surrogateescape")
    except FileNotFoundError:
        return []
    except OSError as error:
        raise unreadable(data() / _NAME, error) from error
    pairs = (line.partition("  ") for line in text.splitlines())
    return [(digest, path) for digest, _, path in pairs]

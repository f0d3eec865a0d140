"""Reads what a program left in the room. The program may have left anything: links, pipes, and more
than memory holds.
"""

import os
import stat

_MOST_FILE = 32 << 20  # bytes of a file that is reported
_MOST_FILES = 200
_MOST_BYTES = 192 << 20  # of all that is reported
_MOST_LOG = 256 << 10
_REPORTED = ("compile_commands.json", "compdb.json", "CMakeCache.txt", "build.ninja")


def left(config, log, notes, written, root):
    """Return the notes of stoker's programs, the files that describe a build, and the output.
    ``notes`` is a descriptor of their folder.
    """
    size = os.lseek(log, 0, os.SEEK_END)
    output = _read(log, max(0, size - _MOST_LOG))
    most = _MOST_BYTES
    noted = []
    for name in sorted(os.listdir(notes)):
        text = _text(name, most, notes)
        if text is not None:
            noted.append(text)
            most -= len(text)
    files: dict[str, str] = {}
    for folder in (written, config["tmp"]):
        for path in _found(folder):
            text = _text(path, most) if len(files) < _MOST_FILES else None
            if text is not None:
                shown = path.replace(root, config["tree"], 1) if path.startswith(root) else path
                files[shown] = text
                most -= len(text)
    return {"notes": "".join(noted), "files": files, "output": output}


def _found(folder):
    """Yield the files in a folder whose names say that they describe a build."""
    for place, folders, names in os.walk(folder):
        folders[:] = [n for n in folders if n not in ("CMakeScratch", "CMakeTmp", "_deps", ".git")]
        for name in names:
            if name in _REPORTED:
                yield os.path.join(place, name)


def _text(path, most, folder=None):
    """Return the text of a regular file that is not too large, or None. A file with a hole is no
    text, and may be larger than the space that it takes.
    """
    try:
        file = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=folder)
    except OSError:
        return None
    try:
        found = os.fstat(file)
        if not stat.S_ISREG(found.st_mode) or found.st_size > min(_MOST_FILE, most):
            return None
        text = _read(file, 0)
        return None if "\0" in text else text
    except OSError:
        return None
    finally:
        os.close(file)


def _read(file, start):
    os.lseek(file, start, os.SEEK_SET)
    parts = []
    while part := os.read(file, 1 << 20):
        parts.append(part)
    return b"".join(parts).decode("utf-8", "replace")

"""The folders in which stoker keeps files: XDG folders, or all below ``STOKER_HOME``."""

import errno
import os
import re
import stat
from contextlib import suppress
from pathlib import Path

from stoker.model.errors import StorageError, UsageError

_LONGEST = 100  # characters of a name; a file system takes 255 with what is added
_READABLE = 32  # characters of a name that people read often
_DIGEST = 6
_FULL = (errno.ENOSPC, errno.EDQUOT)


def _folder(kind: str, variable: str, fallback: str) -> Path:
    if home := os.environ.get("STOKER_HOME"):
        return _expanded(home).absolute() / kind
    base = os.environ.get(variable)
    # The XDG specification says that a relative path there is to be ignored.
    if base and Path(base).is_absolute():
        return Path(base) / "stoker"
    return _expanded("~") / fallback / "stoker"


def _expanded(path: str) -> Path:
    try:
        return Path(path).expanduser()
    except RuntimeError as error:
        hints = ["set STOKER_HOME to a folder"]
        raise UsageError(f"there is no home folder for '{path}'", hints=hints) from error


def cache() -> Path:
    """Return the folder for what can be made again: downloads, build folders."""
    return _folder("cache", "XDG_CACHE_HOME", ".cache")


def state() -> Path:
    """Return the folder for what was learned: history and run records."""
    return _folder("state", "XDG_STATE_HOME", ".local/state")


def history() -> Path:
    """Return the file of the history."""
    return state() / "history.sqlite"


def failed_runs(beside: Path | None = None) -> Path:
    """Return the folder with the outputs of runs that failed, by the numbers that the history
    ``beside`` it has given them.
    """
    return (beside or history()).parent / "failed"


def data() -> Path:
    """Return the folder for what was installed: toolchains."""
    return _folder("data", "XDG_DATA_HOME", ".local/share")


def own() -> tuple[Path, ...]:
    """Return all folders of stoker."""
    return cache(), state(), data()


def unwritable(path: Path, reason: OSError, *, doing: str = "write") -> StorageError:
    """Return the error for a file or folder that cannot be written. In stoker's own folders the
    next step is another ``STOKER_HOME``.
    """
    why = reason.strerror or str(reason)
    if isinstance(reason, (NotADirectoryError, FileExistsError)):
        existing = nearest_existing(path)
        why = why if existing.is_dir() else f"{existing} is not a folder"
    is_refused = not isinstance(reason, FileNotFoundError)
    hints = home_hints(path, full=reason.errno in _FULL) if is_refused else ()
    return StorageError(f"cannot {doing} {path}: {why}", hints=hints)


def home_hints(path: Path, *, full: bool) -> tuple[str, ...]:
    """Return how to choose another folder, if ``path`` is in one of stoker's own; ``full``: its
    disk has no room.
    """
    is_set = bool(os.environ.get("STOKER_HOME"))
    places = (data().parent,) if is_set else own()
    folder = next((folder for folder in places if path.is_relative_to(folder)), None)
    if folder is None:
        return ()
    what, it = ("STOKER_HOME is", "it") if is_set else ("stoker keeps files in", "STOKER_HOME")
    step = f"set {it} to a folder that can be written"
    if full:
        step = f"free space there (`stoker clean --all`), or set {it} to a folder on another disk"
    return (f"{what} {folder}: {step}",)


def nearest_existing(path: Path) -> Path:
    """Return the path itself or the nearest folder above it that exists."""
    return next(each for each in (path, *path.parents) if os.path.lexists(each))


def current_folder() -> Path:
    try:
        return Path.cwd()
    except OSError as error:
        raise StorageError("the current folder does not exist any more") from error


def slug(text: str) -> str:
    """Return a readable folder name made from untrusted words."""
    return _plain(text)[:_LONGEST] or "unnamed"


def short_name(text: str) -> str:
    """Return a folder name for a text: the text itself, or its start and a digest of the whole."""
    plain = _plain(text)
    if plain == text and 0 < len(text) <= _READABLE:
        return text
    import hashlib  # loads OpenSSL, which most commands can do without

    digest = hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:_DIGEST]
    head = plain[: _READABLE - _DIGEST - 1]
    if head != plain:
        head = head.rpartition("-")[0] or head  # whole words
    return f"{head or 'unnamed'}-{digest}"


def _plain(text: str) -> str:
    return re.sub(r"[^A-Za-z0-9._+-]+", "-", text).strip(".-")


def data_folder(*names: str) -> Path:
    """Make a folder below ``data``. No other user can write to it, whatever the umask is: programs
    in there run in every build.
    """
    path = data()
    _keep_others_from_writing(path)
    for name in names:
        path /= name
        _keep_others_from_writing(path)
    return path


def _keep_others_from_writing(path: Path) -> None:
    try:
        _make(path)
        found = path.stat()
        if found.st_mode & 0o022 and found.st_uid == os.getuid():
            path.chmod(stat.S_IMODE(found.st_mode) & ~0o022)
    except OSError as error:
        raise unwritable(path, error, doing="make") from error


def private_folder(path: Path) -> Path:
    """Make a folder that no other user can enter, at ``path`` or, where another user has taken that
    name, beside it.
    """
    try:
        _make(path.parent)
        for candidate in (path, *entries(path.parent, f"{path.name}.")):
            if _is_made_private(candidate):
                return candidate
        import tempfile

        return Path(tempfile.mkdtemp(prefix=f"{path.name}.", dir=path.parent))
    except OSError as error:
        raise unwritable(path, error, doing="make") from error


def entries(folder: Path, prefix: str) -> list[Path]:
    """Return the sorted paths in a folder whose names start with ``prefix``; none if it cannot be
    read. ``Path.glob`` takes longer to compile its pattern than to read the folder.
    """
    try:
        return sorted(path for path in folder.iterdir() if path.name.startswith(prefix))
    except OSError:
        return []


def _is_made_private(path: Path) -> bool:
    with suppress(FileExistsError):
        path.mkdir(mode=0o700)
    found = path.lstat()  # a link there could lead anywhere
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid():
        return False
    path.chmod(0o700)
    return True


def _make(path: Path) -> None:
    """Make a folder and those above it, which only we can write to."""
    if not path.is_dir():
        _make(path.parent)
        path.mkdir(mode=0o755, exist_ok=True)


def builds() -> Path:
    """Return the folder of all work folders: one for each tree, variant and Python."""
    return cache() / "builds"


def work_folders(tree: Path) -> list[Path]:
    """Return all work folders of a tree."""
    return sorted(builds().glob(f"*-{signature(str(tree))}-*/"))


def signature(text: str) -> str:
    """Return a short digest of a text, for names of folders."""
    import hashlib

    return hashlib.sha256(os.fsencode(text)).hexdigest()[:8]

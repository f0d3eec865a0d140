"""Lock files: every process can see whether one is held, and the kernel releases it when its holder
dies.

The file's time says when it was last held. Every run imports this module, so it does
not import what a lock protects.
"""

import fcntl
import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from stoker.model.errors import StokerError, StorageError
from stoker.outside import folders
from stoker.outside.folders import unwritable

# Seconds. A process that only checks whether a lock is held takes it for a moment.
_MOMENTS = (0.01, 0.05, 0.1)


class BusyError(StokerError):
    """Another process holds the lock."""


@contextmanager
def held(
    file: Path,
    *,
    shared: bool = False,
    waiting: Callable[[], None] | None = None,
    busy: str = "",
    hint: str = "",
) -> Iterator[int]:
    """Hold a lock; yield its file descriptor for programs that work under it and may outlive us.

    If another process holds the lock, call ``waiting`` and wait; without ``waiting``, raise
    BusyError: ``busy`` says in the words of the user what the other process does, and ``hint`` what
    to do about it.
    """
    kind = fcntl.LOCK_SH if shared else fcntl.LOCK_EX
    with _opened(file) as descriptor:
        if not _taken(descriptor, kind, _MOMENTS):
            if waiting is None:
                message = (busy or f"another process holds {file}") + _by_whom(descriptor)
                raise BusyError(message, hints=[hint] if hint else [])
            waiting()
            fcntl.flock(descriptor, kind)
        if _is_at(file, descriptor):
            os.utime(descriptor)
            yield descriptor
            return
    # The previous holder deleted the file, so another process would lock a new one.
    with held(file, shared=shared, waiting=waiting, busy=busy, hint=hint) as descriptor:
        yield descriptor


def _by_whom(descriptor: int) -> str:
    """Return in words which process holds the lock of a file, if the system tells it."""
    about = os.fstat(descriptor)
    device = f"{os.major(about.st_dev):02x}:{os.minor(about.st_dev):02x}:{about.st_ino}"
    with suppress(OSError):
        for line in Path("/proc/locks").read_text(encoding="ascii").splitlines():
            words = line.split()  # such as 1: FLOCK ADVISORY WRITE 1234 08:01:5678 0 EOF
            if words[5:6] == [device] and words[1] == "FLOCK" and int(words[4]) > 0:
                return f" (process {words[4]})"
    return ""


def is_held(file: Path) -> bool:
    """Return whether any process holds the lock, shared or not. The check does not count
    as a use.
    """
    try:
        descriptor = os.open(file, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        return not _taken(descriptor, fcntl.LOCK_EX)
    finally:
        os.close(descriptor)


def _taken(descriptor: int, kind: int, pauses: Iterable[float] = ()) -> bool:
    for pause in (0.0, *pauses):
        time.sleep(pause)
        try:
            fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
        except BlockingIOError:
            continue
        return True
    return False


@contextmanager
def _opened(file: Path) -> Iterator[int]:
    flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        try:
            descriptor = os.open(file, flags, 0o666)
        except FileNotFoundError:  # the previous holder may be removing its folder
            file.parent.mkdir(parents=True, exist_ok=True)
            descriptor = os.open(file, flags, 0o666)
    except OSError as error:
        raise unwritable(file, error, doing="open") from error
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _is_at(file: Path, descriptor: int) -> bool:
    try:
        return os.path.samestat(file.stat(), os.fstat(descriptor))
    except OSError:
        return False


def toolchains_folder() -> Path:
    return folders.data() / "toolchains"


def toolchain_lock(path: Path) -> Path:
    """Return the lock that a build holds while it uses this toolchain."""
    return path.with_name(f".{path.name}.lock")


@contextmanager
def holding_toolchains(environment: Mapping[str, str]) -> Iterator[None]:
    """Keep the toolchains that a build with this environment uses while the block runs."""
    with ExitStack() as stack:
        for path in folders.entries(toolchains_folder(), ""):
            if path.name.startswith(".") or not path.is_dir():
                continue
            if any(str(path) in value for value in environment.values()):
                # Where we cannot write, a toolchain is not removed by us either.
                with suppress(StorageError):
                    lock = held(toolchain_lock(path), shared=True, waiting=lambda: None)
                    stack.enter_context(lock)
        yield

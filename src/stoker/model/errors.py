"""All user errors. Each has a message, hints about the next step, and an exit status.

They are raised anywhere and caught once, in ``stoker.__main__``, which prints them. Any other
exception is a bug and keeps its traceback.
"""

from collections.abc import Iterable
from enum import IntEnum
from pathlib import Path

_LONGEST_NAME = 200
_LEAST_PART = 3  # letters of a word that is part of a name
_MOST_NEAR = 3  # names that a hint suggests
_MOST_LISTED = 30  # names that fit in a hint


class ExitStatus(IntEnum):
    """The exit statuses of `stoker`, documented in docs/reference/exit-status.md."""

    OK = 0
    FAILED = 1  # the work failed, or a check found errors
    USAGE = 2  # the request itself is wrong: nothing was tried
    NOTHING_FAILED = 3  # `stoker diagnose` only: the log shows no failure
    MISSING = 4  # a tool, a library or the package index is missing
    STORAGE = 5  # a file or folder could not be read or written, or the disk is full
    UNFINISHED = 75  # --stop-after: the time is over, and the same command continues
    NOT_EXECUTABLE = 126  # `stoker run` only: the command cannot be started, as in a shell
    NOT_FOUND = 127  # `stoker run` only: the command does not exist, as in a shell
    INTERRUPTED = 130


class Terminated(SystemExit):
    """A signal ended stoker. The status is the one that a shell reports for that signal."""

    def __init__(self, number: int):
        self.status = 128 + number
        super().__init__(self.status)


class OutputClosed(SystemExit):
    """The reader of our output has exited (`stoker plan --list | head`), which is no error.

    It is not a BrokenPipeError, because click turns that into status 1.
    """

    def __init__(self) -> None:
        super().__init__(ExitStatus.OK)


class StokerError(Exception):
    """An error with a next step. ``where`` is a place such as ``stoker.toml:12``."""

    status = ExitStatus.FAILED

    def __init__(self, message: str, *, hints: Iterable[str] = (), where: str | None = None):
        super().__init__(message)
        self.message = message
        self.hints = tuple(hints)
        self.where = where

    def __str__(self) -> str:
        return f"{self.where}: {self.message}" if self.where else self.message

    @property
    def in_one_line(self) -> str:
        """The message and its hints, for a warning."""
        return "; ".join((str(self), *self.hints))


class UnfinishedError(StokerError):
    """The time of --stop-after is over; the same command continues."""

    status = ExitStatus.UNFINISHED


class UsageError(StokerError):
    """The user asked for something that does not exist or is impossible."""

    status = ExitStatus.USAGE


class UnknownWordError(UsageError):
    """A word of a variant means nothing; ``text`` is the whole variant."""

    def __init__(self, message: str, *, text: str, hints: Iterable[str]):
        super().__init__(message, hints=hints)
        self.text = text


class MissingError(StokerError):
    """This machine lacks something."""

    status = ExitStatus.MISSING


class TargetsError(StokerError):
    """A build compiles for other GPU targets than its plan states."""


class NotStartedError(StokerError):
    """The system could not start a command of the user."""

    def __init__(self, command: str, reason: OSError):
        missing = isinstance(reason, FileNotFoundError)
        why = f"there is no command '{command}'"
        super().__init__(why if missing else f"cannot run {command}: {reason.strerror}")
        self.status = ExitStatus.NOT_FOUND if missing else ExitStatus.NOT_EXECUTABLE


class StorageError(StokerError):
    """A file or folder could not be read or written, or a disk is full."""

    status = ExitStatus.STORAGE


class StorageErrors:
    """Turns errors of the system in a block into such errors: ``with StorageErrors("read", path)``.
    Without a path, the message has that of the system's error.
    """

    def __init__(self, doing: str, path: Path | None = None):
        self._doing, self._path = doing, path

    def __enter__(self) -> None:
        pass

    def __exit__(self, _: object, error: BaseException | None, __: object) -> None:
        if isinstance(error, OSError):
            place, why = self._path or error.filename, error.strerror or error
            raise StorageError(f"cannot {self._doing} {place}: {why}") from error


def unreadable(path: Path, reason: OSError, *, hints: Iterable[str] = ()) -> StokerError:
    """Return the error for an input file that cannot be read. A missing file and a folder are usage
    errors.
    """
    if isinstance(reason, FileNotFoundError):
        return UsageError(f"there is no file '{path}'", hints=[*hints] or ["check the path"])
    if isinstance(reason, IsADirectoryError):
        hints = [*hints] or ["name a file in it"]
        return UsageError(f"'{path}' is a folder, not a file", hints=hints)
    return StorageError(f"cannot read {path}: {reason.strerror}", hints=hints)


class ArtifactError(StokerError):
    """A wheel, a library or a part of them is invalid."""

    def __init__(
        self,
        message: str,
        *,
        file: str | None = None,
        member: str | None = None,
        offset: int | None = None,
        hints: Iterable[str] = (),
    ):
        place = ": ".join(part for part in (file, member) if part)
        if offset is not None:
            place = f"{place} at byte {offset}".lstrip()
        super().__init__(message, hints=hints, where=place or None)


class CommandError(StokerError):
    """A program that stoker started failed; ``output`` is the end of its output."""

    def __init__(self, message: str, *, output: str = "", hints: Iterable[str] = ()):
        super().__init__(message, hints=hints)
        self.output = output


def nearest(
    word: str, known: Iterable[str], *, count: int = _MOST_NEAR, cutoff: float = 0.5
) -> tuple[str, ...]:
    """Return the known names closest to a misspelt one, best first, ignoring case."""
    if len(word) > _LONGEST_NAME:  # comparing takes time with the square of the length
        return ()
    from difflib import get_close_matches

    by_folded = {name.casefold(): name for name in known}
    matches = get_close_matches(word.casefold(), by_folded, n=count, cutoff=cutoff)
    return tuple(by_folded[match] for match in matches)


def unknown(
    what: str, word: str, known: Iterable[str], *, where: str | None = None, hint: str | None = None
) -> UsageError:
    """Return the error for a name that does not exist. It lists the names that do, if few."""
    known = tuple(known)
    containing = [name for name in known if len(word) >= _LEAST_PART and word.casefold() in name]
    names = tuple(dict.fromkeys((*containing, *nearest(word, known))))[:_MOST_NEAR]
    hints = [f"did you mean {' or '.join(names)}?"] if names else []
    if hint:
        hints.append(hint)
    elif len(names) < len(known) <= _MOST_LISTED:
        hints.append(f"choose from: {', '.join(known)}")
    return UsageError(f"unknown {what} '{word}'", hints=hints, where=where)

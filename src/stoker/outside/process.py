"""Starts all programs of stoker, and logs each as a quoted command line under `stoker -v`."""

import ctypes
import math
import os
import resource
import shlex
import signal
import subprocess
import sys
from collections import deque
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path
from typing import IO, Any

from stoker.model.errors import (
    CommandError,
    MissingError,
    NotStartedError,
    StokerError,
    StorageErrors,
)
from stoker.model.secrets import redact
from stoker.model.value import Value

_PR_SET_PDEATHSIG = 1  # of prctl(2)
_KEPT = 1 << 18  # characters of streamed output that the result contains
_LONGEST_LINE = 1 << 20  # characters; a longer line is handed over in pieces

Argument = str | os.PathLike[str]


class CommandResult(Value, frozen=True, kw_only=True):
    """How a program ended. ``status`` is negative for a signal, and ``None`` after a timeout."""

    status: int | None
    stdout: str
    stderr: str

    @property
    def ok(self) -> bool:
        return self.status == 0

    @property
    def problem(self) -> str | None:
        """How the program failed, in words; ``None`` if it succeeded."""
        if self.status is None:
            return "did not answer in time"
        if self.status < 0:
            return f"was killed by signal {-self.status}"
        return f"ended with status {self.status}" if self.status else None


def _missing(program: str, error: OSError) -> MissingError:
    return MissingError(f"cannot run {program}: {error.strerror}")


def _started(
    command: Sequence[Argument],
    failed: Callable[[str, OSError], StokerError] = _missing,
    **how: Any,
) -> subprocess.Popen[Any]:
    """Log and start a program, which by default reads nothing from our terminal."""
    words = [os.fspath(word) for word in command]
    # If logging is not imported, no log is wanted, and a run starts sooner without it.
    if logging := sys.modules.get("logging"):
        log = logging.getLogger("stoker.process")
        if log.isEnabledFor(logging.DEBUG):
            log.debug("%s", _line(words))
    try:
        return subprocess.Popen(words, **{"stdin": subprocess.DEVNULL, **how})
    except OSError as error:
        if isinstance(error, PermissionError) and Path(how.get("cwd") or ".", words[0]).is_dir():
            error = IsADirectoryError(error.errno, "it is a folder; name the program in it")
        raise failed(words[0], error) from error


def run(
    command: Sequence[Argument],
    *,
    timeout: float | None,
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
    source: Path | None = None,
) -> CommandResult:
    """Run a program and return its output. A timeout or a crash is a result; a program that cannot
    be started raises MissingError. ``source`` is a file that it reads as its standard input.
    """
    with source.open("rb") if source else nullcontext() as stdin:
        child = _started(
            command,
            env=env,
            cwd=cwd,
            stdin=stdin or subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            encoding="utf-8",
            errors="replace",
            start_new_session=True,
        )
    with child:
        try:
            stdout, stderr = child.communicate(timeout=timeout)
        except subprocess.TimeoutExpired:
            _kill_session(child)
            return CommandResult(status=None, stdout="", stderr="")
        except BaseException:
            _kill_session(child)
            raise
    return CommandResult(status=child.returncode, stdout=stdout, stderr=stderr)


def _kill_session(child: subprocess.Popen[str]) -> None:
    """Kill the program and its descendants, since a wrapper often hangs in a child process."""
    with suppress(ProcessLookupError):
        os.killpg(child.pid, signal.SIGKILL)


def check(
    command: Sequence[Argument],
    *,
    timeout: float | None,
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
) -> str:
    """Run a program and return its standard output; raise CommandError with the end of its output
    if it fails.
    """
    outcome = run(command, timeout=timeout, env=env, cwd=cwd)
    if not outcome.ok:
        tail = "\n".join((outcome.stdout + outcome.stderr).splitlines()[-20:])
        raise CommandError(f"`{_line(command)}` {outcome.problem}", output=tail)
    return outcome.stdout


def stream(
    command: Sequence[Argument],
    on_line: Callable[[str], None],
    *,
    env: Mapping[str, str] | None = None,
    keep_open: Collection[int] = (),
    only_errors: bool = False,
) -> CommandResult:
    """Run a program and pass on each line of output and errors immediately; with ``only_errors``
    the output is dropped.

    The result contains only the end of the output, because a build may print for hours.
    ``keep_open`` are file descriptors that the program inherits; a lock among them is held until
    both processes have ended. An exception, such as an interrupt, kills the program.
    """
    kept: deque[str] = deque()
    length = 0
    child = _started(
        command,
        env=env,
        stdout=subprocess.DEVNULL if only_errors else subprocess.PIPE,
        stderr=subprocess.PIPE if only_errors else subprocess.STDOUT,
        pass_fds=tuple(keep_open),
        encoding="utf-8",
        errors="replace",
    )
    pipe = child.stdout or child.stderr
    assert pipe is not None
    with child:
        try:
            while line := pipe.readline(_LONGEST_LINE):
                kept.append(line)
                length += len(line)
                while length > _KEPT:
                    length -= len(kept.popleft())
                on_line(line.rstrip("\n"))
        except BaseException:
            child.kill()
            raise
    return CommandResult(status=child.returncode, stdout="".join(kept), stderr="")


@contextmanager
def piped(command: Sequence[Argument]) -> Iterator[IO[bytes]]:
    """Yield the output of a program as it is written; a failure of the program is an error. Leaving
    the block early ends the program, which is not an error.
    """
    child = _started(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert child.stdout is not None
    with child:
        try:
            yield child.stdout
            left = child.stdout.read(1)
        except BaseException:
            child.kill()
            raise
        if left:
            child.kill()
            return
        said = child.communicate()[1]
    if child.returncode:
        tail = said.decode(errors="replace")
        raise CommandError(f"`{_line(command)}` failed", output=tail[-2000:])


# Programs that may outlive us. While they are listed, Python does not warn that they still run.
_detached: list[subprocess.Popen[bytes]] = []


def detach(
    command: Sequence[Argument], *, output: Path, keep_open: Collection[int] = ()
) -> subprocess.Popen[bytes]:
    """Start a program that may outlive us, with its output in a file. It inherits the file
    descriptors ``keep_open``.
    """
    with StorageErrors("write", output), output.open("wb") as stream:
        child: subprocess.Popen[bytes] = _started(
            command,
            stdout=stream,
            stderr=stream,
            start_new_session=True,
            cwd="/",
            pass_fds=tuple(keep_open),
        )
    _detached[:] = [child, *(other for other in _detached if other.poll() is None)]
    return child


def start(
    command: Sequence[Argument],
    *,
    env: Mapping[str, str],
    cwd: Path | None = None,
    piped: bool = False,
    outputs: Mapping[int, int] | None = None,
    files: int = 0,
) -> subprocess.Popen[bytes]:
    """Start the user's own command on our terminal or, if ``piped``, with its output and errors in
    one pipe. ``outputs`` are descriptors in place of 1 and 2. Linux terminates it if we are killed.
    It may open ``files`` files if the system allows as many, and it inherits what we have: locks,
    the job server of a make, `<(...)` of a shell.
    """
    given = outputs or {}

    def prepare() -> None:  # in the child process, before it executes the program
        if sys.platform == "linux":
            ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        if resource.RLIM_INFINITY != soft < files:
            with suppress(ValueError, OSError):
                resource.setrlimit(resource.RLIMIT_NOFILE, (int(min(files, files_allowed())), hard))

    return _started(
        command,
        NotStartedError,
        env=dict(env),
        cwd=cwd,
        stdin=subprocess.DEVNULL if piped else None,
        stdout=subprocess.PIPE if piped else given.get(1),
        stderr=subprocess.STDOUT if piped else given.get(2),
        preexec_fn=prepare,
        close_fds=False,  # Python makes each of its own close on exec
    )


@contextmanager
def signals_to(handler: Callable[[int, object], None], *numbers: int) -> Iterator[None]:
    """Call ``handler`` for these signals while the block runs."""
    before = {number: signal.signal(number, handler) for number in numbers}
    try:
        yield
    finally:
        for number, usual in before.items():
            signal.signal(number, usual)


@contextmanager
def end_of(child: subprocess.Popen[bytes]) -> Iterator[int | None]:
    """Yield a file descriptor that becomes readable when the child ends; ``None`` if the system has
    no such descriptors.
    """
    try:
        descriptor = os.pidfd_open(child.pid)
    except (OSError, AttributeError):
        yield None
        return
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def files_allowed() -> float:
    """Return how many files a program that we start may open at most."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    return math.inf if hard == resource.RLIM_INFINITY else hard


def _line(command: Sequence[Argument]) -> str:
    return redact(shlex.join(os.fspath(word) for word in command))

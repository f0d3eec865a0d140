"""Runs commands to their ends, and attends to the run around them meanwhile.

Independent of the governor: what has to be attended to is passed as functions.
"""

import os
import select
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import IO, Protocol

from stoker.govern.chain import files_for
from stoker.outside import process
from stoker.outside.looking import find_program
from stoker.outside.relay import Copy, Relay, terminal_signals

Echo = Callable[[bytes], None]

_FROM_KEYS = (signal.SIGINT, signal.SIGQUIT)  # signals that a terminal sends to a whole group
_LOOK = 0.05  # seconds between looks at a command, if the system does not report its exit
_CHECK_INTERVAL = 0.5  # seconds between calls of ``check``


class Readable(Protocol):
    def fileno(self) -> int: ...


class Commands:
    """Runs one command at a time. ``source`` returns what becomes readable when there is something
    to hear, ``listen`` is called often, with whether there is, and ``check`` now and then: it may
    return a signal for the command.
    """

    def __init__(
        self,
        *,
        source: Callable[[], Readable | None],
        listen: Callable[[bool], None],
        check: Callable[[], int | None],
    ):
        self.stopped_by: int | None = None  # the signal that asked us to exit
        self.ended_by = 0  # the signal that ended the last command
        self._source = source
        self._listen = listen
        self._check = check
        self._next_check = 0.0

    def run(
        self,
        command: Sequence[str],
        *,
        env: Mapping[str, str],
        cwd: Path | None,
        output: Echo | None,
        copy: Copy | None,
    ) -> int:
        """Run a command and return its status; a signal counts as 128 plus its number. Without
        ``output`` the command writes to our streams, and ``copy`` gets what it writes there.
        """
        files = files_for(int(env.get("STOKER_JOBS", 0)))
        words = _preloaded(command, env, cwd)
        with _relayed(copy) as relay:
            child = process.start(
                words,
                env=env,
                cwd=cwd,
                piped=output is not None,
                outputs=relay.ends if relay else None,
                files=files,
            )
            with (
                child.stdout or nullcontext(),
                self._signals_passed_on(child),
                process.end_of(child) as end,
            ):
                if relay:
                    relay.started()
                status = self._watch(child, end, output)
        self.ended_by = max(-status, 0)
        return 128 + self.ended_by if self.ended_by else status

    def _watch(self, child: subprocess.Popen[bytes], end: int | None, output: Echo | None) -> int:
        pipe, look = child.stdout, _LOOK if end is None else _CHECK_INTERVAL
        while (status := child.poll()) is None:
            source = self._source()
            waiting = [each for each in (source, pipe, end) if each is not None]
            readable, _, _ = select.select(waiting, [], [], look)
            self._listen(source in readable)
            if pipe in readable and pipe and output and not _hand_on(pipe, output):
                pipe = None
            self._check_now_and_then(child)
        if pipe and output:
            # Read the rest; a server that the command started may keep the pipe open.
            while select.select([pipe], [], [], 0)[0] and _hand_on(pipe, output):
                pass
        return status

    def _check_now_and_then(self, child: subprocess.Popen[bytes]) -> None:
        now = time.monotonic()
        if now >= self._next_check:
            self._next_check = now + _CHECK_INTERVAL
            if number := self._check():
                child.send_signal(number)

    def _signals_passed_on(self, child: subprocess.Popen[bytes]) -> AbstractContextManager[None]:
        """Pass signals to the command, so that this process always ends after it."""

        def pass_on(number: int, _: object) -> None:
            self.stopped_by = number
            if number not in _FROM_KEYS or not _in_foreground():
                child.send_signal(number)

        return process.signals_to(pass_on, signal.SIGTERM, signal.SIGHUP, *_FROM_KEYS)


@contextmanager
def _relayed(copy: Copy | None) -> Iterator[Relay | None]:
    if copy is None:
        yield None
        return
    relay = Relay(copy)
    try:
        with terminal_signals(relay):
            yield relay
    finally:
        relay.close()


def _preloaded(command: Sequence[str], env: Mapping[str, str], cwd: Path | None) -> Sequence[str]:
    """Return the words that start the command through a shell into which the library is preloaded,
    so that the command itself, which may be ninja or a compiler, is treated like all others. One
    that cannot be found is started as it is, for the usual error.
    """
    program = command[0]
    if "/" in program and not program.startswith("/"):
        program = f"{cwd or '.'}/{program}"
    found = find_program(program, env)
    if "STOKER_LAUNCHER" not in env or not found:
        return command
    return ["/bin/sh", "-c", 'exec "$@"', "sh", *command]


def _hand_on(pipe: IO[bytes], output: Echo) -> bool:
    """Pass on what the pipe has; return whether more may follow."""
    chunk = os.read(pipe.fileno(), 1 << 16)
    output(chunk)
    return bool(chunk)


def _in_foreground() -> bool:
    """Return whether the terminal also sends Ctrl-C to the command, which is in our
    process group.
    """
    try:
        with Path("/dev/tty").open("rb") as terminal:
            return os.tcgetpgrp(terminal.fileno()) == os.getpgrp()
    except OSError:
        return False

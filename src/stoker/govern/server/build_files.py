"""The steps of launchers' requests, and the files that tell what they are: sizes of inputs,
response files, the identity of the compiler.

Never runs anything: a compiler is known by its real name and size, which change with its version
and are the same on the next machine that has the same package. Names of files may be any bytes;
the texts of a step are valid in events and in the history.
"""

import os
import shutil
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from posixpath import dirname
from queue import SimpleQueue
from threading import Thread
from typing import Generic, TypeVar

from msgspec.structs import replace

from stoker.govern.command_line import as_remote, custom_step, step_of
from stoker.govern.protocol import Ask
from stoker.model.govern import Step

_LONGEST = 1 << 22  # bytes of a response file that are read
_THREADS = 4  # a file system that hangs can block this many steps before it delays others

MakeStep = Callable[[], Step]
Owner = TypeVar("Owner")


class BuildFiles:
    """Reads sizes, response files and compilers. A missing or unreadable file has no size, words or
    identity.
    """

    def __init__(self) -> None:
        self._identities: dict[str, str] = {}
        self._folders: set[str] = set()  # whose file system has answered

    def size(self, path: str) -> int:
        try:
            size = os.stat(path).st_size  # noqa: PTH116 - for every step; pathlib takes longer
        except (OSError, ValueError):
            size = 0
        self._folders.add(dirname(path))
        return size

    def text(self, path: str) -> str:
        try:
            if not Path(path).is_file():  # reading a pipe would block
                return ""
            with Path(path).open("rb") as stream:
                return stream.read(_LONGEST).decode(errors="surrogateescape")
        except (OSError, ValueError):
            return ""

    def identity(self, program: str) -> str:
        if program not in self._identities:
            self._identities[program] = _identity(program)
        return self._identities[program]

    def knows(self, path: str) -> bool:
        """Return whether a program's identity, or the size of a file in this folder, was asked for
        before, so that to ask again takes no time.
        """
        return path in self._identities or path in self._folders


def _identity(program: str) -> str:
    try:
        real = Path(shutil.which(program) or program).resolve()
        return f"{real.name} {real.stat().st_size}"
    except (OSError, ValueError, RuntimeError):
        return ""


def asked_step(ask: Ask, root: str, files: BuildFiles) -> Step:
    """Return the step of a request. ``root`` is the folder of its run."""
    if ask.custom:
        step = custom_step(ask.command, ask.directory, root)
    else:
        threads = 1 if ask.remote else ask.cpus
        step = step_of(ask.command, ask.directory, root, files, threads=threads)
    if ask.remote:
        step = as_remote(step)
    return replace(
        step,
        source=valid_text(step.source),
        output=valid_text(step.output),
        directory=valid_text(step.directory),
        dependency_file=valid_text(step.dependency_file),
        compiler=valid_text(step.compiler),
        flags=_texts(step.flags),
    )


@lru_cache(256)  # steps of a target have the same flags
def _texts(words: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(map(valid_text, words))


def valid_text(words: str) -> str:
    """Return the text with what is no UTF-8 replaced."""
    if words.isascii():
        return words
    return words.encode(errors="surrogateescape").decode(errors="replace")


class StepReader(Generic[Owner]):
    """Makes steps in threads, so that files and long command lines do not delay other steps.

    ``fileno`` becomes readable when there is something to take.
    """

    def __init__(self) -> None:
        self._tasks: SimpleQueue[tuple[Owner, MakeStep]] = SimpleQueue()
        self._made: deque[tuple[Owner, Step | Exception]] = deque()
        self._woken, self._wake = os.pipe()
        os.set_blocking(self._woken, False)
        os.set_blocking(self._wake, False)
        self._threads: list[Thread] = []

    def fileno(self) -> int:
        return self._woken

    def put(self, owner: Owner, make: MakeStep) -> None:
        self._tasks.put((owner, make))
        if len(self._threads) < _THREADS:
            # None of them may keep a process alive that has nothing else to do.
            self._threads.append(Thread(target=self._work, daemon=True))
            self._threads[-1].start()

    def take(self) -> Iterator[tuple[Owner, Step]]:
        """Return the steps that were read since the last call. An exception met while reading is
        raised here.
        """
        with suppress(BlockingIOError):
            os.read(self._woken, 1 << 16)
        while self._made:
            owner, step = self._made.popleft()
            if isinstance(step, Exception):
                raise step
            yield owner, step

    def _work(self) -> None:
        while True:
            owner, make = self._tasks.get()
            try:
                self._made.append((owner, make()))
            except Exception as error:
                self._made.append((owner, error))
            with suppress(BlockingIOError):
                os.write(self._wake, b".")

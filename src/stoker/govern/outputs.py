"""The output of a command that `stoker run` started, where our own streams are files.

The command writes to our streams. Where those are files, what it has written is read from them;
what goes to a terminal or a pipe is copied meanwhile.
"""

import os
import stat
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO

from stoker.model.value import Value

_STREAMS = (1, 2)


class OutputFile(Value, frozen=True, kw_only=True):
    """A regular file that stdout, stderr or both go to, and its size before the command ran."""

    descriptor: int
    begin: int


def kept_outputs() -> tuple[OutputFile, ...]:
    """Return the files that stdout and stderr go to. Call it before the command runs."""
    found: dict[tuple[int, int], OutputFile] = {}
    for descriptor in _STREAMS:
        with suppress(OSError):  # a stream may be closed
            state = os.fstat(descriptor)
            if stat.S_ISREG(state.st_mode):
                kept = OutputFile(descriptor=descriptor, begin=state.st_size)
                found.setdefault((state.st_dev, state.st_ino), kept)
    return tuple(found.values())


def opened(outputs: tuple[OutputFile, ...]) -> Iterator[BinaryIO]:
    """Yield each output as a stream that starts where the command began; skip unreadable files."""
    for kept in outputs:
        with suppress(OSError), Path(f"/dev/fd/{kept.descriptor}").open("rb") as stream:
            stream.seek(kept.begin)
            yield stream

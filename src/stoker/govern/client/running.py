"""`stoker run`: a command under the governor, from its environment to its summary.

The command writes to our streams. Where those are files, what it has written is read from them;
what goes to a terminal or a pipe is copied meanwhile.
"""

import os
import re
import shlex
import stat
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO

from msgspec.structs import replace

from stoker.govern.client.broadcast import Broadcast
from stoker.govern.client.opening import session
from stoker.govern.client.session import CompilerChain, RunOptions, Show
from stoker.model.errors import StorageError
from stoker.model.runs import RunSummary
from stoker.model.value import Value
from stoker.outside.folders import current_folder
from stoker.outside.processes import MachineTime, children_cpu_s, is_static
from stoker.outside.relay import Copy

_JOBS = re.compile(r"(?:-j ?|--jobs[ =]|--parallel[ =])([1-9]\d*)")
_JOBS_APART = ("-j", "--jobs", "--parallel")
_LAUNCHER_SECONDS = 0.01  # CPU seconds of the launcher per step, at most
_UNSEEN_SECONDS = 2.0  # CPU seconds from which a message is shown
_UNSEEN_SHARE = 0.25  # share of the governed CPU time; a build does other work than compiling


class Finished(Value, frozen=True, kw_only=True):
    """The result of a run. ``summary`` is ``None`` if the governor died."""

    status: int
    ended_by: int  # the signal that ended the command, or 0
    interrupted: bool  # a signal asked stoker to end the command
    summary: RunSummary | None
    unfinished: str | None  # why steps were not started in the time of the run
    unseen_cpu_seconds: float  # of programs without a launcher; 0 if it is little


def run(
    command: Sequence[str],
    options: RunOptions,
    cache: CompilerChain,
    show: Show,
    copy: Copy | None = None,
) -> Finished:
    """Run a command under the governor. Every event goes to ``show``; the command writes to our
    streams, and ``copy`` gets what it writes to a terminal or a pipe.
    """
    what = shlex.join(command)
    with (
        Broadcast(what, str(current_folder())) as broadcast,
        session(options, cache, what=what, show=broadcast.through(show)) as governed,
    ):
        try:
            environment = governed.environment(os.environ)
            before, busy = children_cpu_s(), MachineTime.now()
            status = governed.run(command, env=environment, copy=copy)
        except StorageError:
            governed.finish(1)
            raise
        late = governed.unfinished
        status = late.status if late else status
        summary = _with_others(governed.finish(status), busy, children_cpu_s() - before)
        broadcast.end(summary)
        # A cache and a compile on a worker cost CPU time here that is no step's.
        spared = (summary and summary.cache) or options.chain.distribute != "none"
        # Configure checks, make and pip have work of their own: only a program that cannot load the
        # library hides compilers.
        spared = spared or not is_static(command[0])
        unseen = 0.0 if spared else _unseen(before, summary)
        return Finished(
            status=status,
            ended_by=0 if late else governed.ended_by,
            interrupted=governed.stopped_by is not None,
            summary=summary,
            unseen_cpu_seconds=unseen,
            unfinished=late.message if late else None,
        )


def _with_others(
    summary: RunSummary | None, before: MachineTime | None, own: float
) -> RunSummary | None:
    """Add the CPU time that others took, given the machine's before the run and the run's own."""
    now = MachineTime.now()
    if summary is None or before is None or now is None:
        return summary
    others = now.used - before.used - own - summary.governor_cpu_s
    stolen = now.stolen - before.stolen
    return replace(summary, other_cpu_s=max(0.0, others), stolen_cpu_s=max(0.0, stolen))


def jobs_of(command: Sequence[str]) -> int | None:
    """Return the -jN of a command; ``None`` if it has none."""
    for word, following in zip(command, [*command[1:], ""], strict=True):
        if found := _JOBS.fullmatch(f"{word} {following}" if word in _JOBS_APART else word):
            return int(found[1])
    return None


def _unseen(before: float, summary: RunSummary | None) -> float:
    """Return the CPU time of the command that belongs to no step; 0 if it is a small part."""
    if summary is None:
        return 0.0
    unseen = children_cpu_s() - before - summary.cpu_s - summary.steps * _LAUNCHER_SECONDS
    return unseen if unseen > max(_UNSEEN_SECONDS, _UNSEEN_SHARE * summary.cpu_s) else 0.0


class OutputFile(Value, frozen=True, kw_only=True):
    """A regular file that stdout, stderr or both go to, and its size before the command ran."""

    descriptor: int
    begin: int


def kept_outputs() -> tuple[OutputFile, ...]:
    """Return the files that stdout and stderr go to. Call it before the command runs."""
    found: dict[tuple[int, int], OutputFile] = {}
    for descriptor in (1, 2):
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

"""`stoker run`: a command under the governor, from its environment to its summary."""

import os
import resource
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from select import select
from tempfile import gettempdir

from stoker.govern.client import Client, private_folder, socket_path
from stoker.govern.daemon import Options
from stoker.govern.links import make_links
from stoker.machine.snapshot import read_machine
from stoker.model.events import AnyEvent, Warned
from stoker.model.machine import LimitKind, Machine
from stoker.model.runs import RunSummary
from stoker.model.value import Value
from stoker.outside import process
from stoker.plan.chain import governed_environment

_SHARE_KEPT_FREE = 0.05  # of a whole machine, so that its user can go on working
_MOST_KEPT_FREE = 2 * 1024**3
_UNSEEN_SECONDS = 10.0


class RunOptions(Value, frozen=True, kw_only=True):
    """``None`` means: found out from the machine."""

    memory: int | None = None
    keep_free: int | None = None
    cpus: int | None = None
    nice: bool = False
    policy: str = "adaptive"


class Finished(Value, frozen=True, kw_only=True):
    """``summary`` is missing where the governor died."""

    status: int
    summary: RunSummary | None
    unseen_cpu_seconds: float  # of compiles that no launcher stood before


def run(command: Sequence[str], options: RunOptions, show: Callable[[AnyEvent], None]) -> Finished:
    machine = read_machine()
    asked = _governor_options(options, machine)
    with Client(
        asked, run=os.getpid(), command=shlex.join(command), directory=str(Path.cwd())
    ) as client:
        if options.nice:
            os.nice(10)
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        child = process.start(command, env=_environment(asked))
        with _signals_passed_on(child):
            status = _watch(child, client, show)
        for event in client.finish(status):
            show(event)
        return Finished(
            status=status,
            summary=client.summary,
            unseen_cpu_seconds=_unseen(before, client.summary),
        )


def jobs_of(command: Sequence[str]) -> int | None:
    """The -jN of a command, where it has one."""
    for word, following in zip(command, [*command[1:], ""], strict=True):
        number = following if word in ("-j", "--jobs", "--parallel") else word.removeprefix("-j")
        if (word.startswith("-j") or number == following) and number.isdigit():
            return int(number)
    return None


def _governor_options(options: RunOptions, machine: Machine) -> Options:
    limit = machine.memory.limit
    keep_free = options.keep_free
    if keep_free is None:
        whole = limit.kind is LimitKind.PHYSICAL
        keep_free = int(min(limit.limit * _SHARE_KEPT_FREE, _MOST_KEPT_FREE)) if whole else 0
    return Options(
        socket=str(socket_path(limit.where)),
        policy=options.policy,
        cpus=options.cpus or machine.cpu.usable,
        cap=options.memory,
        keep_free=keep_free,
    )


def _environment(options: Options) -> dict[str, str]:
    folder = private_folder(Path(options.socket).parent)
    locks = folder / "turns"
    locks.mkdir(exist_ok=True)
    for cpu in range(options.cpus):
        (locks / f"cpu{cpu}").touch()
    said = {
        "STOKER_SOCKET": options.socket,
        "STOKER_RUN": str(os.getpid()),
        "STOKER_TMP": gettempdir(),
        "STOKER_LOCKS": str(locks),
    }
    return governed_environment(os.environ, make_links(), cpus=options.cpus, said=said)


def _watch(child: subprocess.Popen[bytes], client: Client, show: Callable[[AnyEvent], None]) -> int:
    """Show events until the command has ended; its status, 128 more than a signal."""
    began = time.monotonic()
    while (status := child.poll()) is None:
        if not client.alive:
            status = child.wait()
            break
        readable, _, _ = select([client], [], [], 0.05)
        for event in client.events() if readable else ():
            show(event)
        if not client.alive:
            text = "the governor has died; what is left of the build takes turns, one per CPU"
            show(Warned(at=time.monotonic() - began, text=text))
    return 128 - status if status < 0 else status


@contextmanager
def _signals_passed_on(child: subprocess.Popen[bytes]) -> Iterator[None]:
    """We end after the command, whoever is signalled. A terminal sends Ctrl-C to both of us."""

    def pass_on(number: int, _: object) -> None:
        if number != signal.SIGINT or not sys.stdin.isatty():
            child.send_signal(number)

    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    before = {number: signal.signal(number, pass_on) for number in numbers}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _unseen(before: resource.struct_rusage, summary: RunSummary | None) -> float:
    """CPU time of the command that belongs to no step, where it is most of all CPU time."""
    if summary is None:
        return 0.0
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    whole = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    unseen = whole - summary.cpu_s
    return unseen if unseen > max(_UNSEEN_SECONDS, summary.cpu_s) else 0.0

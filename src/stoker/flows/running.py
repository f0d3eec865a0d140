"""`stoker run`: a command under the governor, from its environment to its summary."""

import os
import re
import resource
import shlex
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from select import select
from tempfile import gettempdir

from stoker.govern.client import Client, private_folder, socket_path
from stoker.govern.daemon import Options
from stoker.govern.links import make_links
from stoker.govern.policies import make_policy
from stoker.machine.snapshot import read_machine
from stoker.model.errors import StorageError
from stoker.model.events import AnyEvent, Warned
from stoker.model.machine import LimitKind, Machine
from stoker.model.runs import RunSummary
from stoker.model.value import Value
from stoker.outside import process
from stoker.plan.chain import governed_environment

_JOBS = re.compile(r"(?:-j ?|--jobs[ =]|--parallel[ =])([1-9]\d*)")
_JOBS_APART = ("-j", "--jobs", "--parallel")
_SHARE_KEPT_FREE = 0.05  # of a whole machine, so that its user can go on working
_MOST_KEPT_FREE = 2 * 1024**3
_FROM_KEYS = (signal.SIGINT, signal.SIGQUIT)  # signals that a terminal sends to a whole group
_LAUNCHER_SECONDS = 0.01  # of CPU that a step costs beside its command, at most
_UNSEEN_SECONDS = 2.0  # of CPU that are worth a word
_UNSEEN_SHARE = 0.25  # of what was seen; a build has other work than compiles


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
    unseen_cpu_seconds: float  # of programs that no launcher stood before, where it is much


def run(command: Sequence[str], options: RunOptions, show: Callable[[AnyEvent], None]) -> Finished:
    """Give every event to ``show``; the command's own output goes where ours does."""
    asked = _governor_options(options, read_machine())
    make_policy(asked.policy, cpus=asked.cpus)  # what it does not know is said here, not there
    with Client(asked, run=os.getpid(), command=shlex.join(command), directory=_here()) as client:
        for text in _differences(asked, client.options):
            show(Warned(at=0.0, text=text))
        if options.nice:
            os.nice(10)
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        child = process.start(command, env=_environment(client.options))
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
        if found := _JOBS.fullmatch(f"{word} {following}" if word in _JOBS_APART else word):
            return int(found[1])
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


def _here() -> str:
    try:
        return str(Path.cwd())
    except OSError as error:
        raise StorageError("the folder we are in is gone") from error


def _differences(asked: Options, found: Options) -> Iterator[str]:
    """A governor that serves another run already stays as that one wanted it."""
    for name in ("policy", "cpus", "cap", "keep_free"):
        if getattr(asked, name) != getattr(found, name):
            yield (
                f"a governor is at work already, and its {name.replace('_', '-')} is "
                f"{getattr(found, name)}, not {getattr(asked, name)}"
            )


def _environment(options: Options) -> dict[str, str]:
    locks = private_folder(Path(options.socket).parent / f"turns-of-{options.cpus}")
    for cpu in range(options.cpus):
        (locks / f"cpu{cpu}").touch()
    said = {
        "STOKER_SOCKET": options.socket,
        "STOKER_RUN": str(os.getpid()),
        "STOKER_TMP": gettempdir(),
        "STOKER_LOCKS": str(locks),
    }
    return governed_environment(
        os.environ,
        make_links(os.environ.get("PATH", "")),
        cpus=options.cpus,
        said=said,
        cuda_home=_cuda_home(),
    )


def _cuda_home() -> str | None:
    """The toolkit as builds look for it: the variables, then the folder above nvcc's."""
    named = os.environ.get("CUDA_HOME") or os.environ.get("CUDA_PATH")
    nvcc = shutil.which("nvcc")
    return named or (str(Path(nvcc).parent.parent) if nvcc else None)


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
            text = "the governor has died; what is left of the build takes turns, one step per CPU"
            show(Warned(at=time.monotonic() - began, text=text))
    return 128 - status if status < 0 else status


@contextmanager
def _signals_passed_on(child: subprocess.Popen[bytes]) -> Iterator[None]:
    """We end after the command, whoever is signalled."""

    def pass_on(number: int, _: object) -> None:
        if number not in _FROM_KEYS or not _in_foreground():
            child.send_signal(number)

    numbers = (signal.SIGTERM, signal.SIGHUP, *_FROM_KEYS)
    before = {number: signal.signal(number, pass_on) for number in numbers}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _in_foreground() -> bool:
    """Whether our terminal sends Ctrl-C to the command too, which is in our process group."""
    try:
        with Path("/dev/tty").open("rb") as terminal:
            return os.tcgetpgrp(terminal.fileno()) == os.getpgrp()
    except OSError:
        return False


def _unseen(before: resource.struct_rusage, summary: RunSummary | None) -> float:
    """CPU time of the command that belongs to no step, where it is a good part of all."""
    if summary is None:
        return 0.0
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    whole = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    unseen = whole - summary.cpu_s - summary.steps * _LAUNCHER_SECONDS
    return unseen if unseen > max(_UNSEEN_SECONDS, _UNSEEN_SHARE * summary.cpu_s) else 0.0

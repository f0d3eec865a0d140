"""Opens a session: which governor it uses, with which limits, and where temporary files go."""

import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from msgspec.structs import replace

from stoker.govern.client.conversation import Client, socket_path
from stoker.govern.client.scratch import DiskGuard, ScratchFolder, choose_scratch
from stoker.govern.client.session import (
    CompilerChain,
    RunOptions,
    Session,
    Show,
    go_without_governor,
)
from stoker.govern.policy.interface import parse_policy
from stoker.machine.cpu import read_usable
from stoker.machine.disks import read_temporary
from stoker.machine.file_tree import FileTree
from stoker.machine.memory import read_memory
from stoker.model.caching import Chain
from stoker.model.errors import StokerError, UsageError
from stoker.model.events import Warned
from stoker.model.machine import LimitKind, MemoryLimit, Scratch
from stoker.model.terms import GovernorOptions, RunTerms
from stoker.model.value import size
from stoker.model.variant import PlannedTargets
from stoker.outside.folders import current_folder
from stoker.outside.locks import holding_toolchains
from stoker.outside.process import files_allowed

_LEAST_FILES = 40  # with fewer, a governor could not serve a few steps
_NICE_WEIGHT = 0.25  # of CPUs, beside a run without --nice
_SHARE_KEPT_FREE = 0.05  # of a whole machine, so that its user can keep working
_MOST_KEPT_FREE = 2 * 1024**3


@contextmanager
def session(
    options: RunOptions,
    cache: CompilerChain,
    *,
    what: str,
    show: Show,
    folder: Path | None = None,
    growth: int | None = None,
    targets: PlannedTargets | None = None,
) -> Iterator[Session]:
    """Open a governed session. ``what`` is its name in the history. Every event goes to ``show``.
    ``folder`` is where the build grows, by default the current one; ``growth`` is the most bytes it
    may add. A compile for other GPU targets than ``targets`` ends the command.
    """
    if (files := files_allowed()) < _LEAST_FILES:
        text = f"a process here may open {files:.0f} files, and stoker needs {_LEAST_FILES}"
        raise UsageError(text, hints=["raise the limit: ulimit -n 1024"])
    tree, here, run = FileTree(), str(current_folder()), _run_number()
    limit = read_memory(tree).limit
    asked = _governor_options(options, limit, read_usable(tree))
    parse_policy(asked.policy)  # report an unknown policy here, not in the governor
    with (
        ScratchFolder(_scratch(options, asked, limit)) as temporary,
        holding_toolchains(os.environ),
        ExitStack() as stack,
    ):
        client = None
        try:
            asked = replace(asked, socket=str(socket_path(limit.where)))
            client = Client(
                asked,
                run=run,
                command=what,
                directory=here,
                terms=RunTerms(linker=cache.chain.linker, targets=targets),
                weight=_NICE_WEIGHT if options.nice else 1.0,
                time_limit=options.time_limit,
            )
            stack.enter_context(client)
        except StokerError as error:
            go_without_governor(error, options, show)
        differences = _differences(asked, client.options) if client else ()
        for text in (*differences, *_unusable(cache.chain)):
            show(Warned(at=0.0, text=text))
        if options.nice:
            os.nice(10)
        disk = DiskGuard(folder or Path(here), growth)
        governed = Session(
            client,
            asked,
            options,
            run,
            temporary,
            disk,
            show,
            limit=limit.limit,
            cache=cache,
            targets=targets,
        )
        try:
            yield governed
        finally:
            governed.close()


def _run_number() -> int:
    """Return a number that identifies the run to launchers; it is larger than any process id."""
    return (1 << 30) + (int.from_bytes(os.urandom(4), "little") & ((1 << 30) - 1))


def _governor_options(options: RunOptions, limit: MemoryLimit, cpus: int) -> GovernorOptions:
    keep_free = options.keep_free
    if keep_free is None:
        whole = limit.kind is LimitKind.PHYSICAL
        keep_free = int(min(limit.limit * _SHARE_KEPT_FREE, _MOST_KEPT_FREE)) if whole else 0
    elif keep_free >= limit.limit:
        raise UsageError(
            f"--keep-free {size(keep_free)} leaves no memory: the limit is {size(limit.limit)}",
            hints=["name less memory, such as 2G"],
        )
    return GovernorOptions(
        socket="",
        policy=options.policy,
        cpus=options.cpus or cpus,
        cap=options.memory,
        keep_free=keep_free,
        gc=options.gc,
        nvcc_threads=options.nvcc_threads,
    )


def _scratch(options: RunOptions, asked: GovernorOptions, limit: MemoryLimit) -> Scratch:
    return choose_scratch(
        options.tmp,
        read_temporary(),
        named=any(name in os.environ for name in ("TMPDIR", "TEMP", "TMP")),
        memory=min(limit.limit, asked.cap or limit.limit) - asked.keep_free,
        cpus=asked.cpus,
    )


def _unusable(chain: Chain) -> Iterator[str]:
    """Yield the parts that were asked for and cannot be used."""
    for part in chain.parts:
        if part.unusable:
            yield f"{part.why}; the build continues without it"


def _differences(asked: GovernorOptions, found: GovernorOptions) -> Iterator[str]:
    """Yield how the options of a running governor differ; it keeps those of the run that started
    it.
    """
    for name in ("policy", "keep_free", "gc", "nvcc_threads"):
        if getattr(asked, name) != getattr(found, name):
            yield (
                f"a running governor is used, and its {name.replace('_', '-')} is "
                f"{getattr(found, name)}, not {getattr(asked, name)}"
            )

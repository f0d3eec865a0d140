"""Commands under the governor: what `stoker run` and `stoker build` share."""

import os
import select
import signal
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from enum import StrEnum
from pathlib import Path
from typing import Protocol

from msgspec.structs import replace

from stoker.govern.chain import governed_environment, window
from stoker.govern.client.commands import Commands, Echo
from stoker.govern.client.conversation import Client
from stoker.govern.client.native import stable_native
from stoker.govern.client.scratch import DiskGuard, ScratchFolder
from stoker.govern.client.summary import unfinished
from stoker.machine.counters import KillCounter, processes_allowed, read_written, written_since
from stoker.machine.file_tree import FileTree
from stoker.model.caching import CacheEngine, CacheUse, Chain, ChainOptions
from stoker.model.errors import CommandError, StokerError, StorageError, TargetsError, UsageError
from stoker.model.events import (
    AnyEvent,
    KernelStarts,
    Overview,
    StepEnds,
    StepTooLate,
    TargetsDiffer,
    Warned,
)
from stoker.model.machine import Tmp
from stoker.model.runs import RunSummary
from stoker.model.terms import Gc, GovernorOptions, NvccThreads, TimeLimit
from stoker.model.value import Value, counted
from stoker.model.variant import PlannedTargets
from stoker.outside import process
from stoker.outside.deleting import remove_file
from stoker.outside.folders import private_folder, unwritable
from stoker.plan.compiled import where_from

Show = Callable[[AnyEvent], None]

_LAST_EVENTS = 0.4  # seconds in which the governor says why a step was refused
_MORE_ROOM = (
    "what was built stays, and the same command continues from there",
    "stoker clean --all",
)


class Via(StrEnum):
    """How compiles reach the launcher."""

    PRELOAD = "preload"
    LAUNCHER = "launcher"  # through CMake's launcher variables too


class RunOptions(Value, frozen=True, kw_only=True):
    """The options of a governed run. ``None`` means that the machine decides."""

    memory: int | None = None
    keep_free: int | None = None
    cpus: int | None = None
    nice: bool = False
    policy: str = "adaptive"
    gc: Gc = Gc.AUTO
    nvcc_threads: NvccThreads = NvccThreads.AUTO
    tmp: Tmp = Tmp.AUTO
    via: Via = Via.PRELOAD
    respect_jobs: bool = False  # build tools keep their own number of jobs
    time_limit: TimeLimit | None = None
    chain: ChainOptions = ChainOptions()


class CompilerChain(Protocol):
    """What wraps the compilers of a run, such as a cache. The governor does not know it:
    a hit never asks for a permit.
    """

    chain: Chain

    def begin(self, folder: Path, run: int) -> None:
        """Prepare for a run. ``folder`` holds the files that it needs meanwhile."""

    def enter(
        self,
        environment: dict[str, str],
        base: Mapping[str, str],
        *,
        folder: Path | None,
        mapped: bool,
        tree: Path | None,
    ) -> list[str]:
        """Add its variables to the environment of a governed command; return what cannot be
        used.
        """

    def hear(self, event: AnyEvent) -> None: ...

    @property
    def hits(self) -> int:
        """The compiles until now whose result the cache had."""

    def finish(self) -> CacheUse:
        """Return what the cache had, once the commands have ended."""

    def troubles(self, use: CacheUse) -> Iterator[str]:
        """Yield what failed during the run."""

    def not_sent(self, use: CacheUse) -> int:
        """Return how many steps counted as remote and were hits, or ran here as other steps."""

    def ran_here(self) -> Iterator[str]:
        """Yield what the distributor did not send to a worker."""

    def close(self) -> None:
        """Stop what would outlive the run."""


def _commit_here() -> str | None:
    from stoker.source.git_state import head_commit  # a run starts sooner without it

    with suppress(OSError):  # the folder may be gone
        return head_commit(Path.cwd())
    return None


class Session:
    """Runs commands one after another as one run of the governor.

    The commands run even if there is no governor or if it is lost: then a warning is shown, and
    compiles take turns. ``finish`` ends the run and returns its summary.
    """

    def __init__(
        self,
        client: Client | None,
        asked: GovernorOptions,
        options: RunOptions,
        run: int,
        scratch: ScratchFolder,
        disk: DiskGuard,
        show: Show,
        *,
        limit: int,
        cache: CompilerChain,
        targets: PlannedTargets | None = None,
    ):
        """Begin the run. ``asked`` holds if there is no ``client`` because no governor can run."""
        self.late: list[StepTooLate] = []  # steps that the time limit has refused or ended
        self._steps_done = 0
        self._client, self._asked, self._options = client, asked, options
        self._targets = targets
        self._refused: TargetsDiffer | None = None
        self.kernels: dict[str, tuple[str, ...]] = {}  # sources, and the targets of their code
        self._chain = cache.chain
        self._limit = limit
        self._run = run
        self._scratch = scratch
        self._disk = disk
        self._show = show
        self._written = read_written()
        self._cache = cache
        cache.begin(Path(self.governor.socket).parent, run)
        self._ungoverned: Path | None = None  # launchers that find no governor add a byte each
        self._kills = KillCounter(os.getpid())
        self._kills_before = self._kills.read() or 0
        self._began = time.monotonic()
        self._commands = Commands(
            source=self._live_client, listen=self._listen, check=self._check_space
        )

    def environment(
        self,
        base: Mapping[str, str],
        *,
        folder: Path | None = None,
        mapped: bool = False,
        tree: Path | None = None,
    ) -> dict[str, str]:
        """Return the environment in which a command's compilers ask the governor; unchanged if they
        cannot. ``folder``, ``mapped`` and ``tree`` are for the cache: see ``RunCache.enter``.
        """
        if self._client is None:
            return dict(base)
        try:
            environment = self._governed(base)
        except (StorageError, UsageError) as error:
            go_without_governor(error, self._options, self._show)
            return dict(base)
        self._ungoverned = Path(environment["STOKER_LOCKS"], f"ungoverned-{self._run}")
        with suppress(OSError):
            self._ungoverned.touch()
        for problem in self._cache.enter(
            environment, base, folder=folder, mapped=mapped, tree=tree
        ):
            self._show(Warned(at=0.0, text=f"{problem}; the build continues without it"))
        return environment

    def _governed(self, base: Mapping[str, str]) -> dict[str, str]:
        governor, slots = self.governor, self._chain.slots
        locks = private_folder(Path(governor.socket).with_suffix(f".turns-of-{governor.cpus}"))
        try:
            for cpu in range(governor.cpus):
                (locks / f"cpu{cpu}").touch()
        except OSError as error:
            raise unwritable(locks, error, doing="write in") from error
        files, processes = process.files_allowed(), processes_allowed(FileTree())
        jobs = window(governor.cpus, self.memory, files, processes, slots)
        return governed_environment(
            base,
            stable_native(),
            said={
                "STOKER_SOCKET": governor.socket,
                "STOKER_RUN": str(self._run),
                "STOKER_PROCESS": _process(),
                "STOKER_SCRATCH": str(self._scratch.path),
                "STOKER_LOCKS": str(locks),
            },
            jobs=None if self._options.respect_jobs else jobs,
            via_launcher=self._options.via is Via.LAUNCHER,
            slots=slots,
        )

    def run(
        self,
        command: Sequence[str],
        *,
        env: Mapping[str, str],
        cwd: Path | None = None,
        output: Echo | None = None,
        copy: Echo | None = None,
    ) -> int:
        """Run a command and return its status; a signal counts as 128 plus its number. Without
        ``output`` the command writes to our streams; ``copy`` gets what it writes to a terminal or
        a pipe. Raise an error if the command had to be stopped because the disk was full, or
        because it compiles for other GPU targets than the plan.
        """
        self._refused = None
        status = self._commands.run(command, env=env, cwd=cwd, output=output, copy=copy)
        # The governor may still have to say why a step of a failed command was refused.
        self._hear_the_rest(_LAST_EVENTS if status and self._targets else 0.0)
        if self._disk.shortage:
            raise StorageError(self._disk.shortage, hints=_MORE_ROOM)
        if status and self._refused and self._targets:
            flags = f" ({' '.join(self._refused.flags)})" if self._refused.flags else ""
            raise TargetsError(
                f"{self._refused.title}: {self._refused.difference}{flags}",
                hints=where_from(self._targets),
            )
        return status

    @property
    def stopped_by(self) -> int | None:
        """The signal that asked us to exit."""
        return self._commands.stopped_by

    @property
    def ended_by(self) -> int:
        """The signal that ended the last command, or 0."""
        return self._commands.ended_by

    @property
    def unfinished(self) -> StokerError | None:
        """Why steps were not started in the time of the run; ``None`` if all were. It is an
        UnfinishedError only if another run can be expected to get further.
        """
        if not self.late:
            return None
        return unfinished(self.late, self._options.time_limit, advanced=self._steps_done > 0)

    @property
    def cache_hits(self) -> int:
        """The compiles until now whose result the cache had."""
        return self._cache.hits

    @property
    def governor(self) -> GovernorOptions:
        """The options in force; another governor may have others than were asked for."""
        return self._client.options if self._client else self._asked

    @property
    def cpus(self) -> int:
        return self.governor.cpus

    @property
    def memory(self) -> int:
        """The bytes that builds under this limit may use."""
        limit = max(0, self._limit - self.governor.keep_free)
        return min(limit, self.governor.cap or limit)

    @property
    def out_of_room(self) -> bool:
        """Whether a command was stopped because the build had almost no room left to grow."""
        return self._disk.shortage is not None

    def finish(self, status: int) -> RunSummary | None:
        """Return the summary; ``None`` if the governor died or there is none."""
        use, written = self._cache_use(), written_since(self._written)
        hits = use.total.hits if use else 0
        client, summary = self._client, None
        if client:
            for event in client.finish(status, cache_hits=hits, written_bytes=written):
                self._note(event)
                if not isinstance(event, Overview):  # the summary says more
                    self._show(event)
            summary = client.summary
        if summary and use:
            others = self._cache.not_sent(use)
            steps, remote = (max(0, n - others) for n in (summary.steps, summary.remote_steps))
            summary = replace(summary, steps=steps, remote_steps=remote)
        for text in self._cache.ran_here():
            self._warn(text)
        self._tell_ungoverned()
        kills = (self._kills.read() or 0) - self._kills_before
        self._kills.close()
        if client and client.dormant and not client.losses:
            summary = self._summary(status, kills)
        summary = summary and replace(
            summary,
            cache_hits=hits,
            cache=use,
            written_bytes=written,
            linker=self._chain.linker,
        )
        if summary and summary.run is not None:
            run, summary = summary.run, replace(summary, commit=_commit_here())
            self._complete_history(run, summary)
        return summary

    def _complete_history(self, run: int, summary: RunSummary) -> None:
        """Add the whole summary to the history."""
        from stoker.govern.history.store import History  # a run starts sooner without sqlite3

        try:
            with History() as history:
                history.complete_run(run, summary)
        except StorageError as error:
            self._warn(f"the history of this run is not complete: {error.in_one_line}")

    def _cache_use(self) -> CacheUse | None:
        """Return what the cache had, once the commands have ended."""
        use = self._cache.finish()
        for text in self._cache.troubles(use):
            self._warn(text)
        return use if self._chain.engine is not CacheEngine.NONE or use.languages else None

    def close(self) -> None:
        """Stop what would outlive the run, and release what it holds."""
        self._cache.close()

    def _warn(self, text: str) -> None:
        self._show(Warned(at=time.monotonic() - self._began, text=text))

    def _tell_ungoverned(self) -> None:
        if self._ungoverned is None:
            return
        try:
            count = self._ungoverned.stat().st_size
            remove_file(self._ungoverned)
        except OSError:
            return
        if count:
            commands = counted(count, "command")
            self._warn(f"{commands} could not reach the governor and ran in turns, one per CPU")

    def _summary(self, status: int, kills: int) -> RunSummary:
        """Return that of a run in which nothing asked, so that no governor was started."""
        return RunSummary(
            status=status,
            steps=0,
            wall_s=time.monotonic() - self._began,
            cpu_s=0.0,
            governor_cpu_s=0.0,
            peak_bytes=0,
            limit_bytes=self.memory,
            oom_kills=kills,
            preemptions=0,
            retries=0,
            lower_bound_s=None,
            policy=self.governor.policy,
            cpus=self.cpus,
        )

    def _check_space(self) -> int | None:
        """Look whether the disk or the scratch folder fills up; return a signal that stops the
        command.
        """
        if text := self._scratch.look():
            self._warn(text)
        if self._refused:
            return signal.SIGTERM
        return self._disk.check(time.monotonic())

    def _live_client(self) -> Client | None:
        return self._client if self._client and self._client.alive else None

    def _listen(self, something_came: bool) -> None:
        if client := self._live_client():
            if something_came:
                self._hear(client)
            elif client.ended_as_hung():
                self._replace(client, "the governor stopped answering and was killed")

    def _hear(self, client: Client) -> None:
        for event in client.events():
            self._note(event)
            if isinstance(event, Overview):
                event = replace(event, cache_hits=self._cache.hits)
            self._show(event)
        if not client.alive:
            self._replace(client, client.why_gone)

    def _hear_the_rest(self, timeout_s: float) -> None:
        """Hear what has come until the command ended, and wait for a refused step: the command may
        have failed because of it.
        """
        deadline = time.monotonic() + timeout_s
        while client := self._live_client():
            wait = 0.0 if self._refused else max(0.0, deadline - time.monotonic())
            if not select.select([client], [], [], wait)[0]:
                return
            self._hear(client)

    def _note(self, event: AnyEvent) -> None:
        self._cache.hear(event)
        if isinstance(event, StepTooLate):
            self.late.append(event)
        elif isinstance(event, TargetsDiffer):
            self._refused = self._refused or event
        elif isinstance(event, KernelStarts):
            self.kernels[event.title] = event.targets
        self._steps_done += isinstance(event, StepEnds) and event.status == 0

    def _replace(self, client: Client, why: str) -> None:
        replaced = client.replaced()
        after = (
            "another one replaces it" if replaced else "the rest of the build runs one step per CPU"
        )
        self._warn(f"{why}; {after}")


def go_without_governor(error: StokerError, options: RunOptions, show: Show) -> None:
    """Warn that the build is not governed. Raise an error if the user asked for a limit: a build
    without a governor would not keep it.
    """
    why, hints = [str(error)], list(error.hints)
    if isinstance(error, CommandError):
        why += error.output.splitlines()[-1:]
    if isinstance(error, StorageError) and not hints:
        hints.append("set STOKER_HOME to a folder that can be written")
    asked = {"--memory": options.memory, "--keep-free": options.keep_free}
    if limit := next((name for name, value in asked.items() if value is not None), None):
        refused = StokerError(f"{limit} cannot be kept: {'; '.join(why)}", hints=hints)
        refused.status = error.status
        raise refused
    show(Warned(at=0.0, text=f"the build is not governed: {'; '.join((*why, *hints))}"))


def _process() -> str:
    """Return our number and the pid namespace in which it is ours, for launchers to watch us."""
    try:
        namespace = Path("/proc/self/ns/pid").stat().st_ino
    except OSError:
        return ""
    return f"{os.getpid()} {namespace}"

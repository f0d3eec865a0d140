"""Which cache, distributor and linkers a run uses, from its environment to its counts."""

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path, PurePath
from resource import RLIM_INFINITY, RLIMIT_AS, RLIMIT_CPU, RLIMIT_DATA, RLIMIT_FSIZE, getrlimit

from msgspec.structs import replace

from stoker.accelerate import ccache, sccache
from stoker.accelerate.caching import cache_for, chain_environment, missing_program, resolve_chain
from stoker.accelerate.ccache import RunCounts
from stoker.accelerate.distributing import read_distribution, refuse_public, without_workers
from stoker.machine.cpu import read_usable
from stoker.machine.file_tree import FileTree
from stoker.model.caching import (
    CacheEngine,
    CacheStatus,
    CacheUse,
    Chain,
    ChainOptions,
    ChainPart,
    Distributor,
    FoundEngine,
)
from stoker.model.errors import UsageError
from stoker.model.events import AnyEvent, StepEnds
from stoker.model.govern import Linker, LinkerChoice
from stoker.model.secrets import redact
from stoker.outside.deleting import remove_file, remove_whole
from stoker.outside.files import room_on_disk, write_whole
from stoker.outside.folders import current_folder
from stoker.outside.process import is_static

# -- run cache -------------------------------------------------------------------------------------
# The cache and the distributor of one run: their variables and server, and what they did.


_DEVICE = (".cu", ".hip")
_HOST = (".c", ".cc", ".cpp", ".cxx", ".C", ".c++")
_LEAST_ROOM = 1 << 20  # bytes; large results do not fit any more
_ROOTS = (".git", "stoker.toml")  # what the root folder of a project holds


class RunCache:
    """The chain of one run, from the environment of its first command to its counts."""

    def __init__(self, chain: Chain):
        self.chain = chain
        self._local = _LocalCompiles(chain.distributor)

    def begin(self, folder: Path, run: int) -> None:
        """Prepare for a run. ``folder`` holds the files that it needs meanwhile."""
        self._log = folder / f"ccache-{run}.log"
        self._socket = folder / f"sccache-{run}.sock"
        self._counts = RunCounts(self._log)
        self._server = _SccacheServer(self.chain, folder / f"sccache-{run}.conf")

    def enter(
        self,
        environment: dict[str, str],
        base: Mapping[str, str],
        *,
        folder: Path | None,
        mapped: bool,
    ) -> list[str]:
        """Add its variables to the environment of a governed command, which was ``base`` before,
        and return what cannot be used. See ``chain_environment`` for the others.
        """
        self._counts = RunCounts(Path(environment.setdefault("CCACHE_STATSLOG", str(self._log))))
        environment |= chain_environment(
            self.chain,
            base,
            folder=str(folder or _project_folder(current_folder())),
            mapped=mapped,
            sccache_socket=str(self._socket),
        )
        return list(self._server.start(environment))

    def hear(self, event: AnyEvent) -> None:
        self._local.hear(event)

    @property
    def hits(self) -> int:
        """The hits until now; the governor never sees them."""
        return self._counts.use().total.hits

    def finish(self) -> CacheUse:
        """Return what the cache had, once the commands have ended."""
        use = self._server.stop() if self._server.running else self._counts.use()
        with suppress(OSError):
            remove_file(self._log)
        return use

    def troubles(self, use: CacheUse) -> Iterator[str]:
        """Yield what failed during the run; no engine reports it, since every compile succeeds."""
        remote = any(part.role == "remote" for part in self.chain.parts)
        if use.errors:
            what = "the remote of the cache" if remote else "the cache"
            yield f"{what} failed {use.errors} times; the build did without it"
        folder = self.chain.folder
        if folder and use.total.misses and _is_full(Path(folder)):
            yield f"the disk of the cache is full, and new results were not kept: {folder}"

    def ran_here(self) -> Iterator[str]:
        """Yield what the distributor did not send to a worker."""
        return self._local.texts()

    def close(self) -> None:
        """Stop what would outlive the run."""
        if self._server.running:
            self._server.stop()


class _LocalCompiles:
    """Counts compiles that ran here although a distributor was used."""

    def __init__(self, distributor: Distributor):
        self._distributor = distributor
        self._device = 0
        self._host = 0

    def hear(self, event: AnyEvent) -> None:
        if self._distributor is Distributor.NONE or not isinstance(event, StepEnds) or event.remote:
            return
        suffix = PurePath(event.title).suffix
        self._device += suffix in _DEVICE
        self._host += suffix in _HOST

    def texts(self) -> Iterator[str]:
        """Yield what the user should know at the end."""
        name = self._distributor
        if name is Distributor.SCCACHE_DIST:
            if count := self._device + self._host:
                yield f"{count} compiles ran here: {name} found no worker"
            return
        if self._device:
            yield f"{self._device} CUDA compiles ran here: {name} distributes C and C++ only"
        if self._host:
            chosen = "" if name is Distributor.DISTCC else "chose this machine or "
            yield f"{self._host} C and C++ compiles ran here: {name} {chosen}found no worker"


class _SccacheServer:
    """The server of one run. It starts with the first environment and ends with the run."""

    def __init__(self, chain: Chain, configuration: Path):
        self._program = chain.wrapper if chain.engine is CacheEngine.SCCACHE else None
        self._distributes = chain.distributor is Distributor.SCCACHE_DIST
        self._scheduler = chain.scheduler
        self._configuration = configuration
        self._environment: Mapping[str, str] = {}

    @property
    def running(self) -> bool:
        return bool(self._environment)

    def start(self, environment: dict[str, str]) -> Iterator[str]:
        """Start it if it is wanted, and yield what cannot be used. A server that does not start is
        taken out of the environment.
        """
        if self._program is None or self.running:
            return
        if self._scheduler and "SCCACHE_CONF" not in environment:
            token = environment.get("SCCACHE_DIST_TOKEN", "")
            text = sccache.client_configuration(self._scheduler, token)
            write_whole(self._configuration, text, private=True)
            environment["SCCACHE_CONF"] = str(self._configuration)
        if problem := sccache.start_server(self._program, environment):
            del environment["STOKER_WRAPPER"]
            yield f"sccache is not used: {problem}"
            return
        self._environment = environment
        if self._distributes and (
            problem := sccache.distribution_problem(self._program, environment)
        ):
            yield f"sccache-dist is not used: {problem}"

    def stop(self) -> CacheUse:
        """Stop the server and return what it counted."""
        assert self._program is not None
        use = sccache.read_use(self._program, self._environment)
        sccache.stop_server(self._program, self._environment)
        self._environment = {}
        remove_file(self._configuration)
        return use


def _is_full(folder: Path) -> bool:
    try:
        return room_on_disk(folder)[1] < _LEAST_ROOM
    except OSError:
        return False


def _project_folder(start: Path) -> Path:
    """Return the nearest folder that is the root of a project, or else ``start``."""
    for folder in (start, *start.parents):
        if any((folder / name).exists() for name in _ROOTS):
            return folder
    return start


# -- cached ----------------------------------------------------------------------------------------
# Which cache, distributor and linkers a run here would use, and the state of the cache.


def survey_chain(
    wanted: ChainOptions, environment: Mapping[str, str], *, ask_workers: bool = False
) -> Chain:
    """Return the chain that a run here would use. With ``ask_workers``, workers of distcc that do
    not answer or make other objects are left out.
    """
    distribution = read_distribution(wanted.distribute, environment)
    if not wanted.trust_network:
        refuse_public({host: _addresses(host) for host in distribution.hosts})
    cache = cache_for(wanted, distribution)
    cache = CacheEngine.CCACHE if cache is CacheEngine.AUTO else cache
    names = {wanted.launcher, cache.value, distribution.engine.value}
    found = {
        name: _found(name, environment) for name in filter(None, names) if _path(name, environment)
    }
    if distribution.engine is Distributor.ICECC:
        problem, slots = _icecc_state(environment, distribution.words)
        distribution = replace(distribution, problem=problem, slots=slots)
    elif ask_workers and distribution.workers and distribution.engine in found:
        program = found[distribution.engine].program
        unwanted = _unwanted_workers(program, distribution.workers, environment)
        distribution = without_workers(distribution, unwanted) if unwanted else distribution
    problem = _remote_problem(wanted.remote) if wanted.remote else None
    chain = resolve_chain(
        wanted,
        found,
        environment,
        remote_problem=problem,
        distribution=distribution,
        cpus=read_usable(FileTree()),
    )
    return _with_linkers(chain, wanted.linker)


def run_cache(wanted: ChainOptions) -> RunCache:
    """Return the chain of a run that starts now."""
    return RunCache(survey_chain(wanted, os.environ, ask_workers=True))


def _with_linkers(chain: Chain, wanted: Linker) -> Chain:
    linkers, why = LinkerChoice(), "--linker auto uses what `stoker tune` has measured"
    if wanted is not Linker.DEFAULT:
        from stoker.accelerate.linkers import choose_linkers  # most runs keep the default linker

        linkers = choose_linkers(wanted)
        why = linkers.why
    names = dict.fromkeys(linkers.measured.values()) or [linkers.every]
    what = ", ".join(mode.value for mode in names)
    part = ChainPart(role="linker", what=what, why=why, unusable=linkers.unusable)
    return replace(chain, linkers=linkers, parts=(*chain.parts, part))


def _addresses(host: str) -> tuple[str, ...]:
    from stoker.outside.web import addresses  # most runs do not distribute

    return addresses(host)


def _remote_problem(url: str) -> str | None:
    from stoker.accelerate.workers import remote_problem  # most runs have no remote

    return remote_problem(url)


def _path(name: str, environment: Mapping[str, str]) -> str | None:
    """Return the path of a program, as a shell finds it; a run does without shutil."""
    folders = [""] if "/" in name else os.get_exec_path(environment)
    paths = (Path(folder, name).absolute() for folder in folders)
    return next((str(p) for p in paths if p.is_file() and os.access(p, os.X_OK)), None)


def _found(name: str, environment: Mapping[str, str]) -> FoundEngine:
    path = _path(name, environment)
    assert path is not None
    if name not in (CacheEngine.CCACHE, CacheEngine.SCCACHE):
        return FoundEngine(program=path)
    if limit := _compilers_limit():
        return FoundEngine(program=path, problem=f"it would share the compiler's limit ({limit})")
    if name == CacheEngine.CCACHE:
        return ccache.read_ccache(path, environment)
    problem = "it is linked statically, so the compilers that it starts cannot be governed"
    return FoundEngine(program=path, problem=problem if is_static(path) else None)


def _compilers_limit() -> str:
    """Return the command that has set a limit with which no cache is started (verdict.c): the cache
    writes files and needs memory too, and would fail in place of the compiler.
    """
    limits = {"f": RLIMIT_FSIZE, "v": RLIMIT_AS, "d": RLIMIT_DATA, "t": RLIMIT_CPU}
    found = (option for option, limit in limits.items() if getrlimit(limit)[0] != RLIM_INFINITY)
    return next((f"`ulimit -{option}`" for option in found), "")


def _unwanted_workers(
    program: str, workers: Sequence[str], environment: Mapping[str, str]
) -> Mapping[str, str]:
    """Return the workers of distcc that are to be left out, with the reasons.

    If none can compile, those that are silent stay: distcc then compiles here, or fails if that is
    not allowed.
    """
    from stoker.accelerate.workers import WorkerProblem, worker_problems  # most runs do not use it

    compiler = environment.get("CXX") or _path("c++", environment)
    found = worker_problems(program, workers, compiler, environment) if compiler else {}
    if len(found) < len(workers):
        return found
    return {name: why for name, why in found.items() if why is WorkerProblem.DIFFERENT}


def _icecc_state(environment: Mapping[str, str], scheduler: str) -> tuple[str | None, int]:
    """Return why icecc cannot be used, and how many jobs its machines take, as far as it tells."""
    from stoker.accelerate.workers import icecc_problem, scheduler_state  # most runs do not use it

    if (problem := icecc_problem(environment)) or not scheduler:
        return problem, 0
    return scheduler_state(scheduler)


def cache_status(wanted: ChainOptions, environment: Mapping[str, str]) -> CacheStatus:
    """Return the state of the cache that a run here would use, and of its remote."""
    engine, program = _chosen(wanted, environment)
    ask = ccache.status if engine is CacheEngine.CCACHE else sccache.status
    status = ask(program, environment)
    if not wanted.remote:
        return status
    problem = _remote_problem(wanted.remote)
    return replace(status, remote=redact(wanted.remote), remote_problem=problem)


def cache_use(wanted: ChainOptions, environment: Mapping[str, str]) -> CacheUse:
    """Return the engine's own counters."""
    engine, program = _chosen(wanted, environment)
    if engine is CacheEngine.SCCACHE:
        return sccache.read_use(program, environment)
    return ccache.use_of(ccache.read_counters(program, environment))


def clear_cache(status: CacheStatus, environment: Mapping[str, str]) -> None:
    if status.engine is CacheEngine.CCACHE:
        ccache.clear(status.program, environment)
    elif status.folder:
        sccache.stop_server(status.program, environment)
        remove_whole(Path(status.folder))


def _chosen(wanted: ChainOptions, environment: Mapping[str, str]) -> tuple[CacheEngine, str]:
    engine = CacheEngine.CCACHE if wanted.cache is CacheEngine.AUTO else wanted.cache
    if engine is CacheEngine.NONE:
        raise UsageError("no cache is in use: --cache none")
    program = _path(engine.value, environment)
    if program is None:
        raise missing_program(engine.value)
    return engine, program

"""The cache and the distributor of one run: their variables and server, and what they did."""

import os
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path, PurePath

from stoker.cache import sccache
from stoker.cache.ccache import RunCounts
from stoker.cache.chains import chain_environment
from stoker.cache.keys import (
    assembler,
    compiler_keys,
    header_names,
    own_folders,
    project_folder,
)
from stoker.cache.survey import survey_chain
from stoker.model.caching import CacheEngine, CacheUse, Chain, ChainOptions, Distributor
from stoker.model.errors import StokerError
from stoker.model.events import AnyEvent, StepEnds
from stoker.outside.deleting import remove_file
from stoker.outside.files import folder_of_process, room_on_disk, write_whole
from stoker.outside.folders import current_folder

_DEVICE = (".cu", ".hip")
_HOST = (".c", ".cc", ".cpp", ".cxx", ".C", ".c++")
_DATE = "SOURCE_DATE_EPOCH"
_LEAST_ROOM = 1 << 20  # bytes; large results do not fit any more


def run_cache(wanted: ChainOptions) -> "RunCache":
    """Return the chain of a run that starts now."""
    return RunCache(survey_chain(wanted, os.environ, ask_workers=True))


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
        tree: Path | None,
    ) -> list[str]:
        """Add its variables to the environment of a governed command, which was ``base`` before,
        and return what cannot be used. ``tree`` has the sources; see ``chain_environment`` for the
        others.
        """
        project = project_folder(current_folder())
        self._counts = RunCounts(Path(environment.setdefault("CCACHE_STATSLOG", str(self._log))))
        environment |= chain_environment(
            self.chain,
            base,
            folder=str(folder or project),
            mapped=mapped,
            sccache_socket=str(self._socket),
            named=header_names(tree or project, without=own_folders(environment))
            if self.chain.engine is CacheEngine.CCACHE
            else None,
            assembler=assembler(base),
            keys=compiler_keys(),
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

    def not_sent(self, use: CacheUse) -> int:
        """Return how many steps counted as remote and were hits, or ran here as other steps."""
        return use.total.hits + use.fell_back if self._server.sends else 0

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
            yield f"{self._host} C and C++ compiles ran here: {name} found no worker"


class _SccacheServer:
    """The server of one run. It starts with the first environment and ends with the run."""

    def __init__(self, chain: Chain, configuration: Path):
        self._program = chain.wrapper if chain.engine is CacheEngine.SCCACHE else None
        self._distributes = chain.distributor is Distributor.SCCACHE_DIST
        self._scheduler = chain.scheduler
        self._configuration = configuration
        self._environment: Mapping[str, str] = {}
        self.sends = False  # compiles to workers, which have been tried

    @property
    def running(self) -> bool:
        return bool(self._environment)

    def start(self, environment: dict[str, str]) -> Iterator[str]:
        """Start it if it is wanted, and yield what cannot be used. A server that does not start is
        taken out of the environment.
        """
        if self._program is None or self.running:
            return
        if _DATE in environment:
            yield f"sccache is not used while {_DATE} is set: it does not pass it on to compilers"
        for compiler, why in sccache.broken_compilers(self._program, environment):
            environment["STOKER_UNCACHED"] = compiler
            yield f"sccache is not used for {why}"
        if self._scheduler and "SCCACHE_CONF" not in environment:
            token = environment.get("SCCACHE_DIST_TOKEN", "")
            text = sccache.client_configuration(self._scheduler, token)
            write_whole(self._configuration, text, private=True)
            environment["SCCACHE_CONF"] = str(self._configuration)
        if self._distributes:
            yield from self._find_places(environment)
        if problem := sccache.start_server(self._program, environment):
            del environment["STOKER_WRAPPER"]
            yield f"sccache is not used: {problem}"
            return
        self._environment = environment

    def _find_places(self, environment: dict[str, str]) -> Iterator[str]:
        """Say in the environment how many compiles the workers take. If they cannot be used, leave
        them out and yield the reason.
        """
        assert self._program is not None
        parent = self._configuration.parent
        try:
            with folder_of_process(parent, "probe-") as folder:
                places = sccache.try_workers(self._program, environment, folder)
        except StokerError as error:
            write_whole(self._configuration, "", private=True)
            environment["SCCACHE_CONF"] = str(self._configuration)
            yield f"sccache-dist is not used: {error}"
            return
        environment["STOKER_SLOTS"] = str(places)
        self.sends = True

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

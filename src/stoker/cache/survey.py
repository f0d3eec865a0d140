"""Which cache, distributor and linker a run here would use, and the state of the cache."""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from resource import RLIM_INFINITY, RLIMIT_AS, RLIMIT_CPU, RLIMIT_DATA, RLIMIT_FSIZE, getrlimit

from msgspec.structs import replace

from stoker.cache import ccache, sccache
from stoker.cache.chains import FoundEngine, cache_for, missing_program, resolve_chain
from stoker.cache.distribution import read_distribution, refuse_public, without_workers
from stoker.machine.cpu import read_usable
from stoker.machine.file_tree import FileTree
from stoker.model.caching import (
    CacheEngine,
    CacheStatus,
    CacheUse,
    Chain,
    ChainOptions,
    ChainPart,
)
from stoker.model.errors import MissingError, UsageError
from stoker.model.govern import CompileMode
from stoker.model.secrets import redact
from stoker.outside.deleting import remove_whole
from stoker.outside.looking import find_program
from stoker.outside.processes import is_static


def survey_chain(
    wanted: ChainOptions, environment: Mapping[str, str], *, ask_workers: bool = False
) -> Chain:
    """Return the chain that a run here would use. With ``ask_workers``, workers of distcc that do
    not answer or make other objects are left out.
    """
    distribution = read_distribution(wanted.distribute, environment)
    if distribution.hosts and not wanted.trust_network:
        from stoker.outside.web import addresses  # most runs do not distribute

        refuse_public({host: addresses(host) for host in distribution.hosts})
    cache = cache_for(wanted, distribution)
    cache = CacheEngine.CCACHE if cache is CacheEngine.AUTO else cache
    names = {wanted.launcher, cache.value, distribution.engine.value}
    found = {
        name: _found(name, path, environment)
        for name in filter(None, names)
        if (path := _path(name, environment))
    }
    if ask_workers and distribution.workers and distribution.engine in found:
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
    return _with_linker(chain, wanted.linker)


def _with_linker(chain: Chain, linker: CompileMode) -> Chain:
    """Return the chain with the linker that is asked for; one that is missing is an error."""
    why = "--linker chooses another one"
    if linker is not CompileMode.DEFAULT:
        from stoker.knowledge.compiler_modes import linker_programs  # most runs keep the default

        program, why = linker_programs()[linker], f"--linker {linker}"
        if _path(program, os.environ) is None:
            from stoker.knowledge.packages import install_command
            from stoker.machine.system import read_system

            install = install_command(linker, read_system(FileTree(), os.environ))
            hints = [*(f"  $ {line}" for line in install), "to link by default: --linker default"]
            raise MissingError(f"there is no program '{program}'", hints=hints)
    part = ChainPart(role="linker", what=linker, why=why)
    return replace(chain, linker=linker, parts=(*chain.parts, part))


def _remote_problem(url: str) -> str | None:
    from stoker.cache.remote import remote_problem  # most runs have no remote

    return remote_problem(url)


def _path(name: str, environment: Mapping[str, str]) -> str | None:
    found = find_program(name, environment)
    return found and str(Path(found).absolute())


def _found(name: str, path: str, environment: Mapping[str, str]) -> FoundEngine:
    if name not in (CacheEngine.CCACHE, CacheEngine.SCCACHE):
        return FoundEngine(program=path)
    # With such a limit no cache is started (launcher/cache.c): it writes files and needs memory
    # too, and would fail in place of the compiler.
    limits = {"f": RLIMIT_FSIZE, "v": RLIMIT_AS, "d": RLIMIT_DATA, "t": RLIMIT_CPU}
    found = (option for option, limit in limits.items() if getrlimit(limit)[0] != RLIM_INFINITY)
    if limit := next((f"`ulimit -{option}`" for option in found), ""):
        return FoundEngine(program=path, problem=f"it would share the compiler's limit ({limit})")
    if name == CacheEngine.CCACHE:
        return ccache.read_ccache(path, environment)
    problem = "it is linked statically, so the compilers that it starts cannot be governed"
    return FoundEngine(program=path, problem=problem if is_static(path) else None)


def _unwanted_workers(
    program: str, workers: Sequence[str], environment: Mapping[str, str]
) -> Mapping[str, str]:
    """Return the workers of distcc that are to be left out, with the reasons.

    If none can compile, those that are silent stay: distcc then compiles here, or fails if that is
    not allowed.
    """
    from stoker.cache.workers import WorkerProblem, worker_problems  # most runs do not use it

    compiler = environment.get("CXX") or _path("c++", environment)
    found = worker_problems(program, workers, compiler, environment) if compiler else {}
    if len(found) < len(workers):
        return found
    return {name: why for name, why in found.items() if why is WorkerProblem.DIFFERENT}


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
    if engine in (CacheEngine.NONE, CacheEngine.PROJECT):
        raise UsageError(f"stoker uses no cache: --cache {engine}")
    program = _path(engine.value, environment)
    if program is None:
        raise missing_program(engine.value)
    return engine, program

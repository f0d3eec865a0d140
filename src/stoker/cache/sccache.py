"""sccache: its server, which compiles for all clients of a run, and its counters."""

import os
import re
import shlex
from collections.abc import Iterator, Mapping
from pathlib import Path

import msgspec

from stoker.model.caching import CacheEngine, CacheStatus, CacheUse, Hits
from stoker.model.errors import StokerError
from stoker.model.value import prepared
from stoker.outside import process

_TIMEOUT_S = 30.0
_PROBE_S = 300.0  # packing and sending a toolkit of CUDA takes minutes on a busy machine
_MOST_SAID = 200
_CUDA_HOMES = ("CUDA_HOME", "CUDA_PATH")
_TOOLKITS = Path("/usr/local")  # where CMake and PyTorch look without being told


class _Counts(msgspec.Struct, frozen=True):
    counts: dict[str, int] = {}


class _Statistics(msgspec.Struct, frozen=True):
    cache_hits: _Counts = _Counts()
    cache_misses: _Counts = _Counts()
    cache_timeouts: int = 0
    cache_read_errors: int = 0
    cache_write_errors: int = 0
    dist_compiles: dict[str, int] = {}
    dist_errors: int = 0


class _Cluster(msgspec.Struct, frozen=True):
    num_cpus: int = 0


class _Answer(msgspec.Struct, frozen=True):
    stats: _Statistics
    cache_location: str = ""
    cache_size: int | None = None
    max_cache_size: int | None = None


def start_server(program: str, environment: Mapping[str, str]) -> str | None:
    """Start the server of a run; return why it did not start, if it did not.

    The server inherits the preloaded library, so that the compilers it starts are governed.
    """
    try:
        process.check([program, "--start-server"], timeout=_TIMEOUT_S, env=environment)
    except StokerError as error:
        return str(error)
    return None


def broken_compilers(program: str, environment: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Yield the compilers that a build may find and this sccache cannot start, with the reason."""
    import shutil  # most runs do not use sccache

    from stoker.knowledge.caches import remote_schemes

    engine = _version(program, environment)
    for defect in remote_schemes().defect:
        paths = {
            path
            for path in (
                environment.get("CUDACXX", ""),
                *(f"{environment.get(name, '')}/bin/{defect.compiler}" for name in _CUDA_HOMES),
                *map(str, _TOOLKITS.glob(f"cuda*/bin/{defect.compiler}")),
                shutil.which(defect.compiler, path=environment.get("PATH")) or "",
            )
            if os.access(path, os.X_OK)
        }
        for version in {_version(path, environment) for path in sorted(paths)}:
            if engine and version and defect.has(engine, version):
                yield defect.compiler, f"{defect.compiler} {version}: {defect.why}"
                break


def _version(program: str, environment: Mapping[str, str]) -> str:
    try:
        printed = process.check([program, "--version"], timeout=_TIMEOUT_S, env=environment)
    except StokerError:
        return ""
    found = re.search(r"(?:release |sccache )(\d+\.\d+)", printed)
    return found[1] if found else ""


def client_configuration(scheduler: str, token: str) -> str:
    """Return the configuration file of a client that sends compiles to a scheduler."""
    url, secret = msgspec.json.encode(scheduler).decode(), msgspec.json.encode(token).decode()
    auth = f'[dist.auth]\ntype = "token"\ntoken = {secret}\n'
    return f"[dist]\nscheduler_url = {url}\n{auth}"


def try_workers(program: str, environment: Mapping[str, str], folder: Path) -> int:
    """Have a worker compile a small file, beside all caches, and return how many compiles the
    workers take at once; raise StokerError if none does. The first time, sccache packs the compiler
    and sends it, which later compiles need not wait for.
    """
    compiler = environment.get("CXX") or "c++"
    # A server of its own, which is not governed and knows no cache but an empty one.
    own = {
        name: value
        for name, value in environment.items()
        if name == "SCCACHE_CONF" or not name.startswith(("SCCACHE_", "STOKER_", "LD_PRELOAD"))
    }
    own |= {"SCCACHE_DIR": str(folder / "cache"), "SCCACHE_SERVER_UDS": str(folder / "probe.sock")}
    (folder / "probe.cpp").write_text("double probe(double x, long n) { return x * n; }\n")
    words = [program, *shlex.split(compiler), "-c", "probe.cpp", "-o", "probe.o"]
    if problem := start_server(program, own):
        raise StokerError(problem)
    try:
        places = _places(program, own)
        done = process.run(words, timeout=_PROBE_S, env=own, cwd=folder)
        use = read_use(program, own)
    finally:
        stop_server(program, own)
    if done.ok and use.workers:
        return places
    said = [line.strip() for line in done.stderr.splitlines() if line.strip()]
    reason = said[-1] if said else "no worker has taken a small file"
    raise StokerError(reason[:_MOST_SAID])


def _places(program: str, environment: Mapping[str, str]) -> int:
    """Return how many compiles the workers take at once, as the scheduler says."""
    done = process.run([program, "--dist-status"], timeout=_TIMEOUT_S, env=environment)
    try:
        (state, details), *_ = msgspec.json.decode(done.stdout, type=dict[str, object]).items()
        if state == "SchedulerStatus":
            _, cluster = msgspec.convert(details, type=prepared(tuple[str, _Cluster]))
            if not cluster.num_cpus:
                raise StokerError("its scheduler has no workers")
            return cluster.num_cpus
    except (msgspec.MsgspecError, ValueError) as error:
        raise StokerError("its client does not answer") from error
    problem = " ".join(map(str, details)) if isinstance(details, list) else "it is not configured"
    raise StokerError(problem)


def stop_server(program: str, environment: Mapping[str, str]) -> None:
    process.run([program, "--stop-server"], timeout=_TIMEOUT_S, env=environment)


def read_use(program: str, environment: Mapping[str, str]) -> CacheUse:
    """Ask the server for its counters; nothing if it does not answer."""
    answer = _ask(program, environment)
    if answer is None:
        return CacheUse()
    stats = answer.stats
    hits, misses = stats.cache_hits.counts, stats.cache_misses.counts
    remote = "Local disk" not in answer.cache_location
    return CacheUse(
        languages={
            name: Hits(hits=hits.get(name, 0), misses=misses.get(name, 0))
            for name in sorted(hits | misses)
        },
        remote_hits=sum(hits.values()) if remote else 0,
        errors=stats.cache_timeouts + stats.cache_read_errors + stats.cache_write_errors,
        workers=stats.dist_compiles,
        fell_back=stats.dist_errors,
    )


def status(program: str, environment: Mapping[str, str]) -> CacheStatus:
    answer = _ask(program, environment)
    where = answer.cache_location if answer else ""
    folder = where.partition('"')[2].rstrip('"')
    return CacheStatus(
        engine=CacheEngine.SCCACHE,
        program=program,
        folder=folder,
        size_bytes=(answer.cache_size if answer else None) or 0,
        most_bytes=answer.max_cache_size if answer else None,
        remote=None if folder or not where else where,
        problem=None if answer else "its server does not answer",
    )


def _ask(program: str, environment: Mapping[str, str]) -> _Answer | None:
    words = [program, "--show-stats", "--stats-format", "json"]
    done = process.run(words, timeout=_TIMEOUT_S, env=environment)
    try:
        return msgspec.json.decode(done.stdout, type=prepared(_Answer)) if done.ok else None
    except msgspec.DecodeError:
        return None

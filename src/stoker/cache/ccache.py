"""ccache: its configuration, its counters, and the log of results that one run appends to."""

import os
from collections.abc import Mapping
from pathlib import Path, PurePath

from stoker.cache.chains import FoundEngine
from stoker.model.caching import CacheEngine, CacheStatus, CacheUse, Hits
from stoker.model.errors import StokerError
from stoker.model.value import byte_count
from stoker.outside import process
from stoker.outside.files import folder_problem
from stoker.outside.processes import is_static

_TIMEOUT_S = 20.0
_HITS = ("direct_cache_hit", "preprocessed_cache_hit")
_MISSES = ("cache_miss", "preprocessor_error")  # the latter also if the disk of the cache is full
_LANGUAGES = {".c": "C", ".cu": "CUDA", ".cuh": "CUDA", ".hip": "HIP", ".s": "assembler"}


def read_ccache(program: str, environment: Mapping[str, str]) -> FoundEngine:
    """Ask ccache for its configuration, and check that its folder can be written."""
    try:
        printed = process.check([program, "--show-config"], timeout=_TIMEOUT_S, env=environment)
    except StokerError as error:
        return FoundEngine(program=program, problem=str(error))
    values, own = {}, set()
    for line in printed.splitlines():
        origin, _, rest = line.partition(") ")
        name, _, value = rest.partition(" = ")
        values[name] = value
        if origin != "(default":
            own.add(name)
    folder = values.get("cache_dir", "")
    problem = folder_problem(Path(folder))  # a compile would fail, not only its caching
    static = is_static(program)
    if static and "prefix_command" in own:  # the launcher takes that place
        problem = "it is linked statically, and has a prefix of your own (CCACHE_PREFIX)"
    # An older one ignores the variable, and every object would be lost.
    remote = None if "remote_storage" in values else "this ccache has no remote storage: 4.7 has"
    return FoundEngine(
        program=program,
        folder=folder,
        own=frozenset(own),
        problem=problem,
        remote_problem=remote,
        static=static,
    )


def read_counters(program: str, environment: Mapping[str, str]) -> dict[str, int]:
    """Return ccache's own counters since they were last set to zero."""
    printed = process.check([program, "--print-stats"], timeout=_TIMEOUT_S, env=environment)
    rows = (line.split("\t") for line in printed.splitlines())
    return {row[0]: int(row[1]) for row in rows if len(row) > 1 and row[1].isdigit()}


def use_of(counters: Mapping[str, int]) -> CacheUse:
    """Return what the counters say; they are not kept by language."""
    hits = sum(counters.get(name, 0) for name in _HITS)
    return CacheUse(
        languages={"all": Hits(hits=hits, misses=counters.get("cache_miss", 0))},
        remote_hits=counters.get("remote_storage_hit", 0),
        errors=counters.get("remote_storage_error", 0) + counters.get("remote_storage_timeout", 0),
    )


def status(program: str, environment: Mapping[str, str]) -> CacheStatus:
    found = read_ccache(program, environment)
    counters = {} if found.problem else read_counters(program, environment)
    printed = process.check([program, "--get-config", "max_size"], timeout=_TIMEOUT_S)
    times = [  # when results were used last
        (Path(root) / name).stat().st_mtime
        for root, _, names in os.walk(found.folder)
        for name in names
        if name.endswith(("R", "M"))
    ]
    oldest, newest = (min(times), max(times)) if times else (None, None)
    return CacheStatus(
        engine=CacheEngine.CCACHE,
        program=program,
        folder=found.folder,
        size_bytes=counters.get("cache_size_kibibyte", 0) << 10,
        most_bytes=byte_count(printed.strip().replace(" ", "").replace("i", "").replace("B", "")),
        files=counters.get("files_in_cache"),
        oldest=oldest,
        newest=newest,
        problem=found.problem,
    )


def clear(program: str, environment: Mapping[str, str]) -> None:
    process.check([program, "--clear"], timeout=None, env=environment)
    process.check([program, "--zero-stats"], timeout=_TIMEOUT_S, env=environment)


class RunCounts:
    """Counts the results of one run from the log that ccache appends to.

    Hits never reach the governor, so nothing else sees them.
    """

    def __init__(self, log: Path):
        self._log = log
        self._read = 0
        self._language = "C++"
        self._counts: dict[str, list[int]] = {}
        self._remote_hits = 0
        self._errors = 0

    def use(self) -> CacheUse:
        """Return the counts until now; only what was added since the last call is read."""
        try:
            with self._log.open("rb") as stream:
                stream.seek(self._read)
                lines = stream.read().splitlines(keepends=True)
        except OSError:
            lines = []
        whole = [line for line in lines if line.endswith(b"\n")]
        self._read += sum(map(len, whole))
        for line in whole:
            self._count(line.decode(errors="replace").rstrip())
        return CacheUse(
            languages={
                name: Hits(hits=hits, misses=misses)
                for name, (hits, misses) in sorted(self._counts.items())
            },
            remote_hits=self._remote_hits,
            errors=self._errors,
        )

    def _count(self, line: str) -> None:
        if line.startswith("# "):
            self._language = _LANGUAGES.get(PurePath(line[2:]).suffix, "C++")
        elif line in _HITS or line in _MISSES:
            self._counts.setdefault(self._language, [0, 0])[line in _MISSES] += 1
        elif line == "remote_storage_hit":
            self._remote_hits += 1
        elif line in ("remote_storage_error", "remote_storage_timeout"):
            self._errors += 1

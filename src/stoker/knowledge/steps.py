"""What compile steps usually need: known sources, priors, and the costs of distribution."""

from collections.abc import Iterator
from fnmatch import fnmatchcase
from functools import cache, lru_cache

from msgspec.structs import replace

from stoker.knowledge import Row, load, rows, table
from stoker.model.govern import Role, Step

_MIB = 2**20


class KnownStep(Row, frozen=True, kw_only=True):
    """What a source of a well-known project took when it was measured."""

    peak: int  # bytes; of CUDA sources for one GPU target
    seconds: float  # likewise


class _Project(Row, frozen=True, kw_only=True):
    name: str
    basis: str
    steps: str  # a line for each source; a table of that many keys would take long to read


@lru_cache(maxsize=1 << 14)  # asked several times for each step
def known_step(role: Role, source: str) -> KnownStep | None:
    """Return the figures of a source that a project is known to have, wherever its tree is."""
    if role not in (Role.CXX, Role.C, Role.CUDA) or (role is Role.CUDA) != source.endswith(".cu"):
        return None
    steps = _steps()
    return next((steps[path] for path in _suffixes(source) if path in steps), None)


@cache
def _steps() -> dict[str, KnownStep]:
    return {
        path: KnownStep(peak=int(peak) * _MIB, seconds=float(seconds))
        for project in rows("known_steps", _Project)()
        for path, peak, seconds in (line.rsplit(" ", 2) for line in project.steps.splitlines())
    }


def _suffixes(path: str) -> Iterator[str]:
    """Yield the path, then the path without its first folder, and so on."""
    while path:
        yield path
        path = path.partition("/")[2]


class Prior(Row, frozen=True, kw_only=True):
    """Shipped figures for steps that were never measured; ``basis`` says where they come from."""

    role: Role
    peak: float
    high: float
    basis: str
    sources: tuple[str, ...] = ("*",)
    per_input_byte: float = 0.0
    seconds: float
    seconds_per_byte: float = 0.0


class _PriorTable(Row, frozen=True, kw_only=True):
    typical_share: float
    step: tuple[Prior, ...]


_table = table("memory_priors", _PriorTable)


def typical_share() -> float:
    """Return the mean of a step's memory over its peak, for steps of which only that is known."""
    return _table().typical_share


def priors() -> tuple[Prior, ...]:
    return _table().step


@lru_cache(maxsize=4096)  # asked when a step asks and again when it has ended
def prior_of(step: Step) -> Prior:
    """Return the first row for the step's role and source, scaled by its inputs and targets."""
    row = _row(step.role, step.source)
    inputs, times = row.per_input_byte * step.input_bytes, step.targets_at_once
    return replace(row, peak=row.peak * times + inputs, high=row.high * times + inputs)


@lru_cache(maxsize=4096)
def usual_seconds(role: Role, source: str, size: int = 0) -> float:
    """Return roughly how long such a step takes for one GPU target; ``size`` is of its source."""
    if known := known_step(role, source):
        return known.seconds
    row = _row(role, source)
    return row.seconds + row.seconds_per_byte * size


def _row(role: Role, source: str) -> Prior:
    return next(
        row
        for row in priors()
        if row.role is role and any(fnmatchcase(source, pattern) for pattern in row.sources)
    )


class ClientCosts(Row, frozen=True, kw_only=True):
    """What a compile on a worker costs the machine that builds, as
    `benchmarks/distribute_client.py` measures it with a real distcc. Shares are of the seconds that
    it takes on one machine. The simulator applies the medians to every compile of a trace.
    """

    cpu_share: float  # of the preprocessor and the client here
    worker_share: float  # of the compiler on the worker
    sent_per_client_second: float  # bytes to the worker, compressed
    object_per_second: float  # bytes from the worker
    peak: int  # bytes of memory while it preprocesses
    rest: int  # bytes while the worker compiles
    preprocessors: int  # that run at once on a machine with fewer CPUs
    basis: str


class _DistributionTable(Row, frozen=True, kw_only=True):
    client: ClientCosts


@cache
def client_costs() -> ClientCosts:
    return load("distribution", _DistributionTable).client

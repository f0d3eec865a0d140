"""What the systems that `stoker export` writes files for call their machines and packages, and the
services that the workers of a distributed compiler consist of.
"""

from functools import cache

from stoker.knowledge import Row, load
from stoker.model.export import ClusterEngine
from stoker.model.govern import Role


class MachineType(Row, frozen=True, kw_only=True):
    name: str
    cpus: int
    memory_gb: int


class _Table(Row, frozen=True, kw_only=True):
    cloudbuild: tuple[MachineType, ...]  # smallest first
    github_runner: dict[str, str]
    nix_blas: dict[str, str]


class Service(Row, frozen=True, kw_only=True):
    """One kind of container. A ``memory_mb`` of 0 means that of a worker, and a ``health_port`` of
    0 means ``port``.
    """

    name: str
    port: int
    command: str
    user: int
    image: str = ""
    memory_mb: int = 0
    health_port: int = 0
    control_port: int | None = None
    capabilities: tuple[str, ...] = ()
    privileged: bool = False
    programs: tuple[str, ...] = ()


class Crate(Row, frozen=True, kw_only=True):
    """A program that no Debian package has; cargo builds it."""

    name: str
    version: str
    features: tuple[str, ...]
    program: str


class EngineRow(Row, frozen=True, kw_only=True):
    """``before`` is what the machine that builds runs first; ``options`` are those of its build, in
    which ``host`` is one worker.
    """

    name: ClusterEngine
    security: str
    compiler: str
    roles: tuple[Role, ...]
    packages: tuple[str, ...]
    options: str
    service: tuple[Service, ...]
    host: str = ""
    before: str = ""
    slurm: str | None = None
    crate: Crate | None = None
    jobs_per_cpu: int = 1


class Clusters(Row, frozen=True, kw_only=True):
    image: str  # that the image of the workers is made from
    subnet: str
    private: tuple[str, ...]
    cache: Service
    engine: tuple[EngineRow, ...]


@cache
def clusters() -> Clusters:
    return load("clusters", Clusters)


def cluster_engine(name: ClusterEngine) -> EngineRow:
    return next(row for row in clusters().engine if row.name is name)


@cache
def _table() -> _Table:
    return load("export_targets", _Table)


def cloud_build_machine(cpus: int, memory_bytes: int) -> MachineType:
    """Return the smallest machine type that is large enough, or the largest of all."""
    rows = _table().cloudbuild
    fitting = (r for r in rows if r.cpus >= cpus and r.memory_gb * 10**9 >= memory_bytes)
    return next(fitting, rows[-1])


def github_runner(machine: str) -> str | None:
    return _table().github_runner.get(machine)


def nix_blas() -> dict[str, str]:
    return _table().nix_blas

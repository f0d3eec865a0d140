"""What `stoker export` writes, and the names of machines, packages and services there."""

from enum import StrEnum

from stoker.knowledge import Row, table
from stoker.model.errors import UsageError
from stoker.model.govern import Role
from stoker.model.plan import Plan
from stoker.model.value import Value


class ExportFormat(StrEnum):
    DOCKERFILE = "dockerfile"
    CLOUDBUILD = "cloudbuild"
    GITHUB_ACTIONS = "github-actions"
    GITLAB = "gitlab"
    SLURM = "slurm"
    KUBERNETES = "kubernetes"
    COMPOSE = "compose"
    NIX = "nix"
    FLOX = "flox"


class ExportJob(Value, frozen=True, kw_only=True):
    """One variant to build. ``image`` holds its compilers, ``folders`` are added to PATH there.
    A format that uses no image has an empty name.
    """

    plan: Plan
    name: str  # of the variant, without the platform: the builder has it
    command: tuple[str, ...]  # `stoker build ...`, without --out
    image: str
    folders: tuple[str, ...]
    python: str  # 3.12
    torch: tuple[str, ...] = ()  # what `pip install` gets for the PyTorch of an extension


class BuilderSize(Value, frozen=True, kw_only=True):
    """The machine that is asked for, and for how long."""

    cpus: int
    memory_bytes: int
    disk_bytes: int
    seconds: int


class Export(Value, frozen=True, kw_only=True):
    format: ExportFormat
    source: str
    requirement: str  # what pip installs to get stoker
    size: BuilderSize
    jobs: tuple[ExportJob, ...]
    project: str | None = None  # the recipe of the source, as far as its name tells
    shards: int = 0  # jobs that compile each variant together; 0: one job builds it


class WorkerSize(Value, frozen=True, kw_only=True):
    """``basis`` says where the memory limit comes from."""

    cpus: int
    memory_bytes: int
    basis: str


class ClusterExport(Value, frozen=True, kw_only=True):
    """Workers for an existing cluster. ``allowed`` are the networks that may use them; empty means
    the default of the format.
    """

    format: ExportFormat
    image: str
    workers: int
    worker: WorkerSize
    disk_bytes: int
    seconds: int
    allowed: tuple[str, ...] = ()


class ExportedFile(Value, frozen=True, kw_only=True):
    path: str
    text: str


class MachineType(Row, frozen=True, kw_only=True):
    name: str
    cpus: int
    memory_gb: int


class _Table(Row, frozen=True, kw_only=True):
    cloudbuild: tuple[MachineType, ...]  # smallest first
    github_runner: dict[str, str]
    nix_blas: dict[str, str]
    most_jobs: dict[str, int]


class Service(Row, frozen=True, kw_only=True):
    """One kind of container. Its user 0 is root with all rights. A ``memory_mb`` of 0 means that of
    a worker.
    """

    name: str
    port: int
    command: str
    user: int
    image: str = ""
    memory_mb: int = 0


class Clusters(Row, frozen=True, kw_only=True):
    """``base`` is the image that those of the workers are made from, with ``packages`` and with
    ``requirement``, which pip installs.
    """

    base: str
    packages: tuple[str, ...]
    requirement: str
    security: str
    compiler: str
    roles: tuple[Role, ...]
    jobs_per_cpu: int
    subnet: str
    private: tuple[str, ...]
    service: tuple[Service, ...]


clusters = table("clusters", Clusters)


def cluster_service(name: str) -> Service:
    return next(row for row in clusters().service if row.name == name)


_table = table("export_targets", _Table)


def cloud_build_machine(cpus: int, memory_bytes: int) -> MachineType:
    """Return the smallest machine type that is large enough, or the largest of all."""
    rows = _table().cloudbuild
    fitting = (r for r in rows if r.cpus >= cpus and r.memory_gb * 10**9 >= memory_bytes)
    return next(fitting, rows[-1])


def github_runner(job: ExportJob) -> str:
    """Return the hosted runner of GitHub for a job; raise UsageError if there is none."""
    machine = job.plan.platform.cpu
    runner = _table().github_runner.get(machine)
    if runner is None:
        raise UsageError(f"GitHub has no hosted runner for {machine}")
    return runner


def most_jobs(form: ExportFormat) -> int | None:
    """Return how many parallel jobs a system allows: GitHub in a run, GitLab for a variant."""
    return _table().most_jobs.get(form)


def nix_blas() -> dict[str, str]:
    return _table().nix_blas

"""A build, or the workers of a distributed compiler, as files of another system."""

from enum import StrEnum

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


class ClusterEngine(StrEnum):
    """What distributes compiles; the words of ``--cluster``."""

    DISTCC = "distcc"
    ICECC = "icecc"
    SCCACHE_DIST = "sccache-dist"


class WorkerSize(Value, frozen=True, kw_only=True):
    """``basis`` says where the memory limit comes from."""

    cpus: int
    jobs: int
    memory_bytes: int
    basis: str


class ClusterExport(Value, frozen=True, kw_only=True):
    """Workers for an existing cluster. ``allowed`` are the networks that may use them; empty means
    the default of the format.
    """

    format: ExportFormat
    engine: ClusterEngine
    image: str
    workers: int
    worker: WorkerSize
    disk_bytes: int
    seconds: int
    allowed: tuple[str, ...] = ()


class ExportedFile(Value, frozen=True, kw_only=True):
    path: str
    text: str

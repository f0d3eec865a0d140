"""A build of one or more variants as files of another system: a Dockerfile, a CI workflow, ..."""

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
    NIX = "nix"
    FLOX = "flox"


class ExportJob(Value, frozen=True, kw_only=True):
    """One variant to build. ``image`` holds its compilers, ``folders`` are added to PATH there."""

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


class ExportedFile(Value, frozen=True, kw_only=True):
    path: str
    text: str

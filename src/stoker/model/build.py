"""A build as it is asked for, as it goes, and as it is remembered."""

from enum import StrEnum

from stoker.model.plan import Plan
from stoker.model.runs import RunSummary
from stoker.model.value import Value


class Stage(StrEnum):
    """What a build consists of, in order. Which of them a project has, its recipe says."""

    PREPARE = "prepare"
    CONFIGURE = "configure"
    CODEGEN = "codegen"
    COMPILE = "compile"
    INSTALL = "install"
    WHEEL = "wheel"
    PACKAGE = "package"
    VERIFY = "verify"


class StageEnd(StrEnum):
    DONE = "done"
    SKIPPED = "skipped"  # nothing that goes into it has changed
    FAILED = "failed"


class StageResult(Value, frozen=True, kw_only=True):
    """``why``: of a stage that was skipped or failed, in words."""

    stage: Stage
    end: StageEnd
    seconds: float
    log: str  # a file of the run folder
    why: str = ""


class Isolation(StrEnum):
    """Which Python packages a build back end sees."""

    NONE = "none"  # those that are installed
    FULL = "full"  # only those the project asks for, in an environment of its own
    TORCH = "torch"  # the same, but the PyTorch that is installed instead of one from the index


class BuildRequest(Value, frozen=True, kw_only=True):
    """What is asked for beside the plan. ``source`` is what was said: a folder, archive, URL..."""

    source: str
    tag: str | None = None  # of git
    out: str = "dist"
    mode: str = "plain"  # of packaging
    target: str | None = None  # only this one of the build tool's
    install_tree: bool = False
    editable: bool = False
    fresh: bool = False
    in_ram: bool = False  # the build folder lies in memory
    verbose: bool = False
    isolation: Isolation | None = None  # None: as fits the kind of project


class GitState(Value, frozen=True, kw_only=True):
    commit: str
    changed: bool  # files that are not as in the commit
    time: int  # of the commit, in seconds since 1970
    origin: str | None = None


class BuildRecord(Value, frozen=True, kw_only=True):
    """record.json of a run folder: enough to repeat the build, and to tell how it went."""

    stoker: str
    began: float  # seconds since 1970
    request: BuildRequest
    options: dict[str, str]  # said on the command line, as are the two below
    features: tuple[str, ...] = ()
    defines: dict[str, str] = {}
    tree: str
    work: str  # folder of what the build keeps for the next one
    plan: Plan
    environment: dict[str, str]  # without secrets
    tools: dict[str, str] = {}  # versions
    git: GitState | None = None
    stages: tuple[StageResult, ...] = ()
    outputs: tuple[str, ...] = ()
    summary: RunSummary | None = None  # of the governor

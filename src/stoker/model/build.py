"""A build: the request, its stages, and the record that it leaves."""

from collections.abc import Mapping
from enum import StrEnum
from typing import Any

import msgspec

from stoker.model.plan import Plan
from stoker.model.runs import RunSummary
from stoker.model.value import Bytes, Value, prepared


class BuildStage(StrEnum):
    """The stages of a build, in order. The kind of project decides which of them it has."""

    PREPARE = "prepare"
    CONFIGURE = "configure"
    CODEGEN = "codegen"
    COMPILE = "compile"
    INSTALL = "install"
    WHEEL = "wheel"
    PACKAGE = "package"
    VERIFY = "verify"


class StageEnd(StrEnum):
    """How a stage stands. ``RUNNING`` is never in a record."""

    RUNNING = "running"
    DONE = "done"
    SKIPPED = "skipped"  # its inputs are unchanged
    FAILED = "failed"
    INTERRUPTED = "interrupted"


class StageResult(Value, frozen=True, kw_only=True):
    """``why``: the reason to run the stage, or the error of one that failed."""

    stage: BuildStage
    end: StageEnd
    wall_s: float
    log: str  # a file of the run folder
    why: str = ""


class Isolation(StrEnum):
    """The Python packages that a build back end sees."""

    NONE = "none"  # the installed ones
    FULL = "full"  # only those that the project requires, in an environment of its own
    TORCH = "torch"  # the same, with the installed PyTorch instead of one from the index


class BuildRequest(Value, frozen=True, kw_only=True):
    """What to build and how to deliver it. ``source``: a folder, an archive, a URL or a package."""

    source: str
    tag: str | None = None  # a git tag, branch or commit
    out: str = "dist"
    mode: str = "auto"  # where libraries that a wheel needs come from
    label: str | None = None  # local version label; "auto": the variant's
    target: str | None = None  # build only this target of the build tool
    install_tree: bool = False
    editable: bool = False
    fresh: bool = False
    in_ram: bool = False  # keep the build folder in memory
    verbose: bool = False
    isolation: Isolation | None = None  # None: chosen by the kind of project
    torch: str | None = None  # a version or a requirement: installed for the build only
    torch_index: str | None = None  # the package index that has it
    accept_targets: bool = False  # also those that the plan does not state
    ask: bool | None = None  # ask the build what it compiles; None: if nothing else says it

    def given(self, settings: Mapping[str, Any]) -> "BuildRequest":
        """Return the request with the settings that it has a field for, unless they are None."""
        said = {name: settings.get(name) for name in self.__struct_fields__}
        changes = {name: value for name, value in said.items() if value is not None}
        return msgspec.convert(msgspec.structs.asdict(self) | changes, prepared(BuildRequest))


class GitState(Value, frozen=True, kw_only=True):
    commit: str
    changed: bool  # some files differ from the commit
    time: int  # of the commit, in seconds since 1970
    origin: str | None = None


class BuildRecord(Value, frozen=True, kw_only=True):
    """record.json of a run folder: enough to repeat the build and to see how it went."""

    stoker: str
    started: float  # seconds since 1970
    request: BuildRequest
    options: dict[str, str]  # from the command line, like the next two
    features: tuple[str, ...] = ()
    defines: dict[str, str] = {}
    tree: str
    work: str  # folder that the next build of this tree and variant continues in
    plan: Plan
    environment: dict[str, str]  # without secrets
    tools: dict[str, str] = {}  # versions
    git: GitState | None = None
    stages: tuple[StageResult, ...] = ()
    outputs: tuple[str, ...] = ()
    summary: RunSummary | None = None  # of the governor
    largest_step_bytes: Bytes | None = None
    wheel_bytes: Bytes | None = None
    kernels: dict[str, tuple[str, ...]] = {}  # sources with device code that this build compiled
    error: str | None = None  # None: the build succeeded


class MeasuredBuild(Value, frozen=True, kw_only=True):
    """Figures of a finished build, for estimates of the next one."""

    date: str
    cpu_seconds: float
    largest_step_bytes: Bytes | None = None
    wheel_bytes: Bytes | None = None

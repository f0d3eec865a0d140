"""The targets of a build folder, what each of them needs, and what a change rebuilds."""

from enum import StrEnum

from stoker.model.value import Value


class GraphTargetKind(StrEnum):
    GENERATES = "code generation"
    STATIC = "static library"
    SHARED = "shared library"
    MODULE = "module"
    OBJECTS = "object library"
    EXECUTABLE = "executable"
    COMMANDS = "commands"  # custom commands that no compile depends on
    OTHER = "other"


class GraphTarget(Value, frozen=True, kw_only=True):
    """All steps of one target. ``needs`` leaves out what another target in it needs anyway.

    ``wall_s`` is the sum over the ``timed`` steps, ``peak_bytes`` the largest step.
    """

    name: str
    kind: GraphTargetKind
    steps: int
    timed: int
    wall_s: float
    peak_bytes: int | None
    needs: tuple[str, ...]
    outputs: tuple[str, ...] = ()  # libraries and programs


class Blocker(Value, frozen=True, kw_only=True):
    """A target that must end before compiles of other targets can start.

    ``wall_s`` is the earliest time at which it can have ended, with unlimited CPUs.
    """

    target: str
    compiles: int
    wall_s: float


class PathStep(Value, frozen=True, kw_only=True):
    """A step of the critical path."""

    output: str
    target: str
    wall_s: float


class ImpactStep(Value, frozen=True, kw_only=True):
    output: str
    target: str
    wall_s: float | None  # None: it was never measured


class Impact(Value, frozen=True, kw_only=True):
    """What a change to ``file`` rebuilds, in the order of the build.

    A generator that writes the same content again saves the steps after it, which cannot be known
    before it runs. ``configures``: CMake runs again first, and may change more.
    """

    file: str
    configures: bool
    steps: tuple[ImpactStep, ...]
    wall_s: float  # sum over the steps
    path_s: float  # longest chain of dependent steps


class BuildGraph(Value, frozen=True, kw_only=True):
    """``targets`` are in the order of the build. ``ready`` compiles can start at once."""

    folder: str
    has_reply: bool  # CMake's file API names the targets; else they come from build.ninja
    targets: tuple[GraphTarget, ...]
    steps: int
    timed: int
    wall_s: float
    compiles: int
    ready: int
    blockers: tuple[Blocker, ...]
    path: tuple[PathStep, ...]  # critical path, first step first
    impact: Impact | None = None

    @property
    def path_s(self) -> float:
        return sum(step.wall_s for step in self.path)

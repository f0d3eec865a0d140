"""Measured figures of whole builds: memory, time, disk, wheel size."""

from stoker.knowledge import Row, table
from stoker.model.source import ProjectKind
from stoker.model.variant import Backend


class BuildFigures(Row, frozen=True, kw_only=True):
    project: ProjectKind
    backend: Backend
    basis: str
    name: str | None = None
    release: str | None = None  # of PyTorch, whose newer releases need more
    cpu_seconds: tuple[float, float] | None = None  # from, to
    kernel_seconds: tuple[float, float] | None = None  # besides, for each GPU target
    largest_step: int | None = None
    needs_feature: str | None = None  # if it is off, the figures do not apply
    without_feature: str | None = None  # it was off: with it, a build takes more
    disk: int | None = None  # bytes written by the whole build
    disk_at_least: bool = False


class HeavyRow(Row, frozen=True, kw_only=True):
    project: ProjectKind
    pattern: str
    bytes: int
    basis: str
    name: str | None = None  # of one project; None: all of this kind
    backend: Backend | None = None


class WheelFigures(Row, frozen=True, kw_only=True):
    torch: str
    cuda: str
    base: int
    targets: dict[str, int]
    basis: str


class CompileFigures(Row, frozen=True, kw_only=True):
    """What one compile of a project that was never measured takes, from and to."""

    device: bool
    with_torch: bool = False  # the source includes all headers of PyTorch
    seconds: tuple[float, float]  # of CPU time, the mean of all such compiles, for one target
    longest_seconds: float = 0.0  # of a single one, if it is more
    basis: str
    bytes: tuple[int, int]  # of the largest one
    bytes_basis: str


class SlimFigures(Row, frozen=True, kw_only=True):
    """A wheel of ``bytes`` slimmed and verified. More than ``cpus`` were not measured."""

    bytes: int
    cpu_seconds: float
    cpus: int
    basis: str


class Estimates(Row, frozen=True, kw_only=True):
    build: tuple[BuildFigures, ...]
    heavy: tuple[HeavyRow, ...]
    wheel: tuple[WheelFigures, ...]
    compiles: tuple[CompileFigures, ...]
    further_target: float  # part of a compile for one target that each further one takes at least
    slower_cpu: float  # times as long as on the CPU on which sources of well-known projects ran
    torch_headers: frozenset[str]  # headers that declare all operators of PyTorch
    slim: SlimFigures


estimates = table("estimates", Estimates)

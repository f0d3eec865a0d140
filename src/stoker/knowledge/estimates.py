"""Measured figures of whole builds: memory, time, disk, wheel size."""

from functools import cache

from stoker.knowledge import Row, load
from stoker.model.source import ProjectKind
from stoker.model.variant import Backend


class BuildFigures(Row, frozen=True, kw_only=True):
    project: ProjectKind
    backend: Backend
    basis: str
    name: str | None = None
    cpu_seconds: float | None = None
    largest_step: int | None = None
    needs_feature: str | None = None  # if it is off, the figures do not apply
    disk: int | None = None


class HeavyRow(Row, frozen=True, kw_only=True):
    project: ProjectKind
    pattern: str
    bytes: int
    basis: str
    backend: Backend | None = None


class WheelFigures(Row, frozen=True, kw_only=True):
    torch: str
    cuda: str
    base: int
    targets: dict[str, int]
    basis: str


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
    slim: SlimFigures


@cache
def estimates() -> Estimates:
    return load("estimates", Estimates)

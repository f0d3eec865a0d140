"""Shipped figures for steps that were never measured, each with its source."""

from fnmatch import fnmatchcase
from functools import cache, lru_cache

from msgspec.structs import replace

from stoker.knowledge import Row, load
from stoker.knowledge.known_steps import known_step
from stoker.model.govern import Role, Step


class Prior(Row, frozen=True, kw_only=True):
    role: Role
    peak: float
    high: float
    basis: str
    sources: tuple[str, ...] = ("*",)
    per_input_byte: float = 0.0
    seconds: float
    seconds_per_byte: float = 0.0


class _Table(Row, frozen=True, kw_only=True):
    step: tuple[Prior, ...]


@cache
def priors() -> tuple[Prior, ...]:
    return load("memory_priors", _Table).step


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
